//! Faults as the parts of the daemon report them. `poll::fault_tracker` adds the start times.

use gpukill_proto::model::FaultCode;
use serde::{Deserialize, Serialize};

/// The code and text of a fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FaultCause {
    pub(crate) code: FaultCode,
    /// The problem, and the remedy where one is known.
    pub(crate) what: String,
}

impl FaultCause {
    pub(crate) fn new(code: FaultCode, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { code, what }
    }

    pub(crate) fn with_part(self, part: impl Into<String>) -> PartFault {
        let part = part.into();
        PartFault { part, cause: self }
    }
}

/// A fault and the part of the host that has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartFault {
    pub(crate) part: String,
    pub(crate) cause: FaultCause,
}

impl PartFault {
    pub(crate) fn new(part: impl Into<String>, code: FaultCode, what: impl Into<String>) -> Self {
        FaultCause::new(code, what).with_part(part)
    }
}
