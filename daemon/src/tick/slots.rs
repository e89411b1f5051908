//! Where GPUs sit on the PCI bus, whether a driver of theirs is loaded or not: the
//! kernel knows each by its class before any driver does.

use crate::backend::drm::sysfs;
use gpukill_proto::snapshot::Vendor;
use std::path::{Path, PathBuf};

/// Where the bus is looked at, and for whose GPUs.
#[derive(Debug)]
pub(super) struct Bus {
    directory: PathBuf,
    vendors: Vec<Vendor>,
}

/// The place of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    /// `0000:1b:00.0`
    pub(super) address: String,
    pub(super) vendor: Vendor,
}

/// Whatever shows pictures (PCI Code and ID Assignment Specification, 1.4): its
/// base class is the first of the three bytes.
const DISPLAY: u64 = 0x03;

/// The first two bytes of what only computes: AMD's Instinct.
const ACCELERATOR: u64 = 0x1200;

/// Drivers that give a device to a virtual machine.
const FOR_GUESTS: [&str; 3] = ["vfio", "pci-stub", "pciback"];

impl Bus {
    /// Of this sysfs. GPUs of whom none of these backends could tell have no place
    /// in the order.
    pub(super) fn new(sysfs_root: &Path, backends: &[&str]) -> Self {
        let known = [Vendor::Nvidia, Vendor::Amd, Vendor::Intel];
        let is_read = |vendor: &Vendor| backends.contains(&vendor.name());
        Self {
            directory: sysfs_root.join("bus/pci/devices"),
            vendors: known.into_iter().filter(is_read).collect(),
        }
    }

    /// Whether there is a device at this address; `None` where no bus is seen.
    pub(super) fn has(&self, address: &str) -> Option<bool> {
        self.directory
            .is_dir()
            .then(|| self.directory.join(address).exists())
    }

    /// The GPUs, by address.
    pub(super) fn slots(&self) -> Vec<Slot> {
        let entries = sysfs::entries(&self.directory).into_iter();
        entries
            .filter_map(|(address, device)| {
                let vendor = gpu(&device)?;
                let is_first = address.ends_with(".0");
                (is_first && self.vendors.contains(&vendor)).then_some(Slot { address, vendor })
            })
            .collect()
    }
}

/// Who made it, where it is a whole GPU of this box.
fn gpu(device: &Path) -> Option<Vendor> {
    let class = *sysfs::hexadecimal(&device.join("class")).known()?;
    let maker = *sysfs::hexadecimal(&device.join("vendor")).known()?;
    let vendor = match (maker, class >> 16, class >> 8) {
        (0x10de, DISPLAY, _) => Vendor::Nvidia,
        (0x1002, DISPLAY, _) | (0x1002, _, ACCELERATOR) => Vendor::Amd,
        (0x8086, DISPLAY, _) => Vendor::Intel,
        // What shows the pictures of a server's management is no GPU.
        _ => return None,
    };
    let is_for_guests = is_virtual(device) || driver(device).is_some_and(|it| gives_away(&it));
    (!is_for_guests).then_some(vendor)
}

/// Whether it is a part of another device, made for a virtual machine (SR-IOV).
fn is_virtual(device: &Path) -> bool {
    device.join("physfn").symlink_metadata().is_ok()
}

fn driver(device: &Path) -> Option<String> {
    let target = std::fs::read_link(device.join("driver")).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

fn gives_away(driver: &str) -> bool {
    FOR_GUESTS.iter().any(|name| driver.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A device with this vendor and class.
    fn plug(sysfs: &Path, address: &str, vendor: &str, class: &str) -> PathBuf {
        let device = sysfs.join("bus/pci/devices").join(address);
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
        std::fs::write(device.join("class"), format!("{class}\n")).unwrap();
        device
    }

    fn found(sysfs: &Path, backends: &[&str]) -> Vec<(String, &'static str)> {
        let slots = Bus::new(sysfs, backends).slots().into_iter();
        slots.map(|it| (it.address, it.vendor.name())).collect()
    }

    fn at(address: &str, vendor: &'static str) -> (String, &'static str) {
        (address.to_owned(), vendor)
    }

    #[test]
    fn a_gpu_is_known_by_its_class_whether_it_has_a_driver_or_not() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = root.path();
        plug(sysfs, "0000:41:00.0", "0x10de", "0x030000");
        plug(sysfs, "0000:1b:00.0", "0x10de", "0x030200");
        plug(sysfs, "0000:05:00.0", "0x1002", "0x120000");
        let driven = plug(sysfs, "0000:03:00.0", "0x1002", "0x038000");
        symlink("/drivers/amdgpu", driven.join("driver")).unwrap();
        plug(sysfs, "0000:00:02.0", "0x8086", "0x030000");
        let all = [
            at("0000:00:02.0", "intel"),
            at("0000:03:00.0", "amd"),
            at("0000:05:00.0", "amd"),
            at("0000:1b:00.0", "nvidia"),
            at("0000:41:00.0", "nvidia"),
        ];
        assert_eq!(found(sysfs, &["nvidia", "amd", "intel", "drm"]), all);
        // The settings leave the others out.
        assert_eq!(found(sysfs, &["intel"]), all[..1]);
        assert_eq!(found(sysfs, &[]), []);
    }

    #[test]
    fn what_no_backend_will_ever_tell_of_has_no_place() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = root.path();
        let others = [
            ("0000:01:00.1", "0x10de", "0x040300", "a GPU's sound"),
            ("0000:02:00.0", "0x10de", "0x068000", "a switch of GPUs"),
            (
                "0000:03:00.0",
                "0x1a03",
                "0x030000",
                "a server's management",
            ),
            ("0000:00:02.1", "0x8086", "0x038000", "a second display"),
            ("0000:04:00.0", "0x8086", "0x120000", "an Intel NPU"),
            ("0000:05:00.0", "0x10de", "?", "garbage"),
        ];
        for (address, vendor, class, _) in others {
            plug(sysfs, address, vendor, class);
        }
        for driver in ["vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub"] {
            let guests = plug(sysfs, &format!("{driver}.0"), "0x10de", "0x030200");
            symlink(format!("/drivers/{driver}"), guests.join("driver")).unwrap();
        }
        let virtual_one = plug(sysfs, "0000:06:01.0", "0x10de", "0x030200");
        symlink("../0000:06:00.0", virtual_one.join("physfn")).unwrap();
        assert_eq!(found(sysfs, &["nvidia", "amd", "intel"]), []);
        assert_eq!(found(Path::new("/nonexistent"), &["nvidia"]), []);
    }
}
