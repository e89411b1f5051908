//! Detects suspicious processes on a GPU.
//!
//! A [`suspect`] holds the known facts about a process. Each [indicator](indicators) is
//! one piece of evidence with a weight; [`evaluate`] combines the weights into
//! verdicts. An unknown fact counts neither for nor against a process.

pub mod read;

pub mod edit;

pub mod lints;

pub mod import;

pub mod rules;

pub mod suspect;

mod indicators;

mod verdict;

pub mod advice;

pub mod load_tracker;

pub mod finding_tracker;

pub mod refusals;

pub mod scan;

pub use indicators::{IndicatorKind, indicative_libraries, indicator_kinds};
pub use verdict::{Assessment, assess, evaluate, reassess};

#[cfg(test)]
mod tests;
