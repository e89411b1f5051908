//! The list of metrics as metrics of OTLP: names and attributes by convention, times, and when each
//! sum began. A value that has no series in the list has none here.

use super::conventions::{
    Component, Instrument, MEMORY_UTILIZATION, STATUS, Shape, attribute_name, instrument,
};
use super::messages::{
    AttributeValue, CUMULATIVE, Gauge, KeyValue, Metric, MetricData, NumberDataPoint, PointValue,
    Sum,
};
use crate::metrics::{Family, Kind, Sample};
use gpukill_proto::collect::IntoMap as _;
use std::collections::BTreeMap;

/// The most counters of GPUs with a start of their own, so that memory stays bounded whatever a
/// driver lists.
const MAX_HARDWARE_COUNTERS: usize = 16_384;

/// Moments in nanoseconds since 1970; 0 is unknown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moments {
    /// Now.
    pub(super) now: u64,
    /// When the poll of the newest snapshot began.
    pub(super) snapshot: u64,
    /// When the daemon started.
    pub(super) daemon_started: u64,
    /// When this process started.
    pub(super) own_started: u64,
}

/// Translates lists, and remembers when the counters of GPUs began.
#[derive(Debug, Default)]
pub(super) struct Translator {
    hardware: BTreeMap<String, HardwareCounter>,
}

/// A counter of a GPU or its driver, which nobody says when it began.
#[derive(Debug, Clone, Copy)]
struct HardwareCounter {
    /// The moment from which it is known to count.
    start: u64,
    /// The last value, and its moment.
    value: f64,
    time: u64,
}

impl Translator {
    /// The metrics, each name once.
    pub(super) fn translate(&mut self, families: &[Family], moments: &Moments) -> Vec<Metric> {
        let facts = gpu_facts(families);
        let derived = [status(families), memory_utilization(families)];
        let mut metrics: Vec<Metric> = Vec::new();
        for family in families.iter().chain(derived.iter().flatten()) {
            let Some(instrument) = instrument(family) else {
                continue;
            };
            let time = match is_own(&family.name) {
                true => moments.now,
                false => moments.snapshot,
            };
            let points = family.samples.iter().map(|sample| NumberDataPoint {
                start_time_unix_nano: self.start(family, instrument.shape, sample, time, moments),
                time_unix_nano: time,
                attributes: attributes(&family.name, &instrument, sample, &facts),
                value: Some(PointValue::Double(sample.value)),
            });
            let points: Vec<NumberDataPoint> = points.collect();
            match metrics.iter_mut().find(|it| it.name == instrument.name) {
                Some(metric) => add_points(metric, points),
                None => metrics.push(metric(&instrument, &family.help, points)),
            }
        }
        metrics
    }

    /// When a sum was 0; 0 for a gauge, or if that is unknown.
    fn start(
        &mut self,
        family: &Family,
        shape: Shape,
        sample: &Sample,
        time: u64,
        moments: &Moments,
    ) -> u64 {
        let start = match shape {
            Shape::Gauge => return 0,
            _ if is_own(&family.name) => moments.own_started,
            Shape::Counter if is_of_hardware(&family.name) => {
                self.hardware_start(&family.name, sample, time)
            }
            Shape::Counter | Shape::UpDownCounter => moments.daemon_started,
        };
        // The clock may have been set back.
        start.min(time)
    }

    /// When a counter of a GPU began: at its first value, because nobody knows what was before; after
    /// a reset, which makes it smaller, at the last value before.
    fn hardware_start(&mut self, family: &str, sample: &Sample, time: u64) -> u64 {
        let labels = sample.labels.iter();
        let series = labels.fold(family.to_owned(), |series, (name, value)| {
            format!("{series}\0{name}\0{value}")
        });
        if self.hardware.len() >= MAX_HARDWARE_COUNTERS && !self.hardware.contains_key(&series) {
            return 0;
        }
        let counter = self.hardware.entry(series).or_insert(HardwareCounter {
            start: time,
            value: sample.value,
            time,
        });
        if sample.value < counter.value {
            counter.start = counter.time;
        }
        counter.value = sample.value;
        counter.time = time;
        counter.start
    }
}

/// Whether a metric is about this process, and not from the snapshot.
fn is_own(family: &str) -> bool {
    family == "gpukill_up"
        || family == "gpukill_build_info"
        || family.starts_with("gpukill_notify_")
        || family.starts_with("process_")
}

/// Whether a GPU or its driver counts, and not the daemon.
fn is_of_hardware(family: &str) -> bool {
    family.starts_with("gpukill_gpu_ecc_") || family.starts_with("gpukill_gpu_energy_")
}

fn metric(instrument: &Instrument, description: &str, data_points: Vec<NumberDataPoint>) -> Metric {
    let sum = |data_points, is_monotonic| {
        MetricData::Sum(Sum {
            data_points,
            aggregation_temporality: CUMULATIVE,
            is_monotonic,
        })
    };
    Metric {
        name: instrument.name.clone().into_owned(),
        description: description.to_owned(),
        unit: instrument.unit.to_owned(),
        data: Some(match instrument.shape {
            Shape::Gauge => MetricData::Gauge(Gauge { data_points }),
            Shape::Counter => sum(data_points, true),
            Shape::UpDownCounter => sum(data_points, false),
        }),
    }
}

fn add_points(metric: &mut Metric, points: Vec<NumberDataPoint>) {
    match &mut metric.data {
        Some(MetricData::Gauge(gauge)) => gauge.data_points.extend(points),
        Some(MetricData::Sum(sum)) => sum.data_points.extend(points),
        None => {}
    }
}

/// The number of values in all.
pub(super) fn count_points(metrics: &[Metric]) -> usize {
    let counts = metrics.iter().map(|metric| match &metric.data {
        Some(MetricData::Gauge(gauge)) => gauge.data_points.len(),
        Some(MetricData::Sum(sum)) => sum.data_points.len(),
        None => 0,
    });
    counts.sum()
}

/// The attributes of each GPU by its id: name, model, vendor and driver, as far as they are known.
fn gpu_facts(families: &[Family]) -> BTreeMap<&str, Vec<KeyValue>> {
    let all = samples(families, "gpukill_gpu_info").iter();
    let facts = all.filter_map(|sample| {
        let named = ["name", "vendor", "driver"].into_iter();
        let known = named.filter_map(|label| {
            let value = label_value(sample, label).filter(|value| !value.is_empty())?;
            Some(KeyValue::text(
                &attribute_name("gpukill_gpu_info", label),
                value,
            ))
        });
        let index = label_value(sample, "gpu").unwrap_or_default();
        let name = KeyValue::text("hw.name", &format!("GPU {index}"));
        let facts: Vec<KeyValue> = [name].into_iter().chain(known).collect();
        Some((label_value(sample, "uuid")?, facts))
    });
    facts.into_map()
}

fn attributes(
    family: &str,
    instrument: &Instrument,
    sample: &Sample,
    facts: &BTreeMap<&str, Vec<KeyValue>>,
) -> Vec<KeyValue> {
    let constants = instrument.constants.iter();
    let mut all: Vec<KeyValue> = constants
        .map(|(name, value)| KeyValue::text(name, value))
        .collect();
    let part = match instrument.component {
        Component::Part(part) => Some(part),
        Component::Sensor => label_value(sample, "sensor"),
        Component::Own | Component::Gpu => None,
    };
    for (label, value) in &sample.labels {
        match (part, *label) {
            // What is unknown is absent.
            _ if value.is_empty() => {}
            (Some(part), "uuid") => {
                all.push(KeyValue::text("hw.id", &format!("{value}/{part}")));
                all.push(KeyValue::text("hw.parent", value));
            }
            (_, label) => all.push(attribute(family, label, value)),
        }
    }
    let uuid = label_value(sample, "uuid");
    if instrument.component == Component::Gpu
        && let Some(facts) = uuid.and_then(|uuid| facts.get(uuid))
    {
        all.extend(facts.iter().cloned());
    }
    all
}

fn attribute(family: &str, label: &str, value: &str) -> KeyValue {
    let name = attribute_name(family, label);
    let number = match label {
        "gpu" | "pid" => value.parse().ok(),
        _ => None,
    };
    match number {
        Some(number) => KeyValue::new(&name, AttributeValue::Number(number)),
        None => KeyValue::text(&name, value),
    }
}

/// The condition of each GPU: `ok` or `failed`; nothing for a GPU in an unknown one.
fn status(families: &[Family]) -> Option<Family> {
    let mut conditions: BTreeMap<(&str, &str), [f64; 2]> = BTreeMap::new();
    for sample in samples(families, "gpukill_gpu_state") {
        let gpu = (label_value(sample, "uuid")?, label_value(sample, "gpu")?);
        let [ok, failed] = conditions.entry(gpu).or_default();
        match label_value(sample, "state")? {
            "ok" | "suspended" => *ok += sample.value,
            "lost" => *failed += sample.value,
            _ => {}
        }
    }
    let known = conditions
        .into_iter()
        .filter(|(_, [ok, failed])| ok + failed > 0.0);
    let samples = known.flat_map(|((uuid, gpu), [ok, failed])| {
        [("ok", ok), ("failed", failed)].map(|(state, value)| {
            let labels = vec![
                ("uuid", uuid.to_owned()),
                ("gpu", gpu.to_owned()),
                ("state", state.to_owned()),
            ];
            Sample::new(labels, value)
        })
    });
    derived(
        STATUS,
        "1 for the condition of the GPU, 0 for the other conditions.",
        samples.collect(),
    )
}

/// The share of memory in use, of each GPU with known total and used memory.
fn memory_utilization(families: &[Family]) -> Option<Family> {
    let totals = samples(families, "gpukill_gpu_memory_total_bytes");
    let used = samples(families, "gpukill_gpu_memory_used_bytes").iter();
    let shares = used.filter_map(|used| {
        let total = totals.iter().find(|total| total.labels == used.labels)?;
        (total.value > 0.0).then(|| Sample::new(used.labels.clone(), used.value / total.value))
    });
    derived(
        MEMORY_UTILIZATION,
        "Share of memory in use.",
        shares.collect(),
    )
}

fn derived(name: &str, help: &str, samples: Vec<Sample>) -> Option<Family> {
    (!samples.is_empty()).then(|| Family {
        name: name.to_owned(),
        kind: Kind::Gauge,
        help: help.to_owned(),
        samples,
    })
}

fn samples<'a>(families: &'a [Family], name: &str) -> &'a [Sample] {
    let family = families.iter().find(|family| family.name == name);
    match family {
        Some(family) => &family.samples,
        None => &[],
    }
}

fn label_value<'a>(sample: &'a Sample, label: &str) -> Option<&'a str> {
    let mut labels = sample.labels.iter();
    let found = labels.find(|(name, _)| *name == label);
    found.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENTS: Moments = Moments {
        now: 900,
        snapshot: 800,
        daemon_started: 300,
        own_started: 500,
    };

    fn family(name: &str, kind: Kind, values: &[(&[(&'static str, &str)], f64)]) -> Family {
        let samples = values.iter().map(|(labels, value)| {
            let labels = labels
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()));
            Sample::new(labels.collect(), *value)
        });
        Family {
            name: name.into(),
            kind,
            help: "Help.".into(),
            samples: samples.collect(),
        }
    }

    fn points<'a>(metrics: &'a [Metric], name: &str) -> &'a [NumberDataPoint] {
        let metric = metrics.iter().find(|it| it.name == name);
        match metric.and_then(|metric| metric.data.as_ref()) {
            Some(MetricData::Gauge(gauge)) => &gauge.data_points,
            Some(MetricData::Sum(sum)) => &sum.data_points,
            None => &[],
        }
    }

    fn value(point: &NumberDataPoint) -> f64 {
        let Some(PointValue::Double(value)) = point.value else {
            panic!("{point:?}");
        };
        value
    }

    fn text<'a>(point: &'a NumberDataPoint, name: &str) -> Option<&'a str> {
        let found = point.attributes.iter().find(|it| it.key == name)?;
        match found.value.as_ref()?.value.as_ref()? {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Number(_) => Some("a number"),
        }
    }

    #[test]
    fn sums_begin_with_what_counts_them() {
        let families = [
            family("gpukill_polls_total", Kind::Counter, &[(&[], 7.0)]),
            family("process_cpu_seconds_total", Kind::Counter, &[(&[], 0.5)]),
            family("gpukill_up", Kind::Gauge, &[(&[], 1.0)]),
        ];
        let metrics = Translator::default().translate(&families, &MOMENTS);
        let times = |name: &str| {
            let point = &points(&metrics, name)[0];
            (point.start_time_unix_nano, point.time_unix_nano)
        };
        assert_eq!(times("gpukill.polls"), (300, 800));
        assert_eq!(times("process.cpu.time"), (500, 900));
        assert_eq!(times("gpukill.up"), (0, 900));
        let Some(MetricData::Sum(polls)) = &metrics[0].data else {
            panic!("{metrics:?}");
        };
        assert_eq!(
            (polls.aggregation_temporality, polls.is_monotonic),
            (2, true)
        );
    }

    #[test]
    fn counter_of_a_gpu_begins_at_its_first_value_and_at_its_reset() {
        let mut translator = Translator::default();
        let mut start = |value, snapshot| {
            let labels: &[(&'static str, &str)] = &[("uuid", "GPU-1"), ("kind", "corrected")];
            let errors = family(
                "gpukill_gpu_ecc_errors_total",
                Kind::Counter,
                &[(labels, value)],
            );
            let moments = Moments {
                snapshot,
                ..MOMENTS
            };
            let metrics = translator.translate(&[errors], &moments);
            let point = &points(&metrics, "hw.errors")[0];
            assert_eq!(text(point, "error.type"), Some("corrected"));
            assert_eq!(text(point, "hw.type"), Some("gpu"));
            point.start_time_unix_nano
        };
        assert_eq!(start(5.0, 800), 800);
        assert_eq!(start(6.0, 810), 800);
        assert_eq!(start(6.0, 820), 800);
        assert_eq!(start(1.0, 830), 820);
        assert_eq!(start(2.0, 840), 820);
    }

    #[test]
    fn metrics_of_one_name_are_together_with_the_facts_of_their_gpu() {
        let labels: &[(&'static str, &str)] = &[("uuid", "GPU-1"), ("gpu", "3")];
        let info: &[(&'static str, &str)] = &[
            ("uuid", "GPU-1"),
            ("gpu", "3"),
            ("name", "A100"),
            ("vendor", "nvidia"),
            ("driver", ""),
        ];
        let families = [
            family("gpukill_gpu_info", Kind::Gauge, &[(info, 1.0)]),
            family(
                "gpukill_gpu_utilization_ratio",
                Kind::Gauge,
                &[(labels, 0.5)],
            ),
            family("gpukill_up", Kind::Gauge, &[(&[], 1.0)]),
            family(
                "gpukill_gpu_decoder_utilization_ratio",
                Kind::Gauge,
                &[(labels, 0.25)],
            ),
        ];
        let metrics = Translator::default().translate(&families, &MOMENTS);
        let names: Vec<&str> = metrics.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(
            names,
            ["gpukill.gpu.info", "hw.gpu.utilization", "gpukill.up"]
        );
        assert_eq!(count_points(&metrics), 4);
        let utilization = points(&metrics, "hw.gpu.utilization");
        let tasks: Vec<_> = utilization
            .iter()
            .map(|point| (text(point, "hw.gpu.task"), value(point)))
            .collect();
        assert_eq!(tasks, [(Some("general"), 0.5), (Some("decoder"), 0.25)]);
        for (name, expected) in [
            ("hw.id", Some("GPU-1")),
            ("gpukill.gpu.index", Some("a number")),
            ("hw.name", Some("GPU 3")),
            ("hw.model", Some("A100")),
            ("hw.vendor", Some("nvidia")),
            ("hw.driver_version", None),
        ] {
            assert_eq!(text(&utilization[0], name), expected, "{name}");
        }
    }

    #[test]
    fn sensors_and_fans_are_parts_of_their_gpu() {
        let die: &[(&'static str, &str)] = &[("uuid", "GPU-1"), ("gpu", "0"), ("sensor", "die")];
        let fan: &[(&'static str, &str)] = &[("uuid", "GPU-1"), ("gpu", "0")];
        let families = [
            family(
                "gpukill_gpu_temperature_celsius",
                Kind::Gauge,
                &[(die, 40.0)],
            ),
            family("gpukill_gpu_fan_speed_ratio", Kind::Gauge, &[(fan, 0.3)]),
        ];
        let metrics = Translator::default().translate(&families, &MOMENTS);
        let temperature = &points(&metrics, "hw.temperature")[0];
        assert_eq!(text(temperature, "hw.id"), Some("GPU-1/die"));
        assert_eq!(text(temperature, "hw.parent"), Some("GPU-1"));
        assert_eq!(text(temperature, "hw.sensor_location"), Some("die"));
        let fan = &points(&metrics, "hw.fan.speed_ratio")[0];
        assert_eq!(text(fan, "hw.id"), Some("GPU-1/fan"));
        assert_eq!(text(fan, "hw.parent"), Some("GPU-1"));
    }

    #[test]
    fn unknown_condition_and_unknown_memory_have_no_value() {
        let gpu = |uuid: &'static str, state: &'static str| {
            [("uuid", uuid), ("gpu", "0"), ("state", state)]
        };
        let (ok, lost) = (gpu("GPU-1", "ok"), gpu("GPU-1", "lost"));
        let unknown = gpu("GPU-2", "unknown");
        let one: &[(&'static str, &str)] = &[("uuid", "GPU-1")];
        let two: &[(&'static str, &str)] = &[("uuid", "GPU-2")];
        let families = [
            family(
                "gpukill_gpu_state",
                Kind::Gauge,
                &[(&ok, 0.0), (&lost, 1.0), (&unknown, 1.0)],
            ),
            family(
                "gpukill_gpu_memory_total_bytes",
                Kind::Gauge,
                &[(one, 80.0), (two, 80.0)],
            ),
            family("gpukill_gpu_memory_used_bytes", Kind::Gauge, &[(one, 20.0)]),
        ];
        let metrics = Translator::default().translate(&families, &MOMENTS);
        let status: Vec<_> = points(&metrics, "hw.status")
            .iter()
            .map(|point| (text(point, "hw.id"), text(point, "hw.state"), value(point)))
            .collect();
        assert_eq!(
            status,
            [
                (Some("GPU-1"), Some("ok"), 0.0),
                (Some("GPU-1"), Some("failed"), 1.0)
            ]
        );
        let shares = points(&metrics, "hw.gpu.memory.utilization");
        assert_eq!(shares.len(), 1);
        assert!((value(&shares[0]) - 0.25).abs() < 1e-9);
        assert_eq!(text(&shares[0], "hw.id"), Some("GPU-1"));
        let start = points(&metrics, "hw.gpu.memory.limit")[0].start_time_unix_nano;
        assert_eq!(start, 300);
    }
}
