//! Names of people in the result of a replay. Shortly after a start of the daemon, the name service
//! has not answered, and samples have the number of a user as the name.

use gpukill_proto::guard::{
    EvidenceProcess, GuardRecord, GuardStep, OpenViolation, Person, ViolationSubject,
};
use std::collections::BTreeMap;

/// The last known name of each user, by number.
#[derive(Debug, Default)]
pub(super) struct UserNames(BTreeMap<u32, String>);

impl UserNames {
    /// Learns the name of a person, unless it is the number.
    pub(super) fn learn(&mut self, person: &Person) {
        if let Some(uid) = person.uid
            && person.name != uid.to_string()
            && self.0.get(&uid) != Some(&person.name)
        {
            self.0.insert(uid, person.name.clone());
        }
    }

    /// Names the people of a record.
    pub(super) fn name_record(&self, record: &mut GuardRecord) {
        self.name_subject(&mut record.subject);
        self.name_processes(&mut record.evidence.runs);
        if let GuardStep::Ended(victim) = &mut record.step {
            self.name_person(&mut victim.job.owner);
            self.name_processes(&mut victim.runs);
        }
    }

    /// Names the people of an open violation.
    pub(super) fn name_violation(&self, open: &mut OpenViolation) {
        self.name_subject(&mut open.subject);
        self.name_processes(&mut open.evidence.runs);
    }

    fn name_subject(&self, subject: &mut ViolationSubject) {
        match subject {
            ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => {
                self.name_person(person);
            }
            ViolationSubject::Job(job) => self.name_person(&mut job.owner),
            ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_)
            | ViolationSubject::Run(_) => {}
        }
    }

    fn name_processes(&self, processes: &mut [EvidenceProcess]) {
        let owners = processes.iter_mut().filter_map(|it| it.owner.as_mut());
        owners.for_each(|owner| self.name_person(owner));
    }

    fn name_person(&self, person: &mut Person) {
        if let Some(uid) = person.uid
            && let Some(name) = self.0.get(&uid)
            && person.name == uid.to_string()
        {
            person.name.clone_from(name);
        }
    }
}
