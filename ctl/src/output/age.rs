//! The age of stale values: a column that appears only when a value is stale, and the legend
//! below the table.

use super::style::{OutputStyle, Symbols};
use super::table::{Cell, Column, WhenNarrow};
use super::text::{Line, Tone};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::format_duration;
use std::time::Duration;

pub(crate) fn age<T>(reading: &Reading<T>) -> Option<u32> {
    match reading {
        Reading::Stale(_, seconds) => Some(*seconds),
        Reading::Value(_) | Reading::Unsupported | Reading::Failed(_) | Reading::Withheld => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgeColumn {
    /// A value in the table is stale.
    Needed,
    /// All values are fresh or unknown.
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

    /// The column, if needed.
    pub(crate) fn column(self) -> Option<Column> {
        match self {
            Self::Needed => Some(Column::right("AGE", WhenNarrow::Stays)),
            Self::Needless => None,
        }
    }

    /// The greatest age in a row, if the column is needed.
    pub(crate) fn cell(
        self,
        ages: impl IntoIterator<Item = Option<u32>>,
        symbols: Symbols,
    ) -> Option<Cell> {
        match self {
            Self::Needed => Some(match ages.into_iter().flatten().max() {
                Some(seconds) => {
                    let age = Duration::from_secs(seconds.into());
                    Cell::with_tone(format_duration(age), Tone::Doubtful)
                }
                None => Cell::plain(symbols.placeholder()),
            }),
            Self::Needless => None,
        }
    }

    /// The legend of the column, below the table.
    pub(crate) fn legend(self, style: &OutputStyle) -> Vec<Line> {
        self.lines(" ~ the last value known; AGE is how old it is", style)
    }

    /// The legend of a table without room for the column.
    pub(crate) fn legend_without_column(self, style: &OutputStyle) -> Vec<Line> {
        self.lines(" ~ the last value known; a wider table has its age", style)
    }

    fn lines(self, legend: &'static str, style: &OutputStyle) -> Vec<Line> {
        match self {
            Self::Needed => {
                let legend = Line::with_tone(legend, Tone::Faint);
                vec![Line::default(), legend.cut(style.width, style.symbols)]
            }
            Self::Needless => Vec::new(),
        }
    }
}
