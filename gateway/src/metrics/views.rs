//! The metrics under the names of two other exporters, so that their boards and alerts work here:
//! dcgm-exporter of NVIDIA, and GPM. As under the own names, a value that is unknown or stale has no
//! series, and a part of a GPU never repeats the value of the whole.

use super::encoder::{Encoder, Kind, Sample};
use super::gpus::count;
use crate::upstream::Frame;
use gpukill_proto::json::GpuDocument;
use gpukill_proto::model::Device;
use gpukill_proto::reading::Reading;
use gpukill_proto::status::DaemonStatus;

/// The names of another exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherNames {
    /// Those of dcgm-exporter: memory in MiB, clocks in MHz, shares in percent.
    Dcgm,
    /// Those of GPM.
    Gpumon,
}

/// A GPU as its document, in which only fresh values are present, and what the document lacks.
struct ViewedGpu<'a> {
    document: &'a GpuDocument,
    device: &'a Device,
    /// In millijoules.
    energy: Option<u64>,
}

struct ViewMetric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&ViewedGpu<'_>) -> Option<f64>,
}

/// Defines the metrics: name, kind and help, then the value.
macro_rules! view_metrics {
    ($($name:literal $kind:ident $help:literal |$gpu:ident| $value:expr;)*) => {
        &[$(ViewMetric {
            name: $name,
            kind: Kind::$kind,
            help: $help,
            value: |$gpu| $value,
        },)*]
    };
}

/// The metrics of dcgm-exporter that gpukilld knows.
static DCGM: &[ViewMetric] = view_metrics! {
    "DCGM_FI_DEV_SM_CLOCK" Gauge "Clock of the multiprocessors in MHz."
        |gpu| gpu.document.clock_sm_mhz.map(f64::from);
    "DCGM_FI_DEV_MEM_CLOCK" Gauge "Memory clock in MHz."
        |gpu| gpu.document.clock_mem_mhz.map(f64::from);
    "DCGM_FI_DEV_VIDEO_CLOCK" Gauge "Clock of the video engines in MHz."
        |gpu| gpu.document.clock_video_mhz.map(f64::from);
    "DCGM_FI_DEV_GPU_TEMP" Gauge "Temperature of the die in degrees Celsius."
        |gpu| gpu.document.temp_c.map(f64::from);
    "DCGM_FI_DEV_MEMORY_TEMP" Gauge "Temperature of the memory in degrees Celsius."
        |gpu| gpu.document.mem_temp_c.map(f64::from);
    "DCGM_FI_DEV_POWER_USAGE" Gauge "Power draw in watts."
        |gpu| gpu.document.power_w;
    "DCGM_FI_DEV_POWER_MGMT_LIMIT" Gauge "Enforced power limit in watts."
        |gpu| gpu.document.power_limit_w;
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" Counter
        "Energy drawn since the driver was loaded, in millijoules."
        |gpu| count(gpu.energy);
    "DCGM_FI_DEV_FAN_SPEED" Gauge "Intended speed of the first fan in percent."
        |gpu| gpu.document.fan_pct.map(f64::from);
    "DCGM_FI_DEV_PSTATE" Gauge "Performance state from 0, the fastest, to 15."
        |gpu| gpu.document.performance_state.map(f64::from);
    "DCGM_FI_DEV_GPU_UTIL" Gauge "Share of time in which a kernel ran, in percent."
        |gpu| gpu.document.util_pct.map(f64::from);
    "DCGM_FI_DEV_MEM_COPY_UTIL" Gauge
        "Share of time in which the memory controller was busy, in percent."
        |gpu| gpu.document.mem_util_pct.map(f64::from);
    "DCGM_FI_DEV_ENC_UTIL" Gauge "Share of time in which the video encoder was busy, in percent."
        |gpu| gpu.document.encoder_util_pct.map(f64::from);
    "DCGM_FI_DEV_DEC_UTIL" Gauge "Share of time in which the video decoder was busy, in percent."
        |gpu| gpu.document.decoder_util_pct.map(f64::from);
    "DCGM_FI_DEV_FB_TOTAL" Gauge "Memory in MiB."
        |gpu| count(gpu.document.mem_total_mb);
    "DCGM_FI_DEV_FB_FREE" Gauge "Memory that is neither in use nor reserved, in MiB."
        |gpu| count(free_memory(gpu).map(|bytes| bytes >> 20));
    "DCGM_FI_DEV_FB_USED" Gauge "Memory in use in MiB."
        |gpu| count(gpu.document.mem_used_mb);
    "DCGM_FI_DEV_FB_RESERVED" Gauge "Memory that the driver reserves for itself, in MiB."
        |gpu| count(gpu.document.mem_reserved_bytes.map(|bytes| bytes >> 20));
    "DCGM_FI_DEV_XID_ERRORS" Gauge
        "Number of the last XID error since gpukilld started; no series without one."
        |gpu| count(gpu.document.last_xid.as_ref().map(|last| last.xid));
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL" Counter "Corrected ECC errors since the driver was loaded."
        |gpu| count(gpu.document.ecc_volatile_corrected);
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" Counter "Uncorrected ECC errors since the driver was loaded."
        |gpu| count(gpu.document.ecc_volatile);
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL" Counter "Corrected ECC errors over the life of the GPU."
        |gpu| count(gpu.document.ecc_aggregate_corrected);
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL" Counter "Uncorrected ECC errors over the life of the GPU."
        |gpu| count(gpu.document.ecc_aggregate);
    "DCGM_FI_DEV_RETIRED_SBE" Counter "Memory pages taken out of use after corrected errors."
        |gpu| count(gpu.document.retired_pages.map(|pages| pages.single_bit));
    "DCGM_FI_DEV_RETIRED_DBE" Counter "Memory pages taken out of use after uncorrected errors."
        |gpu| count(gpu.document.retired_pages.map(|pages| pages.double_bit));
    "DCGM_FI_DEV_RETIRED_PENDING" Gauge "Whether memory pages wait for a reset."
        |gpu| gpu.document.retired_pages.map(|pages| f64::from(u8::from(pages.pending)));
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS" Counter
        "Memory rows replaced by spare rows after corrected errors."
        |gpu| count(gpu.document.remapped_rows.map(|rows| rows.correctable));
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS" Counter
        "Memory rows replaced by spare rows after uncorrected errors."
        |gpu| count(gpu.document.remapped_rows.map(|rows| rows.uncorrectable));
    "DCGM_FI_DEV_ROW_REMAP_PENDING" Gauge "Whether memory rows wait for a reset."
        |gpu| gpu.document.remapped_rows.map(|rows| f64::from(u8::from(rows.pending)));
    "DCGM_FI_DEV_ROW_REMAP_FAILURE" Gauge "Whether memory rows could not be replaced."
        |gpu| gpu.document.remapped_rows.map(|rows| f64::from(u8::from(rows.failed)));
};

/// The metrics of GPM that gpukilld knows.
static GPUMON: &[ViewMetric] = view_metrics! {
    "gpumon_gpu_utilization_percent" Gauge "Share of time in which a kernel ran, in percent."
        |gpu| gpu.document.util_pct.map(f64::from);
    "gpumon_gpu_memory_used_bytes" Gauge "Memory in use."
        |gpu| count(gpu.document.mem_used_bytes);
    "gpumon_gpu_memory_total_bytes" Gauge "Memory."
        |gpu| count(gpu.document.mem_total_bytes);
    "gpumon_gpu_temperature_celsius" Gauge "Temperature of the die."
        |gpu| gpu.document.temp_c.map(f64::from);
    "gpumon_gpu_power_watts" Gauge "Power draw." |gpu| gpu.document.power_w;
};

/// Adds the metrics of all GPUs under these names. Without a status the energy is unknown.
pub(super) fn encode(
    encoder: &mut Encoder,
    names: OtherNames,
    frame: &Frame,
    status: Option<&DaemonStatus>,
) {
    let counted = status.map(|status| status.counters.energy.as_slice());
    let counted = counted.unwrap_or_default();
    let documents = frame.list.gpus.iter();
    let gpus: Vec<ViewedGpu<'_>> = documents
        .zip(&frame.annotated.snapshot.devices)
        .map(|(document, device)| {
            let energy = counted.iter().find(|energy| energy.device == device.id);
            ViewedGpu {
                document,
                device,
                energy: energy.map(|energy| energy.drawn.0),
            }
        })
        .collect();
    let metrics = match names {
        OtherNames::Dcgm => DCGM,
        OtherNames::Gpumon => GPUMON,
    };
    for metric in metrics {
        let samples = gpus.iter().filter_map(|gpu| {
            let value = (metric.value)(gpu)?;
            let labels = match names {
                OtherNames::Dcgm => dcgm_labels(gpu.document, &frame.list.host),
                OtherNames::Gpumon => gpumon_labels(gpu.document),
            };
            Some(Sample::new(labels, value))
        });
        encoder.family(metric.name, metric.kind, metric.help, samples);
    }
}

/// The labels of dcgm-exporter. A label that is unknown is empty, which is as if it were absent.
fn dcgm_labels(gpu: &GpuDocument, host: &str) -> Vec<(&'static str, String)> {
    let pci = gpu.pci.as_deref().map(nvml_address);
    let device = gpu.minor.map(|minor| format!("nvidia{minor}"));
    vec![
        ("gpu", gpu.gpu_index.to_string()),
        ("UUID", gpu.id.clone()),
        ("pci_bus_id", pci.unwrap_or_default()),
        ("device", device.unwrap_or_default()),
        ("modelName", gpu.name.clone().unwrap_or_default()),
        ("hostname", host.to_owned()),
    ]
}

fn gpumon_labels(gpu: &GpuDocument) -> Vec<(&'static str, String)> {
    vec![
        ("gpu_id", gpu.gpu_index.to_string()),
        ("gpu_name", gpu.name.clone().unwrap_or_default()),
    ]
}

/// A PCI address as NVML writes it, with a domain of eight digits: `00000000:1B:00.0`.
fn nvml_address(address: &str) -> String {
    match address.split_once(':') {
        Some((domain, rest)) => format!("{domain:0>8}:{rest}").to_ascii_uppercase(),
        None => address.to_owned(),
    }
}

/// The free memory in bytes; unknown where the host's programs use the same memory.
fn free_memory(gpu: &ViewedGpu<'_>) -> Option<u64> {
    let document = gpu.document;
    if document.mem_unified {
        return None;
    }
    let reserved = match document.mem_reserved_bytes {
        // Then the used memory includes it.
        None if gpu.device.memory_reserved == Reading::Unsupported => 0,
        reserved => reserved?,
    };
    let taken = document.mem_used_bytes?.checked_add(reserved)?;
    document.mem_total_bytes?.checked_sub(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::AnnotatedSnapshot;
    use crate::metrics::encoder::TextFormat;
    use crate::upstream::tests::snapshot;
    use gpukill_proto::model::RemappedRows;
    use gpukill_proto::units::{Bytes, Celsius, Megahertz, Milliwatts, Timestamp};
    use std::collections::BTreeSet;

    fn text(names: OtherNames, annotated: AnnotatedSnapshot) -> String {
        let frame = Frame::new(1, annotated).unwrap();
        let mut encoder = Encoder::new(TextFormat::Prometheus);
        encode(&mut encoder, names, &frame, None);
        encoder.finish()
    }

    fn whole() -> AnnotatedSnapshot {
        let mut annotated = snapshot(Timestamp(0));
        let device = &mut annotated.snapshot.devices[0];
        device.name = Reading::Value("NVIDIA H100".into());
        device.pci = Reading::Value("0000:1b:00.0".into());
        device.memory_used = Reading::Value(Bytes(3 << 30));
        device.memory_reserved = Reading::Value(Bytes(1 << 30));
        device.vitals.minor = Reading::Value(2);
        device.vitals.temperature = Reading::Value(Celsius(41));
        device.vitals.power = Reading::Value(Milliwatts(99_500));
        device.vitals.clock_sm = Reading::Value(Megahertz(1_980));
        device.vitals.clock_memory = Reading::Stale(Megahertz(2_619), 12);
        device.vitals.remapped_rows = Reading::Value(RemappedRows {
            correctable: 1,
            uncorrectable: 0,
            pending: true,
            failed: false,
        });
        annotated
    }

    #[test]
    fn dcgm_names_have_its_units_and_labels() {
        let labels = "{gpu=\"0\",UUID=\"GPU-1\",pci_bus_id=\"00000000:1B:00.0\",\
                      device=\"nvidia2\",modelName=\"NVIDIA H100\",hostname=\"box\"}";
        let expected = [
            "# HELP DCGM_FI_DEV_SM_CLOCK Clock of the multiprocessors in MHz.",
            "# TYPE DCGM_FI_DEV_SM_CLOCK gauge",
            "DCGM_FI_DEV_SM_CLOCK@ 1980",
            "# HELP DCGM_FI_DEV_GPU_TEMP Temperature of the die in degrees Celsius.",
            "# TYPE DCGM_FI_DEV_GPU_TEMP gauge",
            "DCGM_FI_DEV_GPU_TEMP@ 41",
            "# HELP DCGM_FI_DEV_POWER_USAGE Power draw in watts.",
            "# TYPE DCGM_FI_DEV_POWER_USAGE gauge",
            "DCGM_FI_DEV_POWER_USAGE@ 99.5",
            "# HELP DCGM_FI_DEV_GPU_UTIL Share of time in which a kernel ran, in percent.",
            "# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
            "DCGM_FI_DEV_GPU_UTIL@ 50",
            "# HELP DCGM_FI_DEV_FB_TOTAL Memory in MiB.",
            "# TYPE DCGM_FI_DEV_FB_TOTAL gauge",
            "DCGM_FI_DEV_FB_TOTAL@ 81920",
            "# HELP DCGM_FI_DEV_FB_FREE Memory that is neither in use nor reserved, in MiB.",
            "# TYPE DCGM_FI_DEV_FB_FREE gauge",
            "DCGM_FI_DEV_FB_FREE@ 77824",
            "# HELP DCGM_FI_DEV_FB_USED Memory in use in MiB.",
            "# TYPE DCGM_FI_DEV_FB_USED gauge",
            "DCGM_FI_DEV_FB_USED@ 3072",
            "# HELP DCGM_FI_DEV_FB_RESERVED Memory that the driver reserves for itself, in MiB.",
            "# TYPE DCGM_FI_DEV_FB_RESERVED gauge",
            "DCGM_FI_DEV_FB_RESERVED@ 1024",
            "# HELP DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS Memory rows replaced by spare rows after \
             corrected errors.",
            "# TYPE DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS counter",
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS@ 1",
            "# HELP DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS Memory rows replaced by spare rows \
             after uncorrected errors.",
            "# TYPE DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS counter",
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS@ 0",
            "# HELP DCGM_FI_DEV_ROW_REMAP_PENDING Whether memory rows wait for a reset.",
            "# TYPE DCGM_FI_DEV_ROW_REMAP_PENDING gauge",
            "DCGM_FI_DEV_ROW_REMAP_PENDING@ 1",
            "# HELP DCGM_FI_DEV_ROW_REMAP_FAILURE Whether memory rows could not be replaced.",
            "# TYPE DCGM_FI_DEV_ROW_REMAP_FAILURE gauge",
            "DCGM_FI_DEV_ROW_REMAP_FAILURE@ 0",
        ];
        let expected = expected.map(|line| format!("{}\n", line.replace('@', labels)));
        assert_eq!(text(OtherNames::Dcgm, whole()), expected.concat());
    }

    #[test]
    fn gpumon_names_have_its_labels() {
        let labels = "{gpu_id=\"0\",gpu_name=\"NVIDIA H100\"}";
        let text = text(OtherNames::Gpumon, whole());
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                format!("gpumon_gpu_utilization_percent{labels} 50"),
                format!("gpumon_gpu_memory_used_bytes{labels} 3221225472"),
                format!("gpumon_gpu_memory_total_bytes{labels} 85899345920"),
                format!("gpumon_gpu_temperature_celsius{labels} 41"),
                format!("gpumon_gpu_power_watts{labels} 99.5"),
            ]
        );
    }

    #[test]
    fn free_memory_is_unknown_unless_all_its_parts_are_known() {
        let free = |change: fn(&mut Device)| {
            let mut annotated = whole();
            change(&mut annotated.snapshot.devices[0]);
            let text = text(OtherNames::Dcgm, annotated);
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("DCGM_FI_DEV_FB_FREE{"));
            line.and_then(|line| line.rsplit_once(' ').map(|it| it.1.to_owned()))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(free(|_| {}), some("77824"));
        let unsupported = free(|device| device.memory_reserved = Reading::Unsupported);
        assert_eq!(unsupported, some("78848"));
        let failed = free(|device| device.memory_reserved = Reading::Failed("999".into()));
        assert_eq!(failed, None);
        assert_eq!(free(|device| device.memory_unified = true), None);
        let stale = free(|device| device.memory_used = Reading::Stale(Bytes(1), 9));
        assert_eq!(stale, None);
    }

    #[test]
    fn names_are_unique() {
        for metrics in [DCGM, GPUMON] {
            let names: BTreeSet<&str> = metrics.iter().map(|metric| metric.name).collect();
            assert_eq!(names.len(), metrics.len());
        }
    }
}
