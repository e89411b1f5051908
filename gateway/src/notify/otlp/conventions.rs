//! The names that OpenTelemetry has for the metrics, in version 1.44 of its semantic conventions
//! (`docs/hardware/{gpu,temperature,fan,common}.md` and `docs/system/process-metrics.md` of
//! <https://github.com/open-telemetry/semantic-conventions>; all are in development).
//!
//! A metric without a convention keeps its name with dots, and its unit takes the place of the
//! suffix: `gpukill_gpu_memory_reserved_bytes` is `gpukill.gpu.memory.reserved` in bytes. Prometheus
//! translates these back to the same names.

use crate::metrics::{Family, Kind};
use std::borrow::Cow;

/// The version of the conventions.
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// 1 for the condition of each GPU in the words of the conventions; made from
/// `gpukill_gpu_state`.
pub(super) const STATUS: &str = "gpukill_gpu_hw_status";

/// The share of memory in use; made from the total and the used memory.
pub(super) const MEMORY_UTILIZATION: &str = "gpukill_gpu_memory_utilization_ratio";

/// What a metric is to OpenTelemetry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instrument {
    pub(super) name: Cow<'static, str>,
    /// The unit in UCUM; empty for none.
    pub(super) unit: &'static str,
    /// How values add up.
    pub(super) shape: Shape,
    /// What is measured.
    pub(super) component: Component,
    /// Attributes of every value.
    pub(super) constants: &'static [(&'static str, &'static str)],
}

/// How values add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Not at all.
    Gauge,
    /// A sum that only grows.
    Counter,
    /// A sum that grows and shrinks.
    UpDownCounter,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Component {
    /// Something of gpukill.
    Own,
    /// A GPU: its model, vendor and driver are attributes.
    Gpu,
    /// A part of a GPU with this name.
    Part(&'static str),
    /// A part of a GPU that the label `sensor` names.
    Sensor,
}

/// The conventions: metric, name, unit, shape, component, attributes.
type Convention = (
    &'static str,
    &'static str,
    &'static str,
    Shape,
    Component,
    &'static [(&'static str, &'static str)],
);

/// The type of component that some metrics of GPUs name.
const GPU_TYPE: &[(&str, &str)] = &[("hw.type", "gpu")];

macro_rules! conventions {
    ($($metric:expr => $name:literal in $unit:literal, $shape:ident of
        $component:ident $(($part:literal))?, $constants:expr;)*) => {
        /// Every metric with a convention.
        static CONVENTIONS: &[Convention] = &[$((
            $metric, $name, $unit, Shape::$shape, Component::$component $(($part))?, $constants,
        )),*];
    };
}

conventions! {
    "gpukill_gpu_utilization_ratio" => "hw.gpu.utilization" in "1", Gauge of Gpu,
        &[("hw.gpu.task", "general")];
    "gpukill_gpu_encoder_utilization_ratio" => "hw.gpu.utilization" in "1", Gauge of Gpu,
        &[("hw.gpu.task", "encoder")];
    "gpukill_gpu_decoder_utilization_ratio" => "hw.gpu.utilization" in "1", Gauge of Gpu,
        &[("hw.gpu.task", "decoder")];
    "gpukill_gpu_memory_total_bytes" => "hw.gpu.memory.limit" in "By", UpDownCounter of Gpu, &[];
    "gpukill_gpu_memory_used_bytes" => "hw.gpu.memory.usage" in "By", UpDownCounter of Gpu, &[];
    MEMORY_UTILIZATION => "hw.gpu.memory.utilization" in "1", Gauge of Gpu, &[];
    STATUS => "hw.status" in "1", UpDownCounter of Gpu, GPU_TYPE;
    "gpukill_gpu_ecc_errors_total" => "hw.errors" in "{error}", Counter of Gpu, GPU_TYPE;
    "gpukill_gpu_power_watts" => "hw.power" in "W", Gauge of Gpu, GPU_TYPE;
    "gpukill_gpu_energy_joules_total" => "hw.energy" in "J", Counter of Gpu, GPU_TYPE;
    "gpukill_gpu_temperature_celsius" => "hw.temperature" in "Cel", Gauge of Sensor, &[];
    "gpukill_gpu_fan_speed_ratio" => "hw.fan.speed_ratio" in "1", Gauge of Part("fan"), &[];
    "gpukill_gpu_fan_speed_rpm" => "hw.fan.speed" in "rpm", Gauge of Part("fan"), &[];
    "process_cpu_seconds_total" => "process.cpu.time" in "s", Counter of Own, &[];
    "process_resident_memory_bytes" => "process.memory.usage" in "By", UpDownCounter of Own, &[];
    "process_open_fds" =>
        "process.unix.file_descriptor.count" in "{file_descriptor}", UpDownCounter of Own, &[];
}

/// Metrics that are not pushed: the start of the process is that of its counters.
const LEFT_OUT: [&str; 1] = ["process_start_time_seconds"];

/// The units that names end with.
const UNITS: [(&str, &str); 8] = [
    ("_bytes", "By"),
    ("_celsius", "Cel"),
    ("_hertz", "Hz"),
    ("_joules", "J"),
    ("_ratio", "1"),
    ("_rpm", "{rpm}"),
    ("_seconds", "s"),
    ("_watts", "W"),
];

/// What a metric is to OpenTelemetry; `None` if it is not pushed. Histograms are not: only the
/// gateway's own requests have one.
pub(super) fn instrument(family: &Family) -> Option<Instrument> {
    let name = family.name.as_str();
    if LEFT_OUT.contains(&name) {
        return None;
    }
    let shape = match family.kind {
        Kind::Gauge => Shape::Gauge,
        Kind::Counter => Shape::Counter,
        Kind::Histogram => return None,
    };
    let convention = CONVENTIONS.iter().find(|(family, ..)| *family == name);
    if let Some(&(_, name, unit, shape, component, constants)) = convention {
        return Some(Instrument {
            name: Cow::Borrowed(name),
            unit,
            shape,
            component,
            constants,
        });
    }
    let stem = match shape {
        Shape::Counter => name.strip_suffix("_total").unwrap_or(name),
        Shape::Gauge | Shape::UpDownCounter => name,
    };
    let unit = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((stem.strip_suffix(*suffix)?, *unit)));
    let (stem, unit) = unit.unwrap_or((stem, ""));
    Some(Instrument {
        name: Cow::Owned(stem.replace('_', ".")),
        unit,
        shape,
        component: Component::Own,
        constants: &[],
    })
}

/// The attribute that takes the place of a label.
pub(super) fn attribute_name(family: &str, label: &str) -> Cow<'static, str> {
    let is_about_process = family.starts_with("gpukill_process_");
    let name = match (family, label) {
        (_, "uuid") => "hw.id",
        (_, "gpu") => "gpukill.gpu.index",
        ("gpukill_gpu_ecc_errors_total" | "gpukill_gpu_ecc_errors_lifetime_total", "kind") => {
            "error.type"
        }
        ("gpukill_gpu_info", "name") => "hw.model",
        ("gpukill_gpu_info", "vendor") => "hw.vendor",
        ("gpukill_gpu_info", "driver") => "hw.driver_version",
        (STATUS, "state") => "hw.state",
        ("gpukill_gpu_temperature_celsius", "sensor") => "hw.sensor_location",
        (_, "pid") if is_about_process => "process.pid",
        (_, "user") if is_about_process => "process.owner",
        (_, "name") if is_about_process => "process.executable.name",
        (_, "user") => "user.name",
        _ => return Cow::Owned(format!("gpukill.{label}")),
    };
    Cow::Borrowed(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str, kind: Kind) -> Family {
        Family {
            name: name.into(),
            kind,
            help: String::new(),
            samples: Vec::new(),
        }
    }

    #[test]
    fn metric_without_a_convention_keeps_its_name_with_dots() {
        for (name, kind, expected, unit, shape) in [
            ("gpukill_up", Kind::Gauge, "gpukill.up", "", Shape::Gauge),
            (
                "gpukill_gpu_memory_reserved_bytes",
                Kind::Gauge,
                "gpukill.gpu.memory.reserved",
                "By",
                Shape::Gauge,
            ),
            (
                "gpukill_polls_total",
                Kind::Counter,
                "gpukill.polls",
                "",
                Shape::Counter,
            ),
            (
                "gpukill_waits_seconds_total",
                Kind::Counter,
                "gpukill.waits",
                "s",
                Shape::Counter,
            ),
        ] {
            let instrument = instrument(&family(name, kind)).unwrap();
            assert_eq!(
                (&*instrument.name, instrument.unit, instrument.shape),
                (expected, unit, shape)
            );
        }
        assert_eq!(instrument(&family("x", Kind::Histogram)), None);
        let start = family("process_start_time_seconds", Kind::Gauge);
        assert_eq!(instrument(&start), None);
    }

    #[test]
    fn convention_decides_name_unit_and_shape() {
        let used = instrument(&family("gpukill_gpu_memory_used_bytes", Kind::Gauge)).unwrap();
        assert_eq!(
            (&*used.name, used.unit, used.shape, used.component),
            (
                "hw.gpu.memory.usage",
                "By",
                Shape::UpDownCounter,
                Component::Gpu
            )
        );
        let mut metrics: Vec<&str> = CONVENTIONS.iter().map(|it| it.0).collect();
        metrics.sort_unstable();
        metrics.dedup();
        assert_eq!(metrics.len(), CONVENTIONS.len());
    }
}
