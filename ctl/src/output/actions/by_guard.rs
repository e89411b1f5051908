//! The entry of an end by the guard: whom it ended, and for which rule. The record has it
//! as a kill that root asked for, since the guard acts as root.

use super::super::line::shown;
use super::super::look::Symbols;
use gpukill_proto::audit::ActionRecord;
use serde::Deserialize;
use std::collections::BTreeSet;

/// What the daemon writes before the rule. A selector of a person's kill begins with a
/// pid or an option.
const BY_GUARD: &str = "guard: ";

/// So many people are named.
const MOST_PEOPLE: usize = 2;

/// What the guard ended.
pub(super) struct EndByGuard<'r> {
    rule: &'r str,
    targets: Vec<Target>,
}

/// As much of a plan as is shown.
#[derive(Deserialize)]
struct Plan {
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    pid: u32,
    owner: Option<String>,
    fate: Option<String>,
}

/// What a record says of an end by the guard, where it is one.
pub(super) fn end_by_guard(record: &ActionRecord) -> Option<EndByGuard<'_>> {
    let is_kill = record.kind == "kill" && record.uid == Some(0);
    let rule = record.what.as_deref().filter(|_| is_kill);
    let rule = rule?.strip_prefix(BY_GUARD)?;
    let plan = record.plan.known().map(|plan| serde_json::from_str(plan));
    let targets = match plan {
        Some(Ok(Plan { targets })) => targets,
        // It was cut, or is for others' eyes.
        Some(Err(_)) | None => Vec::new(),
    };
    let is_ended = |target: &Target| target.fate.as_deref().is_none_or(|fate| fate == "end");
    let targets = targets.into_iter().filter(is_ended);
    Some(EndByGuard {
        rule,
        targets: targets.collect(),
    })
}

impl EndByGuard<'_> {
    /// `default: idle`
    pub(super) fn rule(&self, symbols: Symbols) -> String {
        shown(self.rule, symbols)
    }

    /// `kill 51002 and 2 more of bob`
    pub(super) fn whom(&self, symbols: Symbols) -> String {
        let Some(first) = self.targets.first() else {
            return "kill".to_owned();
        };
        let more = match self.targets.len() {
            1 => String::new(),
            several => format!(" and {} more", several - 1),
        };
        let people = self.targets.iter().filter_map(|it| it.owner.as_deref());
        let people: BTreeSet<&str> = people.collect();
        let besides = people.len().saturating_sub(MOST_PEOPLE);
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
    use super::super::super::sample;
    use super::*;
    use gpukill_proto::reading::Reading;

    fn record(what: &str, uid: u32, plan: Reading<String>) -> ActionRecord {
        let kills = sample::actions().into_iter().filter(|it| it.kind == "kill");
        let mut record = kills.last().expect("there is one");
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
            assert_eq!(said(&record), Some(expected));
        }
        // What a person asks for is theirs, whatever it says.
        for (what, uid) in [("--user \"guard: x\"", 0), (idle, 1000), ("7", 0)] {
            assert_eq!(said(&record(what, uid, of(&[bob(7)]))), None);
        }
    }
}
