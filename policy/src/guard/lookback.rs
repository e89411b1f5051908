//! How far back rules look: how much of the past a test of rules needs before it finds what
//! the guard would find now.

use super::rules::parse::parse;
use super::rules::{ForbiddenBehaviour, Limits, RuleSet};
use std::time::Duration;

/// Minimum number of seconds that a test evaluates.
const MIN_TEST_SECONDS: i64 = 24 * 3_600;

/// Seconds to add before the lookback of the rules, so that a replay covers the start of a violation
/// that is open now, and its warning.
const EXTRA_LOOKBACK_SECONDS: i64 = 3_600;

/// The number of seconds that a test of the rules in this text evaluates. When the rules have
/// mistakes, other rules are in force and the default is used.
#[must_use]
pub fn test_seconds(text: &str) -> i64 {
    let reach = parse(text)
        .map(|rules| lookback(&rules))
        .unwrap_or_default();
    let reach = i64::try_from(reach.as_secs()).unwrap_or(i64::MAX);
    reach
        .saturating_add(EXTRA_LOOKBACK_SECONDS)
        .max(MIN_TEST_SECONDS)
}

/// The longest window of these rules. How long a process has held a device needs no past:
/// it counts from the first sighting there, which the store keeps.
#[must_use]
pub fn lookback(rules: &RuleSet) -> Duration {
    let of_users = rules.users.iter().flat_map(|user| {
        let overrides = user.overrides.iter().map(|it| &it.limits);
        overrides.chain([&user.limits])
    });
    let limits = of_users
        .chain(rules.groups.iter().map(|it| &it.limits))
        .chain(rules.times.iter().map(|it| &it.limits))
        .chain([&rules.defaults]);
    let idle = limits.filter_map(|limits: &Limits| limits.idle);
    let behaviours = rules.behaviours.iter().map(|rule| match &rule.behaviour {
        ForbiddenBehaviour::Duration(_) | ForbiddenBehaviour::Rogue(_) => Duration::ZERO,
        ForbiddenBehaviour::Idle(idle) => idle.limit,
        ForbiddenBehaviour::Runaway(runaway) => runaway.limit,
        ForbiddenBehaviour::Waste(waste) => waste.hours,
        ForbiddenBehaviour::Growth(growth) => growth.within,
    });
    let windows = idle.chain(behaviours);
    windows.fold(rules.enforcement.utilization_window, Duration::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_covers_a_day_or_the_start_of_the_longest_window() {
        assert_eq!(test_seconds(""), 86_400);
        assert_eq!(test_seconds("mistake"), 86_400);
        let text = "[[rules]]\nname = 'r'\nidle_limit_minutes = 2880";
        assert_eq!(test_seconds(text), 2_880 * 60 + 3_600);
    }

    #[test]
    fn is_the_longest_window() {
        for (text, minutes) in [
            ("", 5),
            ("enforcement.utilization_window_minutes = 20", 20),
            ("global.default_idle_limit_minutes = 90", 90),
            ("global.default_duration_limit_hours = 100", 5),
            ("[user_policies.a]\nidle_limit_minutes = 91", 91),
            (
                "[[user_policies.a.time_overrides]]\ndays_of_week = 'mon'\nidle_limit_minutes = 92",
                92,
            ),
            ("[group_policies.g]\nidle_limit_minutes = 93", 93),
            (
                "[[time_policies]]\nname = 't'\ndays_of_week = 'mon'\nidle_limit_minutes = 94",
                94,
            ),
            ("[[rules]]\nname = 'r'\nduration_limit_hours = 100", 5),
            ("[[rules]]\nname = 'r'\nidle_limit_minutes = 95", 95),
            (
                "[[rules]]\nname = 'r'\nrunaway_above_pct = 9\nrunaway_minutes = 96",
                96,
            ),
            (
                "[[rules]]\nname = 'r'\nwaste_below_pct = 9\nwaste_hours = 40",
                2_400,
            ),
            (
                "[[rules]]\nname = 'r'\ngrowth_gb = 9\ngrowth_hours = 168",
                10_080,
            ),
        ] {
            let rules = parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
            assert_eq!(
                lookback(&rules),
                Duration::from_secs(minutes * 60),
                "{text}"
            );
        }
    }
}
