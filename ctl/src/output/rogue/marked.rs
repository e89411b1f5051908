//! Who may be a rogue, in lists: a column that is there only where somebody may be one.
//! What is of low risk is left to documents.

use super::tone;
use crate::connect::Sight;
use crate::output::look::Symbols;
use crate::output::mark::RuleColumn;
use crate::output::table::{Cell, Column, WhenNarrow};
use gpukill_proto::rogue::{Risk, Suspected};
use gpukill_proto::snapshot::{GpuProcess, ProcessKey};

/// The column; none of the table's processes is marked where it has no marks.
#[derive(Debug, Clone, Copy)]
pub(in crate::output) struct RogueColumn<'a>(&'a [(ProcessKey, Suspected)]);

impl<'a> RogueColumn<'a> {
    /// For a table of all these processes.
    pub(in crate::output) fn of(sight: &'a Sight) -> Self {
        let column = Self(&sight.suspected);
        let mut processes = sight.snapshot.processes.iter();
        let is_needed = processes.any(|process| column.marks(process));
        Self(if is_needed { column.0 } else { &[] })
    }

    /// The column, where it is needed: `critical crypto miner` is not cut; where rules need
    /// the room, `critical` is left.
    pub(in crate::output) fn column(self, beside: RuleColumn<'_>) -> Option<Column> {
        let least = if beside.is_needed() { 9 } else { 21 };
        self.is_needed()
            .then(|| Column::left("ROGUE", WhenNarrow::Shrinks(least)))
    }

    /// Whether anybody is marked.
    pub(in crate::output) const fn is_needed(self) -> bool {
        !self.0.is_empty()
    }

    /// Whether a process is marked.
    pub(in crate::output) fn marks(self, process: &GpuProcess) -> bool {
        mark(process, self.0).is_some()
    }

    /// What a process may be, where the column is needed.
    pub(in crate::output) fn cell(self, process: &GpuProcess, symbols: Symbols) -> Option<Cell> {
        match mark(process, self.0) {
            Some(Suspected { risk, threat, .. }) => {
                let text = format!("{} {}", risk.name(), threat.words());
                Some(Cell::toned(text, tone(risk)))
            }
            None => self.none(symbols),
        }
    }

    /// That something is not marked, where the column is needed.
    pub(in crate::output) fn none(self, symbols: Symbols) -> Option<Cell> {
        self.is_needed().then(|| Cell::plain(symbols.none()))
    }
}

fn mark(process: &GpuProcess, suspected: &[(ProcessKey, Suspected)]) -> Option<Suspected> {
    Suspected::of(process, suspected).filter(is_marked)
}

fn is_marked(suspected: &Suspected) -> bool {
    suspected.risk >= Risk::Medium
}

/// How many processes are marked.
pub(in crate::output) fn marked(suspected: &[(ProcessKey, Suspected)]) -> usize {
    suspected.iter().filter(|(_, it)| is_marked(it)).count()
}
