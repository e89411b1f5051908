//! Enforcement: a job is ended for a violation.
//!
//! In reading order: which job is selected (`victims`), and how many end at the same time
//! ([`concurrency`]); when the guard stops ending jobs (`breaker`); the chosen job, its outcome
//! and snoozes ([`order`]); whether a kill plan ends that job and nothing else ([`plan_check`]);
//! whether a change of the rules withdraws it (`withdrawal`); the jobs that were ended before
//! ([`ended_jobs`]).

pub(crate) mod breaker;
pub mod concurrency;
pub mod ended_jobs;
pub mod order;
pub mod plan_check;
pub(crate) mod victims;
mod withdrawal;
