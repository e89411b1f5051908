//! Detects suspicious processes on a GPU.
//!
//! A [`suspect`] holds the known facts about a process. Each [indicator](indicators) is
//! one piece of evidence with a weight; [`evaluate`] combines the weights into
//! verdicts. An unknown fact counts neither for nor against a process.

pub mod advice;
pub mod edit;
pub mod finding_tracker;
pub mod import;
mod indicators;
pub mod lints;
pub mod load_tracker;
pub mod read;
pub mod refusals;
pub mod rules;
pub mod scan;
pub mod suspect;
mod verdict;

pub use indicators::{IndicatorKind, indicative_libraries, indicator_kinds};
pub use verdict::{Assessment, assess, evaluate, reassess};

#[cfg(test)]
mod tests;
