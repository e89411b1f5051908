//! The JSON of `gpukillctl explain`.

use super::fields::{bytes, document, documents, map_ref};
use super::{
    HolderDocument, HolderFindingDocument, ProcessAnnotations, ProcessDocument,
    ProcessGuardStatusDocument, RogueAssessmentDocument, SCHEMA,
};
use crate::guard::ViolationMark;
use crate::holders::{DeviceLabel, Explanation, Holder, HolderFinding, Role};
use crate::model::{GpuProcess, ProcessKey};
use crate::rogue::VerdictSummary;
use crate::units::Timestamp;

document! {
    /// The document that `gpukillctl explain -o json` prints.
    ExplainDocument(explained: &Explanation) {
        schema: u32 = SCHEMA,
        /// The daemon's clock when it answered.
        ts: String as Timestamp = explained.at.to_rfc3339(),
        pid: u32 = explained.pid,
        /// The entries of the drivers, as in `list`.
        procs: Vec<ProcessDocument> = explained
            .uses
            .iter()
            .map(|(label, process)| {
                let (rules, suspected) = (violation_marks(explained), verdict_summaries(explained, process));
                let marks = ProcessAnnotations {
                    rules: &rules,
                    suspected: &suspected,
                };
                ProcessDocument::new(label.index, explained.at, process, marks)
            })
            .collect::<Vec<_>>(),
        /// The devices that the process has open.
        holds: Vec<DeviceHoldDocument> = explained
            .holds
            .iter()
            .map(|(label, holder, role)| DeviceHoldDocument::new(label, holder, *role))
            .collect::<Vec<_>>(),
        /// When its open files were read.
        files_read_at: Option<String> as Option<Timestamp> = explained.files_read_at.clone().map(Timestamp::to_rfc3339),
        /// The findings that name the process.
        findings: Vec<DeviceFindingDocument> = documents(&explained.findings),
        /// The memory that its end frees at least.
        frees_bytes: Option<u64> = bytes(&explained.frees),
        /// Processes that must end too before shared memory is free.
        shared_with: Vec<u32> = explained.shared_with.clone(),
        may_end: Vec<String> = explained.may_end.people.clone(),
        /// Whether the caller is one of them.
        you_may_end: bool = explained.may_end.includes_caller,
        /// Why the daemon ends it for none of them.
        never_ended: Option<String> = explained.may_end.never_reason.clone(),
        /// The guard's status for it.
        guard: Option<ProcessGuardStatusDocument> = map_ref(&explained.guard, ProcessGuardStatusDocument::new),
        /// Its assessment.
        rogue: Option<RogueAssessmentDocument> = map_ref(&explained.rogue, RogueAssessmentDocument::new),
    }
}

/// The rules that it violates, as in `list`.
fn violation_marks(explained: &Explanation) -> Vec<ViolationMark> {
    let Some(ruled) = explained.guard.last_known() else {
        return Vec::new();
    };
    let open = ruled
        .violations
        .iter()
        .flat_map(ViolationMark::from_violation);
    let simulated = ruled
        .would_have_ended
        .iter()
        .flat_map(ViolationMark::from_simulated_end);
    open.chain(simulated).collect()
}

/// Its worst verdict, as in `list`.
fn verdict_summaries(
    explained: &Explanation,
    process: &GpuProcess,
) -> Vec<(ProcessKey, VerdictSummary)> {
    let key = process.key();
    let looked = explained.rogue.last_known();
    let worst = looked.and_then(|looked| VerdictSummary::worst(&looked.verdicts));
    key.zip(worst).into_iter().collect()
}

document! {
    /// A device that a process has open, with its role.
    plain DeviceHoldDocument(label: &DeviceLabel, process: &Holder, role: Role) {
        gpu_index: u32 = label.index,
        gpu_id: String = label.id.0.clone(),
        /// As in `holders`.
        holder: HolderDocument = HolderDocument::new(process, role),
    }
}

document! {
    /// A finding with its device.
    plain DeviceFindingDocument(finding: &(u32, HolderFinding)) {
        gpu_index: u32 = finding.0,
        /// As in `holders`.
        #[serde(flatten)]
        finding: HolderFindingDocument = HolderFindingDocument::from(&finding.1),
    }
}
