//! Whom an entry of a kill ended, on which GPUs, and how long that took: from the plan and
//! the outcome, which the record has as JSON.

use super::super::line::shown;
use super::super::look::Symbols;
use gpukill_policy::usage::label::label;
use gpukill_proto::audit::ActionRecord;
use gpukill_proto::reading::Reading;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::time::Duration;

/// What the daemon writes before the rule by which the guard ended somebody. A selector of
/// a person's kill begins with a pid or an option.
const BY_GUARD: &str = "guard: ";

/// So many people are named.
const MOST_PEOPLE: usize = 2;

/// What a table tells of a kill.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    /// The first that was to be ended, and what it is called.
    first: Option<(u32, Option<String>)>,
    /// How many more.
    more: usize,
    /// Whose they are, at most [`MOST_PEOPLE`].
    people: Vec<String>,
    /// And of how many more people.
    other_people: usize,
    /// How long it took.
    pub(super) took: Option<Took>,
}

/// How long a kill took: signals first, then the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Took {
    /// From the first signal to the last process's end, or until it was given up.
    pub(super) ending: Duration,
    /// What became of their memory.
    pub(super) memory: Memory,
}

/// What became of the memory of those who ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// They held none that is known.
    None,
    /// It came back so long after the last one's end.
    Back(Duration),
    /// Some of it is missing.
    Missing,
}

/// As much of a plan as is told.
#[derive(Deserialize)]
struct Plan {
    #[serde(default)]
    targets: Vec<Target>,
    /// Of a reset.
    #[serde(default)]
    gpus: Vec<OnGpu>,
}

#[derive(Deserialize)]
struct Target {
    pid: u32,
    name: Option<String>,
    /// Left out of what is for others' eyes.
    command: Option<String>,
    owner: Option<String>,
    fate: Option<String>,
    /// It holds a GPU; others of its job end with it.
    #[serde(default)]
    named: bool,
    #[serde(default)]
    holds: Vec<OnGpu>,
}

#[derive(Deserialize)]
struct OnGpu {
    gpu_index: u32,
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(default)]
    outcomes: Vec<One>,
    #[serde(default)]
    memory: Vec<Returned>,
}

#[derive(Deserialize)]
struct One {
    after_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Returned {
    after_ms: Option<u64>,
}

/// The rule by which the guard ended somebody, where it was the guard. The record has that
/// as a kill that the daemon's own user asked for.
pub(super) fn rule(record: &ActionRecord) -> Option<&str> {
    let what = record.what.as_deref().filter(|_| record.kind == "kill");
    what?.strip_prefix(BY_GUARD)
}

/// What is told of a kill, and the GPUs that the plan of an act names, as they were
/// numbered then. Of what was refused, or is for others' eyes, there is no kill.
pub(super) fn ended(record: &ActionRecord) -> (Ended, BTreeSet<u32>) {
    let Some(mut plan) = read::<Plan>(&record.plan) else {
        return (Ended::default(), BTreeSet::new());
    };
    plan.targets.retain(Target::is_ended);
    let held = plan.targets.iter().flat_map(|it| &it.holds);
    let gpus = held.chain(&plan.gpus).map(|it| it.gpu_index).collect();
    let is_told = record.kind == "kill" && record.word.as_deref() != Some("refused");
    let ended = match is_told {
        true => of_kill(record, &plan.targets),
        false => Ended::default(),
    };
    (ended, gpus)
}

fn of_kill(record: &ActionRecord, targets: &[Target]) -> Ended {
    let named = targets.iter().find(|it| it.named).or(targets.first());
    let people: BTreeSet<&String> = targets.iter().filter_map(|it| it.owner.as_ref()).collect();
    Ended {
        first: named.map(|it| (it.pid, it.called())),
        more: targets.len().saturating_sub(1),
        other_people: people.len().saturating_sub(MOST_PEOPLE),
        people: people.into_iter().take(MOST_PEOPLE).cloned().collect(),
        took: read(&record.outcome).and_then(took),
    }
}

fn took(outcome: Outcome) -> Option<Took> {
    let ended = outcome.outcomes.iter().filter_map(|it| it.after_ms);
    let returned: Option<Vec<u64>> = outcome.memory.iter().map(|it| it.after_ms).collect();
    let memory = match returned.map(|it| it.into_iter().max()) {
        None => Memory::Missing,
        Some(None) => Memory::None,
        Some(Some(after)) => Memory::Back(Duration::from_millis(after)),
    };
    Some(Took {
        ending: Duration::from_millis(ended.max()?),
        memory,
    })
}

/// What a text of JSON says. It may be cut, or for others' eyes.
fn read<T: DeserializeOwned>(text: &Reading<String>) -> Option<T> {
    serde_json::from_str(text.known()?).ok()
}

impl Target {
    /// As `audit --summary` calls it: by its program and what that runs, else by the
    /// kernel's name, which has 15 bytes.
    fn called(&self) -> Option<String> {
        let label = self.command.as_deref().and_then(label);
        label.or_else(|| self.name.clone())
    }

    fn is_ended(&self) -> bool {
        self.fate.as_deref().is_none_or(|fate| fate == "end")
    }
}

impl Ended {
    /// `51002 python and 2 more of bob`; `None` where nobody was to be ended, or that is
    /// not known.
    pub(super) fn whom(&self, symbols: Symbols) -> Option<String> {
        let (pid, name) = self.first.as_ref()?;
        let name = name.as_ref();
        let name = name.map_or_else(String::new, |name| format!(" {}", shown(name, symbols)));
        let more = match self.more {
            0 => String::new(),
            several => format!(" and {several} more"),
        };
        let people: Vec<String> = self.people.iter().map(|it| shown(it, symbols)).collect();
        let of = match (people.is_empty(), self.other_people) {
            (true, _) => String::new(),
            (false, 0) => format!(" of {}", people.join(", ")),
            (false, besides) => format!(" of {} and {besides} more", people.join(", ")),
        };
        Some(format!("{pid}{name}{more}{of}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sample;
    use super::*;
    use gpukill_proto::document::{KillPlanDocument, KillReportDocument};

    fn record(what: &str, plan: Reading<String>) -> ActionRecord {
        let mut kills = sample::actions().into_iter().filter(|it| it.kind == "kill");
        let mut record = kills.next_back().expect("there is one");
        record.what = Some(what.to_owned());
        record.plan = plan;
        record
    }

    #[test]
    fn an_entry_of_a_kill_says_whom_it_ended() {
        let plan = |targets: &str| Reading::Value(format!("{{\"targets\":[{targets}]}}"));
        let target = |pid: u32, owner: &str, fate: &str| {
            format!("{{\"pid\":{pid},\"owner\":\"{owner}\",\"fate\":\"{fate}\"}}")
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
            // Cut, or for others' eyes.
            (Reading::Value("{\"targets\":[{".into()), None),
            (Reading::Withheld, None),
        ] {
            let mut record = record("guard: default: idle", plan);
            let whom = ended(&record).0.whom(Symbols::Unicode);
            assert_eq!(whom.as_deref(), expected);
            record.word = Some("refused".into());
            assert_eq!(ended(&record).0.whom(Symbols::Unicode), None);
        }
    }

    #[test]
    fn what_the_guard_asked_for_is_known_by_its_words_whoever_the_daemon_runs_as() {
        for uid in [0, 998] {
            let mut record = record("guard: default: idle", Reading::Withheld);
            record.uid = Some(uid);
            assert_eq!(rule(&record), Some("default: idle"), "{uid}");
        }
        for what in ["--user \"guard: x\"", "7"] {
            assert_eq!(rule(&record(what, Reading::Withheld)), None, "{what}");
        }
    }

    #[test]
    fn what_the_daemon_writes_of_a_kill_is_read() {
        let plan = KillPlanDocument::from(&sample::plan());
        let plan = serde_json::to_string(&plan).expect("plain values");
        let mut record = record("48213", Reading::Value(plan));
        let (_, report) = sample::report();
        let outcome = serde_json::to_string(&KillReportDocument::from(&report));
        record.outcome = Reading::Value(outcome.expect("plain values"));
        let (told, gpus) = ended(&record);
        assert_eq!(
            told.whom(Symbols::Unicode).as_deref(),
            Some("48213 python train.py and 8 more of alice")
        );
        assert_eq!(gpus, BTreeSet::from([0, 1, 2, 3]));
        let longest = report.outcomes.iter().filter_map(|it| match it.ending {
            gpukill_proto::kill::Ending::Ended(_, after)
            | gpukill_proto::kill::Ending::Survived(_, after) => Some(after),
            _ => None,
        });
        let took = told.took.expect("it is known");
        assert_eq!(
            took.ending.as_millis(),
            u128::from(longest.max().expect("some"))
        );
        assert_eq!(took.memory, Memory::Missing);
    }

    #[test]
    fn the_wait_for_memory_is_no_part_of_the_end() {
        let took_of = |memory: &str| {
            let outcome = format!("{{\"outcomes\":[{{\"after_ms\":800}}],\"memory\":[{memory}]}}");
            took(serde_json::from_str(&outcome).expect("it is right")).expect("it took so long")
        };
        let ending = Duration::from_millis(800);
        for (memory, expected) in [
            ("", Memory::None),
            (
                "{\"after_ms\":9200},{\"after_ms\":100}",
                Memory::Back(Duration::from_millis(9_200)),
            ),
            ("{\"after_ms\":9200},{\"after_ms\":null}", Memory::Missing),
        ] {
            let memory_of = Took {
                ending,
                memory: expected,
            };
            assert_eq!(took_of(memory), memory_of, "{memory}");
        }
        // Nobody had a signal, and how long that took says nothing.
        let nobody = serde_json::from_str("{\"outcomes\":[{\"after_ms\":null}]}");
        assert_eq!(took(nobody.expect("it is right")), None);
    }
}
