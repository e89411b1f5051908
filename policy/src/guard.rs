//! The guard: which of the admin's rules are broken, and what is done about it.
//!
//! In reading order: the [`rules`]; how they are parsed ([`parse`]), linted ([`lint`]) and
//! edited ([`edit`](mod@edit)); the [`sample`] that is evaluated; times of the day and week
//! ([`schedule`]); the [`limits`] of each person; [`evaluate()`], which updates the state
//! of the guard with each sample; the [`notice`] that a violator reads on a terminal.
//!
//! The same code evaluates live, in a test of rules and in a replay. A result depends on
//! the rules, on the state and on the sample, and on nothing else.

mod breaker;
pub mod concurrency;
pub mod consequences;
pub mod device_losses;
pub mod diff;
pub mod edit;
mod ended_jobs;
pub mod enforcement;
mod evaluate;
pub mod facts;
pub mod import;
pub mod limits;
pub mod lint;
pub mod lookback;
pub mod notice;
mod order;
pub mod parse;
mod person_key;
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
mod victims;
mod violation_state;
mod warning_state;

pub use ended_jobs::{PidStart, SimulatedEnd, simulated_jobs};
pub use evaluate::{CompiledRules, Evaluation, MAX_UNEVALUATED, Overflow, evaluate};
pub use order::{EnforcementOrder, SignalStatus, SnoozeRequest};
pub use person_key::PersonKey;
pub use snoozes::SnoozeGrant;
pub use state::GuardState;
pub use warning_state::SnoozeError;
