//! Counters of the daemon since it started, and the energy of GPUs.

use super::encoder::{Encoder, Kind, Sample};
use super::gpus::{count, labels};
use crate::upstream::Frame;
use gpukill_proto::guard::GuardRecord;
use gpukill_proto::json::GpuDocument;
use gpukill_proto::model::DeviceId;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::status::{ActionCount, CountersReport};
use std::collections::BTreeMap;

/// The kinds and results that have a series before the first such action: the increase from no
/// series to the first value is no increase for a Prometheus server.
const ACTION_KINDS: [&str; 3] = ["kill", "reset", ActionCount::GUARD_END];
const ACTION_RESULTS: [&str; 5] = ["done", "partly", "failed", "refused", "interrupted"];

/// Adds the counters. Those of a GPU that is not in the frame are left out.
pub(super) fn encode(encoder: &mut Encoder, counters: &CountersReport, frame: &Frame) {
    encode_actions(encoder, counters);
    let gpu = |id: &DeviceId| frame.list.gpus.iter().find(|gpu| gpu.id == id.0);
    encode_gpus(encoder, counters, gpu);
}

fn encode_actions(encoder: &mut Encoder, counters: &CountersReport) {
    let mut actions: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for kind in ACTION_KINDS {
        for result in ACTION_RESULTS {
            actions.insert((kind, result), 0);
        }
    }
    for counted in &counters.actions {
        actions.insert(
            (counted.kind.as_str(), counted.result.as_str()),
            counted.count,
        );
    }
    encoder.family(
        "gpukill_acts_total",
        Kind::Counter,
        "Actions since gpukilld started, by kind and outcome; a kill by the guard is guard_end.",
        actions.into_iter().filter_map(|((kind, result), number)| {
            let labels = vec![("kind", kind.to_owned()), ("outcome", result.to_owned())];
            Some(Sample::new(labels, count(Some(number))?))
        }),
    );
    if let Some(decisions) = counters.decisions.known() {
        let counted = decisions.iter();
        let counted = counted.map(|it| (it.decision.as_str(), it.count));
        encoder.family(
            "gpukill_guard_decisions_total",
            Kind::Counter,
            "Decisions of the guard since gpukilld started, by kind; ended is a job of which no \
             process is left.",
            with_zeros("decision", &GuardRecord::DECISIONS, counted),
        );
    }
    let counted = counters.refusals.iter();
    let counted = counted.map(|it| (it.reason.as_str(), it.count));
    encoder.family(
        "gpukill_refusals_total",
        Kind::Counter,
        "Calls and connections that gpukilld refused since it started, by reason.",
        with_zeros("reason", &Refusal::REASONS, counted),
    );
}

/// A sample for each of these words, and for others that are counted.
fn with_zeros<'a>(
    label: &'static str,
    words: &[&'a str],
    counted: impl Iterator<Item = (&'a str, u64)>,
) -> Vec<Sample> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (word, number) in words.iter().map(|word| (*word, 0)).chain(counted) {
        counts.insert(word, number);
    }
    let samples = counts.into_iter().filter_map(|(word, number)| {
        Some(Sample::new(
            vec![(label, word.to_owned())],
            count(Some(number))?,
        ))
    });
    samples.collect()
}

fn encode_gpus<'a>(
    encoder: &mut Encoder,
    counters: &CountersReport,
    gpu: impl Fn(&DeviceId) -> Option<&'a GpuDocument>,
) {
    encoder.family(
        "gpukill_gpu_energy_joules_total",
        Kind::Counter,
        "Energy drawn since the driver was loaded (NVIDIA, from Volta on).",
        counters.energy.iter().filter_map(|energy| {
            let joules = energy.drawn.as_joules();
            Some(Sample::new(labels(gpu(&energy.device)?), joules))
        }),
    );
    encoder.family(
        "gpukill_gpu_xid_errors_total",
        Kind::Counter,
        "XID errors since gpukilld started, by number; a number has no series before the first.",
        counters.xids.iter().filter_map(|counted| {
            let mut labels = labels(gpu(counted.device.as_ref()?)?);
            labels.push(("xid", counted.xid?.to_string()));
            Some(Sample::new(labels, count(Some(counted.count))?))
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::encoder::TextFormat;
    use crate::upstream::tests::snapshot;
    use gpukill_proto::reading::Reading;
    use gpukill_proto::status::{DecisionCount, DeviceEnergy, RefusalCount, XidCount};
    use gpukill_proto::units::{Millijoules, Timestamp};

    fn lines(counters: &CountersReport) -> Vec<String> {
        let frame = Frame::new(1, snapshot(Timestamp(0))).unwrap();
        let mut encoder = Encoder::new(TextFormat::Prometheus);
        encode(&mut encoder, counters, &frame);
        let text = encoder.finish();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    fn gpu(id: &str) -> DeviceId {
        DeviceId(id.into())
    }

    #[test]
    fn counters_begin_with_zero_and_gpus_have_their_labels() {
        let xid = |device: Option<&str>, xid, count| XidCount {
            device: device.map(gpu),
            xid,
            count,
        };
        let lines = lines(&CountersReport {
            actions: vec![ActionCount {
                kind: "rules_edit".into(),
                result: "done".into(),
                count: 2,
            }],
            decisions: Reading::Value(vec![DecisionCount {
                decision: "warned".into(),
                count: 7,
            }]),
            refusals: vec![RefusalCount {
                reason: "busy".into(),
                count: 3,
            }],
            xids: vec![
                xid(None, None, 9),
                xid(Some("GPU-1"), Some(79), 4),
                xid(Some("GPU-gone"), Some(79), 1),
            ],
            energy: vec![DeviceEnergy {
                device: gpu("GPU-1"),
                drawn: Millijoules(1_500),
            }],
        });
        for line in [
            "gpukill_acts_total{kind=\"guard_end\",outcome=\"done\"} 0",
            "gpukill_acts_total{kind=\"kill\",outcome=\"interrupted\"} 0",
            "gpukill_acts_total{kind=\"rules_edit\",outcome=\"done\"} 2",
            "gpukill_guard_decisions_total{decision=\"ended\"} 0",
            "gpukill_guard_decisions_total{decision=\"warned\"} 7",
            "gpukill_refusals_total{reason=\"busy\"} 3",
            "gpukill_refusals_total{reason=\"denied\"} 0",
            "gpukill_gpu_energy_joules_total{uuid=\"GPU-1\",gpu=\"0\"} 1.5",
            "gpukill_gpu_xid_errors_total{uuid=\"GPU-1\",gpu=\"0\",xid=\"79\"} 4",
        ] {
            assert!(lines.iter().any(|it| it == line), "{line}\n{lines:?}");
        }
        let xids = lines.iter().filter(|it| it.contains("_xid_"));
        assert_eq!(xids.count(), 1);
        assert_eq!(lines.len(), 16 + 16 + 8 + 2);
    }

    #[test]
    fn withheld_decisions_are_not_zero() {
        let lines = lines(&CountersReport {
            decisions: Reading::Withheld,
            ..CountersReport::default()
        });
        assert!(!lines.iter().any(|it| it.contains("_decisions_")));
        assert!(!lines.iter().any(|it| it.contains("_gpu_")), "{lines:?}");
    }
}
