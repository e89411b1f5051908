//! Resetting devices: the request, the blockers, and the report.

use crate::kill::{KillReport, Stage, check_length, check_signal_timeout};
use crate::model::{DeviceId, ProcessKey, Vendor};
use crate::reading::Reading;
use crate::service::MAX_GPU_LIST_BYTES;
use crate::units::Timestamp;
use crate::words::words;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A request to reset devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetRequest {
    /// GPUs, as typed; `None` for all.
    pub gpu: Option<String>,
    /// First end the processes that hold the device, like a kill with force.
    pub force: bool,
    /// The timeout for each signal to them, in milliseconds, as in
    /// [`crate::kill::KillRequest::signal_timeout_ms`].
    pub signal_timeout_ms: u64,
    /// Only plan.
    pub dry_run: bool,
}

impl ResetRequest {
    /// Checks the request independently of the state of the host.
    ///
    /// # Errors
    /// The first exceeded bound.
    pub fn validate(&self) -> Result<(), String> {
        if let Some(gpu) = &self.gpu {
            check_length("gpu", gpu, MAX_GPU_LIST_BYTES)?;
        }
        check_signal_timeout(self.signal_timeout_ms)
    }
}

impl fmt::Display for ResetRequest {
    /// Formats the request as options of `gpukillctl reset`, for the record.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.gpu {
            Some(gpu) => write!(f, "--gpu {gpu:?}")?,
            None => f.write_str("--all")?,
        }
        f.write_str(if self.force { " --force" } else { "" })
    }
}

/// The devices of a reset and the action planned for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetPlan {
    /// The daemon's clock when the plan was made.
    pub at: Timestamp,
    /// The request that the plan was made from.
    pub request: ResetRequest,
    /// The devices in the order of their indices, in which they are reset one by one.
    pub devices: Vec<ResetTarget>,
}

/// One device of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetTarget {
    /// The permanent identity.
    pub device: DeviceId,
    /// The index, for display.
    pub index: u32,
    /// The name that the driver reports.
    pub name: Reading<String>,
    /// The vendor.
    pub vendor: Vendor,
    /// The PCI address, which the reset helper gets.
    pub pci: Reading<String>,
    /// Everything that prevents the reset.
    pub blockers: Vec<Blocker>,
    /// The indices of devices that share its links and lose their work with it.
    pub peers: Vec<u32>,
    /// Other facts to know before consenting.
    pub notes: Vec<String>,
    /// The planned action.
    pub action: PlannedReset,
}

/// Something that prevents a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// The process, if the blocker is one.
    pub process: Option<ProcessKey>,
    /// The blocker in words: `alice's python train.py (pid 4711)`, `persistence mode`.
    pub what: String,
    /// The remover of the blocker.
    pub remedy: Unblocker,
}

words! {
    /// The remover of a blocker.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Unblocker {
        /// The daemon: its own sensor, persistence mode.
        Daemon = "daemon",
        /// `--force`, by ending the process.
        Force = "force",
        /// A person: for a display, a fabric manager, or a protected process.
        Person = "person",
    }
    /// The name in JSON.
    name(self)
}

words! {
    /// The action that a plan has for one device.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum PlannedReset {
        /// Reset the device.
        Reset = "reset",
        /// None: a blocker remains that the request does not remove.
        Blocked = "blocked",
        /// None: the device cannot be reset here; says why.
        Unsupported(String) = "unsupported",
    }
    /// The name in JSON.
    name(&self)
}

/// The progress of a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetReport {
    /// Grows with each change of the report.
    pub version: u64,
    /// The stage of the operation.
    pub stage: Stage,
    /// The result for each device that is finished, in order.
    pub outcomes: Vec<ResetOutcome>,
    /// Why the action is only in the log and not in the store; `None` if the action is recorded.
    pub unrecorded: Option<String>,
}

/// The outcome for one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetOutcome {
    /// The permanent identity.
    pub device: DeviceId,
    /// The index, for display.
    pub index: u32,
    /// The report on the processes that were ended for the reset.
    pub ended: Option<KillReport>,
    /// The result.
    pub result: ResetResult,
    /// The state that was not restored, or that the result is not known.
    pub note: Option<String>,
}

words! {
    /// The result for one device. Only the code that observed it reports it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub enum ResetResult {
        /// The device was reset and answers again, after this many milliseconds.
        Reset(u64) = "reset",
        /// A blocker remains: nothing was done to the device.
        Blocked(Vec<Blocker>) = "blocked",
        /// The device cannot be reset here; says why.
        Unsupported(String) = "unsupported",
        /// The vendor's step failed, and the device answers as before; says how.
        Failed(String) = "failed",
        /// The device no longer answers; says what was tried, and what is left to do.
        Unreachable(String) = "unreachable",
    }
    /// The name in JSON.
    name(&self)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_of_a_request_is_checked() {
        let request = |gpu: Option<usize>, signal_timeout_ms| ResetRequest {
            gpu: gpu.map(|bytes| "0".repeat(bytes)),
            force: false,
            signal_timeout_ms,
            dry_run: false,
        };
        for within in [
            request(None, 1),
            request(Some(2_048), 5_000),
            request(Some(1), 600_000),
        ] {
            assert_eq!(within.validate(), Ok(()), "{within:?}");
        }
        for (beyond, why) in [
            (
                request(Some(2_049), 5_000),
                "--gpu has 2049 bytes: at most 2048 are allowed",
            ),
            (
                request(None, 0),
                "the signal timeout of 0 ms is out of range: 1 ms to 600 s",
            ),
            (
                request(None, 600_001),
                "the signal timeout of 600001 ms is out of range: 1 ms to 600 s",
            ),
        ] {
            assert_eq!(beyond.validate(), Err(why.to_owned()));
        }
    }
}
