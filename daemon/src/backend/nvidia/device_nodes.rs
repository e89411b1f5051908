//! The device files of NVIDIA's driver, by their numbers.

use crate::backend::drm::card::read_node;
use crate::backend::drm::sysfs;
use crate::backend::{DeviceNode, DeviceReadings};
use crate::fd_scan::DeviceNumber;
use crate::procfs::read_at_most;
use std::collections::BTreeMap;
use std::path::Path;

/// `/proc/devices` has a line for each driver.
const DEVICES_MAX: u64 = 64 << 10;

/// The driver's fixed number (`nv.h`), unless `/proc/devices` lists another.
const DEFAULT_MAJOR: u32 = 195;

/// The last minors are not GPUs: `nvidiactl` and `nvidia-modeset`.
const CONTROL_MINOR: u32 = 255;
const MODESET_MINOR: u32 = 254;

/// The major numbers that the kernel assigned to the parts of the driver.
pub(super) struct DeviceMajors(BTreeMap<String, u32>);

impl DeviceMajors {
    /// Reads `/proc/devices`.
    pub(super) fn read(procfs: &Path) -> Self {
        let bytes = read_at_most(&procfs.join("devices"), DEVICES_MAX).unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    fn parse(text: &str) -> Self {
        let characters = text.split("Block devices:").next().unwrap_or_default();
        let lines = characters.lines().filter_map(|line| {
            let (number, name) = line.trim().split_once(' ')?;
            let name = name.trim();
            name.starts_with("nvidia")
                .then_some((name.to_owned(), number.parse().ok()?))
        });
        Self(lines.collect())
    }

    /// The major number of `/dev/nvidia0` and its siblings: older drivers use another name.
    fn gpu_major(&self) -> u32 {
        let names = ["nvidia", "nvidia-frontend"];
        let major = names.iter().find_map(|name| self.0.get(*name));
        major.copied().unwrap_or(DEFAULT_MAJOR)
    }

    /// The device files of this GPU, and those that all GPUs share.
    pub(super) fn device_nodes(&self, device: &DeviceReadings, sysfs: &Path) -> Vec<DeviceNode> {
        let major = self.gpu_major();
        let node = |name: &str, major, minor, shared| DeviceNode {
            name: name.to_owned(),
            number: DeviceNumber { major, minor },
            shared,
        };
        let mut nodes = Vec::new();
        if let Some(minor) = device.vitals.minor.last_known() {
            nodes.push(node(&format!("nvidia{minor}"), major, *minor, false));
        }
        if let Some(pci) = device.pci.last_known() {
            nodes.extend(drm_nodes(pci, sysfs));
        }
        nodes.push(node("nvidiactl", major, CONTROL_MINOR, true));
        nodes.push(node("nvidia-modeset", major, MODESET_MINOR, true));
        if let Some(uvm) = self.0.get("nvidia-uvm") {
            nodes.push(node("nvidia-uvm", *uvm, 0, true));
        }
        nodes
    }
}

/// The files of `nvidia-drm`: `card1`, `renderD128`.
fn drm_nodes(pci: &str, sysfs: &Path) -> Vec<DeviceNode> {
    let is_address = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    if pci.is_empty() || !pci.chars().all(is_address) {
        return Vec::new();
    }
    let directory = sysfs.join("bus/pci/devices").join(pci).join("drm");
    sysfs::entries(&directory)
        .into_iter()
        .filter_map(|(name, directory)| read_node(name, &directory, false))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::{DeviceId, Vendor};
    use gpukill_proto::reading::Reading;

    fn list_nodes(devices: &str, sysfs: &Path) -> Vec<(String, u32, u32, bool)> {
        let id = DeviceId("GPU-0".into());
        let mut device = DeviceReadings::unknown(id, 0, Vendor::Nvidia, &Reading::Unsupported);
        device.vitals.minor = Reading::Value(3);
        device.pci = Reading::Value("0000:1b:00.0".into());
        let nodes = DeviceMajors::parse(devices).device_nodes(&device, sysfs);
        let flat = nodes.into_iter();
        flat.map(|node| (node.name, node.number.major, node.number.minor, node.shared))
            .collect()
    }

    #[test]
    fn gpu_has_own_and_shared_files() {
        let text = "Character devices:\n  1 mem\n195 nvidia-frontend\n510 nvidia-uvm\n\n\
                    Block devices:\n  7 nvidia-uvm\n";
        let node = |name: &str, major, minor, shared| (name.to_owned(), major, minor, shared);
        let none = Path::new("/nonexistent");
        let expected = [
            node("nvidia3", 195, 3, false),
            node("nvidiactl", 195, 255, true),
            node("nvidia-modeset", 195, 254, true),
            node("nvidia-uvm", 510, 0, true),
        ];
        assert_eq!(list_nodes(text, none), expected);
        // If the kernel lists no number, the fixed one applies.
        assert_eq!(list_nodes("", none), expected[..3]);
    }

    #[test]
    fn drm_files_belong_to_the_gpu() {
        let root = tempfile::tempdir().unwrap();
        let drm = root
            .path()
            .join("bus/pci/devices/0000:1b:00.0/drm/renderD129");
        std::fs::create_dir_all(&drm).unwrap();
        std::fs::write(drm.join("dev"), "226:129\n").unwrap();
        let nodes = list_nodes("", root.path());
        assert_eq!(nodes[1], ("renderD129".to_owned(), 226, 129, false));
    }

    #[test]
    fn invalid_address_has_no_files() {
        let root = tempfile::tempdir().unwrap();
        let plant = |parent: &str| {
            let drm = root.path().join(parent).join("drm/card0");
            std::fs::create_dir_all(&drm).unwrap();
            std::fs::write(drm.join("dev"), "226:0\n").unwrap();
        };
        plant("bus/pci/devices/0000:1b:00.0");
        plant("class/x");
        // Without an address this is the directory of all devices.
        plant("bus/pci/devices");
        assert_eq!(drm_nodes("0000:1b:00.0", root.path()).len(), 1);
        let outside = root.path().join("class/x");
        let bad = ["", "../../../class/x", outside.to_str().unwrap()];
        for address in bad {
            assert_eq!(drm_nodes(address, root.path()), [], "{address:?}");
        }
    }
}
