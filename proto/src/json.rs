//! The JSON that `-o json` prints: one shape for the client, exports and other programs.
//!
//! Field names are stable; fields are only added. A field without a fresh value is `null`, and
//! `reasons` beside it says why: `"unsupported"`, `"failed: …"`, `"stale: 12 s"` or `"withheld:
//! …"`. Fields named `…_mb` count MiB; fields named `…_bytes` are exact.

mod actions;
mod audit;
mod evidence;
mod explain;
mod fields;
mod gpu;
mod guard;
mod holders;
mod kill;
mod lists;
mod process;
mod process_status;
mod prune;
mod replay;
pub mod report;
mod reset;
mod rogue;
mod runs;
pub mod schema;
mod series;
mod status;
mod summary;
mod timeline;

pub use actions::ActionDocument;
pub use audit::AuditDocument;
pub use evidence::{EvidenceDocument, EvidenceProcessDocument};
pub use explain::{DeviceFindingDocument, DeviceHoldDocument, ExplainDocument};
pub use gpu::{GpuDocument, GpuState, InstanceDocument, XidDocument};
pub use guard::{
    GuardDocument, GuardRecordDocument, OpenViolationDocument, VictimDocument, ViolationsDocument,
};
pub use holders::{
    DeviceHoldersDocument, EndedHolderDocument, HolderDocument, HolderFindingDocument,
    HoldersDocument,
};
pub use kill::{
    KillPlanDocument, KillReportDocument, KillTargetDocument, MemoryReclaimDocument,
    ProcessOutcomeDocument, RemainingJobDocument, RespawnDocument, TargetMemoryDocument,
};
pub use lists::{
    ActionsDocument, CellsDocument, EventsDocument, GpuListDocument, PeriodDocument,
    ProcessListDocument, RulesTextDocument, RunsDocument, SamplesDocument,
};
pub use process::{AncestorDocument, ProcessDocument, top_process};
pub use process_status::{
    AppliedLimitDocument, GuardSummaryDocument, ProcessGuardStatusDocument, ReplacedLimitDocument,
    ViolationMarkDocument,
};
pub use prune::{PruneDocument, StoreContentsDocument};
pub use replay::{ReplayDocument, RuleOutcomeDocument, UnevaluatedTimeDocument};
pub use reset::{
    BlockerDocument, ResetOutcomeDocument, ResetPlanDocument, ResetReportDocument,
    ResetTargetDocument,
};
pub use rogue::{
    IndicatorDocument, RecommendationDocument, RogueAssessmentDocument, RogueDocument,
    RogueFindingDocument, ScanDocument, VerdictDocument, VerdictSummaryDocument,
};
pub use runs::RunDocument;
pub use series::{SeriesBucketDocument, SeriesDocument, SeriesLineDocument, SeriesRowDocument};
pub use status::{AlertDocument, BackendDocument, SettingDocument, StatusDocument};
pub use summary::{
    DayDocument, DeviceTimeDocument, GapDocument, HourDocument, OwnerTimeDocument,
    ProcessTimeDocument, SummaryDocument, WeekDocument, WeeklyDocument,
};
pub use timeline::TimelineDocument;

use crate::guard::{GuardSummary, ViolationMark};
use crate::model::{Fault, FaultCode, ProcessKey, Snapshot};
use crate::rogue::VerdictSummary;
use crate::units::Timestamp;
use fields::{document, documents};
use schema::described;

/// The version of the JSON shape. It grows when a field changes its meaning.
pub const SCHEMA: u32 = 1;

described! {
    /// The document that `gpukillctl list -o json` prints.
    pub struct ListDocument {
        /// The version of the JSON shape.
        pub schema: u32,
        /// The host name.
        pub host: String,
        /// The start of the poll, in UTC.
        pub ts: String as Timestamp,
        /// The number of polls since the daemon started.
        pub polls: u64,
        /// The devices, in the order of their index.
        pub gpus: Vec<GpuDocument>,
        /// One entry for each process and device.
        pub procs: Vec<ProcessDocument>,
        /// The state of the backend of each vendor: whether an empty `gpus` means "none".
        pub backends: Vec<BackendDocument>,
        /// The current faults.
        pub faults: Vec<FaultDocument>,
        /// The thresholds of `[alerts]` that GPUs have reached.
        pub alerts: Vec<FaultDocument>,
        /// The summary of the guard.
        pub guard: GuardSummaryDocument,
    }
}

/// Guard marks and verdicts to attach to processes.
#[derive(Debug, Clone, Copy)]
struct ProcessAnnotations<'a> {
    /// The rules that the processes violate.
    rules: &'a [ViolationMark],
    /// The verdicts.
    suspected: &'a [(ProcessKey, VerdictSummary)],
}

document! {
    /// A current fault.
    plain FaultDocument(fault: &Fault) {
        part: String = fault.part.clone(),
        what: String = fault.what.clone(),
        since: String as Timestamp = fault.since.to_rfc3339(),
    }
}

/// The faults of some kinds.
fn fault_documents(faults: &[Fault], is_wanted: fn(FaultCode) -> bool) -> Vec<FaultDocument> {
    let wanted = faults.iter().filter(|fault| is_wanted(fault.code));
    wanted.map(FaultDocument::from).collect()
}

impl ListDocument {
    /// A snapshot with the guard's marks and the verdicts for its processes.
    #[must_use]
    pub fn new(
        snapshot: &Snapshot,
        guard: &GuardSummary,
        suspected: &[(ProcessKey, VerdictSummary)],
    ) -> Self {
        let marks = ProcessAnnotations {
            rules: &guard.marks,
            suspected,
        };
        let gpu = |device| GpuDocument::new(snapshot, device, marks);
        let proc = |process| ProcessDocument::from_snapshot(snapshot, process, marks);
        Self {
            schema: SCHEMA,
            host: snapshot.host.clone(),
            ts: snapshot.taken_at.to_rfc3339(),
            polls: snapshot.polls,
            gpus: snapshot.devices.iter().map(gpu).collect(),
            procs: snapshot.processes.iter().map(proc).collect(),
            backends: documents(&snapshot.backends),
            faults: fault_documents(&snapshot.faults, |code| !code.is_alert()),
            alerts: fault_documents(&snapshot.faults, FaultCode::is_alert),
            guard: GuardSummaryDocument::from(guard),
        }
    }
}

#[cfg(test)]
mod tests;
