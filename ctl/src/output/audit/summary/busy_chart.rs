//! When the GPUs were busy: a small chart of the hours of the day and one of the days of the
//! week.

use super::number::percent;
use crate::output::style::{OutputStyle, Symbols};
use crate::output::text::{Line, Tone};
use gpukill_proto::audit::{AuditSummary, UsageTimes};

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Both charts, side by side if the width allows; none when it is never known whether a device
/// was busy.
pub(super) fn lines(summary: &AuditSummary, style: &OutputStyle) -> Vec<Line> {
    let hours: Vec<BusyShare> = summary.hours.iter().take(24).map(share).collect();
    let days: Vec<BusyShare> = summary.days.iter().take(7).map(share).collect();
    let hour = |at: usize| format!("{at:02}:00");
    let day = |at: usize| DAYS[at.min(6)].to_owned();
    let title = match style.width {
        // With the full title, the chart would not fit.
        Some(..44) => "Hours",
        Some(_) | None => "Hours of the day",
    };
    let parts = [
        chart_line(title, &hours, "", hour, style.symbols),
        chart_line("Days", &days, "  Mon-Sun", day, style.symbols),
    ];
    let mut lines: Vec<Line> = Vec::new();
    for part in parts.into_iter().flatten() {
        let room = lines.last().map(|line| line.width() + 4 + part.width());
        match lines.last_mut() {
            Some(line) if room <= Some(style.width.unwrap_or(usize::MAX)) => {
                line.push("    ", Tone::Plain);
                line.append(part);
            }
            Some(_) | None => lines.push(part),
        }
    }
    let lines = lines.into_iter();
    lines
        .map(|line| line.cut(style.width, style.symbols))
        .collect()
}

/// Busy time, and the time for which it is known.
type BusyShare = (u64, u64);

fn share(times: &UsageTimes) -> BusyShare {
    let known = times.busy_ms.saturating_add(times.held_ms);
    (times.busy_ms, known.saturating_add(times.free_ms))
}

/// `Days  ▇▇█▇▆▂▁  Mon-Sun, busiest Wed: 82 %`
fn chart_line(
    title: &str,
    shares: &[BusyShare],
    axis: &str,
    name: impl Fn(usize) -> String,
    symbols: Symbols,
) -> Option<Line> {
    let known = shares.iter().enumerate().filter(|(_, (_, all))| *all > 0);
    let (at, max) = known.reduce(|best, other| {
        if is_greater(*other.1, *best.1) {
            other
        } else {
            best
        }
    })?;
    let chart: String = shares
        .iter()
        .map(|share| level(*share, *max, symbols))
        .collect();
    let mut line = Line::with_tone(title, Tone::Strong);
    line.push(format!("  {chart}{axis}"), Tone::Plain);
    if max.0 > 0 {
        let busiest = format!("  busiest {}: {}", name(at), percent(max.0, max.1));
        line.push(busiest, Tone::Faint);
    }
    Some(line)
}

fn is_greater((part, all): BusyShare, (other, all_other): BusyShare) -> bool {
    u128::from(part) * u128::from(all_other) > u128::from(other) * u128::from(all)
}

/// The height of a share relative to the greatest share.
pub(in crate::output) fn level(share: BusyShare, max: BusyShare, symbols: Symbols) -> &'static str {
    let levels = symbols.chart_levels();
    if share.1 == 0 {
        return symbols.placeholder();
    }
    let height = ratio(share) / ratio(max).max(f64::MIN_POSITIVE);
    let nearest = (0..levels.len())
        .rev()
        .find(|at| reaches(*at, levels.len(), height));
    levels[nearest.unwrap_or(0)]
}

/// Whether a height, from 0 to 1, is nearer to this level than to the level below, or higher.
#[expect(clippy::cast_precision_loss, reason = "there are ten levels at most")]
fn reaches(level: usize, levels: usize, height: f64) -> bool {
    (level as f64 - 0.5) <= height * (levels - 1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
fn ratio((part, all): BusyShare) -> f64 {
    part as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shares: &[BusyShare], symbols: Symbols) -> Option<String> {
        let line = chart_line("X", shares, "", |at| at.to_string(), symbols)?;
        Some(line.text())
    }

    #[test]
    fn greatest_share_is_the_highest_bar() {
        let shares = [(0, 100), (41, 100), (82, 100), (0, 0), (4, 5_000)];
        assert_eq!(
            drawn(&shares, Symbols::Unicode).as_deref(),
            Some("X  ▁▅█–▁  busiest 2: 82 %")
        );
        assert_eq!(
            drawn(&shares, Symbols::Ascii).as_deref(),
            Some("X  059-0  busiest 2: 82 %")
        );
        assert_eq!(
            drawn(&[(0, 9), (0, 9)], Symbols::Unicode).as_deref(),
            Some("X  ▁▁")
        );
        assert_eq!(drawn(&[(0, 0)], Symbols::Unicode), None);
        assert_eq!(drawn(&[], Symbols::Unicode), None);
        let greatest = [(u64::MAX, u64::MAX), (1, u64::MAX)];
        assert_eq!(
            drawn(&greatest, Symbols::Unicode).as_deref(),
            Some("X  █▁  busiest 0: 100 %")
        );
    }
}
