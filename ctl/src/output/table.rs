//! Rows under titles, aligned; when they are too wide, the least important
//! columns go first.

use super::line::{Line, Tone, cut, width};
use super::look::Look;
use std::borrow::Cow;

/// One column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    /// What stands above it.
    pub title: &'static str,
    /// On which side its cells stand.
    pub align: Align,
    /// What may be done to it when the table is too wide.
    pub when_narrow: WhenNarrow,
}

/// On which side cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// What may be done to a column when the table is too wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenNarrow {
    /// It stays as it is.
    Stays,
    /// It goes; those with the lowest number first.
    Goes(u8),
    /// Its cells are cut to no less than so many columns.
    Shrinks(usize),
    /// Its cells are cut to no less than so many columns, and then it goes.
    ShrinksThenGoes(usize, u8),
}

impl WhenNarrow {
    /// To how many columns its cells may be cut.
    const fn least(self) -> Option<usize> {
        match self {
            Self::Shrinks(least) | Self::ShrinksThenGoes(least, _) => Some(least),
            Self::Stays | Self::Goes(_) => None,
        }
    }

    /// Its number among those that may go.
    const fn rank(self) -> Option<u8> {
        match self {
            Self::Goes(rank) | Self::ShrinksThenGoes(_, rank) => Some(rank),
            Self::Stays | Self::Shrinks(_) => None,
        }
    }
}

impl Column {
    /// A column of texts.
    pub(crate) const fn left(title: &'static str, when_narrow: WhenNarrow) -> Self {
        Self {
            title,
            align: Align::Left,
            when_narrow,
        }
    }

    /// A column of numbers.
    pub(crate) const fn right(title: &'static str, when_narrow: WhenNarrow) -> Self {
        Self {
            title,
            align: Align::Right,
            when_narrow,
        }
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    /// What it says.
    pub text: String,
    /// What that is about.
    pub tone: Tone,
}

impl Cell {
    /// A plain cell.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::toned(text, Tone::Plain)
    }

    /// A cell in a tone.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }
}

/// One row.
#[derive(Debug, Clone)]
pub(crate) enum Row {
    /// A cell for each column.
    Cells(Vec<Cell>),
    /// Cells for the first columns, then a sentence over all others.
    Sentence(Vec<Cell>, Cell),
}

impl Row {
    fn cells(&self) -> &[Cell] {
        match self {
            Self::Cells(cells) | Self::Sentence(cells, _) => cells,
        }
    }
}

/// Rows under titles.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

/// Between two columns.
const GAP: &str = "  ";

impl Table {
    /// No rows yet.
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row at the end.
    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Its lines, the titles first.
    pub(crate) fn lines(&self, look: &Look) -> Vec<Line> {
        let widths = self.fit(look.width);
        let titles = self.columns.iter();
        let titles = titles.map(|column| Cell::toned(column.title, Tone::Strong));
        let titles = Row::Cells(titles.collect());
        std::iter::once(&titles)
            .chain(&self.rows)
            .map(|row| self.line(row, &widths, look))
            .collect()
    }

    /// How wide each column is; `None` for one that had to go.
    fn fit(&self, most: Option<usize>) -> Vec<Option<usize>> {
        let natural: Vec<usize> = (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().filter_map(|row| row.cells().get(at));
                let widest = cells.map(|cell| width(&cell.text)).max().unwrap_or(0);
                widest.max(width(self.columns[at].title))
            })
            .collect();
        let mut widths: Vec<Option<usize>> = natural.iter().copied().map(Some).collect();
        let Some(most) = most else { return widths };
        for (at, column) in self.columns.iter().enumerate() {
            if let Some(least) = column.when_narrow.least() {
                widths[at] = Some(natural[at].min(least));
            }
        }
        while total(&widths) > most {
            let Some(at) = self.least_important(&widths) else {
                break;
            };
            widths[at] = None;
        }
        // What is left over goes back to those that had to shrink.
        for at in 0..widths.len() {
            let room = most.saturating_sub(total(&widths));
            if let (Some(width), Some(_)) = (&mut widths[at], self.columns[at].when_narrow.least())
            {
                *width = natural[at].min(*width + room);
            }
        }
        widths
    }

    fn least_important(&self, widths: &[Option<usize>]) -> Option<usize> {
        let standing = self.columns.iter().enumerate();
        standing
            .filter(|(at, _)| widths[*at].is_some())
            .filter_map(|(at, column)| Some((column.when_narrow.rank()?, at)))
            .min()
            .map(|(_, at)| at)
    }

    fn line(&self, row: &Row, widths: &[Option<usize>], look: &Look) -> Line {
        // Most rows are one piece of text, which grows to this.
        let mut start = String::with_capacity(2 * total(widths));
        start.push(' ');
        let mut line = Line::plain(start);
        let mut gap = "";
        for ((cell, column), width) in row.cells().iter().zip(&self.columns).zip(widths) {
            if let Some(width) = width {
                line.push(gap, Tone::Plain);
                put(&mut line, cell, column.align, *width, look);
                gap = GAP;
            }
        }
        match row {
            Row::Cells(_) => {}
            Row::Sentence(_, sentence) => {
                line.push(gap, Tone::Plain);
                line.push(sentence.text.as_str(), sentence.tone);
            }
        }
        line.trimmed().cut(look.width, look.symbols)
    }
}

fn put(line: &mut Line, cell: &Cell, align: Align, columns: usize, look: &Look) {
    let natural = width(&cell.text);
    let (text, taken) = if natural <= columns {
        (Cow::Borrowed(cell.text.as_str()), natural)
    } else {
        let text = cut(&cell.text, columns, look.symbols);
        let taken = width(&text);
        (Cow::Owned(text), taken)
    };
    let padding = columns.saturating_sub(taken);
    match align {
        Align::Left => {
            line.push(text, cell.tone);
            line.pad(padding);
        }
        Align::Right => {
            line.pad(padding);
            line.push(text, cell.tone);
        }
    }
}

fn total(widths: &[Option<usize>]) -> usize {
    let standing = widths.iter().flatten();
    let gaps = GAP.len() * standing.clone().count().saturating_sub(1);
    1 + gaps + standing.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
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
        let lost = Cell::toned("lost, and this is long", Tone::Broken);
        table.push(Row::Sentence(vec![Cell::plain("2")], lost));
        table
    }

    fn printed(width: Option<usize>) -> Vec<String> {
        let look = sample::look(width);
        table().lines(&look).iter().map(Line::text).collect()
    }

    #[test]
    fn without_a_limit_nothing_is_left_out() {
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
    fn first_texts_shrink_then_the_least_important_columns_go_then_lines_are_cut() {
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
    fn a_text_of_less_importance_shrinks_before_it_goes() {
        let mut table = Table::new(vec![
            Column::right("SM", WhenNarrow::Goes(1)),
            Column::left("WHERE", WhenNarrow::ShrinksThenGoes(6, 2)),
            Column::left("COMMAND", WhenNarrow::Shrinks(8)),
        ]);
        let cells = ["97%", "slurm 1234.0", "python train.py"];
        table.push(Row::Cells(cells.map(Cell::plain).into()));
        let row = |width| table.lines(&sample::look(Some(width)))[1].text();
        assert_eq!(row(36), " 97%  slurm 1234.0  python train.py");
        assert_eq!(row(24), " 97%  slurm 1…  python …");
        assert_eq!(row(20), " slurm 12…  python …");
        assert_eq!(row(16), " python train.py");
        assert_eq!(row(15), " python train.…");
    }
}
