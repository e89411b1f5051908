//! The age of values that are old: a column that is there only when one is, and
//! the line below the table that explains it.

use super::line::{Line, Tone};
use super::look::{Look, Symbols};
use super::table::{Cell, Column, WhenNarrow};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::duration;
use std::time::Duration;

/// The age of a reading that is old.
pub(crate) fn age<T>(reading: &Reading<T>) -> Option<u32> {
    match reading {
        Reading::Stale(_, seconds) => Some(*seconds),
        Reading::Value(_) | Reading::Unsupported | Reading::Failed(_) | Reading::Withheld => None,
    }
}

/// Whether a table has a column of ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgeColumn {
    /// A value in it is old.
    Needed,
    /// All are fresh or unknown.
    Needless,
}

impl AgeColumn {
    /// For a table of values with these ages.
    pub(crate) fn for_ages(ages: impl IntoIterator<Item = Option<u32>>) -> Self {
        if ages.into_iter().any(|age| age.is_some()) {
            Self::Needed
        } else {
            Self::Needless
        }
    }

    /// The column, where it is needed.
    pub(crate) fn column(self) -> Option<Column> {
        match self {
            Self::Needed => Some(Column::right("AGE", WhenNarrow::Stays)),
            Self::Needless => None,
        }
    }

    /// The greatest of the ages of a row, where the column is needed.
    pub(crate) fn cell(
        self,
        ages: impl IntoIterator<Item = Option<u32>>,
        symbols: Symbols,
    ) -> Option<Cell> {
        match self {
            Self::Needed => Some(match ages.into_iter().flatten().max() {
                Some(seconds) => {
                    let age = Duration::from_secs(seconds.into());
                    Cell::toned(duration(age), Tone::Doubtful)
                }
                None => Cell::plain(symbols.none()),
            }),
            Self::Needless => None,
        }
    }

    /// What the column means, below the table.
    pub(crate) fn legend(self, look: &Look) -> Vec<Line> {
        match self {
            Self::Needed => {
                let legend = " ~ the last value known; AGE is how old it is";
                let legend = Line::toned(legend, Tone::Faint);
                vec![Line::default(), legend.cut(look.width, look.symbols)]
            }
            Self::Needless => Vec::new(),
        }
    }
}
