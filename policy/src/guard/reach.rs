//! How far back rules look: what somebody who tries them must see of the past before
//! they say what they would say by now.

use super::rules::{Conduct, Limits, Rules};
use std::time::Duration;

/// The longest time over which any of these rules measures. How long a process holds
/// a device is told from when it was first seen there, which the store keeps: that
/// needs no past.
#[must_use]
pub fn reach(rules: &Rules) -> Duration {
    let of_users = rules.users.iter().flat_map(|user| {
        let overrides = user.overrides.iter().map(|it| &it.limits);
        overrides.chain([&user.limits])
    });
    let limits = of_users
        .chain(rules.groups.iter().map(|it| &it.limits))
        .chain(rules.times.iter().map(|it| &it.limits))
        .chain([&rules.defaults]);
    let idle = limits.filter_map(|limits: &Limits| limits.idle);
    let conducts = rules.behaviours.iter().map(|it| match &it.conduct {
        Conduct::Duration(_) | Conduct::Rogue { .. } => Duration::ZERO,
        Conduct::Idle { limit, .. } | Conduct::Runaway { limit, .. } => *limit,
        Conduct::Waste { hours, .. } => *hours,
        Conduct::Growth { within, .. } => *within,
    });
    let windows = idle.chain(conducts);
    windows.fold(rules.enforcement.utilization_window, Duration::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::read::read;

    #[test]
    fn rules_look_as_far_back_as_the_longest_time_that_they_measure() {
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
            let rules = read(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
            assert_eq!(reach(&rules), Duration::from_secs(minutes * 60), "{text}");
        }
    }
}
