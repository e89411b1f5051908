//! The calls that the daemon answers.
//!
//! New calls are added at the end, with a higher minor version; a call that must change gets a
//! new name. A request never names its caller: the daemon asks the kernel.
#![allow(
    missing_docs,
    reason = "tarpc's macro writes items that cannot carry comments"
)]

use crate::audit::{
    ActionPage, ActionQuery, AuditFilter, AuditPage, AuditQuery, AuditSeries, AuditSummary, Backup,
    CopyId, PruneReport, RunPage, RunQuery, SeriesQuery, TimelinePage, TimelineQuery,
};
use crate::guard::edit::GuardEdit;
use crate::guard::{
    EditReport, GuardSummary, ReplayReport, ReplayRequest, RulesRevision, RulesText, SnoozedRule,
    ViolationPage, ViolationQuery,
};
use crate::holders::{DeviceLabel, Explanation, HoldersPage};
use crate::kill::{KillPlanPage, KillReportPage, KillRequest, OperationId, PlanId};
use crate::model::{DeviceId, ProcessKey, Snapshot};
use crate::refusal::Refusal;
use crate::reset::{ResetPlan, ResetReport, ResetRequest};
use crate::rogue::{RogueEdit, ScanReport, VerdictSummary};
use crate::status::DaemonStatus;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// The longest time a call waits for news before it answers with the current state.
pub const MAX_WAIT: std::time::Duration = std::time::Duration::from_secs(30);

/// The longest time for which the daemon may release a driver, so that a forgotten quiesce does
/// not leave the devices unmonitored.
pub const MAX_QUIESCE: std::time::Duration = std::time::Duration::from_secs(86_400);

/// The longest part of a copy in one call, in bytes: a whole request may have 64 KiB.
pub const MAX_PART_BYTES: usize = 48 << 10;

/// The longest rules file that is accepted, in bytes.
pub const MAX_RULES_BYTES: usize = 1 << 20;

/// The most bytes of a text that selects processes: a name, a pattern.
pub const MAX_CONDITION_BYTES: usize = 512;

/// The most bytes of a list of GPUs: 48 UUIDs fit.
pub const MAX_GPU_LIST_BYTES: usize = 2_048;

/// The longest history that a scan covers, in hours: a month.
pub const MAX_SCAN_HOURS: u32 = 31 * 24;

/// The part of a snapshot that fits one frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPage {
    /// The snapshot: complete, except that `processes` is a part.
    pub snapshot: Snapshot,
    /// The position of the next process; `None` on the last page.
    pub next: Option<u32>,
    /// The guard's summary for all processes of the snapshot.
    pub guard: GuardSummary,
    /// The processes of the whole snapshot that have a verdict, at most [`MAX_VERDICTS`], the
    /// worst first.
    pub verdicts: Vec<(ProcessKey, VerdictSummary)>,
}

/// The most processes for which `list` gets a verdict.
pub const MAX_VERDICTS: usize = 500;

/// The calls that `gpukilld` answers.
#[tarpc::service]
pub trait Gpukill {
    /// The newest snapshot. With `after`, waits for a snapshot with more polls, at most
    /// [`MAX_WAIT`].
    async fn snapshot(after: Option<u64>) -> Result<SnapshotPage, Refusal>;

    /// More processes of the snapshot that this connection requested last. [`Refusal::Expired`]
    /// if that has another number of polls.
    async fn more_processes(polls: u64, start: u32) -> Result<SnapshotPage, Refusal>;

    /// The status of the daemon, and the rights of the caller.
    async fn status() -> Result<DaemonStatus, Refusal>;

    /// Records of samples.
    async fn audit(query: AuditQuery) -> Result<AuditPage, Refusal>;

    /// Releases the NVIDIA driver for this many seconds, at most [`MAX_QUIESCE`], so that it
    /// can be unloaded, updated or reset; the last readings stay and become stale. Answers with
    /// the end time once the driver is released. Needs the right to end processes of any user.
    async fn quiesce(seconds: u64) -> Result<Timestamp, Refusal>;

    /// Ends a [`Gpukill::quiesce`] early; changes nothing otherwise.
    async fn resume() -> Result<(), Refusal>;

    /// Removes the rows of these GPUs, by index, UUID, PCI address or name, which their drivers
    /// no longer list. Needs the right to edit rules.
    async fn forget_gpus(gpu: String) -> Result<Vec<DeviceLabel>, Refusal>;

    /// The processes that have a device open, or all devices, and the causes of unattributed
    /// memory. With `start` 0 it scans all processes first; with another `start` it continues
    /// the answer that this connection requested last, or refuses with [`Refusal::Expired`].
    async fn holders(device: Option<DeviceId>, start: u32) -> Result<HoldersPage, Refusal>;

    /// All that is known of one process that uses a device or has one open. Scans all processes
    /// first.
    async fn explain(pid: u32) -> Result<Explanation, Refusal>;

    /// Plans a kill. A request that would end nothing and is not a dry run is recorded as
    /// refused.
    async fn plan_kill(request: KillRequest) -> Result<KillPlanPage, Refusal>;

    /// More targets of a plan of this caller. A plan is retained for ten minutes, or until it
    /// is executed. A plan without an id is [`PlanId::LAST`].
    async fn more_of_kill_plan(plan: PlanId, start: u32) -> Result<KillPlanPage, Refusal>;

    /// Executes a plan of this caller, once. Each target is inspected again before its signal.
    /// The operation continues whether or not a client follows it.
    async fn kill(plan: PlanId) -> Result<OperationId, Refusal>;

    /// The report of a kill: at once if a version newer than `after` exists, else when it does,
    /// or after [`MAX_WAIT`]. Outcomes from position `start` on; a `start` other than 0
    /// continues the report that this connection got last ([`Refusal::Expired`] if that was
    /// another). For the caller that started the kill, operators and admins.
    async fn follow_kill(
        operation: OperationId,
        after: Option<u64>,
        start: u32,
    ) -> Result<KillReportPage, Refusal>;

    /// Plans a reset, with everything that prevents it. The id is `None` for a dry run, and if
    /// nothing would be reset. Needs the right to end processes of any user.
    async fn plan_reset(request: ResetRequest) -> Result<(Option<PlanId>, ResetPlan), Refusal>;

    /// Executes a reset that this caller planned, once, device by device.
    async fn reset(plan: PlanId) -> Result<OperationId, Refusal>;

    /// The report of a reset, like [`Gpukill::follow_kill`].
    async fn follow_reset(
        operation: OperationId,
        after: Option<u64>,
    ) -> Result<ResetReport, Refusal>;

    /// Sums over a period. Answers within seconds for any period.
    async fn audit_summary(filter: AuditFilter) -> Result<AuditSummary, Refusal>;

    /// The recorded actions, refusals and faults. A plain user sees plans of others only if the
    /// command lines of others are visible.
    async fn audit_actions(query: ActionQuery) -> Result<ActionPage, Refusal>;

    /// Deletes samples, minutes, hours and processes before this time; recorded actions stay.
    /// For admins.
    async fn prune(before: Timestamp, is_dry_run: bool) -> Result<PruneReport, Refusal>;

    /// Makes a consistent copy of the whole store. For admins.
    async fn backup() -> Result<Backup, Refusal>;

    /// A part of that copy: at most [`MAX_PART_BYTES`] bytes from `offset` on; empty at its
    /// end.
    async fn part_of_backup(copy: CopyId, offset: u64) -> Result<Vec<u8>, Refusal>;

    /// The decisions of the guard, and with the first page the violations that continue.
    async fn violations(query: ViolationQuery) -> Result<ViolationPage, Refusal>;

    /// The text of the current rules file from this byte on, at most [`MAX_PART_BYTES`]. Needs
    /// the right to see what others requested.
    async fn rules_text(offset: u64) -> Result<RulesText, Refusal>;

    /// Uploads rules, part by part, each of at most [`MAX_PART_BYTES`] bytes and
    /// [`MAX_RULES_BYTES`] in all; a part at offset 0 starts again. The rules belong to this
    /// connection alone.
    async fn offer_rules(offset: u64, part: Vec<u8>) -> Result<(), Refusal>;

    /// Changes the rules, or reports the effect of a change for a dry run. `expected` is the
    /// revision that the caller last read; another one is refused. `None` for `edit` replaces
    /// the whole file with the uploaded rules. For admins.
    async fn edit_rules(
        edit: Option<GuardEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal>;

    /// Applies rules to a past period.
    async fn replay_rules(request: ReplayRequest) -> Result<ReplayReport, Refusal>;

    /// Gives the owner of this process more time before the job is ended, for each rule that
    /// allows it, or reports the effect for a dry run; at most
    /// [`MAX_SNOOZED_RULES`](crate::guard::MAX_SNOOZED_RULES) rules. For the owner that was
    /// warned, and for callers that may end processes of any user.
    async fn snooze(pid: u32, is_dry_run: bool) -> Result<Vec<SnoozedRule>, Refusal>;

    /// Suspicious processes among those that use a device now or did in the last `hours` hours,
    /// at most [`MAX_SCAN_HOURS`]. A plain user sees the processes of others only with a
    /// visible command line.
    async fn scan(hours: u32) -> Result<ScanReport, Refusal>;

    /// The text of the current rules for rogue detection, like [`Gpukill::rules_text`].
    async fn rogue_text(offset: u64) -> Result<RulesText, Refusal>;

    /// Changes the rules for rogue detection, like [`Gpukill::edit_rules`]; rules uploaded with
    /// [`Gpukill::offer_rules`] may be of this kind too. For admins.
    async fn edit_rogue(
        edit: Option<RogueEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal>;

    /// The runs of jobs or processes in a period, with how each ended.
    async fn audit_runs(query: RunQuery) -> Result<RunPage, Refusal>;

    /// Usage over time in buckets, by GPU, owner or job.
    async fn audit_series(query: SeriesQuery) -> Result<AuditSeries, Refusal>;

    /// Everything that happened to GPUs, jobs and processes, oldest first. The requests, plans
    /// and command lines of other users may be hidden; that they acted is not.
    async fn timeline(query: TimelineQuery) -> Result<TimelinePage, Refusal>;
}
