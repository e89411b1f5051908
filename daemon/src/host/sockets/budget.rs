//! Limits the work that one owner's jobs cause for the shared scan thread. A job over the limit is
//! unknown, and delays no job of another owner.

use super::{REFRESH_INTERVAL, WatchedJob};
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::model::{ContainerId, Job};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// The cost limit of one scan of one job. Reading a descriptor costs 1, about 10 microseconds of a
/// processor. The limit is twice what one process may have open.
pub(super) const JOB_BUDGET: usize = 2 * super::scan::MAX_DESCRIPTORS;

/// The cost limit of one scan of all jobs of one person: less than three seconds of a processor.
pub(super) const PERSON_BUDGET: usize = 2 * JOB_BUDGET;

/// The cost of starting a process: its directory, start time and namespace.
pub(super) const PROCESS_COST: usize = 8;

/// How many lines of a socket list cost as much as a descriptor.
pub(super) const LINES_PER_UNIT: usize = 8;

/// How long jobs over a limit are not scanned.
const PAUSE: Duration = Duration::from_secs(60);

/// The owner of the budget that a job uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BudgetOwner {
    Person(u32),
    /// A container that the system runs: its image chooses the uids in it.
    Container(ContainerId),
    /// An unknown owner.
    Unknown,
}

/// The limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BudgetExceeded {
    /// The limit of one job.
    Job,
    /// The limit of one person.
    Person,
}

/// The spent budget of each owner.
pub(super) struct ScanBudget {
    /// The limits, which tests lower.
    pub(super) per_job: usize,
    pub(super) per_person: usize,
    owners: BTreeMap<BudgetOwner, OwnerBudget>,
    /// Jobs that are not scanned until then.
    paused_jobs: BTreeMap<Job, Instant>,
}

struct OwnerBudget {
    /// The start of the current period.
    since: Instant,
    spent: usize,
    paused_until: Option<Instant>,
}

/// The budget left for one scan of one job.
#[derive(Debug)]
pub(super) struct ScanAllowance {
    job_left: usize,
    person_left: usize,
    spent: usize,
    exceeded: Option<BudgetExceeded>,
}

impl BudgetOwner {
    pub(super) fn new(job: Option<&Job>, person: Option<u32>) -> Self {
        match (job, person) {
            (Some(Job::Container { id, manager: None }), _) => Self::Container(id.clone()),
            (_, Some(person)) => Self::Person(person),
            (_, None) => Self::Unknown,
        }
    }
}

impl From<BudgetExceeded> for io::Error {
    fn from(over: BudgetExceeded) -> Self {
        Self::other(match over {
            BudgetExceeded::Job => "its job has too many files open",
            BudgetExceeded::Person => "the jobs of its user have too many files open",
        })
    }
}

impl Default for ScanBudget {
    fn default() -> Self {
        Self {
            per_job: JOB_BUDGET,
            per_person: PERSON_BUDGET,
            owners: BTreeMap::new(),
            paused_jobs: BTreeMap::new(),
        }
    }
}

impl ScanBudget {
    /// The budget for a scan of this job now.
    ///
    /// # Errors
    /// When the job or its person exceeded the limit a moment ago.
    pub(super) fn allow(
        &mut self,
        job: &WatchedJob,
        now: Instant,
    ) -> Result<ScanAllowance, BudgetExceeded> {
        self.forget_old(now);
        if self.paused_jobs.contains_key(&job.job) {
            return Err(BudgetExceeded::Job);
        }
        let account = self.owners.entry(job.owner.clone()).or_insert(OwnerBudget {
            since: now,
            spent: 0,
            paused_until: None,
        });
        if account.paused_until.is_some() {
            return Err(BudgetExceeded::Person);
        }
        if now.saturating_duration_since(account.since) >= REFRESH_INTERVAL {
            (account.since, account.spent) = (now, 0);
        }
        Ok(ScanAllowance {
            job_left: self.per_job,
            person_left: self.per_person.saturating_sub(account.spent),
            spent: 0,
            exceeded: None,
        })
    }

    pub(super) fn record(&mut self, job: &WatchedJob, allowance: &ScanAllowance, now: Instant) {
        if let Some(account) = self.owners.get_mut(&job.owner) {
            account.spent = account.spent.saturating_add(allowance.spent);
            if allowance.exceeded == Some(BudgetExceeded::Person) {
                account.paused_until = Some(now + PAUSE);
            }
        }
        if allowance.exceeded == Some(BudgetExceeded::Job) {
            self.paused_jobs.insert(job.job.clone(), now + PAUSE);
        }
    }

    fn forget_old(&mut self, now: Instant) {
        self.paused_jobs.retain_entries(|_, until| *until > now);
        self.owners
            .retain_entries(|_, account| match account.paused_until {
                Some(until) => until > now,
                None => now.saturating_duration_since(account.since) < PAUSE,
            });
    }
}

impl ScanAllowance {
    /// Spends a part of the budget.
    ///
    /// # Errors
    /// When less is left.
    pub(super) fn spend(&mut self, cost: usize) -> Result<(), BudgetExceeded> {
        let over = if self.person_left < cost {
            BudgetExceeded::Person
        } else if self.job_left < cost {
            BudgetExceeded::Job
        } else {
            self.charge(cost);
            return Ok(());
        };
        Err(*self.exceeded.insert(over))
    }

    /// Charges a cost that has occurred, as far as the budget allows.
    pub(super) const fn charge(&mut self, cost: usize) {
        self.job_left = self.job_left.saturating_sub(cost);
        self.person_left = self.person_left.saturating_sub(cost);
        self.spent = self.spent.saturating_add(cost);
    }

    /// Charges a cost to the person only.
    pub(super) const fn charge_person(&mut self, cost: usize) {
        self.person_left = self.person_left.saturating_sub(cost);
        self.spent = self.spent.saturating_add(cost);
    }
}
