//! The guard's decisions as rows of the record.

use gpukill_proto::guard::{GuardRecord, GuardStep, Person, ViolationSubject};
use rusqlite::{Connection, params};

/// Inserts the decisions on one sample in one transaction, so that the last time in the record says
/// which samples are in it.
pub(super) fn insert(connection: &Connection, records: &[GuardRecord]) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    {
        let insert = "INSERT INTO verdict (at, step, rule, owner, uid, record)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let mut insert = transaction.prepare_cached(insert)?;
        // Serialization of a record to JSON cannot fail.
        for record in records {
            let person = affected_person(record);
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
    transaction.commit()
}

/// The subject of the record: the person who broke the rule, or the owner of the job that
/// is ended for it.
pub(super) fn affected_person(record: &GuardRecord) -> Option<&Person> {
    let first_owner = || record.evidence.runs.first()?.owner.as_ref();
    match (&record.subject, &record.step) {
        (ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _), _) => {
            Some(person)
        }
        (ViolationSubject::Job(job), _) => Some(&job.owner),
        (ViolationSubject::Run(_), _) => first_owner(),
        (_, GuardStep::Ended(victim)) => Some(&victim.job.owner),
        (_, GuardStep::Outcome(outcome)) => Some(&outcome.job.owner),
        (
            ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_),
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Exempt(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. },
        ) => None,
    }
}
