//! The entry of an end by the guard: whom it ended, and for which rule. The record has it
//! as a kill that root asked for, since the guard acts as root.

use super::super::line::shown;
use super::super::look::Symbols;
use gpukill_proto::audit::ActionRecord;
use gpukill_proto::reading::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the daemon writes before the rule. A selector of a person's kill begins with a
/// pid or an option.
const BY_GUARD: &str = "guard: ";

/// So many people are named.
const MOST_PEOPLE: usize = 2;

/// What the guard ended.
pub(super) struct EndByGuard<'r> {
    rule: &'r str,
    plan: Plan,
}

/// As much of a plan as is shown: of many targets a few.
#[derive(Default, Serialize, Deserialize)]
struct Plan {
    #[serde(default)]
    targets: Vec<Target>,
    /// How many more there are.
    #[serde(default)]
    others: usize,
    /// Of how many more people these are.
    #[serde(default)]
    other_people: usize,
}

#[derive(Clone, Serialize, Deserialize)]
struct Target {
    pid: u32,
    owner: Option<String>,
    fate: Option<String>,
    /// It holds a GPU; others of its job end with it.
    #[serde(default)]
    named: bool,
}

/// What a record says of an end by the guard, where it is one.
pub(super) fn end_by_guard(record: &ActionRecord) -> Option<EndByGuard<'_>> {
    let is_kill = record.kind == "kill" && record.uid == Some(0);
    let rule = record.what.as_deref().filter(|_| is_kill);
    let rule = rule?.strip_prefix(BY_GUARD)?;
    let plan = record.plan.known().map(|plan| serde_json::from_str(plan));
    let mut plan: Plan = match plan {
        Some(Ok(plan)) => plan,
        // It was cut, or is for others' eyes.
        Some(Err(_)) | None => Plan::default(),
    };
    plan.targets
        .retain(|it| it.fate.as_deref().is_none_or(|fate| fate == "end"));
    Some(EndByGuard { rule, plan })
}

/// The plan of an end by the guard, no longer than what is shown of it.
pub(in crate::output) fn plan_for_a_table(record: &ActionRecord) -> Reading<String> {
    let shortened = end_by_guard(record).map(|end| end.plan.shortened());
    let text = shortened.and_then(|plan| serde_json::to_string(&plan).ok());
    text.map_or(Reading::Unsupported, Reading::Value)
}

impl Plan {
    fn first(&self) -> Option<&Target> {
        let named = self.targets.iter().find(|it| it.named);
        named.or_else(|| self.targets.first())
    }

    fn people(&self) -> BTreeSet<&str> {
        let people = self.targets.iter().filter_map(|it| it.owner.as_deref());
        people.collect()
    }

    /// The first target, and one of each person who is named.
    fn shortened(&self) -> Self {
        let people = self.people();
        let of = |name: &&str| {
            let mut targets = self.targets.iter();
            targets.find(|it| it.owner.as_deref() == Some(*name))
        };
        let named = people.iter().take(MOST_PEOPLE).filter_map(of);
        let mut kept: Vec<Target> = self.first().into_iter().cloned().collect();
        for target in named {
            if !kept.iter().any(|it| it.pid == target.pid) {
                kept.push(target.clone());
            }
        }
        let others = self.others + self.targets.len() - kept.len();
        let mut shortened = Self {
            targets: kept,
            others,
            other_people: 0,
        };
        shortened.other_people = self.other_people + people.len() - shortened.people().len();
        shortened
    }
}

impl EndByGuard<'_> {
    /// `default: idle`
    pub(super) fn rule(&self, symbols: Symbols) -> String {
        shown(self.rule, symbols)
    }

    /// `kill 51002 and 2 more of bob`
    pub(super) fn whom(&self, symbols: Symbols) -> String {
        let Some(first) = self.plan.first() else {
            return "kill".to_owned();
        };
        let more = match self.plan.targets.len() + self.plan.others {
            1 => String::new(),
            several => format!(" and {} more", several - 1),
        };
        let people = self.plan.people();
        let besides = people.len().saturating_sub(MOST_PEOPLE) + self.plan.other_people;
        let named: Vec<String> = people
            .into_iter()
            .take(MOST_PEOPLE)
            .map(|name| shown(name, symbols))
            .collect();
        let of = match (named.is_empty(), besides) {
            (true, _) => String::new(),
            (false, 0) => format!(" of {}", named.join(", ")),
            (false, besides) => format!(" of {} and {besides} more", named.join(", ")),
        };
        format!("kill {}{more}{of}", first.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::history::Entry as _;
    use super::super::super::sample;
    use super::*;
    use gpukill_proto::document::KillPlanDocument;

    fn record(what: &str, uid: u32, plan: Reading<String>) -> ActionRecord {
        let mut kills = sample::actions().into_iter().filter(|it| it.kind == "kill");
        let mut record = kills.next_back().expect("there is one");
        record.what = Some(what.to_owned());
        record.uid = Some(uid);
        record.plan = plan;
        record
    }

    #[test]
    fn an_end_by_the_guard_says_whom_it_ended_and_for_which_rule() {
        let plan = |targets: &str| Reading::Value(format!("{{\"targets\":[{targets}]}}"));
        let target = |pid: u32, owner: &str, fate: &str| {
            format!("{{\"pid\":{pid},\"owner\":\"{owner}\",\"fate\":\"{fate}\"}}")
        };
        let of = |targets: &[String]| plan(&targets.join(","));
        let bob = |pid| target(pid, "bob", "end");
        let idle = "guard: default: idle";
        let said = |record: &ActionRecord| {
            let end = end_by_guard(record)?;
            Some((end.whom(Symbols::Unicode), end.rule(Symbols::Unicode)))
        };
        for (plan, expected) in [
            (of(&[bob(7)]), "kill 7 of bob"),
            (
                of(&[bob(7), target(8, "bob", "zombie"), bob(9)]),
                "kill 7 and 1 more of bob",
            ),
            (
                of(&[bob(7), target(8, "carl", "end"), target(9, "dan", "end")]),
                "kill 7 and 2 more of bob, carl and 1 more",
            ),
            (plan("{\"pid\":7}"), "kill 7"),
            // Cut, or for others' eyes.
            (Reading::Value("{\"targets\":[{".into()), "kill"),
            (Reading::Withheld, "kill"),
        ] {
            let record = record(idle, 0, plan);
            let expected = (expected.to_owned(), "default: idle".to_owned());
            assert_eq!(said(&record), Some(expected.clone()));
            // A table keeps no more of many targets than is shown, and says the same.
            let kept = record.for_a_table();
            assert_eq!(said(&kept), Some(expected));
        }
        // What a person asks for is theirs, whatever it says.
        for (what, uid) in [("--user \"guard: x\"", 0), (idle, 1000), ("7", 0)] {
            assert_eq!(said(&record(what, uid, of(&[bob(7)]))), None);
        }
    }

    #[test]
    fn what_the_daemon_writes_of_a_plan_is_read() {
        let plan = KillPlanDocument::from(&sample::plan());
        let plan = serde_json::to_string(&plan).expect("plain values");
        let record = record("guard: gpu 0: user", 0, Reading::Value(plan)).for_a_table();
        assert!(record.plan.known().is_some_and(|plan| plan.len() < 200));
        let end = end_by_guard(&record).map(|it| it.whom(Symbols::Unicode));
        assert_eq!(end.as_deref(), Some("kill 48213 and 8 more of alice"));
    }
}
