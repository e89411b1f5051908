//! What any other DRM driver tells of a card: what it is called. The rest comes
//! from its clients.

use super::Told;
use super::card::Card;
use super::hwmon::Hwmon;
use gpukill_proto::reading::Reading;

/// What its files tell now.
pub(crate) fn read(card: &Card, _host: &std::path::Path) -> Told {
    let _ = Hwmon::of(card);
    Told::unknown(&Reading::Unsupported)
}
