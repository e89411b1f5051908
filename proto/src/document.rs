//! The JSON that `-o json` prints: one shape for the client, exports and other
//! programs.
//!
//! Field names are stable; fields are only added. A field without a fresh value
//! is `null`, and `reasons` beside it says why: `"unsupported"`, `"failed: …"`,
//! `"stale: 12 s"` or `"withheld: …"`. Names that end in `_mb` count MiB, names
//! that end in `_bytes` are exact.

mod fields;

mod gpu;

mod process;

mod status;

mod audit;

mod actions;

mod summary;

mod holders;

mod explain;

mod kill;

mod reset;

mod evidence;

mod guard;

mod ruled;

mod replay;

mod rogue;

mod prune;

pub mod report;

pub use actions::ActionDocument;
pub use audit::AuditDocument;
pub use evidence::{EvidenceDocument, ToldDocument};
pub use explain::{ExplainDocument, FoundDocument, HoldDocument};
pub use gpu::{GpuDocument, InstanceDocument, XidDocument};
pub use guard::{
    GuardDocument, GuardRecordDocument, OpenViolationDocument, VictimDocument, ViolationsDocument,
};
pub use holders::{
    EndedDocument, FindingDocument, HeldGpuDocument, HolderDocument, HoldersDocument,
};
pub use kill::{
    KillHoldDocument, KillOutcomeDocument, KillPlanDocument, KillReportDocument, KillRestDocument,
    KillTargetDocument, MemoryReturnDocument, RespawnDocument,
};
pub use process::{ParentDocument, ProcessDocument, top_process};
pub use prune::{ContentsDocument, PruneDocument};
pub use replay::{NotJudgedDocument, ReplayDocument, RuleOutcomeDocument};
pub use reset::{
    BlockerDocument, ResetOutcomeDocument, ResetPlanDocument, ResetReportDocument,
    ResetTargetDocument,
};
pub use rogue::{
    LookedDocument, RecommendationDocument, RogueDocument, ScanDocument, SignDocument,
    SuspectDocument, SuspectedDocument, VerdictDocument,
};
pub use ruled::{
    GuardBriefDocument, LimitDocument, MarkDocument, ReplacedDocument, RuleCountsDocument,
    RuledDocument,
};
pub use status::{BackendDocument, SettingDocument, StatusDocument};
pub use summary::{
    DayDocument, GapDocument, HourDocument, OwnerTimeDocument, ProcessTimeDocument,
    SummaryDocument, UsedGpuDocument, WeekDocument, WeeklyDocument,
};

use crate::guard::{GuardBrief, Marked};
use crate::rogue::Suspected;
use crate::snapshot::{Fault, ProcessKey, Snapshot};
use serde::Serialize;

/// The version of this shape. It grows when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// What `gpukillctl list -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListDocument {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The host name of the box.
    pub host: String,
    /// When the poll began, RFC 3339 in UTC.
    pub ts: String,
    /// Counts polls since the daemon started.
    pub tick: u64,
    /// The devices, in the order of their index.
    pub gpus: Vec<GpuDocument>,
    /// One for each process and device it uses.
    pub procs: Vec<ProcessDocument>,
    /// How each vendor's backend stands: whether an empty `gpus` means "none".
    pub backends: Vec<BackendDocument>,
    /// What is broken now.
    pub faults: Vec<FaultDocument>,
    /// How the guard stands.
    pub guard: GuardBriefDocument,
}

/// What is said of processes besides what is read of them.
#[derive(Debug, Clone, Copy)]
struct Marks<'a> {
    /// The rules that they break.
    rules: &'a [Marked],
    /// Who may be a rogue.
    suspected: &'a [(ProcessKey, Suspected)],
}

/// Something that is broken now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct FaultDocument {
    pub part: String,
    pub what: String,
    pub since: String,
}

impl ListDocument {
    /// A snapshot, what the guard says of who is in it, and who of them may be a rogue.
    #[must_use]
    pub fn new(
        snapshot: &Snapshot,
        guard: &GuardBrief,
        suspected: &[(ProcessKey, Suspected)],
    ) -> Self {
        let marks = Marks {
            rules: &guard.marked,
            suspected,
        };
        let gpu = |device| GpuDocument::new(snapshot, device, marks);
        let proc = |process| ProcessDocument::of(snapshot, process, marks);
        Self {
            schema: SCHEMA,
            host: snapshot.host.clone(),
            ts: snapshot.taken_at.to_rfc3339(),
            tick: snapshot.tick,
            gpus: snapshot.devices.iter().map(gpu).collect(),
            procs: snapshot.processes.iter().map(proc).collect(),
            backends: snapshot
                .backends
                .iter()
                .map(BackendDocument::from)
                .collect(),
            faults: snapshot.faults.iter().map(FaultDocument::from).collect(),
            guard: GuardBriefDocument::from(guard),
        }
    }
}

impl From<&Fault> for FaultDocument {
    fn from(fault: &Fault) -> Self {
        Self {
            part: fault.part.clone(),
            what: fault.what.clone(),
            since: fault.since.to_rfc3339(),
        }
    }
}

#[cfg(test)]
mod tests;
