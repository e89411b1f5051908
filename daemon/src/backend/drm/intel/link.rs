//! Reads the PCIe link of a card, which is not always the link of its GPU.

use crate::backend::drm::card::DrmCard;
use crate::backend::drm::link::{generation, width};
use crate::backend::drm::sysfs;
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use std::path::{Path, PathBuf};

/// Reads the current and the maximum speed and width of the link.
pub(super) fn read_link(card: &DrmCard, vitals: &mut Vitals) {
    let device = host_port(card);
    vitals.pcie_generation = generation(&device.join("current_link_speed"));
    vitals.pcie_width = width(&device.join("current_link_width"));
    vitals.pcie_generation_max = generation(&device.join("max_link_speed"));
    vitals.pcie_width_max = width(&device.join("max_link_width"));
}

/// The device with the link to the host. Arc cards have a bridge of their own with two ports in
/// front of the GPU, which itself always reports one lane of the first generation.
fn host_port(card: &DrmCard) -> PathBuf {
    let device = card.device_directory();
    let says_one_lane = width(&device.join("max_link_width")) == Reading::Value(1)
        && generation(&device.join("max_link_speed")) == Reading::Value(1);
    if says_one_lane && let Some(port) = own_bridge(&device) {
        return port;
    }
    device
}

/// The upper port of a bridge by the GPU's vendor, two levels above the GPU.
fn own_bridge(device: &Path) -> Option<PathBuf> {
    let device = std::fs::canonicalize(device).ok()?;
    let lower = device.parent()?;
    let upper = lower.parent()?;
    let is_bridge = |port: &Path| {
        let class = sysfs::hexadecimal(&port.join("class"));
        let vendor = sysfs::hexadecimal(&port.join("vendor"));
        class.known().is_some_and(|it| it >> 8 == 0x0604) && vendor == Reading::Value(0x8086)
    };
    (is_bridge(lower) && is_bridge(upper)).then(|| upper.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::drm::card::list_all_cards;

    #[test]
    fn link_is_that_of_the_cards_bridge() {
        let root = tempfile::tempdir().unwrap();
        let upper = root
            .path()
            .join("devices/pci0000:00/0000:00:01.0/0000:01:00.0");
        let device = upper.join("0000:02:01.0/0000:03:00.0");
        let lower = upper.join("0000:02:01.0");
        std::fs::create_dir_all(&device).unwrap();
        for (port, speed, lanes) in [
            (&device, "2.5 GT/s PCIe", "1"),
            (&upper, "16.0 GT/s PCIe", "8"),
        ] {
            for (file, text) in [
                ("current_link_speed", speed),
                ("max_link_speed", speed),
                ("current_link_width", lanes),
                ("max_link_width", lanes),
            ] {
                std::fs::write(port.join(file), format!("{text}\n")).unwrap();
            }
        }
        std::fs::write(device.join("uevent"), "DRIVER=xe\nPCI_ID=8086:E20B\n").unwrap();
        let card = root.path().join("class/drm/card1");
        std::fs::create_dir_all(&card).unwrap();
        std::os::unix::fs::symlink(&device, card.join("device")).unwrap();
        let link = |vendor: &str| {
            for port in [&upper, &lower] {
                std::fs::write(port.join("class"), "0x060400\n").unwrap();
                std::fs::write(port.join("vendor"), vendor).unwrap();
            }
            let card = list_all_cards(root.path()).pop().unwrap();
            let mut vitals = Vitals::unknown(&Reading::Unsupported);
            read_link(&card, &mut vitals);
            (vitals.pcie_generation, vitals.pcie_width_max)
        };
        assert_eq!(link("0x8086\n"), (Reading::Value(4), Reading::Value(8)));
        // A bridge of the mainboard, not of the card.
        assert_eq!(link("0x10b5\n"), (Reading::Value(1), Reading::Value(1)));
    }
}
