//! What a process must not do: what rules say of behaviour.

use super::super::limits::milliseconds;
use gpukill_proto::guard::RuleKind;
use gpukill_proto::rogue::{Risk, Threat};
use gpukill_proto::units::{Bytes, Percent};
use serde::Serialize;
use std::time::Duration;

/// What a process must not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Conduct {
    /// Hold a device for longer.
    Duration(Duration),
    /// Do nothing for so long.
    Idle {
        /// For so long.
        limit: Duration,
        /// While it holds so much.
        min_memory: Bytes,
        /// Also where clients are connected to it: a loaded server waits for work.
        with_connections: bool,
        /// Only while it takes less of a core than this, one of
        /// [`CPU_STEPS`](crate::usage::CPU_STEPS): one that computes without its GPU is
        /// at work. `None` asks for no such thing.
        cpu_below: Option<Percent>,
    },
    /// Hold much for long, and do little with it.
    Waste {
        /// A mean utilisation under this.
        below: Percent,
        /// While it holds so much.
        min_memory: Bytes,
        /// For so long.
        hours: Duration,
    },
    /// Be at work without end.
    Runaway {
        /// A utilisation over this, while its memory does not fall.
        above: Percent,
        /// For so long.
        limit: Duration,
        /// Only one whose parent has ended.
        orphaned: bool,
    },
    /// Hold more and more.
    Growth {
        /// By so much.
        by: Bytes,
        /// In so long, and more in each quarter of it.
        within: Duration,
    },
    /// Be taken for a threat by the watch for rogues, on signs of two kinds, one of them
    /// near a proof.
    Rogue {
        /// A threat of this risk, or of a greater one.
        from: Risk,
        /// One of these.
        threats: Vec<Threat>,
    },
}

impl Conduct {
    /// What is allowed of it, in the unit of its kind.
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

    /// Of what it is.
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

    /// What of it decides what is measured over time, and not what is made of that: a limit
    /// on the same measurement may be another one.
    pub(crate) const fn window(&self) -> (RuleKind, Option<Duration>, Option<Percent>) {
        match self {
            Self::Duration(_) | Self::Rogue { .. } => (self.kind(), None, None),
            Self::Idle { cpu_below, .. } => (self.kind(), None, *cpu_below),
            Self::Waste { hours, .. } => (self.kind(), Some(*hours), None),
            Self::Runaway { above, .. } => (self.kind(), None, Some(*above)),
            Self::Growth { within, .. } => (self.kind(), Some(*within), None),
        }
    }
}
