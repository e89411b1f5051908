//! The behaviour that a rule forbids.

use super::super::limits::milliseconds;
use gpukill_proto::guard::RuleKind;
use gpukill_proto::rogue::{Risk, Threat};
use gpukill_proto::units::{Bytes, Percent};
use serde::Serialize;
use std::time::Duration;

/// A forbidden behaviour of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum ForbiddenBehaviour {
    /// Holds a device for longer than this.
    Duration(Duration),
    /// Is idle.
    Idle {
        /// For this long.
        limit: Duration,
        /// While it holds at least this much memory.
        min_memory: Bytes,
        /// Whether it counts even while clients are connected. A loaded server that waits
        /// for work has clients.
        with_connections: bool,
        /// Only while the process uses less of a core than this, one of
        /// [`CPU_STEPS`](crate::usage::CPU_STEPS): a process that computes without its GPU
        /// is at work. `None` ignores the processor.
        cpu_below: Option<Percent>,
    },
    /// Holds much memory for long and uses the device little.
    Waste {
        /// A mean utilization below this.
        below: Percent,
        /// While it holds at least this much memory.
        min_memory: Bytes,
        /// For this long.
        hours: Duration,
    },
    /// Is at work without end.
    Runaway {
        /// A utilization above this, while its memory does not fall.
        above: Percent,
        /// For this long.
        limit: Duration,
        /// Only a process that outlived its parent.
        orphaned: bool,
    },
    /// Holds more and more memory.
    Growth {
        /// By this much.
        by: Bytes,
        /// Within this time, and more in each quarter of it.
        within: Duration,
    },
    /// Has a rogue verdict with indicators of two families, one of them near-proof.
    Rogue {
        /// A threat of this risk or of a greater one.
        from: Risk,
        /// One of these threats.
        threats: Vec<Threat>,
    },
}

impl ForbiddenBehaviour {
    /// The allowed value, in the unit of its kind.
    pub(crate) fn limit(&self) -> u64 {
        match self {
            Self::Duration(limit) | Self::Idle { limit, .. } | Self::Runaway { limit, .. } => {
                milliseconds(*limit)
            }
            Self::Waste { below, .. } => u64::from(below.0),
            Self::Growth { by, .. } => by.0,
            Self::Rogue { from, .. } => from.level(),
        }
    }

    pub(crate) const fn kind(&self) -> RuleKind {
        match self {
            Self::Duration(_) => RuleKind::Duration,
            Self::Idle { .. } => RuleKind::Idle,
            Self::Waste { .. } => RuleKind::Waste,
            Self::Runaway { .. } => RuleKind::Runaway,
            Self::Growth { .. } => RuleKind::Growth,
            Self::Rogue { .. } => RuleKind::Rogue,
        }
    }

    /// The parts that decide what is measured over time. The limit is not one of them:
    /// other limits can use the same measurement.
    pub(crate) const fn measurement_key(&self) -> (RuleKind, Option<Duration>, Option<Percent>) {
        match self {
            Self::Duration(_) | Self::Rogue { .. } => (self.kind(), None, None),
            Self::Idle { cpu_below, .. } => (self.kind(), None, *cpu_below),
            Self::Waste { hours, .. } => (self.kind(), Some(*hours), None),
            Self::Runaway { above, .. } => (self.kind(), None, Some(*above)),
            Self::Growth { within, .. } => (self.kind(), Some(*within), None),
        }
    }
}
