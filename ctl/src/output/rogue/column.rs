//! The column of suspicious processes in lists, which appears only when there are any. Low
//! risks appear in documents only.

use super::risk_tone;
use crate::connect::AnnotatedSnapshot;
use crate::output::style::Symbols;
use crate::output::table::Cell;
use gpukill_proto::model::{GpuProcess, ProcessKey};
use gpukill_proto::rogue::{Risk, VerdictSummary};

/// The column. It is not needed when it has no marks.
#[derive(Debug, Clone, Copy)]
pub(in crate::output) struct RogueColumn<'a>(&'a [(ProcessKey, VerdictSummary)]);

impl<'a> RogueColumn<'a> {
    /// The column for a table of all these processes.
    pub(in crate::output) fn new(annotated: &'a AnnotatedSnapshot) -> Self {
        let column = Self(&annotated.suspected);
        let mut processes = annotated.snapshot.processes.iter();
        let is_needed = processes.any(|process| column.is_marked(process));
        Self(if is_needed { column.0 } else { &[] })
    }

    /// Whether the column has marks.
    pub(in crate::output) const fn is_needed(self) -> bool {
        !self.0.is_empty()
    }

    pub(in crate::output) fn is_marked(self, process: &GpuProcess) -> bool {
        find_mark(process, self.0).is_some()
    }

    pub(in crate::output) fn cell(self, process: &GpuProcess, symbols: Symbols) -> Cell {
        match find_mark(process, self.0) {
            Some(VerdictSummary { risk, threat, .. }) => {
                let text = format!("{} {}", risk.name(), threat.label());
                Cell::with_tone(text, risk_tone(risk))
            }
            None => Cell::plain(symbols.placeholder()),
        }
    }
}

fn find_mark(
    process: &GpuProcess,
    suspected: &[(ProcessKey, VerdictSummary)],
) -> Option<VerdictSummary> {
    VerdictSummary::find(process, suspected).filter(is_worth_marking)
}

fn is_worth_marking(suspected: &VerdictSummary) -> bool {
    suspected.risk >= Risk::Medium
}

pub(in crate::output) fn count_marked(suspected: &[(ProcessKey, VerdictSummary)]) -> usize {
    suspected
        .iter()
        .filter(|(_, it)| is_worth_marking(it))
        .count()
}
