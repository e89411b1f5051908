//! Metrics of GPUs and their instances. Each series of a GPU has the labels `uuid` and `gpu`; all
//! other facts are labels of `gpukill_gpu_info`.

use super::encoder::{Encoder, Kind, Sample};
use crate::upstream::Frame;
use gpukill_proto::json::{BackendDocument, GpuDocument, InstanceDocument};
use gpukill_proto::model::{Device, ThrottleReasons};

/// A GPU as its document, in which only fresh values are present, and as the daemon reported it.
#[derive(Clone, Copy)]
struct Gpu<'a> {
    document: &'a GpuDocument,
    device: &'a Device,
}

struct GpuMetric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    values: Values,
}

enum Values {
    /// At most one.
    One(fn(&GpuDocument) -> Option<f64>),
    /// One for each value of a label.
    Each(&'static str, fn(Gpu<'_>) -> Vec<(String, f64)>),
}

/// Defines the metrics: name, kind and help, then the value, or a label and a value for each of its
/// values.
macro_rules! metrics {
    ($($name:literal $kind:ident $help:literal $(by $label:literal)? |$gpu:ident| $value:expr;)*) => {
        &[$(GpuMetric {
            name: $name,
            kind: Kind::$kind,
            help: $help,
            values: metrics!(@values $($label)? |$gpu| $value),
        },)*]
    };
    (@values |$gpu:ident| $value:expr) => { Values::One(|$gpu| $value) };
    (@values $label:literal |$gpu:ident| $value:expr) => { Values::Each($label, |$gpu| $value) };
}

/// Every metric of a GPU other than its facts.
static METRICS: &[GpuMetric] = metrics! {
    "gpukill_gpu_state" Gauge "1 for the state of the GPU, 0 for the other states."
        by "state" |gpu| one_of(state(gpu.document), &["ok", "lost", "unknown", "suspended"]);
    "gpukill_gpu_utilization_ratio" Gauge "Share of time in which a kernel ran."
        |gpu| ratio(gpu.util_pct);
    "gpukill_gpu_encoder_utilization_ratio" Gauge
        "Share of time in which the video encoder was busy."
        |gpu| ratio(gpu.encoder_util_pct);
    "gpukill_gpu_decoder_utilization_ratio" Gauge
        "Share of time in which the video decoder was busy."
        |gpu| ratio(gpu.decoder_util_pct);
    "gpukill_gpu_memory_controller_utilization_ratio" Gauge
        "Share of time in which the memory controller was busy; not the share of memory in use."
        |gpu| ratio(gpu.mem_util_pct);
    "gpukill_gpu_memory_total_bytes" Gauge "Physical memory."
        |gpu| count(gpu.mem_total_bytes);
    "gpukill_gpu_memory_used_bytes" Gauge
        "Memory in use, without the memory that the driver reserves."
        |gpu| count(gpu.mem_used_bytes);
    "gpukill_gpu_memory_reserved_bytes" Gauge "Memory that the driver reserves for itself."
        |gpu| count(gpu.mem_reserved_bytes);
    "gpukill_gpu_memory_unattributed_bytes" Gauge "Used memory that no process explains."
        |gpu| count(gpu.mem_unattributed_bytes);
    "gpukill_gpu_gtt_total_bytes" Gauge "Host memory that the GPU can use (AMD)."
        |gpu| count(gpu.gtt_total_bytes);
    "gpukill_gpu_gtt_used_bytes" Gauge "Host memory that the GPU uses (AMD)."
        |gpu| count(gpu.gtt_used_bytes);
    "gpukill_gpu_temperature_celsius" Gauge "Temperature."
        by "sensor" |gpu| known([
            ("die", gpu.document.temp_c.map(f64::from)),
            ("memory", gpu.document.mem_temp_c.map(f64::from)),
            ("hotspot", gpu.document.hotspot_temp_c.map(f64::from)),
        ]);
    "gpukill_gpu_power_watts" Gauge "Power draw." |gpu| gpu.power_w;
    "gpukill_gpu_power_limit_watts" Gauge "Enforced power limit." |gpu| gpu.power_limit_w;
    "gpukill_gpu_fan_speed_ratio" Gauge
        "Intended speed of the first fan, as a share of its maximum."
        |gpu| ratio(gpu.fan_pct);
    "gpukill_gpu_fan_speed_rpm" Gauge "Speed of the fastest fan in revolutions per minute."
        |gpu| gpu.fan_rpm.map(f64::from);
    "gpukill_gpu_clock_hertz" Gauge "Current clock."
        by "domain" |gpu| known([
            ("graphics", hertz(gpu.document.clock_graphics_mhz)),
            ("sm", hertz(gpu.document.clock_sm_mhz)),
            ("memory", hertz(gpu.document.clock_mem_mhz)),
            ("video", hertz(gpu.document.clock_video_mhz)),
        ]);
    "gpukill_gpu_clock_max_hertz" Gauge "Maximum clock."
        by "domain" |gpu| known([
            ("sm", hertz(gpu.document.clock_sm_max_mhz)),
            ("memory", hertz(gpu.document.clock_mem_max_mhz)),
        ]);
    "gpukill_gpu_performance_state" Gauge "From 0, the fastest, to 15."
        |gpu| gpu.performance_state.map(f64::from);
    "gpukill_gpu_throttled" Gauge
        "1 for each reason why the clocks are reduced now, 0 for the other reasons."
        by "reason" |gpu| throttled(gpu.document);
    "gpukill_gpu_ecc_errors_total" Counter "ECC errors since the driver was loaded."
        by "kind" |gpu| known([
            ("corrected", count(gpu.document.ecc_volatile_corrected)),
            ("uncorrected", count(gpu.document.ecc_volatile)),
        ]);
    "gpukill_gpu_ecc_errors_lifetime_total" Counter "ECC errors over the life of the GPU."
        by "kind" |gpu| known([
            ("corrected", count(gpu.document.ecc_aggregate_corrected)),
            ("uncorrected", count(gpu.document.ecc_aggregate)),
        ]);
    "gpukill_gpu_remapped_rows" Gauge "Memory rows replaced by spare rows."
        by "cause" |gpu| known([
            ("correctable", count(gpu.document.remapped_rows.map(|rows| rows.correctable))),
            ("uncorrectable", count(gpu.document.remapped_rows.map(|rows| rows.uncorrectable))),
        ]);
    "gpukill_gpu_remap_pending" Gauge "Whether memory rows are replaced only after a reset."
        |gpu| flag(gpu.remapped_rows?.pending);
    "gpukill_gpu_remap_failed" Gauge
        "Whether memory rows could not be replaced: the GPU should be exchanged."
        |gpu| flag(gpu.remapped_rows?.failed);
    "gpukill_gpu_retired_pages" Gauge "Memory pages taken out of use."
        |gpu| count(gpu.retired_pages.map(|it| it.single_bit.saturating_add(it.double_bit)));
    "gpukill_gpu_bad_pages" Gauge "Bad memory pages, in use or not (AMD)."
        |gpu| count(gpu.bad_pages);
    "gpukill_gpu_recovery_advised" Gauge
        "1 for the action that the driver recommends, 0 for the other actions."
        by "action" |gpu| {
            let action = gpu.document.recovery_action.as_deref();
            action.map_or_else(Vec::new, |action| one_of(action, &RECOVERY_ACTIONS))
        };
    "gpukill_gpu_xid_last_timestamp_seconds" Gauge
        "Time of the last XID error since gpukilld started."
        by "xid" |gpu| {
            let last = gpu.device.last_xid.as_ref();
            let last = last.and_then(|it| Some((it.kind.xid()?.to_string(), seconds(it.at.0))));
            last.into_iter().collect()
        };
    "gpukill_gpu_pcie_link_generation" Gauge "Current PCIe generation; an idle GPU lowers it."
        |gpu| gpu.pcie_gen.map(f64::from);
    "gpukill_gpu_pcie_link_generation_max" Gauge "Highest PCIe generation of GPU and slot."
        |gpu| gpu.pcie_gen_max.map(f64::from);
    "gpukill_gpu_pcie_link_width" Gauge "Current number of PCIe lanes."
        |gpu| gpu.pcie_width.map(f64::from);
    "gpukill_gpu_pcie_link_width_max" Gauge "Highest number of PCIe lanes of GPU and slot."
        |gpu| gpu.pcie_width_max.map(f64::from);
    "gpukill_gpu_processes" Gauge "Processes that use the GPU."
        |gpu| gpu.pids.map(f64::from);
    "gpukill_gpu_stale_readings" Gauge
        "Values that are older than the snapshot, and have no series."
        |gpu| {
            // Fields in MiB repeat fields in bytes.
            let stale = gpu.reasons.iter().filter(|(field, why)| {
                why.starts_with("stale") && !field.ends_with("_mb")
            });
            Some(from_count(stale.count()))
        };
};

/// The actions that a driver may recommend, as their documents name them.
const RECOVERY_ACTIONS: [&str; 6] = [
    "none",
    "reset",
    "reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex",
];

/// Adds the metrics of all GPUs.
pub(super) fn encode(encoder: &mut Encoder, frame: &Frame) {
    let documents = frame.list.gpus.iter();
    let gpus: Vec<Gpu<'_>> = documents
        .zip(&frame.annotated.snapshot.devices)
        .map(|(document, device)| Gpu { document, device })
        .collect();
    encoder.family(
        "gpukill_gpu_info",
        Kind::Gauge,
        "Facts about the GPU as labels; always 1.",
        gpus.iter()
            .map(|gpu| info(gpu.document, &frame.list.backends)),
    );
    for metric in METRICS {
        let samples = gpus.iter().flat_map(|gpu| samples(metric, *gpu));
        encoder.family(metric.name, metric.kind, metric.help, samples);
    }
    encode_instances(encoder, &gpus);
}

fn samples(metric: &GpuMetric, gpu: Gpu<'_>) -> Vec<Sample> {
    match metric.values {
        Values::One(value) => {
            let value = value(gpu.document);
            value
                .map(|value| Sample::new(labels(gpu.document), value))
                .into_iter()
                .collect()
        }
        Values::Each(label, values) => {
            let values = values(gpu).into_iter().map(|(which, value)| {
                let mut labels = labels(gpu.document);
                labels.push((label, which));
                Sample::new(labels, value)
            });
            values.collect()
        }
    }
}

/// The labels of every series of a GPU.
pub(super) fn labels(gpu: &GpuDocument) -> Vec<(&'static str, String)> {
    vec![("uuid", gpu.id.clone()), ("gpu", gpu.gpu_index.to_string())]
}

fn info(gpu: &GpuDocument, backends: &[BackendDocument]) -> Sample {
    let driver = backends.iter().find(|backend| backend.name == gpu.vendor);
    let mut labels = labels(gpu);
    labels.extend([
        ("name", gpu.name.clone().unwrap_or_default()),
        ("vendor", gpu.vendor.to_owned()),
        ("pci", gpu.pci.clone().unwrap_or_default()),
        (
            "driver",
            driver.and_then(|it| it.driver.clone()).unwrap_or_default(),
        ),
    ]);
    Sample::new(labels, 1.0)
}

fn encode_instances(encoder: &mut Encoder, gpus: &[Gpu<'_>]) {
    let instances = || {
        let all = gpus.iter().map(|gpu| gpu.document);
        all.flat_map(|gpu| gpu.instances.iter().map(move |instance| (gpu, instance)))
    };
    let name = |instance: &InstanceDocument| {
        format!("{}/{}", instance.gpu_instance, instance.compute_instance)
    };
    encoder.family(
        "gpukill_mig_info",
        Kind::Gauge,
        "Facts about the MIG instance as labels; always 1.",
        instances().map(|(gpu, instance)| {
            let mut labels = labels(gpu);
            labels.extend([
                ("mig", name(instance)),
                ("gpu_instance", instance.gpu_instance.to_string()),
                ("mig_uuid", instance.uuid.clone()),
                ("profile", instance.profile.clone().unwrap_or_default()),
            ]);
            Sample::new(labels, 1.0)
        }),
    );
    encoder.family(
        "gpukill_mig_processes",
        Kind::Gauge,
        "Processes that use the MIG instance.",
        instances().filter_map(|(gpu, instance)| {
            let mut labels = labels(gpu);
            labels.push(("mig", name(instance)));
            Some(Sample::new(labels, f64::from(instance.pids?)))
        }),
    );
    // The compute instances of a GPU instance share its memory, so that it has one series: sums
    // would count it more than once.
    let is_first = |gpu: &GpuDocument, instance: &InstanceDocument| {
        let mut same = gpu.instances.iter();
        let first = same.find(|it| it.gpu_instance == instance.gpu_instance);
        first.is_some_and(|first| first.compute_instance == instance.compute_instance)
    };
    let memory = |value: fn(&InstanceDocument) -> Option<u64>| {
        instances().filter_map(move |(gpu, instance)| {
            let value = count(value(instance))?;
            let mut labels = labels(gpu);
            labels.push(("gpu_instance", instance.gpu_instance.to_string()));
            is_first(gpu, instance).then(|| Sample::new(labels, value))
        })
    };
    encoder.family(
        "gpukill_mig_memory_total_bytes",
        Kind::Gauge,
        "Memory of the GPU instance.",
        memory(|instance| instance.mem_total_bytes),
    );
    encoder.family(
        "gpukill_mig_memory_used_bytes",
        Kind::Gauge,
        "Memory in use in the GPU instance.",
        memory(|instance| instance.mem_used_bytes),
    );
}

/// The state of a GPU, in the words of the metric.
fn state(gpu: &GpuDocument) -> &'static str {
    match (gpu.state, gpu.suspended) {
        ("ok", Some(true)) => "suspended",
        ("ok", _) => "ok",
        ("lost" | "gone", _) => "lost",
        _ => "unknown",
    }
}

fn throttled(gpu: &GpuDocument) -> Vec<(String, f64)> {
    let Some(reasons) = &gpu.throttle_reasons else {
        return Vec::new();
    };
    // All reasons that have a name.
    let named = ThrottleReasons::from_nvml(0x1ff).0;
    let flags = named.into_iter().map(|name| {
        let is_set = reasons.contains(&name);
        (name, f64::from(u8::from(is_set)))
    });
    flags.collect()
}

#[expect(clippy::unnecessary_wraps, reason = "it is the value of a metric")]
fn flag(is_set: bool) -> Option<f64> {
    Some(f64::from(u8::from(is_set)))
}

/// 1 for the current word and 0 for the others. A word that is not among them is added.
fn one_of(current: &str, words: &[&str]) -> Vec<(String, f64)> {
    let flags = words
        .iter()
        .map(|word| ((*word).to_owned(), f64::from(u8::from(*word == current))));
    let other = (!words.contains(&current)).then(|| (current.to_owned(), 1.0));
    flags.chain(other).collect()
}

fn known<const N: usize>(values: [(&str, Option<f64>); N]) -> Vec<(String, f64)> {
    let known = values.into_iter();
    known
        .filter_map(|(word, value)| Some((word.to_owned(), value?)))
        .collect()
}

fn ratio(percent: Option<u32>) -> Option<f64> {
    percent.map(|percent| f64::from(percent) / 100.0)
}

fn hertz(megahertz: Option<u32>) -> Option<f64> {
    megahertz.map(|megahertz| f64::from(megahertz) * 1e6)
}

#[expect(clippy::cast_precision_loss, reason = "53 bits hold 8 PiB exactly")]
pub(super) fn count(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

/// A number of things in memory.
pub(super) fn from_count(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Milliseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
pub(super) fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_word_is_the_only_one_that_is_set() {
        let at = |word: &str, value| (word.to_owned(), value);
        assert_eq!(one_of("b", &["a", "b"]), [at("a", 0.0), at("b", 1.0)]);
        assert_eq!(one_of("7", &["a"]), [at("a", 0.0), at("7", 1.0)]);
    }

    #[test]
    fn metric_names_are_unique_and_counters_are_named_so() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            let is_counter = metric.kind == Kind::Counter;
            assert_eq!(
                metric.name.ends_with("_total"),
                is_counter,
                "{}",
                metric.name
            );
            assert!(metric.name.starts_with("gpukill_gpu_"), "{}", metric.name);
        }
    }
}
