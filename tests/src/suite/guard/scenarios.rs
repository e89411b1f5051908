//! One scenario for each kind of rule: usage over the limit, at the limit, under it, and
//! unknown. Real processes of many persons violate rules at the same time, and all records are
//! compared as a whole.

mod access;

mod scenario;

mod waste_and_runaway;

mod counts;

mod growth;

mod time_windows;

mod idle;

mod logins;

mod enforcement_steps;

mod memory;

mod simulated_process;

mod protect;

mod selectors;

mod expected_violation;

mod utilization;

mod victims;

mod assertions;

use expected_violation::ExpectedViolation;
use scenario::Scenario;
use simulated_process::{GpuUsage, SimulatedProcess, memory_on, unknown_memory_on};
