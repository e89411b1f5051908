//! Who breaks which of the admin's rules, and what comes of it?
//!
//! In reading order: what the [`rules`] say, and how they are [`read`] and
//! what is odd about them ([`check`]), and how they are changed ([`edit`](mod@edit)); what is judged, a [`bucket`] of time;
//! at what times of the day and week ([`schedule`]); which [`limits`] hold for whom;
//! [`judge()`], which takes what it remembers and gives it back; what whoever breaks a
//! rule is told on their terminals, a [`notice`].
//!
//! The same code judges live, in a test and in a replay: what it decides depends on
//! the rules, on what came before, and on the bucket, and on nothing else.

pub mod rules;

pub mod about;

pub mod read;

pub mod check;

pub mod edit;

pub mod diff;

pub mod import;

pub mod bucket;

pub mod losses;

pub mod schedule;

pub mod limits;

pub mod reach;

pub mod anew;

pub mod affected;

mod judge;

mod whose;

mod memory;

mod clock;

mod warned;

mod victims;

mod ended;

mod simulated;

mod fit;

mod snoozes;

mod breaker;

mod acting;

pub mod sentence;

pub mod places;

pub mod notice;

pub mod replay;

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;

pub use acting::{Ending, Signals, Snoozer};
pub use ended::Process;
pub use judge::{Beyond, Judgement, MOST_UNJUDGED, Rulebook, judge};
pub use memory::Memory;
pub use simulated::{SimulatedEnd, simulated_jobs};
pub use snoozes::Grant;
pub use warned::NotSnoozed;
pub use whose::PersonKey;
