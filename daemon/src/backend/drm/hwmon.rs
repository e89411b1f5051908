//! Reads the sensors of a card below `device/hwmon`: by label, not by number. An impossible value
//! fails, and is never shown.

use super::card::DrmCard;
use super::sysfs;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Celsius, Megahertz, Milliwatts, Rpm};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No driver has more channels of one kind.
const CHANNELS_MAX: usize = 64;

/// How often the set of sensors is read again: the interval of the slow attributes.
const RESCAN_INTERVAL: Duration = Duration::from_secs(16);

/// The sensors of a card, kept from one poll to the next. Their names and labels are read once, and
/// then rarely.
#[derive(Debug, Default)]
pub(crate) struct CachedHwmon(Option<(Instant, Hwmon)>);

impl CachedHwmon {
    /// The sensors found before. Finds them again if there are none, if one of them failed at the
    /// last reading, and at intervals.
    pub(crate) fn get_or_find(
        &mut self,
        at: Instant,
        find: impl FnOnce() -> Option<Hwmon>,
    ) -> Option<&Hwmon> {
        let is_recent = |then| at.saturating_duration_since(then) < RESCAN_INTERVAL;
        let kept = self.0.take();
        let kept = kept.filter(|(then, hwmon)| is_recent(*then) && !hwmon.had_failure.get());
        self.0 = kept.or_else(|| Some((at, find()?)));
        self.0.as_ref().map(|(_, hwmon)| hwmon)
    }
}

/// The sensors of one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hwmon {
    directory: PathBuf,
    attributes: BTreeSet<String>,
    /// Such as `edge` for `temp1`.
    labels: BTreeMap<String, String>,
    /// An existing attribute could not be read.
    had_failure: Cell<bool>,
}

impl Hwmon {
    /// The sensors that the card has under this name: `amdgpu`, `i915`, `xe`. `None` where its
    /// driver has none.
    pub(crate) fn find(card: &DrmCard, name: &str) -> Option<Self> {
        sysfs::entries(&card.device_directory().join("hwmon"))
            .into_iter()
            .map(|(_, directory)| directory)
            .find(|directory| {
                let reading = sysfs::text(&directory.join("name"));
                reading.known().is_some_and(|text| text == name)
            })
            .map(|directory| Self::open(&directory))
    }

    /// The sensors that the card has under this name, else its only ones under any name.
    pub(crate) fn find_or_only(card: &DrmCard, name: &str) -> Option<Self> {
        Self::find(card, name).or_else(|| {
            let all = sysfs::entries(&card.device_directory().join("hwmon"));
            let [(_, directory)] = all.as_slice() else {
                return None;
            };
            Some(Self::open(directory))
        })
    }

    fn open(directory: &Path) -> Self {
        let entries = sysfs::entries(directory);
        let labels = entries.iter().filter_map(|(name, file)| {
            let channel = name.strip_suffix("_label")?;
            let label = sysfs::text(file);
            let label = label.known().filter(|it| !it.is_empty())?;
            Some((channel.to_owned(), label.clone()))
        });
        Self {
            directory: directory.to_path_buf(),
            labels: labels.into_map(),
            attributes: entries.into_iter().map(|(name, _)| name).into_set(),
            had_failure: Cell::new(false),
        }
    }

    /// The readable channels of one kind, by number, with their labels: for `temp` those that have
    /// a `tempN_input`.
    pub(crate) fn channels(&self, kind: &str) -> Vec<(u32, Option<String>)> {
        let attributes = self.attributes.iter();
        let mut numbers: Vec<u32> = attributes
            .filter_map(|attribute| channel_number(attribute, kind))
            .take(CHANNELS_MAX)
            .collect();
        numbers.sort_indirect();
        numbers
            .into_iter()
            .map(|number| {
                let label = self.labels.get(&format!("{kind}{number}"));
                (number, label.cloned())
            })
            .collect()
    }

    /// The number of the channel with this label. Labels decide, because numbers differ between
    /// cards.
    pub(crate) fn channel(&self, kind: &str, label: &str) -> Option<u32> {
        let channels = self.channels(kind).into_iter();
        let mut named = channels.filter(|(_, reading)| reading.as_deref() == Some(label));
        named.next().map(|(number, _)| number)
    }

    /// Reads an attribute by its file name, such as `temp1_input`.
    pub(crate) fn read(&self, attribute: &str) -> Reading<i64> {
        if !self.attributes.contains(attribute) {
            return Reading::Unsupported;
        }
        let reading = sysfs::signed(&self.directory.join(attribute));
        if reading.known().is_none() {
            self.had_failure.set(true);
        }
        reading
    }
}

/// Parses the 1 of `temp1_input`.
fn channel_number(file: &str, kind: &str) -> Option<u32> {
    let digits = file.strip_prefix(kind)?.strip_suffix("_input")?;
    // Not `+1` and not `01`: formatting the number would give another file name.
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    plain.then(|| digits.parse().ok()).flatten()
}

/// A temperature, from thousandths of a degree.
pub(crate) fn celsius(millidegrees: Reading<i64>) -> Reading<Celsius> {
    // Rounded to the nearest degree, as the drivers' own tools do, below zero too.
    convert_bounded(millidegrees, -60_000..=250_000, "m°C", |value| {
        Celsius(i32::try_from((value + 500).div_euclid(1_000)).unwrap_or(i32::MAX))
    })
}

/// A power, from microwatts.
pub(crate) fn milliwatts(microwatts: Reading<i64>) -> Reading<Milliwatts> {
    // No card draws ten kilowatts.
    convert_bounded(microwatts, 0..=10_000_000_000, "µW", |value| {
        Milliwatts(value.unsigned_abs() / 1_000)
    })
}

/// The speed of a fan.
pub(crate) fn rpm(rounds: Reading<i64>) -> Reading<Rpm> {
    convert_bounded(rounds, 0..=50_000, "RPM", |value| {
        Rpm(u32::try_from(value).unwrap_or(u32::MAX))
    })
}

/// A clock, from hertz.
pub(crate) fn megahertz(hertz: Reading<i64>) -> Reading<Megahertz> {
    convert_bounded(hertz, 0..=20_000_000_000, "Hz", |value| {
        Megahertz(u32::try_from(value / 1_000_000).unwrap_or(u32::MAX))
    })
}

fn convert_bounded<T>(
    reading: Reading<i64>,
    range: std::ops::RangeInclusive<i64>,
    raw_unit: &str,
    unit: impl FnOnce(i64) -> T,
) -> Reading<T> {
    match reading {
        Reading::Value(value) if range.contains(&value) => Reading::Value(unit(value)),
        Reading::Value(value) => Reading::impossible(format_args!("{value} {raw_unit}")),
        unknown => unknown.as_unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::drm::card;
    use proptest::prelude::*;

    /// A card with these files in its device directory.
    fn card_with(files: &[(&str, &str)]) -> (tempfile::TempDir, DrmCard) {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("class/drm/card0/device");
        for (file, text) in [("uevent", "DRIVER=amdgpu\n")].iter().chain(files) {
            let file = device.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let card = card::list_all_cards(root.path()).pop().unwrap();
        (root, card)
    }

    #[test]
    fn sensors_are_found_by_driver_name() {
        let (_root, card) = card_with(&[
            ("hwmon/hwmon3/name", "nvme\n"),
            ("hwmon/hwmon3/temp1_input", "1000\n"),
            ("hwmon/hwmon7/name", "amdgpu\n"),
            ("hwmon/hwmon7/temp1_input", "2000\n"),
        ]);
        let hwmon = Hwmon::find(&card, "amdgpu").unwrap();
        assert_eq!(hwmon.read("temp1_input"), Reading::Value(2_000));
        assert_eq!(hwmon.read("temp2_input"), Reading::Unsupported);
        assert_eq!(Hwmon::find(&card, "xe"), None);
    }

    #[test]
    fn only_sensors_are_used_under_any_name() {
        let alone = [
            ("hwmon/hwmon3/name", "renamed\n"),
            ("hwmon/hwmon3/temp1_input", "1000\n"),
        ];
        let read = |files: &[(&str, &str)]| {
            let (_root, card) = card_with(files);
            Hwmon::find_or_only(&card, "amdgpu").map(|it| it.read("temp1_input"))
        };
        assert_eq!(read(&alone), Some(Reading::Value(1_000)));
        let second = ("hwmon/hwmon7/temp1_input", "2000\n");
        assert_eq!(read(&[alone[0], alone[1], second]), None);
        let named = ("hwmon/hwmon7/name", "amdgpu\n");
        let both = [alone[0], alone[1], second, named];
        assert_eq!(read(&both), Some(Reading::Value(2_000)));
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn channel_is_found_by_label() {
        let (_root, card) = card_with(&[
            ("hwmon/hwmon0/name", "amdgpu"),
            ("hwmon/hwmon0/temp2_input", "1"),
            ("hwmon/hwmon0/temp2_label", "edge\n"),
            ("hwmon/hwmon0/temp10_input", "1"),
            ("hwmon/hwmon0/temp1_input", "1"),
            ("hwmon/hwmon0/temp1_label", "\n"),
            // Without a value, and names that are only similar.
            ("hwmon/hwmon0/temp3_label", "mem"),
            ("hwmon/hwmon0/temp+4_input", "1"),
            ("hwmon/hwmon0/temp05_input", "1"),
            ("hwmon/hwmon0/temp_input", "1"),
        ]);
        let hwmon = Hwmon::find(&card, "amdgpu").unwrap();
        assert_eq!(
            hwmon.channels("temp"),
            [(1, None), (2, Some("edge".into())), (10, None)]
        );
        assert_eq!(hwmon.channel("temp", "edge"), Some(2));
        assert_eq!(hwmon.channel("temp", "mem"), None);
        assert_eq!(hwmon.channels("fan"), []);
    }

    #[test]
    fn sensors_are_found_again_after_a_failure() {
        let (root, card) = card_with(&[("hwmon/hwmon0/name", "amdgpu\n")]);
        let directory = root.path().join("class/drm/card0/device/hwmon/hwmon0");
        let write = |name, text| std::fs::write(directory.join(name), text).unwrap();
        let lookups = Cell::new(0);
        let mut kept = CachedHwmon::default();
        let start = Instant::now();
        let mut reading = |seconds, name| {
            let hwmon = kept.get_or_find(start + Duration::from_secs(seconds), || {
                lookups.set(lookups.get() + 1);
                Hwmon::find(&card, "amdgpu")
            });
            let reading = hwmon.map(|hwmon| hwmon.read(name));
            (reading, lookups.get())
        };
        write("temp1_input", "1\n");
        let known = |value| Some(Reading::Value(value));
        assert_eq!(reading(0, "temp1_input"), (known(1), 1));
        write("temp1_input", "2\n");
        write("temp2_input", "3\n");
        assert_eq!(reading(2, "temp1_input"), (known(2), 1));
        assert_eq!(reading(4, "temp2_input"), (Some(Reading::Unsupported), 1));
        assert_eq!(reading(15, "temp1_input"), (known(2), 1));
        assert_eq!(reading(16, "temp2_input"), (known(3), 2));
        write("temp1_input", "nonsense\n");
        let nonsense = Reading::Failed("not understood: nonsense".into());
        assert_eq!(reading(18, "temp1_input"), (Some(nonsense), 2));
        std::fs::remove_file(directory.join("temp2_input")).unwrap();
        assert_eq!(reading(20, "temp2_input"), (Some(Reading::Unsupported), 3));
        std::fs::remove_file(directory.join("name")).unwrap();
        assert_eq!(reading(36, "temp1_input"), (None, 4));
        assert_eq!(reading(38, "temp1_input"), (None, 5));
    }

    #[test]
    fn impossible_values_fail() {
        fn failed<T>(why: &str) -> Reading<T> {
            Reading::Failed(why.to_owned())
        }
        for (read, shown) in [
            (45_000, Reading::Value(Celsius(45))),
            (45_500, Reading::Value(Celsius(46))),
            (-1_400, Reading::Value(Celsius(-1))),
            (0, Reading::Value(Celsius(0))),
            (511_000, Reading::impossible("511000 m°C")),
            (-273_000, Reading::impossible("-273000 m°C")),
        ] {
            assert_eq!(celsius(Reading::Value(read)), shown, "{read}");
        }
        assert_eq!(
            milliwatts(Reading::Value(68_000_000)),
            Reading::Value(Milliwatts(68_000))
        );
        assert_eq!(milliwatts(Reading::Value(-1)), Reading::impossible("-1 µW"));
        assert_eq!(rpm(Reading::Value(1_944)), Reading::Value(Rpm(1_944)));
        assert_eq!(
            rpm(Reading::Value(65_535)),
            Reading::impossible("65535 RPM")
        );
        assert_eq!(
            megahertz(Reading::Value(900_000_000)),
            Reading::Value(Megahertz(900))
        );
        assert_eq!(
            megahertz(Reading::Value(i64::MAX)),
            Reading::impossible(format_args!("{} Hz", i64::MAX))
        );
        assert_eq!(rpm(Reading::Unsupported), Reading::Unsupported);
        assert_eq!(celsius(failed("busy")), failed("busy"));
    }

    proptest! {
        #[test]
        fn any_number_converts_without_panic(value: i64) {
            let value = Reading::Value(value);
            let _ = (celsius(value.clone()), milliwatts(value.clone()));
            let _ = (rpm(value.clone()), megahertz(value));
        }
    }
}
