//! What i915 and xe tell of a card.

use super::Told;
use super::card::Card;
use gpukill_proto::reading::Reading;
use std::time::Instant;

/// One card, and what must be remembered of it from one poll to the next.
pub(crate) struct Intel;

impl Intel {
    pub(crate) fn new(_host: &std::path::Path) -> Self {
        Self
    }

    /// What its files tell now. Never called while the card sleeps.
    pub(crate) fn read(&mut self, _card: &Card, _at: Instant) -> Told {
        Told::unknown(&Reading::Unsupported)
    }
}
