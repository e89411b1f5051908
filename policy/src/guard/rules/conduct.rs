//! What a process must not do: what rules say of behaviour.

use gpukill_proto::rogue::{Risk, Threat};
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;

/// What a process must not do.
#[derive(Debug, Clone, PartialEq, Eq)]
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
