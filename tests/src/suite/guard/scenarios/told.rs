//! What the guard tells of one rule and one who broke it, as stories compare it.

use super::cast::Cast;
use serde_json::Value;
use std::collections::BTreeMap;

/// All that is told of one rule and one subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Told {
    /// `default: memory`
    rule: String,
    /// The person; else the group, or the GPU.
    who: String,
    /// The processes that it is about.
    by: Vec<String>,
    /// In order. A warning after which nobody is ended is only `told`.
    steps: Vec<String>,
    /// What was measured, and what is allowed, where it is a number; of times it is
    /// the limit, where it is over that.
    measured: Vec<(u64, u64)>,
    /// Of how many of the processes something is not known.
    unknown: u64,
}

impl Told {
    /// That somebody with one process broke it, and was warned.
    pub(super) fn of(rule: &str, who: &str) -> Self {
        Self {
            rule: rule.to_owned(),
            who: who.to_owned(),
            by: vec![who.to_owned()],
            steps: ["violated", "warned"].map(str::to_owned).to_vec(),
            measured: Vec::new(),
            unknown: 0,
        }
    }

    /// With these processes.
    pub(super) fn by(self, by: &[&str]) -> Self {
        let mut by: Vec<String> = by.iter().map(|it| (*it).to_owned()).collect();
        by.sort();
        Self { by, ..self }
    }

    /// These became of it.
    pub(super) fn steps(self, steps: &[&str]) -> Self {
        let steps = steps.iter().map(|it| (*it).to_owned()).collect();
        Self { steps, ..self }
    }

    /// So much was seen, and so much is allowed.
    pub(super) fn measured(self, value: u64, limit: u64) -> Self {
        let measured = vec![(value, limit)];
        Self { measured, ..self }
    }

    /// It went on for so many milliseconds, or beyond so much.
    pub(super) fn beyond(self, limit: u64) -> Self {
        self.measured(limit, limit)
    }

    /// Of so many processes something is not known.
    pub(super) fn unknown(self, unknown: u64) -> Self {
        Self { unknown, ..self }
    }
}

/// Records, oldest first, by rule and subject.
pub(super) fn told<'a>(records: impl Iterator<Item = &'a Value>, cast: &Cast) -> Vec<Told> {
    let mut all: BTreeMap<(String, String, Vec<String>), Told> = BTreeMap::new();
    // That rules on behaviour concern many people is about the box.
    for record in records.filter(|record| record["step"] != "doubted") {
        let text = |field: &str| record[field].as_str().map(|it| cast.named(it));
        let rule = text("rule").unwrap();
        let who = text("owner").or_else(|| text("subject")).unwrap();
        let evidence = &record["evidence"];
        let procs = evidence["procs"].as_array().unwrap();
        let mut by: Vec<String> = procs.iter().map(|it| cast.called(&it["pid"])).collect();
        by.sort();
        let told = all
            .entry((rule, who, by))
            .or_insert_with_key(|(rule, who, by)| Told {
                rule: rule.clone(),
                who: who.clone(),
                by: by.clone(),
                steps: Vec::new(),
                measured: Vec::new(),
                unknown: 0,
            });
        told.steps.push(step(record, cast));
        // The last of what is over may be of a sample in the middle of which it changed.
        let is_over = record["step"] == "over";
        let measured = measured(record).filter(|_| !is_over);
        if measured.is_some() && told.measured.last().copied() != measured {
            told.measured.extend(measured);
        }
        told.unknown = told.unknown.max(evidence["unknown"].as_u64().unwrap());
    }
    let mut all: Vec<Told> = all.into_values().collect();
    all.sort();
    all
}

/// What became of it, and of whom.
fn step(record: &Value, cast: &Cast) -> String {
    let step = record["step"].as_str().unwrap();
    match step {
        "warned" if record["deadline"].is_null() => "told".to_owned(),
        "ended" => {
            let victim = &record["victim"];
            let procs = victim["procs"].as_array().unwrap();
            let mut procs: Vec<String> = procs.iter().map(|it| cast.called(&it["pid"])).collect();
            procs.sort();
            match victim["leave_to"].as_str() {
                None => format!("ended {}", procs.join(" ")),
                Some(to) => format!("left {} to {to}", procs.join(" ")),
            }
        }
        step => step.to_owned(),
    }
}

/// The number and its limit. How long something went on is what the samples happened
/// to be; that it is longer than it may be is not.
fn measured(record: &Value) -> Option<(u64, u64)> {
    let evidence = &record["evidence"];
    let (value, limit) = (evidence["value"].as_u64()?, evidence["limit"].as_u64()?);
    let is_beyond = match record["kind"].as_str()? {
        "duration" => value > limit,
        "idle" | "runaway" | "growth" => value >= limit,
        _ => false,
    };
    Some((if is_beyond { limit } else { value }, limit))
}
