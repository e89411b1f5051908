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
    Idle(IdleParams),
    /// Holds much memory for long and uses the device little.
    Waste(WasteParams),
    /// Is at work without end.
    Runaway(RunawayParams),
    /// Holds more and more memory.
    Growth(GrowthParams),
    /// Has a rogue verdict with indicators of two families, one of them near-proof.
    Rogue(RogueParams),
}

/// Idle for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct IdleParams {
    /// For this long.
    pub limit: Duration,
    /// While it holds at least this much memory.
    pub min_memory: Bytes,
    /// Whether it counts even while clients are connected. A loaded server that waits
    /// for work has clients.
    pub with_connections: bool,
    /// Only while the process uses less of a core than this, one of
    /// [`CPU_STEPS`](crate::usage::CPU_STEPS): a process that computes without its GPU
    /// is at work. `None` ignores the processor.
    pub cpu_below: Option<Percent>,
}

/// Little use of much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WasteParams {
    /// A mean utilization below this.
    pub below: Percent,
    /// While it holds at least this much memory.
    pub min_memory: Bytes,
    /// For this long.
    pub hours: Duration,
}

/// Work without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RunawayParams {
    /// A utilization above this, while its memory does not fall.
    pub above: Percent,
    /// For this long.
    pub limit: Duration,
    /// Only a process that outlived its parent.
    pub orphaned: bool,
}

/// Growing memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GrowthParams {
    /// By this much.
    pub by: Bytes,
    /// Within this time, and more in each quarter of it.
    pub within: Duration,
}

/// A rogue verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RogueParams {
    /// A threat of this risk or of a greater one.
    pub from: Risk,
    /// One of these threats.
    pub threats: Vec<Threat>,
}

impl ForbiddenBehaviour {
    /// The allowed value, in the unit of its kind.
    pub(crate) fn limit(&self) -> u64 {
        match self {
            Self::Duration(limit) => milliseconds(*limit),
            Self::Idle(idle) => milliseconds(idle.limit),
            Self::Waste(waste) => u64::from(waste.below.0),
            Self::Runaway(runaway) => milliseconds(runaway.limit),
            Self::Growth(growth) => growth.by.0,
            Self::Rogue(rogue) => rogue.from.level(),
        }
    }

    pub(crate) const fn kind(&self) -> RuleKind {
        match self {
            Self::Duration(_) => RuleKind::Duration,
            Self::Idle(_) => RuleKind::Idle,
            Self::Waste(_) => RuleKind::Waste,
            Self::Runaway(_) => RuleKind::Runaway,
            Self::Growth(_) => RuleKind::Growth,
            Self::Rogue(_) => RuleKind::Rogue,
        }
    }

    /// The parts that decide what is measured over time. The limit is not one of them:
    /// other limits can use the same measurement.
    pub(crate) const fn measurement_key(&self) -> (RuleKind, Option<Duration>, Option<Percent>) {
        match self {
            Self::Duration(_) | Self::Rogue(_) => (self.kind(), None, None),
            Self::Idle(idle) => (self.kind(), None, idle.cpu_below),
            Self::Waste(waste) => (self.kind(), Some(waste.hours), None),
            Self::Runaway(runaway) => (self.kind(), None, Some(runaway.above)),
            Self::Growth(growth) => (self.kind(), Some(growth.within), None),
        }
    }
}
