//! Reads `pp_dpm_sclk` and similar files: a line for each step of a clock, with a star at the
//! current one.

use super::read_parsed;
use crate::backend::drm::sysfs::Attribute;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Megahertz;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockSteps {
    /// `None` where no line has a star.
    pub(super) current: Option<Megahertz>,
    pub(super) greatest: Megahertz,
}

pub(super) fn read_steps(file: &impl Attribute) -> Reading<ClockSteps> {
    match read_parsed(file, parse_steps) {
        Reading::Value(steps) => steps.map_or(Reading::Unsupported, Reading::Value),
        unknown => unknown.as_unknown(),
    }
}

/// Parses `1: 789Mhz *` and `S: 19Mhz`, the deep sleep step. The lines are not sorted: some chips
/// put the current clock between the lowest and the highest. `Some(None)` if there are no lines, as
/// on a chip that reports no steps.
pub(super) fn parse_steps(text: &str) -> Option<Option<ClockSteps>> {
    let steps = text
        .lines()
        .map(str::trim_ascii)
        .filter(|line| !line.is_empty())
        .map(parse_step)
        .collect::<Option<Vec<_>>>()?;
    let now = steps.iter().find(|(_, taken)| *taken);
    let greatest = steps.iter().map(|(clock, _)| *clock).max();
    Some(greatest.map(|greatest| ClockSteps {
        current: now.map(|(clock, _)| *clock),
        greatest,
    }))
}

fn parse_step(line: &str) -> Option<(Megahertz, bool)> {
    let (_, rest) = line.split_once(':')?;
    let (clock, taken) = match rest.strip_suffix('*') {
        Some(clock) => (clock, true),
        None => (rest, false),
    };
    let clock = clock.trim_ascii().to_ascii_lowercase();
    let clock = clock.strip_suffix("mhz")?.trim_ascii().parse().ok()?;
    // No clock runs at 20 GHz.
    (clock <= 20_000).then_some((Megahertz(clock), taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_current_and_greatest_step() {
        let steps = |now: Option<u32>, greatest| {
            Some(Some(ClockSteps {
                current: now.map(Megahertz),
                greatest: Megahertz(greatest),
            }))
        };
        for (text, expected) in [
            (
                "0: 852Mhz *\n1: 991Mhz \n2: 1630Mhz \n",
                steps(Some(852), 1_630),
            ),
            (
                "S: 500Mhz\n1: 789Mhz *\n2: 2070Mhz\n",
                steps(Some(789), 2_070),
            ),
            ("S: 19Mhz *\n0: 500Mhz\n", steps(Some(19), 500)),
            ("0: 2000MHz\n1: 1000MHz *", steps(Some(1_000), 2_000)),
            ("0: 96Mhz \n", steps(None, 96)),
            ("", Some(None)),
            // An incomplete line is invalid.
            ("0: Mhz *\n", None),
            ("0: 100\n", None),
            ("0: 4294967296Mhz\n", None),
            ("0: 99999Mhz\n", None),
            ("garbage", None),
        ] {
            assert_eq!(parse_steps(text), expected, "{text:?}");
        }
    }
}
