//! The processes that a recorded kill ended, their GPUs, and the duration. Read from the plan
//! and the outcome, which the record has as JSON.

use crate::output::style::Symbols;
use crate::output::text::escaped;
use crate::output::value::{gib, short_duration};
use gpukill_policy::usage::label::label;
use gpukill_proto::audit::ActionRecord;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of people to name.
const MAX_PEOPLE: usize = 2;

/// The summary of a kill in a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::output) struct KillSummary {
    /// The PID and name of the first process to end.
    first: Option<(u32, Option<String>)>,
    /// The number of further processes.
    more: usize,
    /// The owners, at most [`MAX_PEOPLE`].
    owners: Vec<String>,
    /// The number of further owners.
    other_owners: usize,
    pub(super) duration: Option<KillDuration>,
}

/// The duration of a kill: first the signals, then the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KillDuration {
    /// From the first signal to the end of the last process, or until the kill gave up.
    pub(super) ending: Duration,
    pub(super) memory: MemoryRelease,
}

/// Whether the memory of the ended processes was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryRelease {
    /// No known memory was held.
    None,
    /// The memory came back this long after the last process ended.
    Returned(Duration),
    /// Some memory did not come back.
    Missing,
}

/// The parts of a recorded plan that are shown.
#[derive(Deserialize)]
struct RecordedPlan {
    #[serde(default)]
    targets: Vec<RecordedTarget>,
    /// Only in the plan of a reset.
    #[serde(default)]
    gpus: Vec<RecordedGpu>,
}

#[derive(Deserialize)]
struct RecordedTarget {
    pid: u32,
    name: Option<String>,
    /// Left out for callers who may not see it.
    command: Option<String>,
    owner: Option<String>,
    planned_action: Option<String>,
    /// The process holds a GPU; others of its job end with it.
    #[serde(default)]
    named: bool,
    #[serde(default)]
    holds: Vec<RecordedGpu>,
}

#[derive(Deserialize)]
struct RecordedGpu {
    gpu_index: u32,
}

#[derive(Deserialize)]
struct RecordedReport {
    #[serde(default)]
    outcomes: Vec<RecordedOutcome>,
    #[serde(default)]
    memory: Vec<RecordedMemory>,
}

#[derive(Deserialize)]
struct RecordedOutcome {
    signal: Option<String>,
    after_ms: Option<u64>,
}

#[derive(Deserialize)]
struct RecordedMemory {
    held_bytes: Option<u64>,
    returned_bytes: Option<u64>,
    after_ms: Option<u64>,
}

/// The summary of a kill, and the GPUs in the action's plan with their indices at that time.
/// The summary is empty for a refused kill and for a caller who may not see the plan.
pub(in crate::output) fn summarize_kill(record: &ActionRecord) -> (KillSummary, BTreeSet<u32>) {
    let Some(mut plan) = parse_json::<RecordedPlan>(&record.plan) else {
        return (KillSummary::default(), BTreeSet::new());
    };
    plan.targets.retain(RecordedTarget::is_ended);
    let held = plan.targets.iter().flat_map(|it| &it.holds);
    let gpus = held.chain(&plan.gpus).map(|it| it.gpu_index).collect();
    let has_result = record.kind == "kill" && record.result.as_deref() != Some("refused");
    let ended = match has_result {
        true => kill_summary(record, &plan.targets),
        false => KillSummary::default(),
    };
    (ended, gpus)
}

fn kill_summary(record: &ActionRecord, targets: &[RecordedTarget]) -> KillSummary {
    let named = targets.iter().find(|it| it.named).or(targets.first());
    let people: BTreeSet<&String> = targets.iter().filter_map(|it| it.owner.as_ref()).into_set();
    KillSummary {
        first: named.map(|it| (it.pid, it.display_name())),
        more: targets.len().saturating_sub(1),
        other_owners: people.len().saturating_sub(MAX_PEOPLE),
        owners: people.into_iter().take(MAX_PEOPLE).cloned().collect(),
        duration: parse_json(&record.outcome).and_then(kill_duration),
    }
}

fn kill_duration(outcome: RecordedReport) -> Option<KillDuration> {
    let ended = outcome.outcomes.iter().filter_map(|it| it.after_ms);
    let returned: Option<Vec<u64>> = outcome.memory.iter().map(|it| it.after_ms).collect();
    let memory = match returned.map(|it| it.into_iter().max()) {
        None => MemoryRelease::Missing,
        Some(None) => MemoryRelease::None,
        Some(Some(after)) => MemoryRelease::Returned(Duration::from_millis(after)),
    };
    Some(KillDuration {
        ending: Duration::from_millis(ended.max()?),
        memory,
    })
}

/// What a kill did: `SIGTERM, 0.8 s; gave back 48.3 of 48.3 GiB`. `None` if no signal was sent,
/// or the outcome is not known.
pub(in crate::output) fn kill_outcome_text(record: &ActionRecord) -> Option<String> {
    let report: RecordedReport = parse_json(&record.outcome)?;
    let slowest = report.outcomes.iter().max_by_key(|it| it.after_ms)?;
    let ending = short_duration(Duration::from_millis(slowest.after_ms?));
    let signal = slowest.signal.as_deref().unwrap_or("a signal");
    let sum = |bytes: fn(&RecordedMemory) -> Option<u64>| {
        let mut all = report.memory.iter().map(bytes);
        all.try_fold(0, |sum: u64, bytes| Some(sum.saturating_add(bytes?)))
    };
    let memory = match (sum(|it| it.held_bytes), sum(|it| it.returned_bytes)) {
        (None | Some(0), _) => String::new(),
        (Some(held), None) => format!("; held {} GiB", gib(Bytes(held))),
        (Some(held), Some(returned)) => {
            let [held, returned] = [held, returned].map(|bytes| gib(Bytes(bytes)));
            format!("; gave back {returned} of {held} GiB")
        }
    };
    Some(format!("{signal}, {ending}{memory}"))
}

/// Parses JSON that may be cut or withheld.
fn parse_json<T: DeserializeOwned>(text: &Reading<String>) -> Option<T> {
    serde_json::from_str(text.known()?).ok()
}

impl RecordedTarget {
    /// The name that `audit --summary` uses: the program and what it runs, else the kernel's
    /// name of 15 bytes.
    fn display_name(&self) -> Option<String> {
        let label = self.command.as_deref().and_then(label);
        label.or_else(|| self.name.clone())
    }

    fn is_ended(&self) -> bool {
        self.planned_action
            .as_deref()
            .is_none_or(|action| action == "end")
    }
}

impl KillSummary {
    /// `51002 python and 2 more of bob`; `None` when no process was to be ended, or that is not
    /// known.
    pub(in crate::output) fn processes_text(&self, symbols: Symbols) -> Option<String> {
        let (pid, name) = self.first.as_ref()?;
        let name = name.as_ref();
        let name = name.map_or_else(String::new, |name| format!(" {}", escaped(name, symbols)));
        let more = match self.more {
            0 => String::new(),
            several => format!(" and {several} more"),
        };
        let people: Vec<String> = self.owners.iter().map(|it| escaped(it, symbols)).collect();
        let of = match (people.is_empty(), self.other_owners) {
            (true, _) => String::new(),
            (false, 0) => format!(" of {}", people.join(", ")),
            (false, more_people) => format!(" of {} and {more_people} more", people.join(", ")),
        };
        Some(format!("{pid}{name}{more}{of}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures;
    use gpukill_proto::json::{KillPlanDocument, KillReportDocument};

    fn record(what: &str, plan: Reading<String>) -> ActionRecord {
        let mut kills = fixtures::actions()
            .into_iter()
            .filter(|it| it.kind == "kill");
        let mut record = kills.next_back().expect("there is one");
        record.what = Some(what.to_owned());
        record.plan = plan;
        record
    }

    #[test]
    fn ended_processes_are_named() {
        let plan = |targets: &str| Reading::Value(format!("{{\"targets\":[{targets}]}}"));
        let target = |pid: u32, owner: &str, action: &str| {
            format!("{{\"pid\":{pid},\"owner\":\"{owner}\",\"planned_action\":\"{action}\"}}")
        };
        let of = |targets: &[String]| plan(&targets.join(","));
        let bob = |pid| target(pid, "bob", "end");
        for (plan, expected) in [
            (of(&[bob(7)]), Some("7 of bob")),
            (
                of(&[bob(7), target(8, "bob", "zombie"), bob(9)]),
                Some("7 and 1 more of bob"),
            ),
            (
                of(&[bob(7), target(8, "carl", "end"), target(9, "dan", "end")]),
                Some("7 and 2 more of bob, carl and 1 more"),
            ),
            (plan("{\"pid\":7,\"name\":\"vllm\"}"), Some("7 vllm")),
            (
                plan(
                    "{\"pid\":7,\"name\":\"sglang::schedul\",\"command\":\"sglang::scheduler/tp0\"}",
                ),
                Some("7 sglang::scheduler/tp0"),
            ),
            (of(&[target(8, "bob", "denied")]), None),
            // Cut, or withheld.
            (Reading::Value("{\"targets\":[{".into()), None),
            (Reading::Withheld, None),
        ] {
            let mut record = record("guard: default: idle", plan);
            let processes = summarize_kill(&record).0.processes_text(Symbols::Unicode);
            assert_eq!(processes.as_deref(), expected);
            record.result = Some("refused".into());
            assert_eq!(
                summarize_kill(&record).0.processes_text(Symbols::Unicode),
                None
            );
        }
    }

    #[test]
    fn guard_kill_is_known_by_its_prefix() {
        for uid in [0, 998] {
            let mut record = record("guard: default: idle", Reading::Withheld);
            record.uid = Some(uid);
            assert_eq!(record.guard_rule(), Some("default: idle"), "{uid}");
        }
        for what in ["--user \"guard: x\"", "7"] {
            assert_eq!(record(what, Reading::Withheld).guard_rule(), None, "{what}");
        }
    }

    #[test]
    fn recorded_kill_of_the_daemon_is_read() {
        let plan = KillPlanDocument::from(&fixtures::plan());
        let plan = serde_json::to_string(&plan).expect("plain values");
        let mut record = record("48213", Reading::Value(plan));
        let (_, report) = fixtures::report();
        let outcome = serde_json::to_string(&KillReportDocument::from(&report));
        record.outcome = Reading::Value(outcome.expect("plain values"));
        let (summary, gpus) = summarize_kill(&record);
        assert_eq!(
            summary.processes_text(Symbols::Unicode).as_deref(),
            Some("48213 python train.py and 8 more of alice")
        );
        assert_eq!(gpus, BTreeSet::from([0, 1, 2, 3]));
        let longest = report
            .outcomes
            .iter()
            .filter_map(|outcome| match outcome.outcome {
                gpukill_proto::kill::Outcome::Ended(_, after)
                | gpukill_proto::kill::Outcome::Survived(_, after) => Some(after),
                _ => None,
            });
        let took = summary.duration.expect("it is known");
        assert_eq!(
            took.ending.as_millis(),
            u128::from(longest.max().expect("some"))
        );
        assert_eq!(took.memory, MemoryRelease::Missing);
    }

    #[test]
    fn outcome_names_the_last_signal_and_the_memory() {
        let text = |outcomes: &str, memory: &str| {
            let mut record = record("7", Reading::Withheld);
            let outcome = format!("{{\"outcomes\":[{outcomes}],\"memory\":[{memory}]}}");
            record.outcome = Reading::Value(outcome);
            kill_outcome_text(&record)
        };
        let first = "{\"signal\":\"SIGTERM\",\"after_ms\":800}";
        let both = format!("{first},{{\"signal\":\"SIGKILL\",\"after_ms\":5200}}");
        let memory = |held: u64, returned: &str| {
            format!(
                "{{\"held_bytes\":{},\"returned_bytes\":{returned}}}",
                held << 30
            )
        };
        for (outcomes, memory, expected) in [
            (first, String::new(), Some("SIGTERM, 0.8 s")),
            (
                both.as_str(),
                memory(2, "null"),
                Some("SIGKILL, 5.2 s; held 2.0 GiB"),
            ),
            (
                first,
                format!("{},{}", memory(2, "1073741824"), memory(1, "0")),
                Some("SIGTERM, 0.8 s; gave back 1.0 of 3.0 GiB"),
            ),
            ("{\"after_ms\":null}", String::new(), None),
            ("", String::new(), None),
        ] {
            assert_eq!(text(outcomes, &memory).as_deref(), expected);
        }
    }

    #[test]
    fn memory_wait_is_separate_from_the_end() {
        let took_of = |memory: &str| {
            let outcome = format!("{{\"outcomes\":[{{\"after_ms\":800}}],\"memory\":[{memory}]}}");
            kill_duration(serde_json::from_str(&outcome).expect("it is right"))
                .expect("it took so long")
        };
        let ending = Duration::from_millis(800);
        for (memory, expected) in [
            ("", MemoryRelease::None),
            (
                "{\"after_ms\":9200},{\"after_ms\":100}",
                MemoryRelease::Returned(Duration::from_millis(9_200)),
            ),
            (
                "{\"after_ms\":9200},{\"after_ms\":null}",
                MemoryRelease::Missing,
            ),
        ] {
            let memory_of = KillDuration {
                ending,
                memory: expected,
            };
            assert_eq!(took_of(memory), memory_of, "{memory}");
        }
        // No process got a signal, so there is no duration.
        let nobody = serde_json::from_str("{\"outcomes\":[{\"after_ms\":null}]}");
        assert_eq!(kill_duration(nobody.expect("it is right")), None);
    }
}
