//! When nothing was seen.

use super::super::line::{Line, Tone, wrap};
use super::super::look::Look;
use super::super::value::{day_and_clock, formatted};
use gpukill_proto::audit::Gap;
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;

/// So many are named, the longest.
const NAMED: usize = 10;

/// `Not seen: Wed 03:00-05:00, Thu 23:00-Fri 01:00`
pub(super) fn lines(gaps: &[Gap], now: Timestamp, look: &Look) -> Vec<Line> {
    if gaps.is_empty() {
        return Vec::new();
    }
    let mut named: Vec<&Gap> = gaps.iter().collect();
    named.sort_by_key(|gap| Reverse(gap.until.since(gap.from)));
    named.truncate(NAMED);
    named.sort_by_key(|gap| gap.from);
    let mut texts: Vec<String> = named.iter().map(|gap| told(gap, now, look)).collect();
    match gaps.len() - named.len() {
        0 => {}
        1 => texts.push("and a shorter one".into()),
        more => texts.push(format!("and {more} shorter ones")),
    }
    let text = format!("Not seen: {}", texts.join(", "));
    let lines = wrap(&text, 0, 2, look.width).into_iter();
    lines
        .map(|text| Line::toned(text, Tone::Doubtful).cut(look.width, look.symbols))
        .collect()
}

fn told(gap: &Gap, now: Timestamp, look: &Look) -> String {
    let on = |moment| formatted(moment, "%Y-%m-%d", look.zone);
    let from = day_and_clock(gap.from, now, look);
    let until = day_and_clock(gap.until, now, look);
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
