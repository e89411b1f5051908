//! Every call the daemon answers.
//!
//! Calls are only ever added, at the end, with a higher minor version; a call
//! that must change gets a new name. Who calls is never in a request: the
//! daemon asks the kernel.
#![allow(
    missing_docs,
    reason = "tarpc's macro writes items that cannot carry comments"
)]

use crate::audit::{
    ActionPage, ActionQuery, AuditFilter, AuditPage, AuditQuery, AuditSummary, Backup, CopyId,
    PruneReport,
};
use crate::guard::edit::GuardEdit;
use crate::guard::{
    EditReport, GuardBrief, ReplayReport, ReplayRequest, RulesRevision, RulesText, Snoozed,
    ViolationPage, ViolationQuery,
};
use crate::holders::{DeviceLabel, Explanation, HoldersPage};
use crate::kill::{KillPlanPage, KillReportPage, KillRequest, OperationId, PlanId};
use crate::refusal::Refusal;
use crate::reset::{ResetPlan, ResetReport, ResetRequest};
use crate::rogue::{RogueEdit, ScanReport, Suspected};
use crate::snapshot::{DeviceId, ProcessKey, Snapshot};
use crate::status::Status;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// The longest a call may wait for news before it answers with what there is.
pub const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_secs(30);

/// The longest time for which the daemon lets go of a driver: nobody should find
/// a box unwatched for ever because somebody forgot.
pub const LONGEST_QUIESCE: std::time::Duration = std::time::Duration::from_secs(86_400);

/// The longest part of a copy that travels at once, in bytes: a request has 64
/// KiB in all.
pub const LONGEST_PART: usize = 48 << 10;

/// The longest rules that are taken, in bytes.
pub const LONGEST_RULES: usize = 1 << 20;

/// So many hours back a scan looks at most: a month.
pub const LONGEST_SCAN: u32 = 31 * 24;

/// As much of a snapshot as one frame holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPage {
    /// Complete but for its processes, of which this is a part.
    pub snapshot: Snapshot,
    /// The position of the first process that is missing; `None` when none is.
    pub next: Option<u32>,
    /// Who breaks rules, of all its processes.
    pub guard: GuardBrief,
    /// Those of all its processes of which there is a verdict, at most
    /// [`MOST_SUSPECTED`], the worst first.
    pub suspected: Vec<(ProcessKey, Suspected)>,
}

/// Of so many processes at most `list` tells a verdict.
pub const MOST_SUSPECTED: usize = 500;

/// What `gpukilld` answers.
#[tarpc::service]
pub trait Gpukill {
    /// The newest snapshot. With `after`, waits until there is a newer one than
    /// that tick, or [`LONGEST_WAIT`] is over.
    async fn snapshot(after: Option<u64>) -> Result<SnapshotPage, Refusal>;

    /// More processes of the snapshot that this connection asked for last.
    /// [`Refusal::Expired`] if that was another tick.
    async fn more_processes(tick: u64, start: u32) -> Result<SnapshotPage, Refusal>;

    /// How the daemon stands, and what the caller may do.
    async fn status() -> Result<Status, Refusal>;

    /// What the samples say of the past.
    async fn audit(query: AuditQuery) -> Result<AuditPage, Refusal>;

    /// Lets go of the NVIDIA driver for so many seconds, at most
    /// [`LONGEST_QUIESCE`], so that it can be unloaded, updated or reset; the
    /// last readings stay, and grow old. Answers when it is let go, with the end
    /// of it. For those who may end anybody's processes.
    async fn quiesce(seconds: u64) -> Result<Timestamp, Refusal>;

    /// Ends a [`Gpukill::quiesce`] early; without one it changes nothing.
    async fn resume() -> Result<(), Refusal>;

    /// Drops the rows of these GPUs, by index, UUID, PCI address or name, which their
    /// drivers do not list any more. For those who may edit rules.
    async fn forget_gpus(gpu: String) -> Result<Vec<DeviceLabel>, Refusal>;

    /// Who has a device open, or all devices, and whose the memory is that no
    /// process explains. From `start` 0 it looks at all processes first; from
    /// another it goes on with the answer that this connection asked for last,
    /// or refuses with [`Refusal::Expired`].
    async fn holders(device: Option<DeviceId>, start: u32) -> Result<HoldersPage, Refusal>;

    /// All that is known of one process that uses a device or has one open.
    /// Looks at all processes first.
    async fn explain(pid: u32) -> Result<Explanation, Refusal>;

    /// Whom a kill would end. A request that would end nobody, and is no dry run,
    /// is recorded as refused.
    async fn plan_kill(request: KillRequest) -> Result<KillPlanPage, Refusal>;

    /// More targets of a plan that this caller made, as long as it is kept: ten
    /// minutes, or until it is carried out. One without an id is
    /// [`PlanId::LAST`].
    async fn more_of_kill_plan(plan: PlanId, start: u32) -> Result<KillPlanPage, Refusal>;

    /// Carries out a plan that this caller made, once. Each target is looked at
    /// again before its signal. It goes on whether or not anybody follows it.
    async fn kill(plan: PlanId) -> Result<OperationId, Refusal>;

    /// How a kill stands: at once when something newer than version `after` is
    /// known, else when there is, or [`LONGEST_WAIT`] is over. Outcomes from
    /// `start` on: other than from 0, of the report that this connection had last
    /// ([`Refusal::Expired`] if that was another's). For whoever began it,
    /// operators and admins.
    async fn follow_kill(
        operation: OperationId,
        after: Option<u64>,
        start: u32,
    ) -> Result<KillReportPage, Refusal>;

    /// What a reset would do, and everything that stands in its way; the id is
    /// `None` for a dry run and where nothing would be reset. For those who may
    /// end anybody's processes.
    async fn plan_reset(request: ResetRequest) -> Result<(Option<PlanId>, ResetPlan), Refusal>;

    /// Carries out a reset that this caller planned, once, device by device.
    async fn reset(plan: PlanId) -> Result<OperationId, Refusal>;

    /// How a reset stands: as [`Gpukill::follow_kill`].
    async fn follow_reset(
        operation: OperationId,
        after: Option<u64>,
    ) -> Result<ResetReport, Refusal>;

    /// What a stretch of the past comes to. Answers within seconds, whatever the
    /// stretch.
    async fn audit_summary(filter: AuditFilter) -> Result<AuditSummary, Refusal>;

    /// What was done, refused and broken. A plain user sees others' plans where
    /// they may see their command lines.
    async fn audit_actions(query: ActionQuery) -> Result<ActionPage, Refusal>;

    /// Deletes samples, minutes, hours and processes of before this moment; the
    /// record of what was done stays. For admins.
    async fn prune(before: Timestamp, is_dry_run: bool) -> Result<PruneReport, Refusal>;

    /// Makes a copy of the whole store, as it stands at one moment. For admins.
    async fn backup() -> Result<Backup, Refusal>;

    /// A part of that copy: at most [`LONGEST_PART`] bytes from `offset` on, and
    /// none at its end.
    async fn part_of_backup(copy: CopyId, offset: u64) -> Result<Vec<u8>, Refusal>;

    /// What the guard decided, and with the first page the violations that go on.
    async fn violations(query: ViolationQuery) -> Result<ViolationPage, Refusal>;

    /// The rules as they are written now, from this byte on: at most
    /// [`LONGEST_PART`] of them. For those who may see what others asked for.
    async fn rules_text(offset: u64) -> Result<RulesText, Refusal>;

    /// Offers rules of one's own, part by part, each of at most [`LONGEST_PART`]
    /// bytes and [`LONGEST_RULES`] in all; a part at 0 begins anew. They are kept for
    /// this connection alone.
    async fn offer_rules(offset: u64, part: Vec<u8>) -> Result<(), Refusal>;

    /// Changes the rules; or, of a dry run, says what that would change. `expected`
    /// is what the caller has seen there: another is refused. `None` for the edit
    /// puts what was offered in the place of all. For admins.
    async fn edit_rules(
        edit: Option<GuardEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal>;

    /// What rules would have done in a stretch of the past.
    async fn replay_rules(request: ReplayRequest) -> Result<ReplayReport, Refusal>;

    /// Gives whoever was warned of this process more time before their job is ended, by
    /// each rule that allows it; or, of a dry run, says what that would come to: at most
    /// [`MOST_SNOOZED`](crate::guard::MOST_SNOOZED) rules. For whose process it is, and
    /// for those who may end anybody's.
    async fn snooze(pid: u32, is_dry_run: bool) -> Result<Vec<Snoozed>, Refusal>;

    /// Who may be up to no good, of those that use a device and of those that did in the
    /// last so many hours; at most [`LONGEST_SCAN`] of them. A plain user sees of others
    /// those whose command lines they may see.
    async fn scan(hours: u32) -> Result<ScanReport, Refusal>;

    /// The rules by which that is judged, as they are written now: as
    /// [`Gpukill::rules_text`].
    async fn rogue_text(offset: u64) -> Result<RulesText, Refusal>;

    /// Changes them: as [`Gpukill::edit_rules`], and what was offered with
    /// [`Gpukill::offer_rules`] may be rules of this kind too. For admins.
    async fn edit_rogue(
        edit: Option<RogueEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal>;
}
