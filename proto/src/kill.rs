//! Ending processes: the request, the plan made from it, and the report of its execution.

use crate::model::{DeviceId, Job, ProcessKey, Unit, Vendor};
use crate::reading::Reading;
use crate::service::{MAX_CONDITION_BYTES, MAX_GPU_LIST_BYTES};
use crate::units::{Bytes, Timestamp};
use crate::words::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Selects processes: all conditions must hold. An empty or `None` field is no condition;
/// without any condition nothing is selected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KillSelector {
    /// The pids.
    pub pids: Vec<u32>,
    /// An unanchored regular expression on the process name.
    pub filter: Option<String>,
    /// An unanchored regular expression on the command line.
    pub command: Option<String>,
    /// GPUs, as typed: indices, UUIDs, PCI addresses, names with `*`.
    pub gpu: Option<String>,
    /// A user, by name or number: the user that runs the process, or its owner.
    pub user: Option<String>,
    /// A container, by name or by the beginning of its id.
    pub container: Option<String>,
    /// The image of a container, with `*` and `?`.
    pub image: Option<String>,
    /// A job, as `list` shows it: `slurm 1234.0`, `1234`, `train.service`.
    pub job: Option<String>,
    /// The least memory that the process holds on one of its GPUs.
    pub min_memory: Option<Bytes>,
    /// The vendors of the GPUs: the process uses a GPU of one of these.
    pub vendors: BTreeSet<Vendor>,
}

impl KillSelector {
    /// Whether pids are the only condition.
    #[must_use]
    pub fn is_pids_only(&self) -> bool {
        !self.pids.is_empty()
            && Self {
                pids: Vec::new(),
                ..self.clone()
            }
            .is_empty()
    }

    /// Whether there is no condition at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The conditions that are texts, with their options.
    fn texts(&self) -> [(&'static str, &Option<String>); 7] {
        [
            ("filter", &self.filter),
            ("command", &self.command),
            ("gpu", &self.gpu),
            ("user", &self.user),
            ("container", &self.container),
            ("image", &self.image),
            ("job", &self.job),
        ]
    }

    /// Checks the bounds of the conditions. An empty text is an error: it would be no condition,
    /// which the caller cannot have meant.
    fn validate(&self) -> Result<(), String> {
        if self.is_empty() {
            return Err("no process is selected".into());
        }
        let pids = self.pids.len();
        if pids > MAX_PIDS {
            return Err(format!(
                "{pids} processes are too many at once: at most {MAX_PIDS}"
            ));
        }
        for (option, text) in self.texts() {
            let Some(text) = text else { continue };
            if text.is_empty() {
                return Err(format!("--{option} is empty"));
            }
            let most = match option {
                "gpu" => MAX_GPU_LIST_BYTES,
                _ => MAX_CONDITION_BYTES,
            };
            check_length(option, text, most)?;
        }
        if self.min_memory == Some(Bytes(0)) {
            return Err("--min-memory 0 excludes nothing".into());
        }
        Ok(())
    }
}

/// Checks the length of a text that an option takes.
pub(crate) fn check_length(option: &str, text: &str, most: usize) -> Result<(), String> {
    match text.len() {
        bytes if bytes > most => Err(format!(
            "--{option} has {bytes} bytes: at most {most} are allowed"
        )),
        _ => Ok(()),
    }
}

/// Checks the timeout of each signal.
pub(crate) fn check_signal_timeout(timeout_ms: u64) -> Result<(), String> {
    if (1..=MAX_SIGNAL_TIMEOUT_MS).contains(&timeout_ms) {
        return Ok(());
    }
    let most = MAX_SIGNAL_TIMEOUT_MS / 1_000;
    Err(format!(
        "the signal timeout of {timeout_ms} ms is out of range: 1 ms to {most} s"
    ))
}

impl KillSelector {
    /// Formats the selector as options of `gpukillctl kill`, for the record of this caller: the
    /// caller's own number is `--mine`.
    #[must_use]
    pub fn text_for_caller(&self, uid: u32) -> String {
        self.options(Some(uid)).join(" ")
    }

    fn options(&self, caller: Option<u32>) -> Vec<String> {
        let own = caller.map(|uid| uid.to_string());
        let mut parts: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        for (name, value) in self.texts() {
            match value {
                Some(_) if name == "user" && *value == own => parts.push("--mine".to_owned()),
                Some(value) => parts.push(format!("--{name} {value:?}")),
                None => {}
            }
        }
        if let Some(min_memory) = self.min_memory {
            parts.push(format!("--min-memory {}B", min_memory.0));
        }
        if !self.vendors.is_empty() {
            let names: Vec<&str> = self.vendors.iter().map(|it| it.name()).collect();
            parts.push(format!("--vendor {}", names.join(",")));
        }
        parts
    }
}

impl fmt::Display for KillSelector {
    /// Formats the selector as options of `gpukillctl kill`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.options(None).join(" "))
    }
}

words! {
    /// The processes that are ended together with a selected one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub enum KillScope {
        /// The process alone.
        #[default]
        Process = "process",
        /// The process and its descendants.
        Tree = "tree",
        /// The whole job that it is part of: see [`Job`].
        Job = "job",
        /// Everything in its container.
        Container = "container",
    }
    /// The name on the command line and in JSON.
    name(self)
}

/// A signal that ends processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KillSignal {
    /// SIGINT, like Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL, which a process can neither ignore nor clean up after.
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

/// A request to end processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KillRequest {
    /// The processes to end.
    pub selector: KillSelector,
    /// The processes that are ended together with them.
    pub scope: KillScope,
    /// The first signal; `None` for the gentlest sequence for the device: SIGTERM, and for AMD
    /// compute processes SIGINT before that.
    pub signal: Option<KillSignal>,
    /// Send SIGKILL to processes that survive. Relaxes nothing else.
    pub force: bool,
    /// The timeout for each signal, in milliseconds: 1 to [`MAX_SIGNAL_TIMEOUT_MS`].
    pub signal_timeout_ms: u64,
    /// Skip the check that the process uses a GPU: for root only, with one pid.
    pub any_process: bool,
    /// End the named processes although they are protected, as far as root may: for root only,
    /// with pids.
    pub override_protected: bool,
    /// Only plan: nothing is recorded, and the plan cannot be executed.
    pub dry_run: bool,
}

impl KillRequest {
    /// Checks the request independently of the state of the host. The client does so before it
    /// asks, and the daemon before it plans.
    ///
    /// # Errors
    /// The first contradiction or exceeded bound.
    pub fn validate(&self) -> Result<(), String> {
        let selector = &self.selector;
        selector.validate()?;
        check_signal_timeout(self.signal_timeout_ms)?;
        let names_pids_only = selector.is_pids_only();
        let what = if self.signal == Some(KillSignal::Kill) && !self.force {
            "--signal KILL needs --force: the process cannot clean up"
        } else if self.any_process && !(names_pids_only && selector.pids.len() == 1) {
            "--any-process takes one PID, and no other condition"
        } else if self.override_protected && !names_pids_only {
            "--override-protected takes PIDs, and no other condition"
        } else {
            return Ok(());
        };
        Err(what.into())
    }
}

/// The longest timeout for one signal.
pub const MAX_SIGNAL_TIMEOUT_MS: u64 = 600_000;

/// The most pids in one request.
pub const MAX_PIDS: usize = 1_024;

/// Identifies a plan until it is executed or expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlanId(pub u64);

impl PlanId {
    /// The last plan without an id on this connection: a dry run, or a plan that would end
    /// nothing. No other plan has this number.
    pub const LAST: PlanId = PlanId(0);
}

/// Identifies a started operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId(pub u64);

/// The processes of a kill and the action planned for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct KillPlan {
    /// The daemon's clock when the plan was made.
    pub at: Timestamp,
    /// The start time of the youngest process of the host that the plan took into account, in
    /// clock ticks after boot: processes that started later are new.
    pub youngest_start_ticks: u64,
    /// The request that the plan was made from.
    pub request: KillRequest,
    /// Every process that the request names or reaches by its scope, whatever its action, by
    /// pid.
    pub targets: Vec<KillTarget>,
    /// The number of processes that may be selected too: the facts that the request tests are
    /// unknown for them. Nothing is done to them.
    pub undetermined: u32,
    /// The jobs of which the plan ends only a part.
    pub remaining_jobs: Vec<RemainingJob>,
}

/// One process of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillTarget {
    /// The identity.
    pub key: ProcessKey,
    /// The kernel's name of the process, controls made visible.
    pub name: String,
    /// Its arguments, joined by blanks.
    pub command: Reading<String>,
    /// The real user id.
    pub uid: Reading<u32>,
    /// The name of its owner.
    pub owner: Reading<String>,
    /// The memory that it holds on each GPU; empty for a process that only the scope reaches.
    pub holds: Vec<TargetMemory>,
    /// Whether the request names it; false if only the scope reaches it.
    pub named: bool,
    /// The job that it is part of.
    pub job: Reading<Job>,
    /// The planned action.
    pub action: PlannedAction,
    /// Why it is protected, if root overrides the protection.
    pub overridden: Option<String>,
}

/// The memory that a process holds on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetMemory {
    /// The GPU.
    pub device: DeviceId,
    /// The index of the GPU, for display.
    pub index: u32,
    /// The memory.
    pub memory: Reading<Bytes>,
}

words! {
    /// The action that a plan has for one process.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum PlannedAction {
        /// Send these signals one after the other until the process has ended.
        End(Vec<KillSignal>) = "end",
        /// None: the process is protected from every caller.
        Protected(ProtectionReason) = "protected",
        /// None: the caller may not end the process; says who may, as in "ask …".
        Denied(String) = "denied",
        /// None: facts of the process are unknown; says which.
        Unclear(String) = "unclear",
        /// None: the process has ended, and its parent has not reaped it.
        Zombie(Reaper) = "zombie",
    }
    /// The name in JSON.
    name(&self)
}

/// The parent of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaper {
    /// The pid of the parent.
    pub pid: u32,
    /// The name of the parent.
    pub name: Reading<String>,
}

/// A job of which a plan ends only a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemainingJob {
    /// A pid by which a command can select the whole job: a process that remains and uses a
    /// GPU; without one, a process that the plan ends.
    pub pid: u32,
    /// The job.
    pub job: Job,
    /// The number of its processes that the plan does not end.
    pub remaining_processes: u32,
}

/// The part of a plan that fits one frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillPlanPage {
    /// The id for executing the plan; `None` for a dry run, and for a plan that would end
    /// nothing: see [`PlanId::LAST`].
    pub id: Option<PlanId>,
    /// The plan: complete, except that `targets` is a part.
    pub plan: KillPlan,
    /// The position of the next target; `None` on the last page.
    pub next: Option<u32>,
}

/// The progress of a kill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillReport {
    /// Grows with each change of the report.
    pub version: u64,
    /// The stage of the operation.
    pub stage: Stage,
    /// The outcome of each target and of each process that a target forked meanwhile, by pid;
    /// processes without an outcome yet are missing.
    pub outcomes: Vec<ProcessOutcome>,
    /// The memory of each GPU that the ended processes held.
    pub memory: Vec<MemoryReclaim>,
    /// New processes that replace ended ones.
    pub respawned: Vec<Respawn>,
    /// Why processes of the job may be left that this report does not name; `None` if the last scan
    /// after the signals saw all processes.
    pub unchecked: Option<String>,
    /// Why the action is only in the log and not in the store; `None` if the action is recorded.
    pub unrecorded: Option<String>,
}

words! {
    /// The stage of an operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Stage {
        /// Signals are being sent.
        Ending = "ending",
        /// All processes that will end have ended; waiting for their memory.
        Reclaiming = "reclaiming",
        /// The operation is complete.
        Done = "done",
        /// The daemon stopped before the operation was complete.
        Interrupted = "interrupted",
    }
    /// The name in JSON.
    name(self)
}

/// The outcome of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessOutcome {
    /// The identity.
    pub key: ProcessKey,
    /// The kernel's name of the process.
    pub name: String,
    /// Its arguments, joined by blanks.
    pub command: Reading<String>,
    /// The outcome.
    pub outcome: Outcome,
}

words! {
    /// The outcome for one process. Only the code that sent the signals reports it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Outcome {
        /// It ended after this signal, this many milliseconds after the first signal.
        Ended(KillSignal, u64) = "ended",
        /// It still exists this many milliseconds after the first signal; the last signal was this.
        Survived(KillSignal, u64) = "survived",
        /// It had ended, or another process has reused its pid: no signal was sent.
        Gone = "gone",
        /// It belongs to another user now, no longer uses a GPU, or executes a protected program:
        /// no signal was sent. Says which.
        Changed(String) = "changed",
        /// It is protected: no signal was sent. Says why.
        Protected(String) = "protected",
        /// The caller may not end it: no signal was sent. Says who may.
        Denied(String) = "denied",
        /// Facts of it are unknown: no signal was sent. Says which.
        Unclear(String) = "unclear",
        /// It waits in the kernel, where no signal reaches it, and gets no further signal.
        Uninterruptible(UninterruptibleWait) = "uninterruptible",
        /// It had already ended, and remains until its parent reaps it.
        Zombie(Reaper) = "zombie",
        /// The kernel refused, or a signal after the first was withheld; says why.
        Failed(String) = "failed",
    }
    /// The name in JSON.
    name(&self)
}

/// The reclaimed memory of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReclaim {
    /// The GPU.
    pub device: DeviceId,
    /// The index of the GPU, for display.
    pub index: u32,
    /// The memory that the ended processes held, as far as known.
    pub held: Reading<Bytes>,
    /// The part of it that is free again.
    pub returned: Reading<Bytes>,
    /// The time from the end of the last process until the memory was free, in milliseconds;
    /// `None` while memory is missing.
    pub after_ms: Option<u64>,
    /// The surviving processes that hold memory of it.
    pub still_held_by: Vec<u32>,
}

/// A process that replaces an ended one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Respawn {
    /// The identity of the new process.
    pub key: ProcessKey,
    /// The name of the new process.
    pub name: String,
    /// The unit that restarts it, if there is one.
    pub unit: Option<Unit>,
    /// Its parent, if a surviving process started it.
    pub parent: Option<Reaper>,
}

/// The part of a report that fits one frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillReportPage {
    /// The report: complete, except that `outcomes` is a part.
    pub report: KillReport,
    /// The position of the next outcome; `None` on the last page.
    pub next: Option<u32>,
}

/// Why no caller may end a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionReason {
    /// The reason in words.
    pub why: String,
    /// Whether root may end it with [`KillRequest::override_protected`].
    pub root_may_override: bool,
}

impl ProtectionReason {
    /// Protection that root cannot override.
    #[must_use]
    pub fn always(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            root_may_override: false,
        }
    }

    /// Protection that root can override in the request.
    #[must_use]
    pub fn unless_overridden(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            root_may_override: true,
        }
    }

    /// How to end the process all the same, in words; `None` if that is impossible.
    #[must_use]
    pub const fn override_hint(&self) -> Option<&'static str> {
        match self.root_may_override {
            true => Some("root may end it with --override-protected"),
            false => None,
        }
    }
}

/// The cause of an uninterruptible wait.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UninterruptibleWait {
    /// The kernel function, if reported.
    pub waits_on: Option<String>,
    /// The FUSE filesystem, if the process waits on one.
    pub fuse: Option<FuseMount>,
}

/// A filesystem that a process serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseMount {
    /// The mount point, as the waiting process sees it.
    pub path: String,
    /// The processes that serve it; empty if the kernel does not report them.
    pub servers: Vec<FuseServer>,
}

/// A process that serves a FUSE filesystem: processes that wait on the filesystem continue when
/// the server ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FuseServer {
    /// The pid.
    pub pid: u32,
    /// The name of its owner.
    pub owner: Reading<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_number_of_the_caller_is_mine() {
        let selector = KillSelector {
            pids: vec![7],
            user: Some("2001".to_owned()),
            ..KillSelector::default()
        };
        assert_eq!(selector.text_for_caller(2001), "7 --mine");
        assert_eq!(selector.text_for_caller(2002), "7 --user \"2001\"");
        assert_eq!(selector.to_string(), "7 --user \"2001\"");
        let nobody = KillSelector {
            user: None,
            ..selector
        };
        assert_eq!(nobody.text_for_caller(2001), "7");
    }

    #[test]
    fn each_bound_of_a_request_is_checked() {
        let select = |selector| KillRequest {
            selector,
            signal_timeout_ms: 5_000,
            ..KillRequest::default()
        };
        let pids = |most| KillSelector {
            pids: (1..=most).collect(),
            ..KillSelector::default()
        };
        let with_user = |user: &str, selector| KillSelector {
            user: Some(user.to_owned()),
            ..selector
        };
        let one = || select(pids(1));
        let timeout = |signal_timeout_ms| KillRequest {
            signal_timeout_ms,
            ..one()
        };
        let text = |bytes| with_user(&"x".repeat(bytes), pids(0));
        let gpu = |bytes| KillSelector {
            gpu: Some("0".repeat(bytes)),
            ..KillSelector::default()
        };
        let kill = |force| KillRequest {
            signal: Some(KillSignal::Kill),
            force,
            ..one()
        };
        let any_process = |selector| KillRequest {
            any_process: true,
            ..select(selector)
        };
        let override_protected = |selector| KillRequest {
            override_protected: true,
            ..select(selector)
        };
        for within in [
            select(pids(1_024)),
            timeout(1),
            timeout(600_000),
            select(text(512)),
            select(gpu(2_048)),
            kill(true),
            any_process(pids(1)),
            override_protected(pids(2)),
        ] {
            assert_eq!(within.validate(), Ok(()), "{within:?}");
        }
        let one_pid = "--any-process takes one PID, and no other condition";
        let no_memory = KillSelector {
            min_memory: Some(Bytes(0)),
            ..pids(1)
        };
        for (beyond, why) in [
            (select(pids(0)), "no process is selected"),
            (
                select(pids(1_025)),
                "1025 processes are too many at once: at most 1024",
            ),
            (
                timeout(0),
                "the signal timeout of 0 ms is out of range: 1 ms to 600 s",
            ),
            (
                timeout(600_001),
                "the signal timeout of 600001 ms is out of range: 1 ms to 600 s",
            ),
            (select(text(0)), "--user is empty"),
            (
                select(text(513)),
                "--user has 513 bytes: at most 512 are allowed",
            ),
            (
                select(gpu(2_049)),
                "--gpu has 2049 bytes: at most 2048 are allowed",
            ),
            (select(no_memory), "--min-memory 0 excludes nothing"),
            (
                kill(false),
                "--signal KILL needs --force: the process cannot clean up",
            ),
            (any_process(pids(2)), one_pid),
            (any_process(with_user("bob", pids(1))), one_pid),
            (
                override_protected(with_user("bob", pids(1))),
                "--override-protected takes PIDs, and no other condition",
            ),
        ] {
            assert_eq!(beyond.validate(), Err(why.to_owned()));
        }
    }
}
