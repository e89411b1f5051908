//! Parses the generation and the lanes of a PCIe link, as reported by the bus or by a driver.

use super::sysfs::{self, Attribute};
use gpukill_proto::reading::Reading;

/// The speed of each generation from the first on, in tenths of GT/s.
const SPEEDS: [u16; 6] = [25, 50, 80, 160, 320, 640];

/// The generation of a speed: `16.0 GT/s PCIe` is the fourth.
pub(super) fn generation(file: &(impl Attribute + ?Sized)) -> Reading<u32> {
    let tenths = match sysfs::text(file) {
        Reading::Value(text) => parse_speed(&text),
        unknown => return unknown.as_unknown(),
    };
    tenths.map_or_else(not_a_speed, |it| generation_of_tenths(Reading::Value(it)))
}

/// The generation of a speed in tenths of GT/s; 0 means unknown.
pub(super) fn generation_of_tenths(speed: Reading<u16>) -> Reading<u32> {
    let index = match speed {
        Reading::Value(0) => return Reading::Unsupported,
        Reading::Value(speed) => SPEEDS.iter().position(|it| *it == speed),
        unknown => return unknown.as_unknown(),
    };
    let generation = index.and_then(|index| u32::try_from(index + 1).ok());
    generation.map_or_else(not_a_speed, Reading::Value)
}

/// Does not quote the text, so that the fault stays the same fault.
fn not_a_speed() -> Reading<u32> {
    Reading::Failed("not a link speed".into())
}

/// The number of lanes.
pub(super) fn width(file: &(impl Attribute + ?Sized)) -> Reading<u32> {
    valid_lanes(sysfs::number(file))
}

/// Checks a number of lanes. A device without a link of its own, such as one within a CPU, reports
/// 0 or 255.
pub(super) fn valid_lanes(number: Reading<u64>) -> Reading<u32> {
    match number {
        Reading::Value(0 | 255) => Reading::Unsupported,
        Reading::Value(lanes @ 1..=32) => Reading::Value(u32::try_from(lanes).unwrap_or_default()),
        Reading::Value(_) => Reading::Failed("not a link width".into()),
        unknown => unknown.as_unknown(),
    }
}

/// The tenths of GT/s of `16.0 GT/s PCIe`; 0 if the bus reports an unknown speed.
pub(super) fn parse_speed(text: &str) -> Option<u16> {
    if text.is_empty() || text.starts_with("Unknown") {
        return Some(0);
    }
    let (speed, _) = text.split_once(" GT/s")?;
    let (whole, tenth) = speed.split_once('.').unwrap_or((speed, "0"));
    let is_plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(tenth) || tenth.len() != 1 {
        return None;
    }
    let whole: u16 = whole.parse().ok()?;
    whole.checked_mul(10)?.checked_add(tenth.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(why: &str) -> Reading<u32> {
        Reading::Failed(why.into())
    }

    #[test]
    fn speed_maps_to_generation() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let odd = || failed("not a link speed");
        for (text, expected) in [
            ("2.5 GT/s PCIe\n", Reading::Value(1)),
            ("5 GT/s\n", Reading::Value(2)),
            ("8.0 GT/s PCIe\n", Reading::Value(3)),
            ("16.0 GT/s PCIe\n", Reading::Value(4)),
            ("32.0 GT/s PCIe\n", Reading::Value(5)),
            ("64.0 GT/s PCIe\n", Reading::Value(6)),
            ("Unknown\n", Reading::Unsupported),
            ("Unknown speed\n", Reading::Unsupported),
            ("\n", Reading::Unsupported),
            ("7.0 GT/s PCIe\n", odd()),
            ("16.00 GT/s PCIe\n", odd()),
            ("+8 GT/s\n", odd()),
            (". GT/s\n", odd()),
            ("65535 GT/s\n", odd()),
            ("16.0\n", odd()),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(generation(file.path()), expected, "{text:?}");
        }
        assert_eq!(
            generation(std::path::Path::new("/nonexistent/x")),
            Reading::Unsupported
        );
    }

    #[test]
    fn link_without_lanes_is_unsupported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, expected) in [
            ("16\n", Reading::Value(16)),
            ("0\n", Reading::Unsupported),
            ("255\n", Reading::Unsupported),
            ("64\n", failed("not a link width")),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(width(file.path()), expected, "{text:?}");
        }
    }
}
