//! Readings of one card that contradict each other: it is said to work all the time, at
//! a clock of 0 MHz.
//!
//! A share is a mean and a clock is of one moment, so that the two may differ in one
//! poll; in several polls in a row one of them is wrong. The clients' own counters decide
//! which: they grow only with work that was done. Where they do not say that it worked,
//! the share is wrong. That is one that stays at its greatest because a counter of idle
//! time stands still (RC6), or because its firmware is stuck (GFXOFF).

use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::{Megahertz, Percent};

/// A clock that is read while a card sleeps for a twentieth of the time is 0 once in
/// twenty polls.
const BUSY: Percent = Percent(95);

/// By chance a clock of such a card is 0 as often in a row once in 8,000 polls.
const POLLS: u8 = 3;

/// What clients of a card must do together so that it is believed to work.
const WORKS: Percent = Percent(50);

const SHARE_IS_WRONG: &str = "contradicted: busy all the time at a clock of 0 MHz";
const CLOCK_IS_WRONG: &str = "contradicted: a clock of 0 MHz while clients work";

/// How often in a row a card contradicted itself.
#[derive(Debug, Default)]
pub(super) struct Contradiction(u8);

impl Contradiction {
    /// Those vitals without the weaker one of two that contradict each other. `clients` is
    /// what the clients do together.
    pub(super) fn resolve(&mut self, vitals: Vitals, clients: &Reading<Percent>) -> Vitals {
        let is_busy = vitals.utilization.known().is_some_and(|it| *it >= BUSY);
        let stands_still = vitals.clock_graphics == Reading::Value(Megahertz(0));
        self.0 = match is_busy && stands_still {
            true => self.0.saturating_add(1),
            false => 0,
        };
        if self.0 < POLLS {
            return vitals;
        }
        if clients.known().is_some_and(|share| *share >= WORKS) {
            return Vitals {
                clock_graphics: Reading::Failed(CLOCK_IS_WRONG.to_owned()),
                clock_sm: Reading::Failed(CLOCK_IS_WRONG.to_owned()),
                ..vitals
            };
        }
        Vitals {
            utilization: Reading::Failed(SHARE_IS_WRONG.to_owned()),
            ..vitals
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vitals(share: u32, clock: u32) -> Vitals {
        Vitals {
            utilization: Reading::Value(Percent(share)),
            clock_graphics: Reading::Value(Megahertz(clock)),
            clock_sm: Reading::Value(Megahertz(clock)),
            ..Vitals::unknown(&Reading::Unsupported)
        }
    }

    /// The polls, from the first, in which the share and the clock are believed.
    fn believed(polls: &[(u32, u32)], clients: &Reading<Percent>) -> Vec<(bool, bool)> {
        let mut contradiction = Contradiction::default();
        let resolve = |(share, clock): &(u32, u32)| {
            let resolved = contradiction.resolve(vitals(*share, *clock), clients);
            assert_eq!(resolved.clock_graphics, resolved.clock_sm);
            (
                resolved.utilization.known().is_some(),
                resolved.clock_graphics.known().is_some(),
            )
        };
        polls.iter().map(resolve).collect()
    }

    #[test]
    fn a_card_that_is_busy_at_no_clock_for_several_polls_is_not_believed() {
        let both = (true, true);
        let idle = Reading::Value(Percent(0));
        let share_is_wrong = [both, both, (false, true), (false, true)];
        assert_eq!(believed(&[(100, 0); 4], &idle), share_is_wrong);
        assert_eq!(
            believed(&[(100, 0); 4], &Reading::Unsupported),
            share_is_wrong
        );
        let works = Reading::Value(Percent(80));
        let clock_is_wrong = [both, both, (true, false), (true, false)];
        assert_eq!(believed(&[(100, 0); 4], &works), clock_is_wrong);
    }

    #[test]
    fn what_a_healthy_card_may_tell_is_believed() {
        let healthy = [
            // It fell asleep at the end of a poll, or works in bursts.
            [(100, 0), (100, 0), (100, 300), (100, 0)],
            [(100, 0), (60, 0), (100, 0), (100, 0)],
            [(0, 0), (0, 0), (0, 0), (0, 0)],
            [(94, 0), (94, 0), (94, 0), (94, 0)],
        ];
        for polls in healthy {
            let idle = Reading::Value(Percent(0));
            assert_eq!(believed(&polls, &idle), [(true, true); 4], "{polls:?}");
        }
    }
}
