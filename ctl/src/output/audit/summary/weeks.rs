//! Week by week: a row for each.

use super::number::{hours, percent};
use crate::output::style::OutputStyle;
use crate::output::table::{Cell, Column, Row, Table, WhenNarrow};
use crate::output::text::{Line, escaped};
use gpukill_proto::audit::WeekTime;

/// Below this width, hours have no shares beside them.
const ROOM_FOR_SHARES: usize = 64;

/// The oldest first.
pub(super) fn lines(weeks: &[WeekTime], style: &OutputStyle) -> Vec<Line> {
    let has_shares = style.width.is_none_or(|width| width >= ROOM_FOR_SHARES);
    let some_unknown = weeks.iter().any(|week| week.times.unknown_ms > 0);
    // Hours of all GPUs, and their share of the recorded hours.
    let title = |with_share, alone| if has_shares { with_share } else { alone };
    let mut columns = vec![
        Column::left("WEEK OF", WhenNarrow::Stays),
        Column::right(title("BUSY h %", "BUSY h"), WhenNarrow::Stays),
        Column::right(title("HELD IDLE h %", "HELD IDLE h"), WhenNarrow::Stays),
        Column::right(title("FREE h %", "FREE h"), WhenNarrow::Goes(1)),
    ];
    if some_unknown {
        let title = title("UNKNOWN h %", "UNKNOWN h");
        columns.push(Column::right(title, WhenNarrow::Goes(2)));
    }
    columns.push(Column::left("HELD MOST BY", WhenNarrow::Shrinks(12)));
    let mut table = Table::new(columns);
    for week in weeks {
        let times = &week.times;
        let whole = times.total_ms();
        let part = |part| {
            let mut text = hours(part);
            if has_shares {
                text.push_str(&format!(" {:>5}", percent(part, whole)));
            }
            Cell::plain(text)
        };
        let mut cells = vec![
            Cell::plain(escaped(&week.monday, style.symbols)),
            part(times.busy_ms),
            part(times.held_ms),
            part(times.free_ms),
        ];
        if some_unknown {
            cells.push(part(times.unknown_ms));
        }
        cells.push(Cell::plain(match &week.top_owner {
            Some((owner, held_ms)) => {
                format!("{} {} h", escaped(owner, style.symbols), hours(*held_ms))
            }
            None => style.symbols.placeholder().to_owned(),
        }));
        table.push(Row::Cells(cells));
    }
    table.lines(style)
}
