//! The times without samples.

use super::super::style::OutputStyle;
use super::super::text::{Line, Tone, wrap};
use super::super::value::{formatted, weekday_and_time};
use gpukill_proto::audit::Gap;
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;

/// Maximum number of gaps to name, the longest first.
const MAX_GAPS: usize = 10;

/// `Not seen: Wed 03:00-05:00, Thu 23:00-Fri 01:00`
pub(super) fn lines(gaps: &[Gap], now: Timestamp, look: &OutputStyle) -> Vec<Line> {
    if gaps.is_empty() {
        return Vec::new();
    }
    let mut named: Vec<&Gap> = gaps.iter().collect();
    named.sort_by_key(|gap| Reverse(gap.until.since(gap.from)));
    named.truncate(MAX_GAPS);
    named.sort_by_key(|gap| gap.from);
    let mut texts: Vec<String> = named.iter().map(|gap| gap_text(gap, now, look)).collect();
    match gaps.len() - named.len() {
        0 => {}
        1 => texts.push("and a shorter one".into()),
        more => texts.push(format!("and {more} shorter ones")),
    }
    let text = format!("Not seen: {}", texts.join(", "));
    let lines = wrap(&text, 0, 2, look.width).into_iter();
    lines
        .map(|text| Line::with_tone(text, Tone::Doubtful).cut(look.width, look.symbols))
        .collect()
}

fn gap_text(gap: &Gap, now: Timestamp, look: &OutputStyle) -> String {
    let on = |moment| formatted(moment, "%Y-%m-%d", look.zone);
    let from = weekday_and_time(gap.from, now, look);
    let until = weekday_and_time(gap.until, now, look);
    if until == from {
        return from;
    }
    let until = if on(gap.from) == on(gap.until) {
        formatted(gap.until, "%H:%M", look.zone)
    } else {
        until
    };
    format!("{from}-{until}")
}
