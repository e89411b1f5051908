//! What the guard decided, as rows of the record.

use gpukill_proto::guard::{GuardRecord, GuardStep, Person, Subject};
use rusqlite::{Connection, params};

/// Writes down what was decided by one sample: all of it or nothing, so that the
/// last moment of the record tells what is in it.
pub(super) fn insert(connection: &Connection, records: &[GuardRecord]) -> rusqlite::Result<()> {
    let whole = connection.unchecked_transaction()?;
    {
        let insert = "INSERT INTO verdict (at, step, rule, owner, uid, record)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let mut insert = whole.prepare_cached(insert)?;
        // Nothing in a record can fail to be written as JSON.
        for record in records {
            let person = person(record);
            insert.execute(params![
                record.at.0,
                record.step.name(),
                record.rule.to_string(),
                person.map(|person| &person.name),
                person.and_then(|person| person.uid),
                serde_json::to_string(record).unwrap_or_default(),
            ])?;
        }
    }
    whole.commit()
}

/// Whose it is about: whoever broke the rule, or else whose job is ended for it.
fn person(record: &GuardRecord) -> Option<&Person> {
    let told = || record.evidence.runs.first()?.owner.as_ref();
    match (&record.subject, &record.step) {
        (Subject::Person(person) | Subject::PersonOn(person, _), _) => Some(person),
        (Subject::Job(job), _) => Some(&job.owner),
        (Subject::Run(_), _) => told(),
        (_, GuardStep::Ended(victim)) => Some(&victim.job.owner),
        (_, GuardStep::Acted(acted)) => Some(&acted.job.owner),
        (
            Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_),
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Spared(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. },
        ) => None,
    }
}
