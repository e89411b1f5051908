//! The PCIe link of a card, as the bus tells it.

use crate::backend::drm::sysfs;
use gpukill_proto::reading::Reading;
use std::path::Path;

/// The generation of a speed: `16.0 GT/s PCIe` is the fourth.
pub(super) fn generation(file: &Path) -> Reading<u32> {
    match sysfs::parsed(file, parse_speed) {
        Reading::Value(None) => Reading::Unsupported,
        Reading::Value(Some(generation)) => Reading::Value(generation),
        unknown => unknown.because(),
    }
}

/// How many lanes.
pub(super) fn width(file: &Path) -> Reading<u32> {
    match sysfs::number(file) {
        // A device on no link of its own, such as one within a CPU.
        Reading::Value(0 | 255) => Reading::Unsupported,
        Reading::Value(lanes @ 1..=32) => Reading::Value(u32::try_from(lanes).unwrap_or_default()),
        Reading::Value(_) => Reading::Failed("not a width of a link".into()),
        unknown => unknown.because(),
    }
}

/// `Some(None)` where the bus says that it does not know.
pub(super) fn parse_speed(text: &str) -> Option<Option<u32>> {
    if text.is_empty() || text.starts_with("Unknown") {
        return Some(None);
    }
    let (speed, _) = text.split_once(" GT/s")?;
    let generation = match speed {
        "2.5" => 1,
        "5" | "5.0" => 2,
        "8" | "8.0" => 3,
        "16" | "16.0" => 4,
        "32" | "32.0" => 5,
        "64" | "64.0" => 6,
        _ => return None,
    };
    Some(Some(generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_speed_is_a_generation() {
        for (text, told) in [
            ("2.5 GT/s PCIe", Some(Some(1))),
            ("5 GT/s", Some(Some(2))),
            ("8.0 GT/s PCIe", Some(Some(3))),
            ("16.0 GT/s PCIe", Some(Some(4))),
            ("32.0 GT/s PCIe", Some(Some(5))),
            ("64.0 GT/s PCIe", Some(Some(6))),
            ("Unknown", Some(None)),
            ("Unknown speed", Some(None)),
            ("", Some(None)),
            ("7.0 GT/s PCIe", None),
            ("16.0", None),
        ] {
            assert_eq!(parse_speed(text), told, "{text:?}");
        }
    }

    #[test]
    fn a_link_of_no_lanes_is_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, told) in [
            ("16\n", Reading::Value(16)),
            ("0\n", Reading::Unsupported),
            ("255\n", Reading::Unsupported),
            ("64\n", Reading::Failed("not a width of a link".into())),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(width(file.path()), told, "{text:?}");
        }
    }
}
