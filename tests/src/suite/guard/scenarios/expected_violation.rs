//! The expected records of one rule and one subject, as scenarios compare them.

use super::scenario::Scenario;
use serde_json::Value;
use std::collections::BTreeMap;

/// All records of one rule and one subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExpectedViolation {
    /// Such as `default: memory`.
    rule: String,
    /// The person, group or GPU.
    subject: String,
    /// The names of the processes.
    processes: Vec<String>,
    /// The steps in order. A warning without a deadline is a `notified` step.
    steps: Vec<String>,
    /// Value and limit, if they are numbers. The value of a time is reduced to the limit if it
    /// is over the limit.
    measured: Vec<(u64, u64)>,
    /// The number of processes with unknown facts.
    unknown: u64,
}

impl ExpectedViolation {
    /// A violation of a person with one process that is warned.
    pub(super) fn new(rule: &str, subject: &str) -> Self {
        Self {
            rule: rule.to_owned(),
            subject: subject.to_owned(),
            processes: vec![subject.to_owned()],
            steps: ["violated", "warned"].map(str::to_owned).to_vec(),
            measured: Vec::new(),
            unknown: 0,
        }
    }

    /// Replaces the processes.
    pub(super) fn with_processes(self, by: &[&str]) -> Self {
        let mut by: Vec<String> = by.iter().map(|it| (*it).to_owned()).collect();
        by.sort();
        Self {
            processes: by,
            ..self
        }
    }

    /// Replaces the steps.
    pub(super) fn with_steps(self, steps: &[&str]) -> Self {
        let steps = steps.iter().map(|it| (*it).to_owned()).collect();
        Self { steps, ..self }
    }

    /// Sets the measured value and the limit.
    pub(super) fn with_value(self, value: u64, limit: u64) -> Self {
        let measured = vec![(value, limit)];
        Self { measured, ..self }
    }

    /// Sets a value at or over a limit that counts time or growth.
    pub(super) fn at_or_over(self, limit: u64) -> Self {
        self.with_value(limit, limit)
    }

    /// Sets the number of processes with unknown facts.
    pub(super) fn with_unknown(self, unknown: u64) -> Self {
        Self { unknown, ..self }
    }
}

/// Groups records by rule and subject; the records are oldest first.
pub(super) fn group_records<'a>(
    records: impl Iterator<Item = &'a Value>,
    scenario: &Scenario,
) -> Vec<ExpectedViolation> {
    let mut all: BTreeMap<(String, String, Vec<String>), ExpectedViolation> = BTreeMap::new();
    // A doubted step is about the box, not about a subject.
    for record in records.filter(|record| record["step"] != "doubted") {
        let text = |field: &str| record[field].as_str().map(|it| scenario.with_names(it));
        let rule = text("rule").unwrap();
        let subject = text("owner").or_else(|| text("subject")).unwrap();
        let evidence = &record["evidence"];
        let procs = evidence["procs"].as_array().unwrap();
        let mut by: Vec<String> = procs
            .iter()
            .map(|it| scenario.process_name(&it["pid"]))
            .collect();
        by.sort();
        let violation = all
            .entry((rule, subject, by))
            .or_insert_with_key(|(rule, subject, by)| ExpectedViolation {
                rule: rule.clone(),
                subject: subject.clone(),
                processes: by.clone(),
                steps: Vec::new(),
                measured: Vec::new(),
                unknown: 0,
            });
        violation.steps.push(step_name(record, scenario));
        // The last value of a finished violation may come from the sample in which the usage
        // changed.
        let is_over = record["step"] == "over";
        let measured = value_and_limit(record).filter(|_| !is_over);
        if measured.is_some() && violation.measured.last().copied() != measured {
            violation.measured.extend(measured);
        }
        violation.unknown = violation.unknown.max(evidence["unknown"].as_u64().unwrap());
    }
    let mut all: Vec<ExpectedViolation> = all.into_values().collect();
    all.sort();
    all
}

/// The step of a record, with the ended processes.
fn step_name(record: &Value, scenario: &Scenario) -> String {
    let step = record["step"].as_str().unwrap();
    match step {
        "warned" if record["deadline"].is_null() => "notified".to_owned(),
        "ended" => {
            let victim = &record["victim"];
            let procs = victim["procs"].as_array().unwrap();
            let mut procs: Vec<String> = procs
                .iter()
                .map(|it| scenario.process_name(&it["pid"]))
                .collect();
            procs.sort();
            match victim["leave_to"].as_str() {
                None => format!("ended {}", procs.join(" ")),
                Some(to) => format!("left {} to {to}", procs.join(" ")),
            }
        }
        step => step.to_owned(),
    }
}

/// The value and its limit. A time depends on the samples, so it is reduced to the limit if it
/// is over the limit.
fn value_and_limit(record: &Value) -> Option<(u64, u64)> {
    let evidence = &record["evidence"];
    let (value, limit) = (evidence["value"].as_u64()?, evidence["limit"].as_u64()?);
    let is_beyond = match record["kind"].as_str()? {
        "duration" => value > limit,
        "idle" | "runaway" | "growth" => value >= limit,
        _ => false,
    };
    Some((if is_beyond { limit } else { value }, limit))
}
