//! The sensors of a card below `device/hwmon`: by label, not by number.

use super::card::Card;

/// The sensors of one card.
pub(crate) struct Hwmon;

impl Hwmon {
    /// Those that the card has.
    pub(crate) fn of(_card: &Card) -> Self {
        Self
    }
}
