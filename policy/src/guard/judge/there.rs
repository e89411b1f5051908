//! Who is in a scene, by name: what is remembered of somebody has a name, what is found
//! of them a position.

use super::super::limits::Profile;
use super::super::whose::Whose;
use super::finding::Whom;
use super::scene::Scene;
use gpukill_proto::guard::{Person, RuleSource, Subject};
use gpukill_proto::snapshot::DeviceId;
use std::collections::{BTreeMap, BTreeSet};

/// Positions by name.
#[derive(Default)]
pub(crate) struct There<'a> {
    pub(crate) people: BTreeMap<Whose<'a>, usize>,
    /// Persons, and what they use.
    pub(crate) people_on: BTreeSet<(usize, usize)>,
    /// Groups that somebody belongs to or may belong to, and what those use.
    pub(crate) groups: BTreeSet<usize>,
    pub(crate) groups_on: BTreeSet<(usize, usize)>,
    /// Jobs in the order of their keys.
    pub(crate) jobs: Vec<usize>,
}

impl There<'_> {
    /// That a person of this profile uses this.
    pub(crate) fn add(&mut self, person: usize, device: Option<usize>, profile: &Profile) {
        let groups = || profile.groups.iter().chain(&profile.doubtful).copied();
        self.groups.extend(groups());
        if let Some(device) = device {
            self.people_on.insert((person, device));
            let both = groups().map(|group| (group, device));
            self.groups_on.extend(both);
        }
    }
}

impl Scene<'_> {
    /// What it is called.
    pub(crate) fn subject(&self, whom: Whom) -> Subject {
        let person = |at: usize| self.people[at].clone();
        let group = |at: usize| self.book.rules().groups[at].name.clone();
        let device = |at: usize| self.devices[at].0.clone();
        match whom {
            Whom::Person(at) => Subject::Person(person(at)),
            Whom::PersonOn(at, on) => Subject::PersonOn(person(at), device(on)),
            Whom::Group(at) => Subject::Group(group(at)),
            Whom::GroupOn(at, on) => Subject::GroupOn(group(at), device(on)),
            Whom::Device(at) => Subject::Device(device(at)),
            Whom::Job(at) => Subject::Job(self.judged(&self.jobs[at])),
            Whom::Run(at) => Subject::Run(self.runs[at].key.as_ref().clone()),
        }
    }

    /// Who that is, where they are there, whatever they were called.
    pub(crate) fn find(&self, subject: &Subject) -> Option<Whom> {
        match subject {
            Subject::Person(person) => self.person(person).map(Whom::Person),
            Subject::PersonOn(person, on) => {
                let both = (self.person(person)?, self.device(on)?);
                let is_there = self.there.people_on.contains(&both);
                is_there.then_some(Whom::PersonOn(both.0, both.1))
            }
            Subject::Group(name) => {
                let at = self.group(name)?;
                self.there.groups.contains(&at).then_some(Whom::Group(at))
            }
            Subject::GroupOn(name, on) => {
                let both = (self.group(name)?, self.device(on)?);
                let is_there = self.there.groups_on.contains(&both);
                is_there.then_some(Whom::GroupOn(both.0, both.1))
            }
            Subject::Device(id) => self.device(id).map(Whom::Device),
            Subject::Job(job) => {
                let named = (job.owner.uid, job.id.as_str());
                let jobs = &self.there.jobs;
                let found = jobs.binary_search_by(|at| {
                    let job = &self.jobs[*at];
                    (job.key.uid, job.key.id.as_str()).cmp(&named)
                });
                let at = jobs[found.ok()?];
                (self.jobs[at].shown() == job.shown).then_some(Whom::Job(at))
            }
            Subject::Run(run) => {
                let found = self.runs.binary_search_by(|it| it.key.as_ref().cmp(run));
                found.ok().map(Whom::Run)
            }
        }
    }

    fn person(&self, person: &Person) -> Option<usize> {
        self.there.people.get(&Whose::from(person)).copied()
    }

    fn device(&self, id: &DeviceId) -> Option<usize> {
        let found = self.devices.binary_search_by(|(it, _)| (*it).cmp(id));
        found.ok()
    }

    fn group(&self, name: &str) -> Option<usize> {
        let policy = self.book.find(&RuleSource::Group(name.to_owned()))?;
        match policy {
            super::Policy::Group(at) => Some(at),
            super::Policy::Default
            | super::Policy::User(_)
            | super::Policy::Gpu(_)
            | super::Policy::Time(_)
            | super::Policy::Behaviour(_) => None,
        }
    }
}
