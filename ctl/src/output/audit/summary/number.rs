//! Hours and shares in a form that people compare. A value above zero is never shown as zero.

use crate::output::value::thousands;

/// GPU time in hours: `402.1`, `28.1k`.
pub(in crate::output) fn hours(milliseconds: u64) -> String {
    compact_number(as_hours(milliseconds))
}

/// GPU time in whole hours, when there are many: `1,344`.
pub(in crate::output) fn whole_hours(milliseconds: u64) -> String {
    const AN_HOUR: u64 = 3_600_000;
    if milliseconds < 100 * AN_HOUR {
        return hours(milliseconds);
    }
    thousands(milliseconds.saturating_add(AN_HOUR / 2) / AN_HOUR)
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
fn as_hours(milliseconds: u64) -> f64 {
    milliseconds as f64 / 3_600_000.0
}

/// A number in at most six characters, up to a thousand million.
pub(super) fn compact_number(number: f64) -> String {
    if number == 0.0 {
        "0".into()
    } else if number < 0.05 {
        "<0.1".into()
    } else if number < 9_999.95 {
        format!("{number:.1}")
    } else if number < 999_950.0 {
        format!("{:.1}k", number / 1e3)
    } else {
        format!("{:.1}M", number / 1e6)
    }
}

/// A share of a whole: `61 %`. Only the whole is shown as 100 %.
pub(in crate::output) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "?".into();
    }
    let (part, whole) = (u128::from(part.min(whole)), u128::from(whole));
    match (part * 200 / whole).div_ceil(2) {
        _ if part == 0 => "0 %".into(),
        _ if part == whole => "100 %".into(),
        _ if part * 200 < whole => "<1 %".into(),
        100.. => ">99 %".into(),
        rounded => format!("{rounded} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_0_or_100_only_when_exact() {
        let cases = [
            (0, 1000, "0 %"),
            (1, 1000, "<1 %"),
            (4, 1000, "<1 %"),
            (5, 1000, "1 %"),
            (14, 1000, "1 %"),
            (15, 1000, "2 %"),
            (614, 1000, "61 %"),
            (994, 1000, "99 %"),
            (995, 1000, ">99 %"),
            (999, 1000, ">99 %"),
            (1000, 1000, "100 %"),
            (u64::MAX, u64::MAX, "100 %"),
            (0, 0, "?"),
        ];
        for (part, whole, expected) in cases {
            assert_eq!(percent(part, whole), expected, "{part} of {whole}");
        }
    }

    #[test]
    fn hours_have_a_constant_width() {
        let cases = [
            (0, "0", "0"),
            (1, "<0.1", "<0.1"),
            (180_000, "0.1", "0.1"),
            (359_820_000, "100.0", "100.0"),
            (1_447_560_000, "402.1", "402"),
            (4_838_400_000, "1344.0", "1,344"),
            (101_160_000_000, "28.1k", "28,100"),
            (u64::MAX, "5124095.6M", "5,124,095,576,030"),
        ];
        for (milliseconds, expected, whole) in cases {
            assert_eq!(hours(milliseconds), expected);
            assert_eq!(whole_hours(milliseconds), whole);
        }
    }
}
