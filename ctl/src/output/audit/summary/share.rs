//! How the GPUs' time was used: a bar for each kind of time.

use super::number::percent;
use crate::output::style::{OutputStyle, Symbols};
use crate::output::text::{Line, Tone};
use gpukill_proto::audit::UsageTimes;

/// The number of characters of a full bar.
const BAR_CELLS: usize = 30;

/// As long as the longest name, and a share.
const LABEL_WIDTH: usize = " held idle  100 %  ".len();

/// The parts of a time with their names and tones. A fully known time needs no "unknown" part.
pub(in crate::output) fn named_parts(
    times: UsageTimes,
) -> impl Iterator<Item = (&'static str, u64, Tone)> {
    let parts = [
        ("busy", times.busy_ms, Tone::Busy),
        ("held idle", times.held_ms, Tone::Doubtful),
        ("free", times.free_ms, Tone::Plain),
        ("unknown", times.unknown_ms, Tone::Doubtful),
    ];
    let is_shown = |(name, part, _): &(&str, u64, Tone)| *name != "unknown" || *part > 0;
    parts.into_iter().filter(is_shown)
}

/// All bars on one line, or one bar a line when the width requires it.
pub(super) fn lines(times: UsageTimes, style: &OutputStyle) -> Vec<Line> {
    let whole = times.total_ms();
    let parts = || named_parts(times);
    let mut together = Line::default();
    for (at, (name, part, tone)) in parts().enumerate() {
        let gap = if at == 0 { " " } else { "   " };
        together.push(
            format!("{gap}{name} {}  ", percent(part, whole)),
            Tone::Plain,
        );
        together.push(bar(part, whole, BAR_CELLS, style.symbols), tone);
    }
    let together = together.trimmed();
    let Some(max_width) = style
        .width
        .filter(|max_width| together.width() > *max_width)
    else {
        return vec![together];
    };
    let cells = max_width.saturating_sub(LABEL_WIDTH).clamp(1, BAR_CELLS);
    parts()
        .map(|(name, part, tone)| {
            let share = percent(part, whole);
            let mut line = Line::plain(format!(" {name:<9}  {share:>5}  "));
            line.push(bar(part, whole, cells, style.symbols), tone);
            line.trimmed().cut(Some(max_width), style.symbols)
        })
        .collect()
}

/// A part of a whole of this many cells, in eighths of a cell if the terminal has such
/// characters. A part above zero is visible.
fn bar(part: u64, whole: u64, cells: usize, symbols: Symbols) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let steps = |of_a_cell: usize| -> usize {
        if part == 0 || whole == 0 {
            return 0;
        }
        let steps = cells.saturating_mul(of_a_cell) as u128;
        let (part, whole) = (u128::from(part.min(whole)), u128::from(whole));
        let nearest = (part * steps * 2 + whole) / (whole * 2);
        usize::try_from(nearest).unwrap_or(0).max(1)
    };
    match symbols {
        Symbols::Ascii => "#".repeat(steps(1)),
        Symbols::Unicode => {
            let eighths = steps(8);
            "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_length_matches_and_small_parts_show() {
        let cases = [
            (0, 100, "", ""),
            (1, 1_000_000, "▏", "#"),
            (61, 100, "██████████████████▎", "##################"),
            (22, 100, "██████▋", "#######"),
            (100, 100, &"█".repeat(30), &"#".repeat(30)),
            (200, 100, &"█".repeat(30), &"#".repeat(30)),
            (u64::MAX, u64::MAX, &"█".repeat(30), &"#".repeat(30)),
            (1, 0, "", ""),
        ];
        for (part, whole, unicode, ascii) in cases {
            assert_eq!(bar(part, whole, 30, Symbols::Unicode), unicode);
            assert_eq!(bar(part, whole, 30, Symbols::Ascii), ascii);
        }
    }
}
