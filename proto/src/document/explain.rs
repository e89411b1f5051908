//! The JSON of `gpukillctl explain`.

use super::fields::{bytes, document, part};
use super::{
    FindingDocument, HolderDocument, LookedDocument, Marks, ProcessDocument, RuledDocument, SCHEMA,
};
use crate::guard::Marked;
use crate::holders::{DeviceLabel, Explanation, Finding, Holder, Role};
use crate::rogue::Suspected;
use crate::snapshot::{GpuProcess, ProcessKey};
use serde::Serialize;

document! {
    /// What `gpukillctl explain -o json` prints.
    ExplainDocument(explained: &Explanation) {
        schema: u32 = SCHEMA,
        /// The daemon's clock when it answered.
        ts: String = explained.at.to_rfc3339(),
        pid: u32 = explained.pid,
        /// What drivers list of it, as in `list`.
        procs: Vec<ProcessDocument> = explained
            .uses
            .iter()
            .map(|(label, process)| {
                let (rules, suspected) = (rules(explained), suspected(explained, process));
                let marks = Marks {
                    rules: &rules,
                    suspected: &suspected,
                };
                ProcessDocument::new(label.index, explained.at, process, marks)
            })
            .collect::<Vec<_>>(),
        /// The devices that it has open.
        holds: Vec<HoldDocument> = explained
            .holds
            .iter()
            .map(|(label, holder, role)| HoldDocument::of(label, holder, *role))
            .collect::<Vec<_>>(),
        /// The findings that name it.
        findings: Vec<FoundDocument> = explained
            .findings
            .iter()
            .map(FoundDocument::from)
            .collect::<Vec<_>>(),
        /// What its end gives back at least.
        frees_bytes: Option<u64> = bytes(&explained.frees),
        /// Who has to end too before what it shares with them is free.
        shared_with: Vec<u32> = explained.shared_with.clone(),
        may_end: Vec<String> = explained.may_end.people.clone(),
        /// Whether whoever asks is one of them.
        you_may_end: bool = explained.may_end.you,
        /// Why the daemon ends it for none of them.
        never_ended: Option<String> = explained.may_end.never.clone(),
        /// What the guard says of it.
        guard: Option<RuledDocument> = part(&explained.guard, RuledDocument::of),
        /// What it may be, by which signs.
        rogue: Option<LookedDocument> = part(&explained.rogue, LookedDocument::of),
    }
}

impl From<&Explanation> for ExplainDocument {
    fn from(explained: &Explanation) -> Self {
        Self::new(explained)
    }
}

/// The rules that it breaks, as in `list`.
fn rules(explained: &Explanation) -> Vec<Marked> {
    let Some(ruled) = explained.guard.last_known() else {
        return Vec::new();
    };
    let open = ruled.violations.iter().flat_map(Marked::all_of);
    let simulated = ruled
        .would_have_ended
        .iter()
        .flat_map(Marked::all_of_simulated);
    open.chain(simulated).collect()
}

/// What it may be, as in `list`.
fn suspected(explained: &Explanation, process: &GpuProcess) -> Vec<(ProcessKey, Suspected)> {
    let key = process.key();
    let looked = explained.rogue.last_known();
    let worst = looked.and_then(|looked| Suspected::worst(&looked.verdicts));
    key.zip(worst).into_iter().collect()
}

/// One device that a process has open, and what it is to that.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct HoldDocument {
    pub gpu_index: u32,
    pub gpu_id: String,
    /// As in `holders`.
    pub holder: HolderDocument,
}

impl HoldDocument {
    fn of(label: &DeviceLabel, holder: &Holder, role: Role) -> Self {
        Self {
            gpu_index: label.index,
            gpu_id: label.id.0.clone(),
            holder: HolderDocument::new(holder, role),
        }
    }
}

/// A finding, and the device that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documented JSON fields")]
pub struct FoundDocument {
    pub gpu_index: u32,
    /// As in `holders`.
    #[serde(flatten)]
    pub finding: FindingDocument,
}

impl From<&(u32, Finding)> for FoundDocument {
    fn from((gpu_index, finding): &(u32, Finding)) -> Self {
        Self {
            gpu_index: *gpu_index,
            finding: FindingDocument::from(finding),
        }
    }
}
