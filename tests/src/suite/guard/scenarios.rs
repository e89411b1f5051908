//! One scenario for each kind of rule: usage over the limit, at the limit, under it, and
//! unknown. Real processes of many persons violate rules at the same time, and all records are
//! compared as a whole.

mod access;
mod assertions;
mod counts;
mod enforcement_steps;
mod expected_violation;
mod growth;
mod idle;
mod memory;
mod protect;
mod scenario;
mod selectors;
mod simulated_process;
mod time_windows;
mod utilization;
mod victims;
mod waste_and_runaway;

use expected_violation::ExpectedViolation;
use scenario::Scenario;
use simulated_process::{GpuUsage, SimulatedProcess, memory_on, unknown_memory_on};
