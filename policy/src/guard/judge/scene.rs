//! A bucket, put in order: whose the processes are, which jobs they make, and what
//! each of them held. Who is protected is not in it.

use super::super::bucket::{About, Bucket, Judged, JudgedDevice};
use super::super::ended;
use super::super::limits::{Profile, Resolved, resolve};
use super::super::memory::streak::Streak;
use super::super::memory::{JobKey, JobMemory, Memory};
use super::super::whose::Whose;
use super::book::Rulebook;
use super::places::Places;
use super::selected::Selected;
use super::there::There;
use crate::usage::Gauge;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{JudgedJob, JudgedRun, Person};
use gpukill_proto::snapshot::DeviceId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) struct Scene<'a> {
    pub(crate) book: &'a Rulebook,
    pub(crate) bucket: &'a Bucket,
    pub(crate) places: Arc<Places>,
    /// In the order of the bucket.
    pub(crate) runs: Vec<Run<'a>>,
    pub(crate) people: Vec<&'a Person>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) devices: Vec<(&'a DeviceId, &'a JudgedDevice)>,
    pub(crate) profiles: Vec<(Profile, Resolved)>,
    /// The runs of a person on a device for which the same is said.
    pub(crate) cells: Vec<Cell>,
    /// Where all these are, by name.
    pub(crate) there: There<'a>,
}

/// A process on a device. All numbers are positions in [`Scene`].
pub(crate) struct Run<'a> {
    pub(crate) key: &'a Arc<JudgedRun>,
    pub(crate) judged: &'a Judged,
    pub(crate) selected: Arc<Selected>,
    pub(crate) person: Option<usize>,
    /// `None` where it is not known whose it is.
    pub(crate) job: Option<usize>,
    pub(crate) device: Option<usize>,
    pub(crate) profile: usize,
    /// Its device told whether it is there. Where that did not, in no part of the bucket,
    /// it is neither there nor gone.
    pub(crate) is_told: bool,
    /// Bytes.
    pub(crate) memory: Amount,
    /// Percent, over the window by which utilisation is judged; unknown while no reading
    /// tells how it works now.
    pub(crate) load: Amount,
    /// The same, whether or not a reading tells how it works now.
    pub(crate) past_load: Amount,
}

/// At least so much; `is_known` where it is not more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) value: u64,
    pub(crate) is_known: bool,
}

impl Amount {
    pub(crate) const UNKNOWN: Self = Self {
        value: 0,
        is_known: false,
    };

    /// The mean over all of `seen_ms`, of which `held_ms` should be known.
    pub(crate) fn of(gauge: &Gauge, seen_ms: u64, held_ms: u64) -> Self {
        let mean = gauge.total.checked_div(u128::from(seen_ms)).unwrap_or(0);
        Self {
            value: u64::try_from(mean).unwrap_or(u64::MAX),
            is_known: is_known(gauge, held_ms),
        }
    }
}

/// Whether a value was known for all the time that the device was held.
pub(crate) fn is_known(gauge: &Gauge, held_ms: u64) -> bool {
    held_ms > 0 && gauge.known_ms >= held_ms && !gauge.is_failed
}

/// What is ended together.
pub(crate) struct Job {
    pub(crate) key: Arc<JobKey>,
    pub(crate) person: usize,
    pub(crate) runs: Vec<usize>,
    /// Why nobody ends it.
    pub(crate) spare: Option<&'static str>,
    /// What is said of its first process.
    first: Arc<Selected>,
    /// How `list` showed it at first, where that was otherwise.
    renamed: Option<String>,
    /// Since when it has done nothing, and since when nobody was connected to it
    /// besides.
    pub(crate) streaks: Option<(Streak, Streak)>,
}

impl Job {
    /// Takes what is remembered of it.
    pub(crate) fn is_remembered(&mut self, known: &JobMemory) {
        let is_renamed = known.shown != self.first.job.1;
        self.renamed = is_renamed.then(|| known.shown.clone());
        self.streaks = Some((known.still, known.alone));
    }

    /// How `list` shows it.
    pub(crate) fn shown(&self) -> &str {
        self.renamed.as_ref().unwrap_or(&self.first.job.1)
    }
}

impl Scene<'_> {
    /// Whom a process runs as, where it is in a container that root made.
    pub(crate) fn user_in_container(&self, run: usize) -> Option<Option<u32>> {
        let about = &self.runs[run].judged.about;
        // Whoever made its user namespace is behind it, whatever it runs as.
        let is_ones_own = about.is_of_the_box == Some(false)
            && about
                .owner
                .as_ref()
                .is_some_and(|owner| owner.uid.is_some());
        let is_shareable = about.is_contained == Some(true) && !is_ones_own;
        is_shareable.then(|| about.user.as_ref().map(|(_, uid)| *uid))
    }

    /// Whether several users besides root have processes of a job, in one container. What
    /// one of them does is no reason to end the others.
    pub(crate) fn is_shared(&self, job: &Job) -> bool {
        let users = job
            .runs
            .iter()
            .filter_map(|run| self.user_in_container(*run));
        let users: BTreeSet<_> = users.filter(|user| *user != Some(0)).into_set();
        users.len() > 1
    }

    /// Whether these processes are part of a service; `None` where that is not known.
    pub(crate) fn is_service(&self, runs: &[usize]) -> Option<bool> {
        let role = |run: &usize| self.runs[*run].judged.about.network.as_ref();
        super::selected::any(runs.iter().map(|run| Some(role(run)?.is_service())))
    }

    /// A job, for whoever asks.
    pub(crate) fn judged(&self, job: &Job) -> JudgedJob {
        JudgedJob {
            owner: self.people[job.person].clone(),
            id: job.key.id.clone(),
            shown: job.shown().to_owned(),
        }
    }
}

pub(crate) struct Cell {
    pub(crate) person: usize,
    pub(crate) profile: usize,
    pub(crate) device: Option<usize>,
    pub(crate) runs: Vec<usize>,
}

/// What all processes of one job's name come to, also those of others and those that
/// are protected.
#[derive(Default)]
struct Company<'a> {
    /// In a container: whose the processes of each user are. They are ended apart.
    apart: BTreeMap<u32, Whose<'a>>,
    /// Whose all others are.
    together: Option<Whose<'a>>,
    spare: Option<&'static str>,
}

impl<'a> Company<'a> {
    fn add(&mut self, about: &'a About, is_protected: bool) {
        let owner = about.owner.as_ref().map(Whose::from);
        if is_protected {
            self.spares("a process of it is protected");
        }
        let Some(owner) = owner else {
            return self.spares("whose a process of it is, is not known");
        };
        let user = about.user.as_ref().map(|(_, uid)| *uid);
        let user = user.filter(|_| about.is_contained == Some(true));
        let first = match user {
            Some(uid) => *self.apart.entry(uid).or_insert(owner),
            None => *self.together.get_or_insert(owner),
        };
        if first != owner {
            self.spares(ANOTHERS);
        }
    }

    /// Of several reasons the same, whoever is looked at first.
    fn spares(&mut self, why: &'static str) {
        self.spare = self.spare.max(Some(why));
    }

    /// Why nobody ends it.
    fn spare(&self) -> Option<&'static str> {
        let together = self.together.as_ref();
        let is_anothers =
            together.is_some_and(|together| self.apart.values().any(|owner| owner != together));
        self.spare.max(is_anothers.then_some(ANOTHERS))
    }
}

const ANOTHERS: &str = "a process of it is somebody else's";

/// A process of a bucket, and what is said of it.
type Somebody<'a> = (&'a Arc<JudgedRun>, &'a Judged, Arc<Selected>);

pub(crate) fn scene<'a>(book: &'a Rulebook, memory: &mut Memory, bucket: &'a Bucket) -> Scene<'a> {
    let places = memory.places(book, bucket);
    let everybody: Vec<Somebody<'_>> = bucket
        .runs
        .iter()
        .map(|(key, judged)| {
            let selected = memory.selected(book, key, &judged.about);
            (key, judged, selected)
        })
        .collect();
    memory.forget_selected();
    update_ended(memory, &everybody);
    let mut companies: BTreeMap<&str, Company<'_>> = BTreeMap::new();
    for (_, judged, selected) in &everybody {
        let company = companies.entry(&selected.job.0).or_default();
        company.add(&judged.about, selected.is_protected);
    }
    let positions: BTreeMap<&DeviceId, usize> = bucket.devices.keys().zip(0..).into_map();
    let mut scene = Scene {
        book,
        bucket,
        places,
        runs: Vec::with_capacity(everybody.len()),
        people: Vec::new(),
        jobs: Vec::new(),
        devices: bucket.devices.iter().collect(),
        profiles: Vec::new(),
        cells: Vec::new(),
        there: There::default(),
    };
    let mut index = Index::default();
    for somebody in &everybody {
        let (key, _, selected) = somebody;
        if selected.is_protected {
            continue;
        }
        let device = positions.get(&key.device).copied();
        let spare = companies
            .get(selected.job.0.as_str())
            .and_then(Company::spare);
        scene.add(&mut index, somebody, device, spare);
    }
    scene.there.people = index.people;
    scene.there.jobs = index.jobs.into_values().collect();
    scene
}

/// Notes which of the jobs that were ended are there still.
fn update_ended(memory: &mut Memory, everybody: &[Somebody<'_>]) {
    if memory.ended.is_empty() {
        return;
    }
    let process = |key: &JudgedRun| (key.pid, key.start_ticks);
    let there: BTreeSet<_> = everybody.iter().map(|(key, ..)| process(key)).into_set();
    let jobs = everybody.iter().filter_map(|(key, judged, selected)| {
        let job = selected.job_key.as_ref()?;
        let user = judged.about.user.as_ref().map(|(_, uid)| *uid);
        Some((process(key), job.as_ref(), user))
    });
    let sight = (&memory.sight, memory.until.unwrap_or_default());
    ended::update(&mut memory.ended, sight, &there, jobs);
}

/// Positions of what is in a scene already.
#[derive(Default)]
struct Index<'e, 'a> {
    people: BTreeMap<Whose<'a>, usize>,
    jobs: BTreeMap<&'e JobKey, usize>,
    profiles: BTreeMap<&'e Profile, usize>,
    cells: BTreeMap<(usize, usize, Option<usize>), usize>,
}

impl<'a> Scene<'a> {
    fn add<'e>(
        &mut self,
        index: &mut Index<'e, 'a>,
        (key, judged, selected): &'e Somebody<'a>,
        device: Option<usize>,
        spare: Option<&'static str>,
    ) {
        let position = self.runs.len();
        let profile = *index.profiles.entry(&selected.profile).or_insert_with(|| {
            let resolved = resolve(self.book.rules(), &selected.profile, self.bucket.civil);
            self.profiles.push((selected.profile.clone(), resolved));
            self.profiles.len() - 1
        });
        let owner = judged.about.owner.as_ref().zip(selected.job_key.as_ref());
        let owner = owner.map(|(owner, job)| {
            let person = *index.people.entry(owner.into()).or_insert_with(|| {
                self.people.push(owner);
                self.people.len() - 1
            });
            let job = *index.jobs.entry(job.as_ref()).or_insert_with(|| {
                self.jobs.push(Job {
                    key: Arc::clone(job),
                    person,
                    runs: Vec::new(),
                    spare,
                    first: Arc::clone(selected),
                    renamed: None,
                    streaks: None,
                });
                self.jobs.len() - 1
            });
            let cell = index.cells.entry((person, profile, device));
            let cell = *cell.or_insert_with(|| {
                self.there.add(person, device, &selected.profile);
                self.cells.push(Cell {
                    person,
                    profile,
                    device,
                    runs: Vec::new(),
                });
                self.cells.len() - 1
            });
            // Of one whose processes are by now in several, each counts.
            self.jobs[job].spare = self.jobs[job].spare.max(spare);
            self.jobs[job].runs.push(position);
            self.cells[cell].runs.push(position);
            (person, job)
        });
        let (seen, held) = (self.bucket.seen_ms, judged.usage.held_ms);
        self.runs.push(Run {
            key,
            judged,
            selected: Arc::clone(selected),
            person: owner.map(|(person, _)| person),
            job: owner.map(|(_, job)| job),
            device,
            profile,
            is_told: held > 0 || seen == 0,
            memory: Amount::of(&judged.usage.memory, seen, held),
            load: Amount::UNKNOWN,
            past_load: Amount::UNKNOWN,
        });
    }
}
