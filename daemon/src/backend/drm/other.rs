//! What any other DRM driver tells of a card: what it is called, and the little
//! that drivers tell in the same way. The rest comes from its clients.

use super::Told;
use super::card::Card;
use super::hwmon::{self, Hwmon};
use super::names;
use super::sysfs;
use crate::backend::MemoryReadings;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::{Celsius, Megahertz, Milliwatts};
use std::path::{Path, PathBuf};

/// One card, and what it is called.
pub(crate) struct Other {
    host_root: PathBuf,
    /// Once it was looked for.
    name: Option<String>,
}

impl Other {
    /// Nothing is read yet. `host_root` is where the host's files are seen.
    pub(crate) fn new(host_root: PathBuf) -> Self {
        Self {
            host_root,
            name: None,
        }
    }

    /// What its files tell now. Never called while the card sleeps.
    pub(crate) fn read(&mut self, card: &Card) -> Told {
        let hwmon = Hwmon::of(card, &card.driver);
        let name = || names::of(&self.host_root, card);
        let name = self.name.get_or_insert_with(name);
        // What is on no PCI bus is a part of a system on a chip.
        let memory = match &card.pci {
            Some(_) => MemoryReadings::unknown(&Reading::Unsupported),
            None => MemoryReadings::shared_with_host(),
        };
        Told {
            name: Reading::Value(name.clone()),
            memory,
            vitals: Vitals {
                temperature: hwmon.as_ref().map_or(Reading::Unsupported, temperature),
                power: hwmon.as_ref().map_or(Reading::Unsupported, power),
                clock_graphics: clock(&card.device().join("devfreq")),
                ..Vitals::unknown(&Reading::Unsupported)
            },
            ..Told::unknown(&Reading::Unsupported)
        }
    }
}

/// The first that its driver has: which one is the die's no label says alike.
fn temperature(hwmon: &Hwmon) -> Reading<Celsius> {
    let first = hwmon.channels("temp").into_iter().next();
    first.map_or(Reading::Unsupported, |(channel, _)| {
        hwmon::celsius(hwmon.read(&format!("temp{channel}_input")))
    })
}

/// Drawn now, else on average.
fn power(hwmon: &Hwmon) -> Reading<Milliwatts> {
    match hwmon.read("power1_input") {
        Reading::Unsupported => hwmon::milliwatts(hwmon.read("power1_average")),
        told => hwmon::milliwatts(told),
    }
}

/// What scales the clocks of systems on a chip tells, in hertz.
fn clock(devfreq: &Path) -> Reading<Megahertz> {
    let first = sysfs::entries(devfreq).into_iter().next();
    first.map_or(Reading::Unsupported, |(_, directory)| {
        hwmon::megahertz(sysfs::signed(&directory.join("cur_freq")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::drm::card::cards;

    /// What a card tells whose device directory has these files.
    fn told(uevent: &str, files: &[(&str, &str)]) -> Told {
        let root = tempfile::tempdir().unwrap();
        let card = root.path().join("class/drm/card1");
        let device = root.path().join("devices/platform/ff9a0000.gpu");
        std::fs::create_dir_all(&card).unwrap();
        for (file, text) in files.iter().chain(&[("uevent", uevent)]) {
            let file = device.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        std::os::unix::fs::symlink(&device, card.join("device")).unwrap();
        let card = cards(root.path()).pop().unwrap();
        let mut other = Other::new(root.path().to_owned());
        let told = other.read(&card);
        assert_eq!(other.read(&card), told);
        told
    }

    fn expected(name: &str, memory: MemoryReadings, vitals: Vitals) -> Told {
        Told {
            name: Reading::Value(name.into()),
            memory,
            vitals,
            ..Told::unknown(&Reading::Unsupported)
        }
    }

    #[test]
    fn a_gpu_of_a_board_shares_its_memory_and_is_called_as_in_the_device_tree() {
        let files = [
            (
                "of_node/compatible",
                "rockchip,rk3588-mali\0arm,mali-valhall-csf\0",
            ),
            ("devfreq/fb000000.gpu/cur_freq", "300000000\n"),
            // The board's, not the driver's.
            ("hwmon/hwmon0/name", "soc_thermal\n"),
            ("hwmon/hwmon0/temp1_input", "44000\n"),
        ];
        let vitals = Vitals {
            clock_graphics: Reading::Value(Megahertz(300)),
            ..Vitals::unknown(&Reading::Unsupported)
        };
        assert_eq!(
            told("DRIVER=panthor\n", &files),
            expected(
                "rockchip,rk3588-mali",
                MemoryReadings::shared_with_host(),
                vitals
            )
        );
    }

    #[test]
    fn a_gpu_that_nothing_names_is_called_after_its_driver_and_place() {
        for (driver, files, name) in [
            ("panfrost", &[][..], "panfrost ff9a0000.gpu"),
            (
                "asahi",
                &[("of_node/compatible", "\0")],
                "asahi ff9a0000.gpu",
            ),
        ] {
            let vitals = Vitals::unknown(&Reading::Unsupported);
            assert_eq!(
                told(&format!("DRIVER={driver}\n"), files),
                expected(name, MemoryReadings::shared_with_host(), vitals)
            );
        }
    }

    #[test]
    fn a_card_has_the_sensors_of_its_driver_and_memory_that_nobody_tells() {
        let nouveau = "DRIVER=nouveau\nPCI_ID=10DE:1234\nPCI_SLOT_NAME=0000:01:00.0\n";
        let ids = "10de  NVIDIA Corporation\n\t1234  GeForce\n";
        let files = [
            ("hwmon/hwmon3/name", "nouveau\n"),
            ("hwmon/hwmon3/temp1_input", "51000\n"),
            ("hwmon/hwmon3/power1_input", "34500000\n"),
            ("../../../usr/share/hwdata/pci.ids", ids),
        ];
        let vitals = Vitals {
            temperature: Reading::Value(Celsius(51)),
            power: Reading::Value(Milliwatts(34_500)),
            ..Vitals::unknown(&Reading::Unsupported)
        };
        let memory = MemoryReadings::unknown(&Reading::Unsupported);
        assert_eq!(told(nouveau, &files), expected("GeForce", memory, vitals));
    }
}
