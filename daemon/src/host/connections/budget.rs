//! How much work one person's jobs may make for the thread that looks: it is one for all.
//! What is beyond that is not known of these jobs, and delays nobody else's.

use super::{EVERY, WatchedJob};
use gpukill_proto::snapshot::{ContainerId, Job};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// What one look at one job may cost: to look at a descriptor costs 1, about 10
/// microseconds of a processor. Twice what one process may have open.
pub(super) const OF_JOB: usize = 2 * super::look::DESCRIPTORS;

/// What the looks at all jobs of one person may cost in the time in which each is looked at
/// once: less than three seconds of a processor.
pub(super) const OF_PERSON: usize = 2 * OF_JOB;

/// To begin with a process: its directory, beginning and namespace.
pub(super) const OF_PROCESS: usize = 8;

/// So many lines of a list of sockets cost as much as a descriptor.
pub(super) const LINES: usize = 8;

/// What was beyond its part is not looked at for so long.
const REST: Duration = Duration::from_secs(60);

/// Whose part of the work a job is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Share {
    /// Of this person.
    Person(u32),
    /// Of a container that the system runs: its image chooses the user ids in it.
    Container(ContainerId),
    /// Whose it is is not known.
    Unknown,
}

/// Which bound was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// That of one job.
    Job,
    /// That of one person.
    Person,
}

/// What was spent on whom.
pub(super) struct Budget {
    /// The bounds, which tests lower.
    pub(super) of_job: usize,
    pub(super) of_person: usize,
    shares: BTreeMap<Share, Account>,
    /// Jobs that are not looked at until then.
    resting: BTreeMap<Job, Instant>,
}

struct Account {
    /// Since when it is counted.
    since: Instant,
    spent: usize,
    rests_until: Option<Instant>,
}

/// What one look at one job may still cost.
#[derive(Debug)]
pub(super) struct Purse {
    of_job: usize,
    of_person: usize,
    spent: usize,
    over: Option<Over>,
}

impl Share {
    pub(super) fn of(job: Option<&Job>, person: Option<u32>) -> Self {
        match (job, person) {
            (Some(Job::Container { id, manager: None }), _) => Self::Container(id.clone()),
            (_, Some(person)) => Self::Person(person),
            (_, None) => Self::Unknown,
        }
    }
}

impl From<Over> for io::Error {
    fn from(over: Over) -> Self {
        Self::other(match over {
            Over::Job => "its job has too many files open",
            Over::Person => "the jobs of its user have too many files open",
        })
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            of_job: OF_JOB,
            of_person: OF_PERSON,
            shares: BTreeMap::new(),
            resting: BTreeMap::new(),
        }
    }
}

impl Budget {
    /// What a look at this job may cost now.
    ///
    /// # Errors
    /// When it, or the person, was over the bound a moment ago.
    pub(super) fn open(&mut self, job: &WatchedJob, now: Instant) -> Result<Purse, Over> {
        self.forget_old(now);
        if self.resting.contains_key(&job.job) {
            return Err(Over::Job);
        }
        let account = self.shares.entry(job.share.clone()).or_insert(Account {
            since: now,
            spent: 0,
            rests_until: None,
        });
        if account.rests_until.is_some() {
            return Err(Over::Person);
        }
        if now.saturating_duration_since(account.since) >= EVERY {
            (account.since, account.spent) = (now, 0);
        }
        Ok(Purse {
            of_job: self.of_job,
            of_person: self.of_person.saturating_sub(account.spent),
            spent: 0,
            over: None,
        })
    }

    /// Counts what a look at this job has cost.
    pub(super) fn close(&mut self, job: &WatchedJob, purse: &Purse, now: Instant) {
        if let Some(account) = self.shares.get_mut(&job.share) {
            account.spent = account.spent.saturating_add(purse.spent);
            if purse.over == Some(Over::Person) {
                account.rests_until = Some(now + REST);
            }
        }
        if purse.over == Some(Over::Job) {
            self.resting.insert(job.job.clone(), now + REST);
        }
    }

    fn forget_old(&mut self, now: Instant) {
        self.resting.retain(|_, until| *until > now);
        self.shares.retain(|_, account| match account.rests_until {
            Some(until) => until > now,
            None => now.saturating_duration_since(account.since) < REST,
        });
    }
}

impl Purse {
    /// Takes so much of it.
    ///
    /// # Errors
    /// When there is less.
    pub(super) fn take(&mut self, cost: usize) -> Result<(), Over> {
        let over = if self.of_person < cost {
            Over::Person
        } else if self.of_job < cost {
            Over::Job
        } else {
            self.charge(cost);
            return Ok(());
        };
        Err(*self.over.insert(over))
    }

    /// Takes what something has cost, as far as there is as much.
    pub(super) const fn charge(&mut self, cost: usize) {
        self.of_job = self.of_job.saturating_sub(cost);
        self.of_person = self.of_person.saturating_sub(cost);
        self.spent = self.spent.saturating_add(cost);
    }

    /// Takes what of one person's part alone is taken.
    pub(super) const fn charge_person(&mut self, cost: usize) {
        self.of_person = self.of_person.saturating_sub(cost);
        self.spent = self.spent.saturating_add(cost);
    }
}
