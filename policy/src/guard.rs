//! The guard: which of the admin's rules are broken, and what is done about it.
//!
//! In reading order: the [`rules`]; how they are parsed ([`parse`]), linted ([`lint`]) and
//! edited ([`edit`](mod@edit)); the [`sample`] that is evaluated; times of the day and week
//! ([`schedule`]); the [`limits`] of each person; [`evaluate()`], which updates the state
//! of the guard with each sample; the [`notice`] that a violator reads on a terminal.
//!
//! The same code evaluates live, in a test of rules and in a replay. A result depends on
//! the rules, on the state and on the sample, and on nothing else.

pub mod rules;

pub mod facts;

pub mod parse;

pub mod lint;

pub mod edit;

pub mod diff;

pub mod import;

pub mod sample;

pub mod device_losses;

pub mod schedule;

pub mod limits;

pub mod lookback;

pub mod restarted;

pub mod consequences;

mod evaluate;

mod person_key;

mod state;

mod violation_state;

mod warning_state;

mod victims;

mod ended_jobs;

mod simulated;

mod rule_doubt;

mod snoozes;

mod breaker;

mod order;

pub mod enforcement;

pub mod concurrency;

pub mod notice;

pub mod replay;

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;

pub use ended_jobs::PidStart;
pub use evaluate::{CompiledRules, Evaluation, MAX_UNJUDGED, Overflow, evaluate};
pub use order::{EnforcementOrder, SignalStatus, SnoozeRequest};
pub use person_key::PersonKey;
pub use simulated::{SimulatedEnd, simulated_jobs};
pub use snoozes::SnoozeGrant;
pub use state::GuardState;
pub use warning_state::SnoozeError;
