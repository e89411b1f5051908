//! Who may be up to no good on a GPU.
//!
//! What is known of a process, [`suspect`] has. Each [`sign`](signs) is one fact, with
//! how much it weighs; [`judge`] adds up what they come to. What is not known speaks
//! neither for nor against anybody.

pub mod read;

pub mod edit;

pub mod odd;

pub mod import;

pub mod rules;

pub mod suspect;

mod signs;

mod verdict;

pub mod advice;

pub mod loads;

pub mod findings;

pub mod refusals;

pub mod scan;

pub use signs::{Kind, kinds, that_tell};
pub use verdict::{Assessment, again, assess, judge};

#[cfg(test)]
mod tests;
