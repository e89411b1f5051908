//! Ending processes: what is asked for, the plan that comes of it, and what came
//! of the plan.

mod protected;

mod stuck;

use crate::reading::Reading;
use crate::snapshot::{DeviceId, Job, ProcessKey, Unit, Vendor};
use crate::units::{Bytes, Timestamp};
pub use protected::Protected;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
pub use stuck::{FuseMount, FuseServer, Stuck};

/// Which processes are meant: all conditions must hold. One that is empty or
/// `None` is no condition; without any, nothing is meant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KillSelector {
    /// These pids.
    pub pids: Vec<u32>,
    /// An unanchored regular expression on the process name.
    pub filter: Option<String>,
    /// An unanchored regular expression on the command line.
    pub command: Option<String>,
    /// GPUs, as typed: indices, UUIDs, PCI addresses, names with `*`.
    pub gpu: Option<String>,
    /// A person, by name or number: who runs it, or whose it is.
    pub user: Option<String>,
    /// A container, by name or by the beginning of its id.
    pub container: Option<String>,
    /// The image of a container, with `*` and `?`.
    pub image: Option<String>,
    /// A job, as `list` shows it: `slurm 1234.0`, `1234`, `train.service`.
    pub job: Option<String>,
    /// It holds at least so much on one of its GPUs.
    pub min_memory: Option<Bytes>,
    /// It uses a GPU of one of these vendors.
    pub vendors: BTreeSet<Vendor>,
}

impl KillSelector {
    /// Whether it names processes by their pids alone.
    #[must_use]
    pub fn is_pids_only(&self) -> bool {
        !self.pids.is_empty()
            && Self {
                pids: Vec::new(),
                ..self.clone()
            }
            .is_empty()
    }

    /// Whether it has no condition at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for KillSelector {
    /// As options of `gpukillctl kill`, for the record.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        let named = [
            ("filter", &self.filter),
            ("command", &self.command),
            ("gpu", &self.gpu),
            ("user", &self.user),
            ("container", &self.container),
            ("image", &self.image),
            ("job", &self.job),
        ];
        for (name, value) in named {
            if let Some(value) = value {
                parts.push(format!("--{name} {value:?}"));
            }
        }
        if let Some(least) = self.min_memory {
            parts.push(format!("--min-memory {}B", least.0));
        }
        if !self.vendors.is_empty() {
            let names: Vec<&str> = self.vendors.iter().map(|it| it.name()).collect();
            parts.push(format!("--vendor {}", names.join(",")));
        }
        f.write_str(&parts.join(" "))
    }
}

/// How much of what is meant is ended with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum KillScope {
    /// The process alone.
    #[default]
    Process,
    /// The process and all below it.
    Tree,
    /// The whole job that it is part of: see [`Job`].
    Job,
    /// Everything in its container.
    Container,
}

impl KillScope {
    /// As it is typed, and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Tree => "tree",
            Self::Job => "job",
            Self::Container => "container",
        }
    }
}

/// A signal that ends processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KillSignal {
    /// SIGINT, as Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL, which no process can refuse, nor clean up after.
    Kill,
}

impl fmt::Display for KillSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        })
    }
}

/// What a person asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KillRequest {
    /// Who is meant.
    pub selector: KillSelector,
    /// How much of it.
    pub scope: KillScope,
    /// The first signal; `None` for what is gentlest on the device: SIGTERM, and
    /// for AMD's compute SIGINT before that.
    pub signal: Option<KillSignal>,
    /// SIGKILL whoever survives. It widens nothing else.
    pub force: bool,
    /// How long each signal may take, in milliseconds: 1 to
    /// [`LONGEST_PATIENCE_MS`].
    pub patience_ms: u64,
    /// Do not ask that it uses a GPU: root's alone, with one pid.
    pub any_process: bool,
    /// End the named processes although they are protected, as far as root may:
    /// root's alone, with pids.
    pub override_protected: bool,
    /// Only the plan is wanted: nothing is recorded, and it cannot be carried
    /// out.
    pub dry_run: bool,
}

/// The longest time that one signal may be given.
pub const LONGEST_PATIENCE_MS: u64 = 600_000;

/// The most pids that one request may name.
pub const MOST_PIDS: usize = 1_024;

/// Names a plan until it is carried out, or is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlanId(pub u64);

impl PlanId {
    /// The plan without a name that this connection asked for last: a dry run, or
    /// one that would end nobody. No other plan has this number.
    pub const LAST: PlanId = PlanId(0);
}

/// Names an operation that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId(pub u64);

/// What would be done, before anything is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct KillPlan {
    /// The daemon's clock when it was made.
    pub at: Timestamp,
    /// When the youngest process of the box began that was looked at for it, in clock
    /// ticks after boot: those that began later came since.
    pub youngest_start_ticks: u64,
    /// What it came from.
    pub request: KillRequest,
    /// Every process that the request names or reaches by its scope, whatever
    /// becomes of it, by pid.
    pub targets: Vec<KillTarget>,
    /// How many processes might be meant too: what the request asks of them is
    /// not known. Nothing is done to them.
    pub unjudged: u32,
    /// Jobs of which the plan ends a part only, and more would go on.
    pub rest: Vec<KillRest>,
}

/// One process of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillTarget {
    /// Names it.
    pub key: ProcessKey,
    /// The kernel's name for it, controls made visible.
    pub name: String,
    /// Its arguments, joined by blanks.
    pub command: Reading<String>,
    /// The real user id.
    pub uid: Reading<u32>,
    /// What to call whoever it belongs to.
    pub owner: Reading<String>,
    /// What it holds of each GPU; nothing for one that is reached by its scope
    /// alone.
    pub holds: Vec<KillHold>,
    /// Whether the request names it, and not only its scope.
    pub named: bool,
    /// The job that it is part of.
    pub job: Reading<Job>,
    /// What is to become of it.
    pub fate: Fate,
    /// Why it is protected, where root overrides that.
    pub overridden: Option<String>,
}

/// What a process holds of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillHold {
    /// The GPU.
    pub device: DeviceId,
    /// Its index, for people.
    pub index: u32,
    /// The memory that the process holds there.
    pub memory: Reading<Bytes>,
}

/// What a plan has in store for a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It gets these signals, one after the other, until it has ended.
    End(Vec<KillSignal>),
    /// It is protected, whoever asks.
    Protected(Protected),
    /// The caller may not end it; says who could, as in "ask …".
    Denied(String),
    /// It cannot be judged: what is not known of it.
    Unclear(String),
    /// It has ended, and its parent has not asked how.
    Zombie(Reaper),
}

/// The parent of a process that has ended and was not reaped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaper {
    /// The parent's pid.
    pub pid: u32,
    /// Its name.
    pub name: Reading<String>,
}

/// A job of which a plan ends only a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillRest {
    /// By which a command can name the whole job: one of those that go on and use a
    /// GPU; where none does, one that the plan ends.
    pub pid: u32,
    /// The job.
    pub job: Job,
    /// How many of its processes the plan does not end.
    pub others: u32,
}

/// As much of a plan as one frame holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillPlanPage {
    /// What to call it when it is to be carried out; `None` for a dry run, and
    /// for one that would end nobody: see [`PlanId::LAST`].
    pub id: Option<PlanId>,
    /// Complete but for its targets, of which this is a part.
    pub plan: KillPlan,
    /// The position of the first target that is missing; `None` when none is.
    pub next: Option<u32>,
}

/// What has become of a plan by now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillReport {
    /// Grows whenever something else is known.
    pub version: u64,
    /// How far it is.
    pub stage: Stage,
    /// Each target of the plan, and each process that was born to one meanwhile,
    /// by pid; those that are not settled yet are missing.
    pub outcomes: Vec<KillOutcome>,
    /// The memory of each GPU that the ended ones held.
    pub memory: Vec<MemoryReturn>,
    /// New processes in the place of ended ones.
    pub respawned: Vec<Respawn>,
    /// Why the act stands in the log alone and not in the store; `None` where it
    /// is recorded.
    pub unrecorded: Option<String>,
}

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Signals were sent, or will be.
    Ending,
    /// All have ended that will; their memory is waited for.
    Releasing,
    /// Nothing more will happen.
    Done,
    /// The daemon stopped before it was done.
    Interrupted,
}

/// What became of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillOutcome {
    /// Names it.
    pub key: ProcessKey,
    /// The kernel's name for it.
    pub name: String,
    /// Its arguments, joined by blanks.
    pub command: Reading<String>,
    /// What became of it.
    pub ending: Ending,
}

/// How it went with one process. Only whoever sent the signals says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It ended after this signal, so many milliseconds after the first one.
    Ended(KillSignal, u64),
    /// It is still there, so many milliseconds after the first signal; the last
    /// one was this.
    Survived(KillSignal, u64),
    /// It had ended, or its pid is another's by now: nothing was sent.
    Gone,
    /// It is another user's now, does not use a GPU any more, or executes
    /// something that is protected: nothing was sent. Says which.
    Changed(String),
    /// It is protected: nothing was sent. Says why.
    Protected(String),
    /// The caller may not end it: nothing was sent. Says who could.
    Denied(String),
    /// It cannot be judged: nothing was sent. Says why.
    Unclear(String),
    /// It is stuck in the kernel, where no signal reaches it, and gets none
    /// again.
    Uninterruptible(Stuck),
    /// It had ended already, and goes when its parent asks how.
    Zombie(Reaper),
    /// The kernel refused, or a signal after the first was withheld; says why.
    Failed(String),
}

/// What came back of one GPU's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReturn {
    /// The GPU.
    pub device: DeviceId,
    /// Its index, for people.
    pub index: u32,
    /// What the processes that ended held, as far as that was known.
    pub held: Reading<Bytes>,
    /// What of that is free again.
    pub returned: Reading<Bytes>,
    /// How long that took from the last one's end, in milliseconds; `None` while
    /// some is missing.
    pub after_ms: Option<u64>,
    /// The survivors that hold memory of it.
    pub still_held_by: Vec<u32>,
}

/// A process that came in the place of one that was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Respawn {
    /// The new one.
    pub key: ProcessKey,
    /// Its name.
    pub name: String,
    /// The unit that starts it again, where it is one's.
    pub unit: Option<Unit>,
    /// Its parent, where it is started by one that goes on.
    pub parent: Option<Reaper>,
}

/// As much of a report as one frame holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillReportPage {
    /// Complete but for its outcomes, of which this is a part.
    pub report: KillReport,
    /// The position of the first outcome that is missing; `None` when none is.
    pub next: Option<u32>,
}
