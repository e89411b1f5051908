//! Single values for people. An unknown value is never a zero: it is `n/a` (unsupported), `?`
//! (failed), `hidden`, or the last known value after a `~`, with its age in a column of its
//! own.

use super::style::{OutputStyle, Symbols, Zone};
use super::table::Cell;
use super::text::Tone;
use chrono::{DateTime, Local, NaiveDateTime};
use gpukill_proto::model::InstanceId;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::format_duration;
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::time::Duration;

/// A reading as a cell.
pub(crate) fn reading<T>(reading: &Reading<T>, text: impl FnOnce(&T) -> String) -> Cell {
    match reading {
        Reading::Value(value) => Cell::plain(text(value)),
        Reading::Unsupported => Cell::with_tone("n/a", Tone::Faint),
        Reading::Failed(_) => Cell::with_tone("?", Tone::Doubtful),
        Reading::Stale(value, _) => Cell::with_tone(format!("~{}", text(value)), Tone::Doubtful),
        Reading::Withheld => Cell::with_tone("hidden", Tone::Faint),
    }
}

/// A share as a cell: `97%`.
pub(crate) fn percent_cell(value: &Reading<Percent>) -> Cell {
    reading(value, |percent| percent.0.to_string() + "%")
}

/// A size as a cell: `15.8G`.
pub(crate) fn size_cell(value: &Reading<Bytes>) -> Cell {
    reading(value, |bytes| size(*bytes))
}

/// A size to compare: `15.8G`, below one GiB `214M`.
pub(crate) fn size(bytes: Bytes) -> String {
    if bytes.as_mib() >= 1024 {
        gib(bytes) + "G"
    } else if bytes.0 == 0 || bytes.as_mib() > 0 {
        format!("{}M", bytes.as_mib())
    } else {
        "<1M".into()
    }
}

/// GiB without the unit: `63.1`.
pub(crate) fn gib(bytes: Bytes) -> String {
    bytes.gib_text()
}

/// A size on disk: `61 MiB`, `4.2 GiB`, `12 KiB`.
pub(crate) fn disk_size(bytes: Bytes) -> String {
    match bytes.0 {
        0 => "0 MiB".into(),
        n if n < 1 << 20 => format!("{} KiB", n.div_ceil(1024)),
        n if n < 10 << 20 => format!("{:.1} MiB", bytes.as_gib() * 1024.0),
        n if n < 1 << 30 => format!("{} MiB", bytes.as_mib()),
        _ => format!("{} GiB", gib(bytes)),
    }
}

/// A number with commas between thousands.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 GPU`, `8 GPUs`.
pub(crate) fn counted(number: usize, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}

/// `1 process`, `300 processes`
pub(crate) fn counted_processes(number: usize) -> String {
    match number {
        1 => "1 process".to_owned(),
        several => format!("{several} processes"),
    }
}

/// A duration, with tenths of seconds while it is short.
pub(crate) fn short_duration(length: Duration) -> String {
    if length < Duration::from_secs(10) {
        format!("{:.1} s", length.as_secs_f64())
    } else {
        format_duration(length)
    }
}

/// A GPU or an instance: `3`, `3/2/0`. With slashes, as CUDA and DCGM name the instances.
pub(crate) fn gpu(index: u32, instance: Option<InstanceId>) -> String {
    match instance {
        Some(instance) => format!("{index}/{instance}"),
        None => index.to_string(),
    }
}

/// Several GPUs by their indices: `0`, `0-3`, `0,2`.
pub(crate) fn gpus(indices: impl IntoIterator<Item = u32>) -> String {
    let mut indices: Vec<u32> = indices.into_iter().collect();
    indices.sort_unstable();
    indices.dedup();
    let parts = ranges(&indices).into_iter();
    let parts = parts.map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// The first and the last of indices that follow each other.
pub(crate) fn ranges(indices: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for index in indices {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*index) => *last = *index,
            Some(_) | None => ranges.push((*index, *index)),
        }
    }
    ranges
}

/// A bar of ten characters that shows how full something is.
pub(crate) fn bar(used: u64, total: u64, symbols: Symbols) -> String {
    const CELLS: u64 = 10;
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    if total == 0 {
        return String::new();
    }
    let part = |steps: u64| {
        let steps = u128::from(used.min(total)) * u128::from(steps) / u128::from(total);
        usize::try_from(steps).unwrap_or(0)
    };
    match symbols {
        Symbols::Ascii => {
            let full = part(CELLS);
            format!("{}{}", "#".repeat(full), ".".repeat(10 - full))
        }
        Symbols::Unicode => {
            let eighths = part(CELLS * 8);
            let mut text = "█".repeat(eighths / 8);
            if eighths % 8 > 0 {
                text.push(EIGHTHS[eighths % 8]);
            }
            text + &"░".repeat(10 - eighths.div_ceil(8))
        }
    }
}

/// A clock time; with the date when that is not `now`'s.
pub(crate) fn clock(moment: Timestamp, now: Timestamp, style: &OutputStyle) -> String {
    time_or_date(moment, now, "%H:%M:%S", style)
}

/// Times this near are shown with seconds: a grace period of 90 s reads wrong without.
const NEAR_TIME: Duration = Duration::from_secs(600);

/// A future time to the minute, and to the second when it is near; with the date when that is
/// not `now`'s.
pub(crate) fn future_time(moment: Timestamp, now: Timestamp, style: &OutputStyle) -> String {
    time_or_date(moment, now, time_format(moment.since(now)), style)
}

/// A past time to the minute, and to the second when it is recent; on another day as
/// [`weekday_and_time`].
pub(crate) fn past_time(moment: Timestamp, now: Timestamp, style: &OutputStyle) -> String {
    time_or_weekday(moment, now, time_format(now.since(moment)), style)
}

fn time_format(distance: Duration) -> &'static str {
    if distance < NEAR_TIME {
        "%H:%M:%S"
    } else {
        "%H:%M"
    }
}

fn time_or_date(moment: Timestamp, now: Timestamp, today: &str, style: &OutputStyle) -> String {
    let form = match (
        local_date_time(moment, style.zone),
        local_date_time(now, style.zone),
    ) {
        (Some(moment), Some(now)) if moment.date() == now.date() => today,
        _ => "%Y-%m-%d %H:%M",
    };
    formatted(moment, form, style.zone)
}

/// Within this time a weekday alone names one day.
pub(crate) const WEEKDAY_TIME: Duration = Duration::from_secs(6 * 86_400);

/// The weekday and the minute of a time in the last or next six days, `Fri 14:02`; else the date
/// and the minute.
pub(crate) fn weekday_and_time(moment: Timestamp, now: Timestamp, style: &OutputStyle) -> String {
    // One of the two is 0.
    let distance = now.since(moment).max(moment.since(now));
    let form = if distance < WEEKDAY_TIME {
        "%a %H:%M"
    } else {
        "%Y-%m-%d %H:%M"
    };
    formatted(moment, form, style.zone)
}

/// A time of today in this format; on another day as [`weekday_and_time`].
pub(crate) fn time_or_weekday(
    moment: Timestamp,
    now: Timestamp,
    today: &str,
    style: &OutputStyle,
) -> String {
    match (
        local_date_time(moment, style.zone),
        local_date_time(now, style.zone),
    ) {
        (Some(at), Some(now)) if at.date() == now.date() => formatted(moment, today, style.zone),
        _ => weekday_and_time(moment, now, style),
    }
}

/// Date and clock time.
pub(crate) fn date_and_time(moment: Timestamp, style: &OutputStyle) -> String {
    formatted(moment, "%Y-%m-%d %H:%M:%S", style.zone)
}

/// A time in a chrono format.
pub(crate) fn formatted(moment: Timestamp, form: &str, zone: Zone) -> String {
    local_date_time(moment, zone).map_or_else(
        || moment.to_rfc3339(),
        |local| local.format(form).to_string(),
    )
}

fn local_date_time(moment: Timestamp, zone: Zone) -> Option<NaiveDateTime> {
    // chrono panics when the zone's offset leads out of its calendar. No time of ours is
    // outside the years 1 to 9999.
    const YEARS: std::ops::Range<i64> = -62_135_510_400_000..253_402_214_400_000;
    let moment = DateTime::from_timestamp_millis(moment.0).filter(|_| YEARS.contains(&moment.0))?;
    Some(match zone {
        Zone::Local => moment.with_timezone(&Local).naive_local(),
        Zone::Utc => moment.naive_utc(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_unknown_stay_apart() {
        let text = |value: &Reading<u32>| reading(value, |n| format!("{n}%")).text;
        let cases = [
            (Reading::Value(0), "0%"),
            (Reading::Unsupported, "n/a"),
            (Reading::Failed("x".into()), "?"),
            (Reading::Stale(7, 12), "~7%"),
            (Reading::Withheld, "hidden"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(&value), expected, "{value:?}");
        }
    }

    #[test]
    fn small_sizes_are_not_zero() {
        let cases = [
            (0, "0M"),
            (1, "<1M"),
            (214 << 20, "214M"),
            (1 << 30, "1.0G"),
            (16_965_120_819, "15.8G"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(size(Bytes(bytes)), expected);
        }
        assert_eq!(disk_size(Bytes(1)), "1 KiB");
        assert_eq!(disk_size(Bytes::mib(61)), "61 MiB");
        assert_eq!(disk_size(Bytes(1_258_291)), "1.2 MiB");
        assert_eq!(disk_size(Bytes::mib(4300)), "4.2 GiB");
    }

    #[test]
    fn bar_has_ten_cells() {
        let cases = [
            (0, 80, "░░░░░░░░░░", ".........."),
            (63, 80, "███████▉░░", "#######..."),
            (80, 80, "██████████", "##########"),
            (90, 80, "██████████", "##########"),
            (u64::MAX, u64::MAX, "██████████", "##########"),
        ];
        for (used, total, blocks, ascii) in cases {
            assert_eq!(bar(used, total, Symbols::Unicode), blocks);
            assert_eq!(bar(used, total, Symbols::Ascii), ascii);
        }
        assert_eq!(bar(1, 0, Symbols::Unicode), "");
    }

    #[test]
    fn thousands_are_separated() {
        for (number, expected) in [
            (0, "0"),
            (999, "999"),
            (524_118, "524,118"),
            (1_000_000, "1,000,000"),
        ] {
            assert_eq!(thousands(number), expected);
        }
    }

    #[test]
    fn time_has_a_date_on_another_day() {
        let style = super::super::fixtures::style(None);
        let now = Timestamp(1_795_269_751_250);
        assert_eq!(clock(Timestamp(now.0 - 271_000), now, &style), "13:58:00");
        assert_eq!(
            clock(now.plus_seconds(-86_400), now, &style),
            "2026-11-20 14:02"
        );
        assert_eq!(future_time(now.plus_seconds(600), now, &style), "14:12");
        assert_eq!(
            future_time(now.plus_seconds(86_400), now, &style),
            "2026-11-22 14:02"
        );
        for (distance, expected) in [
            (600, "14:12"),
            (-86_400, "Fri 14:02"),
            (43_200, "Sun 02:02"),
            (-6 * 86_400, "2026-11-15 14:02"),
            (6 * 86_400, "2026-11-27 14:02"),
        ] {
            let moment = now.plus_seconds(distance);
            assert_eq!(time_or_weekday(moment, now, "%H:%M", &style), expected);
        }
        for zone in [Zone::Local, Zone::Utc] {
            let style = OutputStyle { zone, ..style };
            for distance in [
                i64::MIN,
                i64::MAX,
                8_210_266_876_799_999,
                -8_334_601_228_800_000,
            ] {
                assert!(!clock(Timestamp(distance), now, &style).is_empty());
            }
        }
    }
}
