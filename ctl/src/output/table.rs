//! Rows under titles, aligned. When the table is too wide, the least important columns are
//! dropped first.

use super::style::OutputStyle;
use super::text::{Line, Tone, cut, width};
use std::borrow::Cow;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub title: &'static str,
    /// The alignment of cells.
    pub align: Align,
    /// How the column gives way when the table is too wide.
    pub when_narrow: WhenNarrow,
}

/// The alignment of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// For texts.
    Left,
    /// For numbers.
    Right,
}

/// How a column gives way when the table is too wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenNarrow {
    Stays,
    /// It is dropped; the lowest number first.
    Goes(u8),
    /// Its cells are cut, to this minimum width.
    Shrinks(usize),
    /// Its cells are cut, to this minimum width; then it is dropped.
    ShrinksThenGoes(usize, u8),
}

impl WhenNarrow {
    /// The minimum width to which cells may be cut.
    const fn min_width(self) -> Option<usize> {
        match self {
            Self::Shrinks(min_width) | Self::ShrinksThenGoes(min_width, _) => Some(min_width),
            Self::Stays | Self::Goes(_) => None,
        }
    }

    /// The rank among columns that may be dropped.
    const fn rank(self) -> Option<u8> {
        match self {
            Self::Goes(rank) | Self::ShrinksThenGoes(_, rank) => Some(rank),
            Self::Stays | Self::Shrinks(_) => None,
        }
    }
}

impl Column {
    pub(crate) const fn left(title: &'static str, when_narrow: WhenNarrow) -> Self {
        Self {
            title,
            align: Align::Left,
            when_narrow,
        }
    }

    pub(crate) const fn right(title: &'static str, when_narrow: WhenNarrow) -> Self {
        Self {
            title,
            align: Align::Right,
            when_narrow,
        }
    }
}

impl Column {
    /// The column at this position, dropped after all others because somebody requested it. The
    /// rightmost of such columns goes first, and the first column of a table never.
    pub(crate) fn as_requested(self, position: usize) -> Self {
        /// Above the ranks of columns that nobody requested.
        const LAST_RANK: u8 = 250;
        let after = u8::try_from(position).unwrap_or(LAST_RANK);
        let rank = LAST_RANK.saturating_sub(after);
        let when_narrow = match self.when_narrow {
            kept if position == 0 => kept,
            WhenNarrow::Stays | WhenNarrow::Goes(_) => WhenNarrow::Goes(rank),
            WhenNarrow::Shrinks(min_width) | WhenNarrow::ShrinksThenGoes(min_width, _) => {
                WhenNarrow::ShrinksThenGoes(min_width, rank)
            }
        };
        Self {
            when_narrow,
            ..self
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub text: String,
    /// The tone of the text.
    pub tone: Tone,
    /// The number of others that the text leaves out, which is shown behind it: `, 3 more`.
    /// It stays when the text is cut.
    pub more: u32,
}

impl Cell {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::with_tone(text, Tone::Plain)
    }

    pub(crate) fn with_tone(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
            more: 0,
        }
    }

    /// The cell with a number of others behind its text.
    pub(crate) fn and_more(self, more: u32) -> Self {
        Self { more, ..self }
    }

    /// The number of others as it is shown.
    fn tail(&self) -> String {
        match self.more {
            0 => String::new(),
            more => format!(", {more} more"),
        }
    }

    fn width(&self) -> usize {
        width(&self.text) + self.tail().len()
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Row {
    /// A cell for each column.
    Cells(Vec<Cell>),
    /// Cells for the first columns, then a sentence across all others.
    Spanning(Vec<Cell>, Cell),
}

impl Row {
    fn cells(&self) -> &[Cell] {
        match self {
            Self::Cells(cells) | Self::Spanning(cells, _) => cells,
        }
    }
}

/// Rows under titles.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
    empty_columns: EmptyColumns,
}

/// What happens to a column without a value when the width is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EmptyColumns {
    Dropped,
    Kept,
}

/// The gap between two columns.
const GAP: &str = "  ";

impl Table {
    /// A table without rows.
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self {
            columns,
            rows: Vec::new(),
            empty_columns: EmptyColumns::Dropped,
        }
    }

    /// Keeps columns without a value, because somebody requested them.
    pub(crate) fn with_empty_columns(self) -> Self {
        Self {
            empty_columns: EmptyColumns::Kept,
            ..self
        }
    }

    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// The lines of the table, the titles first.
    pub(crate) fn lines(&self, style: &OutputStyle) -> Vec<Line> {
        let widths = self.column_widths(style.width);
        let titles = self.columns.iter();
        let titles = titles.map(|column| Cell::with_tone(column.title, Tone::Strong));
        let titles = Row::Cells(titles.collect());
        std::iter::once(&titles)
            .chain(&self.rows)
            .map(|row| self.line(row, &widths, style))
            .collect()
    }

    /// The positions of the columns that are dropped.
    pub(crate) fn dropped_columns(&self, style: &OutputStyle) -> Vec<usize> {
        let widths = self.column_widths(style.width).into_iter().enumerate();
        widths
            .filter(|(_, width)| width.is_none())
            .map(|(at, _)| at)
            .collect()
    }

    /// The width of the table with all its columns and uncut texts.
    pub(crate) fn full_width(&self) -> usize {
        total(&self.column_widths(None))
    }

    /// The width of each column; `None` for a dropped column.
    fn column_widths(&self, max_width: Option<usize>) -> Vec<Option<usize>> {
        let natural: Vec<usize> = (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().filter_map(|row| row.cells().get(at));
                let widest = cells.map(Cell::width).max().unwrap_or(0);
                widest.max(width(self.columns[at].title))
            })
            .collect();
        let mut widths: Vec<Option<usize>> = natural.iter().copied().map(Some).collect();
        let Some(max_width) = max_width else {
            return widths;
        };
        if self.empty_columns == EmptyColumns::Dropped {
            for (at, width) in widths.iter_mut().enumerate() {
                width.take_if(|_| at > 0 && !self.has_value(at));
            }
        }
        for (at, column) in self.columns.iter().enumerate() {
            if let (Some(width), Some(min_width)) =
                (&mut widths[at], column.when_narrow.min_width())
            {
                *width = natural[at].min(min_width);
            }
        }
        while total(&widths) > max_width {
            let Some(at) = self.least_important(&widths) else {
                break;
            };
            widths[at] = None;
        }
        // Remaining room goes back to shrunk columns.
        for at in 0..widths.len() {
            let room = max_width.saturating_sub(total(&widths));
            if let (Some(width), Some(_)) =
                (&mut widths[at], self.columns[at].when_narrow.min_width())
            {
                *width = natural[at].min(*width + room);
            }
        }
        widths
    }

    /// Whether a row has a value in this column, or there are only sentences.
    fn has_value(&self, at: usize) -> bool {
        let mut rows = self.rows.iter();
        let mut is_without_rows = true;
        let found = rows.any(|row| {
            let Row::Cells(cells) = row else { return false };
            is_without_rows = false;
            let cell = cells.get(at);
            cell.is_some_and(|cell| !matches!(cell.text.as_str(), "" | "–" | "-" | "n/a"))
        });
        found || is_without_rows
    }

    fn least_important(&self, widths: &[Option<usize>]) -> Option<usize> {
        let visible = self.columns.iter().enumerate();
        visible
            .filter(|(at, _)| widths[*at].is_some())
            .filter_map(|(at, column)| Some((column.when_narrow.rank()?, at)))
            .min()
            .map(|(_, at)| at)
    }

    fn line(&self, row: &Row, widths: &[Option<usize>], style: &OutputStyle) -> Line {
        // Most rows are one piece of text, which grows to this length.
        let mut start = String::with_capacity(2 * total(widths));
        start.push(' ');
        let mut line = Line::plain(start);
        let mut gap = "";
        for ((cell, column), width) in row.cells().iter().zip(&self.columns).zip(widths) {
            if let Some(width) = width {
                line.push(gap, Tone::Plain);
                push_cell(&mut line, cell, column.align, *width, style);
                gap = GAP;
            }
        }
        match row {
            Row::Cells(_) => {}
            Row::Spanning(_, cell) => {
                line.push(gap, Tone::Plain);
                line.push(cell.text.as_str(), cell.tone);
            }
        }
        line.trimmed().cut(style.width, style.symbols)
    }
}

fn push_cell(line: &mut Line, cell: &Cell, align: Align, columns: usize, style: &OutputStyle) {
    let tail = cell.tail();
    let room = columns.saturating_sub(tail.len());
    let natural = width(&cell.text);
    let (text, taken) = if natural <= room {
        (Cow::Borrowed(cell.text.as_str()), natural)
    } else {
        let text = cut(&cell.text, room, style.symbols);
        let taken = width(&text);
        (Cow::Owned(text), taken)
    };
    let padding = room.saturating_sub(taken);
    if align == Align::Right {
        line.pad(padding);
    }
    line.push(text, cell.tone);
    if !tail.is_empty() {
        line.push(tail, cell.tone);
    }
    if align == Align::Left {
        line.pad(padding);
    }
}

fn total(widths: &[Option<usize>]) -> usize {
    let visible = widths.iter().flatten();
    let gaps = GAP.len() * visible.clone().count().saturating_sub(1);
    1 + gaps + visible.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec![
            Column::right("GPU", WhenNarrow::Stays),
            Column::left("BAR", WhenNarrow::Goes(1)),
            Column::right("POWER", WhenNarrow::Goes(2)),
            Column::left("COMMAND", WhenNarrow::Shrinks(8)),
        ]);
        let cells = |texts: [&str; 4]| Row::Cells(texts.map(Cell::plain).into());
        table.push(cells(["0", "####", "700W", "python train.py"]));
        table.push(cells(["11", "#", "72W", "模型"]));
        let lost = Cell::with_tone("lost, and this is long", Tone::Broken);
        table.push(Row::Spanning(vec![Cell::plain("2")], lost));
        table
    }

    fn printed(width: Option<usize>) -> Vec<String> {
        let style = fixtures::style(width);
        table().lines(&style).iter().map(Line::text).collect()
    }

    #[test]
    fn no_limit_keeps_everything() {
        assert_eq!(
            printed(None),
            [
                " GPU  BAR   POWER  COMMAND",
                "   0  ####   700W  python train.py",
                "  11  #       72W  模型",
                "   2  lost, and this is long",
            ]
        );
    }

    #[test]
    fn texts_shrink_before_columns_drop() {
        assert_eq!(
            printed(Some(30)),
            [
                " GPU  BAR   POWER  COMMAND",
                "   0  ####   700W  python tra…",
                "  11  #       72W  模型",
                "   2  lost, and this is long",
            ]
        );
        assert_eq!(
            printed(Some(22)),
            [
                " GPU  POWER  COMMAND",
                "   0   700W  python t…",
                "  11    72W  模型",
                "   2  lost, and this …",
            ]
        );
        assert_eq!(
            printed(Some(12)),
            [" GPU  COMMA…", "   0  pytho…", "  11  模型", "   2  lost,…"]
        );
    }

    #[test]
    fn number_of_others_is_never_cut() {
        let mut table = Table::new(vec![
            Column::right("GPU", WhenNarrow::Stays),
            Column::left("TOP", WhenNarrow::Shrinks(8)),
        ]);
        let top = Cell::plain("alice python").and_more(11);
        table.push(Row::Cells(vec![Cell::plain("0"), top]));
        let row = |width| table.lines(&fixtures::style(width))[1].text();
        assert_eq!(row(None), "   0  alice python, 11 more");
        assert_eq!(row(Some(27)), "   0  alice python, 11 more");
        assert_eq!(row(Some(22)), "   0  alice …, 11 more");
    }

    #[test]
    fn columns_without_values_take_no_room_unless_requested() {
        let table = || {
            let mut table = Table::new(vec![
                Column::right("GPU", WhenNarrow::Stays),
                Column::right("ECC", WhenNarrow::Stays),
                Column::left("COMMAND", WhenNarrow::Stays),
            ]);
            table.push(Row::Cells(["0", "n/a", "sh"].map(Cell::plain).into()));
            table.push(Row::Cells(["1", "–", "–"].map(Cell::plain).into()));
            table
        };
        let titles = |table: Table, width| table.lines(&fixtures::style(width))[0].text();
        assert_eq!(titles(table(), Some(80)), " GPU  COMMAND");
        assert_eq!(titles(table(), None), " GPU  ECC  COMMAND");
        let requested = table().with_empty_columns();
        assert_eq!(titles(requested, Some(80)), " GPU  ECC  COMMAND");
    }

    #[test]
    fn less_important_text_shrinks_before_it_drops() {
        let mut table = Table::new(vec![
            Column::right("SM", WhenNarrow::Goes(1)),
            Column::left("WHERE", WhenNarrow::ShrinksThenGoes(6, 2)),
            Column::left("COMMAND", WhenNarrow::Shrinks(8)),
        ]);
        let cells = ["97%", "slurm 1234.0", "python train.py"];
        table.push(Row::Cells(cells.map(Cell::plain).into()));
        let row = |width| table.lines(&fixtures::style(Some(width)))[1].text();
        assert_eq!(row(36), " 97%  slurm 1234.0  python train.py");
        assert_eq!(row(24), " 97%  slurm 1…  python …");
        assert_eq!(row(20), " slurm 12…  python …");
        assert_eq!(row(16), " python train.py");
        assert_eq!(row(15), " python train.…");
    }
}
