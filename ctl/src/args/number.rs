//! Numbers that are typed. What is wrong with one is said in our own words:
//! those of a parser name neither what was expected nor an example.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// Reads a whole number within these bounds. The error says what is expected, and
/// `example`; what was typed, and for which option, stands before it.
pub(super) fn whole<T>(
    bounds: RangeInclusive<T>,
    example: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64> + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |typed| {
        digits(typed)
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| bounds.contains(number))
            .ok_or_else(|| {
                let (least, most) = (bounds.start(), bounds.end());
                format!("expected a whole number from {least} to {most}, like {example}")
            })
    }
}

/// Reads the number of a process.
pub(super) fn pid(typed: &str) -> Result<u32, String> {
    let number = digits(typed).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| {
        "expected the number of a process, like 4182: gpukillctl list --details shows them"
            .to_owned()
    })
}

/// Digits and nothing else: a parser takes `+5` too.
fn digits(typed: &str) -> Option<u64> {
    let is_number = typed.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| typed.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_within_its_bounds_is_taken_and_all_else_is_answered_with_an_example() {
        let width = whole(20_u64..=1000, 100);
        assert_eq!(width("20"), Ok(20));
        assert_eq!(width("1000"), Ok(1000));
        let expected = "expected a whole number from 20 to 1000, like 100";
        for typed in [
            "",
            " 20",
            "19",
            "1001",
            "-20",
            "+20",
            "2e2",
            "20.5",
            "wide",
            "٢٠",
            "99999999999999999999",
        ] {
            assert_eq!(width(typed), Err(expected.to_owned()), "{typed:?}");
        }
        let hours = whole(1..=u32::MAX, 24);
        assert_eq!(hours("4294967295"), Ok(u32::MAX));
        assert!(hours("4294967296").is_err());
    }

    #[test]
    fn a_process_is_a_number_and_no_name() {
        assert_eq!(pid("4182"), Ok(4182));
        let expected =
            "expected the number of a process, like 4182: gpukillctl list --details shows them";
        for typed in ["", "python", "-1", "4294967296", "4182,4183"] {
            assert_eq!(pid(typed), Err(expected.to_owned()), "{typed:?}");
        }
    }
}
