//! Parses typed numbers. The error messages are our own, because those of a parser name neither
//! what was expected nor an example.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// Parses a whole number within these bounds. The error states what is expected and `example`;
/// clap puts the typed value and the option before it.
pub(super) fn whole_number_parser<T>(
    bounds: RangeInclusive<T>,
    example: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64> + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |typed| {
        parse_digits(typed)
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| bounds.contains(number))
            .ok_or_else(|| {
                let (least, most) = (bounds.start(), bounds.end());
                format!("expected a whole number from {least} to {most}, like {example}")
            })
    }
}

/// Parses a PID.
pub(super) fn parse_pid(typed: &str) -> Result<u32, String> {
    let number = parse_digits(typed).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| {
        "expected the number of a process, like 4182: gpukillctl list --details shows them"
            .to_owned()
    })
}

/// Accepts digits only; the standard parser accepts `+5` too.
fn parse_digits(typed: &str) -> Option<u64> {
    let is_number = typed.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| typed.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_accepts_bounds_and_refuses_with_an_example() {
        let width = whole_number_parser(20_u64..=1000, 100);
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
        let hours = whole_number_parser(1..=u32::MAX, 24);
        assert_eq!(hours("4294967295"), Ok(u32::MAX));
        assert!(hours("4294967296").is_err());
    }

    #[test]
    fn pid_is_a_number() {
        assert_eq!(parse_pid("4182"), Ok(4182));
        let expected =
            "expected the number of a process, like 4182: gpukillctl list --details shows them";
        for typed in ["", "python", "-1", "4294967296", "4182,4183"] {
            assert_eq!(parse_pid(typed), Err(expected.to_owned()), "{typed:?}");
        }
    }
}
