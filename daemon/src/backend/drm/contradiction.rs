//! Resolves contradictory readings of one card: full utilization at a clock of 0 MHz.
//!
//! Utilization is an average and a clock is an instant value, so the two may differ in one poll;
//! over several polls in a row one of them is wrong. The clients' own counters decide which: they
//! grow only with work that was done. Unless they show that the card works, the utilization is
//! wrong: it stays at its maximum because a counter of idle time stands still (RC6), or because the
//! firmware is stuck (GFXOFF).

use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Megahertz, Percent};

/// If a card sleeps for a twentieth of the time, one poll in twenty reads its clock as 0.
const BUSY_SHARE: Percent = Percent(95);

/// For such a card, that many zeros in a row happen by chance once in 8,000 polls.
const MIN_POLLS: u8 = 3;

/// The share that the clients must reach together to prove that the card works.
const WORKING_SHARE: Percent = Percent(50);

const WRONG_SHARE: &str = "contradicted: busy all the time at a clock of 0 MHz";
const WRONG_CLOCK: &str = "contradicted: a clock of 0 MHz while clients work";

/// How many polls in a row were contradictory.
#[derive(Debug, Default)]
pub(super) struct Contradiction(u8);

impl Contradiction {
    /// Fails the weaker of two contradictory values in `vitals`. `clients` is the share of all
    /// clients together.
    pub(super) fn resolve(&mut self, vitals: Vitals, clients: &Reading<Percent>) -> Vitals {
        let is_busy = vitals
            .utilization
            .known()
            .is_some_and(|it| *it >= BUSY_SHARE);
        let stands_still = vitals.clock_graphics == Reading::Value(Megahertz(0));
        self.0 = match is_busy && stands_still {
            true => self.0.saturating_add(1),
            false => 0,
        };
        if self.0 < MIN_POLLS {
            return vitals;
        }
        if clients.known().is_some_and(|share| *share >= WORKING_SHARE) {
            return Vitals {
                clock_graphics: Reading::Failed(WRONG_CLOCK.to_owned()),
                clock_sm: Reading::Failed(WRONG_CLOCK.to_owned()),
                ..vitals
            };
        }
        Vitals {
            utilization: Reading::Failed(WRONG_SHARE.to_owned()),
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

    /// For each poll, whether the utilization and the clock are accepted.
    fn accepted_values(polls: &[(u32, u32)], clients: &Reading<Percent>) -> Vec<(bool, bool)> {
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
    fn repeated_contradiction_fails_one_value() {
        let both = (true, true);
        let idle = Reading::Value(Percent(0));
        let share_is_wrong = [both, both, (false, true), (false, true)];
        assert_eq!(accepted_values(&[(100, 0); 4], &idle), share_is_wrong);
        assert_eq!(
            accepted_values(&[(100, 0); 4], &Reading::Unsupported),
            share_is_wrong
        );
        let works = Reading::Value(Percent(80));
        let clock_is_wrong = [both, both, (true, false), (true, false)];
        assert_eq!(accepted_values(&[(100, 0); 4], &works), clock_is_wrong);
    }

    #[test]
    fn healthy_readings_are_accepted() {
        let healthy = [
            // The card fell asleep at the end of a poll, or works in bursts.
            [(100, 0), (100, 0), (100, 300), (100, 0)],
            [(100, 0), (60, 0), (100, 0), (100, 0)],
            [(0, 0), (0, 0), (0, 0), (0, 0)],
            [(94, 0), (94, 0), (94, 0), (94, 0)],
        ];
        for polls in healthy {
            let idle = Reading::Value(Percent(0));
            assert_eq!(
                accepted_values(&polls, &idle),
                [(true, true); 4],
                "{polls:?}"
            );
        }
    }
}
