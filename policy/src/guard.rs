//! The guard: which of the admin's rules are broken, and what is done about it.
//!
//! In reading order: the [`rules`] and their files; the [`sample`] that is evaluated; times of
//! the day and week ([`schedule`]); the [`limits`] of each person; [`evaluate()`], which updates
//! the state of the guard with each sample; the [`notice`] that a violator reads on a terminal;
//! the [`enforcement`], which ends jobs.
//!
//! The same code evaluates live, in a test of rules and in a replay. A result depends on
//! the rules, on the state and on the sample, and on nothing else.

pub mod consequences;
pub mod device_losses;
pub mod enforcement;
mod evaluate;
pub mod facts;
pub mod limits;
pub mod lookback;
pub mod notice;
mod person_key;
pub mod preview;
pub mod replay;
pub mod restarted;
mod rule_doubt;
pub mod rules;
pub mod sample;
pub mod schedule;
mod snoozes;
mod state;
#[cfg(test)]
#[path = "../tests/support/guard.rs"]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod violation_places;
mod violation_state;
mod warning_state;

pub use evaluate::{CompiledRules, Evaluation, MAX_UNEVALUATED, Overflow, evaluate};
pub use person_key::PersonKey;
pub use snoozes::SnoozeGrant;
pub use state::{GuardState, SavedPart};
pub use warning_state::SnoozeError;
