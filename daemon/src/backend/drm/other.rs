//! Reads the cards of all other DRM drivers: the few values that drivers report alike. Everything
//! else comes from the clients.

use super::CardReadings;
use super::card::DrmCard;
use super::hwmon::{self, Hwmon};
use super::sysfs;
use crate::backend::MemoryReadings;
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Celsius, Megahertz, Milliwatts};
use std::path::Path;

/// Reads the card's files. Never called while the card is suspended.
pub(crate) fn read(card: &DrmCard) -> CardReadings {
    let hwmon = Hwmon::find(card, &card.driver);
    // A device on no PCI bus is part of a system on a chip.
    let memory = match &card.pci {
        Some(_) => MemoryReadings::unknown(&Reading::Unsupported),
        None => MemoryReadings::shared_with_host(),
    };
    CardReadings {
        memory,
        vitals: Vitals {
            temperature: hwmon.as_ref().map_or(Reading::Unsupported, temperature),
            power: hwmon.as_ref().map_or(Reading::Unsupported, power),
            clock_graphics: clock(&card.device_directory().join("devfreq")),
            ..Vitals::unknown(&Reading::Unsupported)
        },
        ..CardReadings::unknown(&Reading::Unsupported)
    }
}

/// The first channel: drivers have no common label for the temperature of the die.
fn temperature(hwmon: &Hwmon) -> Reading<Celsius> {
    let first = hwmon.channels("temp").into_iter().next();
    first.map_or(Reading::Unsupported, |(channel, _)| {
        hwmon::celsius(hwmon.read(&format!("temp{channel}_input")))
    })
}

/// The current power, else the average.
fn power(hwmon: &Hwmon) -> Reading<Milliwatts> {
    match hwmon.read("power1_input") {
        Reading::Unsupported => hwmon::milliwatts(hwmon.read("power1_average")),
        reading => hwmon::milliwatts(reading),
    }
}

/// The clock that devfreq, the clock scaling of systems on a chip, reports in hertz.
fn clock(devfreq: &Path) -> Reading<Megahertz> {
    let first = sysfs::entries(devfreq).into_iter().next();
    first.map_or(Reading::Unsupported, |(_, directory)| {
        hwmon::megahertz(sysfs::signed(&directory.join("cur_freq")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::drm::card::list_all_cards;
    use crate::backend::drm::names;

    /// The name and the readings of a card with these files in its device directory.
    fn read_card(uevent: &str, files: &[(&str, &str)]) -> (String, CardReadings) {
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
        let card = list_all_cards(root.path()).pop().unwrap();
        (names::card_name(root.path(), &card), read(&card))
    }

    fn expected_card(name: &str, memory: MemoryReadings, vitals: Vitals) -> (String, CardReadings) {
        let readings = CardReadings {
            memory,
            vitals,
            ..CardReadings::unknown(&Reading::Unsupported)
        };
        (name.to_owned(), readings)
    }

    #[test]
    fn soc_gpu_uses_the_device_tree_name() {
        let files = [
            (
                "of_node/compatible",
                "rockchip,rk3588-mali\0arm,mali-valhall-csf\0",
            ),
            ("devfreq/fb000000.gpu/cur_freq", "300000000\n"),
            // Sensors of the board, not of the driver.
            ("hwmon/hwmon0/name", "soc_thermal\n"),
            ("hwmon/hwmon0/temp1_input", "44000\n"),
        ];
        let vitals = Vitals {
            clock_graphics: Reading::Value(Megahertz(300)),
            ..Vitals::unknown(&Reading::Unsupported)
        };
        assert_eq!(
            read_card("DRIVER=panthor\n", &files),
            expected_card(
                "rockchip,rk3588-mali",
                MemoryReadings::shared_with_host(),
                vitals
            )
        );
    }

    #[test]
    fn unnamed_gpu_has_driver_and_location() {
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
                read_card(&format!("DRIVER={driver}\n"), files),
                expected_card(name, MemoryReadings::shared_with_host(), vitals)
            );
        }
    }

    #[test]
    fn pci_card_has_sensors_and_unknown_memory() {
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
        assert_eq!(
            read_card(nouveau, &files),
            expected_card("GeForce", memory, vitals)
        );
    }
}
