//! Positions in a context by name: the state refers to subjects by name, findings by
//! position.

use super::super::limits::PolicyProfile;
use super::super::person_key::PersonRef;
use super::context::EvaluationContext;
use super::findings::SubjectIndex;
use gpukill_proto::guard::{Person, RuleSource, ViolationSubject};
use gpukill_proto::model::DeviceId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct ContextIndex<'a> {
    pub(crate) people: BTreeMap<PersonRef<'a>, usize>,
    /// People and the devices that they use.
    pub(crate) people_on: BTreeSet<(usize, usize)>,
    /// Groups with a certain or possible member, and the devices that these use.
    pub(crate) groups: BTreeSet<usize>,
    pub(crate) groups_on: BTreeSet<(usize, usize)>,
    /// Jobs in the order of their keys.
    pub(crate) jobs: Vec<usize>,
}

impl ContextIndex<'_> {
    /// Adds that a person of this profile uses this device.
    pub(crate) fn add(&mut self, person: usize, device: Option<usize>, profile: &PolicyProfile) {
        let groups = || profile.groups.iter().chain(&profile.doubtful).copied();
        self.groups.extend(groups());
        if let Some(device) = device {
            self.people_on.insert((person, device));
            let both = groups().map(|group| (group, device));
            self.groups_on.extend(both);
        }
    }
}

impl EvaluationContext<'_> {
    /// The subject with its names.
    pub(crate) fn subject(&self, subject: SubjectIndex) -> ViolationSubject {
        let person = |at: usize| self.people[at].clone();
        let group = |at: usize| self.compiled_rules.rules().groups[at].name.clone();
        let device = |at: usize| self.devices[at].0.clone();
        match subject {
            SubjectIndex::Person(at) => ViolationSubject::Person(person(at)),
            SubjectIndex::PersonOn(at, on) => ViolationSubject::PersonOn(person(at), device(on)),
            SubjectIndex::Group(at) => ViolationSubject::Group(group(at)),
            SubjectIndex::GroupOn(at, on) => ViolationSubject::GroupOn(group(at), device(on)),
            SubjectIndex::Device(at) => ViolationSubject::Device(device(at)),
            SubjectIndex::Job(at) => ViolationSubject::Job(self.evaluated_job(&self.jobs[at])),
            SubjectIndex::Run(at) => ViolationSubject::Run(self.runs[at].key.as_ref().clone()),
        }
    }

    /// The position of a subject, if it is present. A person is found under any name.
    pub(crate) fn find_subject(&self, subject: &ViolationSubject) -> Option<SubjectIndex> {
        match subject {
            ViolationSubject::Person(person) => self.person(person).map(SubjectIndex::Person),
            ViolationSubject::PersonOn(person, on) => {
                let both = (self.person(person)?, self.device(on)?);
                let is_there = self.index.people_on.contains(&both);
                is_there.then_some(SubjectIndex::PersonOn(both.0, both.1))
            }
            ViolationSubject::Group(name) => {
                let at = self.group(name)?;
                self.index
                    .groups
                    .contains(&at)
                    .then_some(SubjectIndex::Group(at))
            }
            ViolationSubject::GroupOn(name, on) => {
                let both = (self.group(name)?, self.device(on)?);
                let is_there = self.index.groups_on.contains(&both);
                is_there.then_some(SubjectIndex::GroupOn(both.0, both.1))
            }
            ViolationSubject::Device(id) => self.device(id).map(SubjectIndex::Device),
            ViolationSubject::Job(job) => {
                let named = (job.owner.uid, job.id.as_str());
                let jobs = &self.index.jobs;
                let found = jobs.binary_search_by(|at| {
                    let job = &self.jobs[*at];
                    (job.key.uid, job.key.id.as_str()).cmp(&named)
                });
                let at = jobs[found.ok()?];
                (self.jobs[at].shown() == job.shown).then_some(SubjectIndex::Job(at))
            }
            ViolationSubject::Run(run) => {
                let found = self.runs.binary_search_by(|it| it.key.as_ref().cmp(run));
                found.ok().map(SubjectIndex::Run)
            }
        }
    }

    fn person(&self, person: &Person) -> Option<usize> {
        self.index.people.get(&PersonRef::from(person)).copied()
    }

    fn device(&self, id: &DeviceId) -> Option<usize> {
        let found = self.devices.binary_search_by(|(it, _)| (*it).cmp(id));
        found.ok()
    }

    fn group(&self, name: &str) -> Option<usize> {
        let policy = self
            .compiled_rules
            .find(&RuleSource::Group(name.to_owned()))?;
        match policy {
            super::PolicyIndex::Group(at) => Some(at),
            super::PolicyIndex::Default
            | super::PolicyIndex::User(_)
            | super::PolicyIndex::Gpu(_)
            | super::PolicyIndex::Time(_)
            | super::PolicyIndex::Behaviour(_) => None,
        }
    }
}
