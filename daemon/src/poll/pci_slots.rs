//! Finds GPUs on the PCI bus, with or without a loaded driver: the kernel knows the class of each
//! device.

use crate::backend::drm::sysfs;
use gpukill_proto::model::Vendor;
use std::path::{Path, PathBuf};

/// The sysfs directory of the bus, and the vendors of the GPUs that count.
#[derive(Debug)]
pub(super) struct PciBus {
    directory: PathBuf,
    vendors: Vec<Vendor>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PciSlot {
    /// `0000:1b:00.0`
    pub(super) address: String,
    pub(super) vendor: Vendor,
}

/// The base class of display controllers, the first of three bytes (PCI Code and ID Assignment
/// Specification, 1.4).
const DISPLAY_CLASS: u64 = 0x03;

/// The first two bytes of the class of AMD Instinct, which only computes.
const ACCELERATOR_CLASS: u64 = 0x1200;

/// Drivers that pass a device to a virtual machine.
const PASSTHROUGH_DRIVERS: [&str; 3] = ["vfio", "pci-stub", "pciback"];

impl PciBus {
    /// The bus in this sysfs. GPUs that none of these backends could report get no index.
    pub(super) fn new(sysfs_root: &Path, backends: &[&str]) -> Self {
        let known = [Vendor::Nvidia, Vendor::Amd, Vendor::Intel];
        let is_read = |vendor: &Vendor| backends.contains(&vendor.name());
        Self {
            directory: sysfs_root.join("bus/pci/devices"),
            vendors: known.into_iter().filter(is_read).collect(),
        }
    }

    /// Whether there is a device at this address; `None` where there is no bus.
    pub(super) fn has_device(&self, address: &str) -> Option<bool> {
        self.directory
            .is_dir()
            .then(|| self.directory.join(address).exists())
    }

    /// The GPUs in the order of their addresses.
    pub(super) fn slots(&self) -> Vec<PciSlot> {
        let entries = sysfs::entries(&self.directory).into_iter();
        entries
            .filter_map(|(address, device)| {
                let vendor = gpu_vendor(&device)?;
                let is_first = address.ends_with(".0");
                (is_first && self.vendors.contains(&vendor)).then_some(PciSlot { address, vendor })
            })
            .collect()
    }
}

/// The vendor, where the device is a whole GPU of this host.
fn gpu_vendor(device: &Path) -> Option<Vendor> {
    let class = *sysfs::hexadecimal(&device.join("class")).known()?;
    let maker = *sysfs::hexadecimal(&device.join("vendor")).known()?;
    let vendor = match (maker, class >> 16, class >> 8) {
        (0x10de, DISPLAY_CLASS, _) => Vendor::Nvidia,
        (0x1002, DISPLAY_CLASS, _) | (0x1002, _, ACCELERATOR_CLASS) => Vendor::Amd,
        (0x8086, DISPLAY_CLASS, _) => Vendor::Intel,
        // The display controller of a server's management is no GPU.
        _ => return None,
    };
    let is_for_guests =
        is_virtual_function(device) || driver(device).is_some_and(|it| is_passthrough(&it));
    (!is_for_guests).then_some(vendor)
}

/// Whether it is a virtual function (SR-IOV) of another device, made for a virtual machine.
fn is_virtual_function(device: &Path) -> bool {
    device.join("physfn").symlink_metadata().is_ok()
}

fn driver(device: &Path) -> Option<String> {
    let target = std::fs::read_link(device.join("driver")).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

fn is_passthrough(driver: &str) -> bool {
    PASSTHROUGH_DRIVERS.iter().any(|name| driver.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Adds a device with this vendor and class.
    fn plug(sysfs: &Path, address: &str, vendor: &str, class: &str) -> PathBuf {
        let device = sysfs.join("bus/pci/devices").join(address);
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
        std::fs::write(device.join("class"), format!("{class}\n")).unwrap();
        device
    }

    fn found(sysfs: &Path, backends: &[&str]) -> Vec<(String, &'static str)> {
        let slots = PciBus::new(sysfs, backends).slots().into_iter();
        slots.map(|it| (it.address, it.vendor.name())).collect()
    }

    fn at(address: &str, vendor: &'static str) -> (String, &'static str) {
        (address.to_owned(), vendor)
    }

    #[test]
    fn finds_gpus_with_or_without_a_driver() {
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
        // The settings exclude the others.
        assert_eq!(found(sysfs, &["intel"]), all[..1]);
        assert_eq!(found(sysfs, &[]), []);
    }

    #[test]
    fn skips_devices_no_backend_can_report() {
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
