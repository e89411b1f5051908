//! `pp_dpm_sclk` and its like: a line for each step of a clock, with a star at
//! the one that is taken.

use super::lines;
use crate::backend::drm::sysfs::Attribute;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Megahertz;

/// The steps of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Steps {
    /// `None` where no line has a star.
    pub(super) now: Option<Megahertz>,
    pub(super) greatest: Megahertz,
}

/// What the file tells now.
pub(super) fn read(file: &impl Attribute) -> Reading<Steps> {
    match lines::parsed(file, parse) {
        Reading::Value(steps) => steps.map_or(Reading::Unsupported, Reading::Value),
        unknown => unknown.because(),
    }
}

/// Of `1: 789Mhz *` and `S: 19Mhz`, the step of deep sleep. The lines are not in
/// order: some chips put the clock of now between the least and the greatest.
/// `Some(None)` where there is none, as on a chip that tells of no steps.
pub(super) fn parse(text: &str) -> Option<Option<Steps>> {
    let steps = text
        .lines()
        .map(str::trim_ascii)
        .filter(|line| !line.is_empty())
        .map(step)
        .collect::<Option<Vec<_>>>()?;
    let now = steps.iter().find(|(_, taken)| *taken);
    let greatest = steps.iter().map(|(clock, _)| *clock).max();
    Some(greatest.map(|greatest| Steps {
        now: now.map(|(clock, _)| *clock),
        greatest,
    }))
}

fn step(line: &str) -> Option<(Megahertz, bool)> {
    let (_, rest) = line.split_once(':')?;
    let (clock, taken) = match rest.strip_suffix('*') {
        Some(clock) => (clock, true),
        None => (rest, false),
    };
    let clock = clock.trim_ascii().to_ascii_lowercase();
    let clock = clock.strip_suffix("mhz")?.trim_ascii().parse().ok()?;
    // No clock has twenty gigahertz.
    (clock <= 20_000).then_some((Megahertz(clock), taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_with_a_star_is_taken_and_the_greatest_may_stand_anywhere() {
        let steps = |now: Option<u32>, greatest| {
            Some(Some(Steps {
                now: now.map(Megahertz),
                greatest: Megahertz(greatest),
            }))
        };
        for (text, told) in [
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
            // Half a line is none.
            ("0: Mhz *\n", None),
            ("0: 100\n", None),
            ("0: 4294967296Mhz\n", None),
            ("0: 99999Mhz\n", None),
            ("garbage", None),
        ] {
            assert_eq!(parse(text), told, "{text:?}");
        }
    }
}
