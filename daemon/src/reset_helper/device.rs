//! Checks that there is a GPU of this vendor at this address, and finds the numbers of its device
//! files.

use super::ResetHelperArgs;
use super::request::{PciAddress, RequestedGpu};
use crate::fd_scan::DeviceNumber;
use crate::procfs::read_at_most;
use gpukill_proto::collect::IntoSet as _;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

/// An attribute of sysfs is one line.
const MAX_ATTRIBUTE_BYTES: u64 = 128;

/// Limit for the file of the NVIDIA driver about a GPU, and for the kernel's list of drivers.
const MAX_TEXT_BYTES: u64 = 64 << 10;

/// The major number of the NVIDIA driver (`nv.h`), unless `/proc/devices` has another one.
const NVIDIA_MAJOR: u32 = 195;

/// The numbers of the device files that belong only to this device.
pub(super) fn device_numbers(
    gpu: &RequestedGpu,
    args: &ResetHelperArgs,
) -> Result<BTreeSet<DeviceNumber>, String> {
    let address = gpu.address();
    let directory = args.sysfs.join("bus/pci/devices").join(address.to_string());
    if !directory.is_dir() {
        return Err(format!("there is no PCI device {address}"));
    }
    let (vendor, name) = match gpu {
        RequestedGpu::Nvidia(_) => (0x10de, "NVIDIA"),
        RequestedGpu::Amd(_) => (0x1002, "AMD"),
    };
    if read_hex(&directory.join("vendor")) != Some(vendor) {
        return Err(format!("{address} is not a device of {name}"));
    }
    // PCI base class 3: display controllers, and 3D controllers without a display. Instinct
    // accelerators of AMD have base class 0x12.
    let class = read_hex(&directory.join("class")).map(|class| class >> 16);
    if !matches!(class, Some(0x03 | 0x12)) {
        return Err(format!("{address} is not a GPU"));
    }
    let mut nodes = drm_device_numbers(&directory.join("drm"));
    match gpu {
        RequestedGpu::Nvidia(_) => {
            let minor = nvidia_minor(&args.procfs, &address.to_string());
            let minor = minor.ok_or_else(|| {
                format!("the driver does not report the device file of {address}")
            })?;
            let major = nvidia_major(&args.procfs);
            nodes.insert(DeviceNumber { major, minor });
        }
        RequestedGpu::Amd(_) if nodes.is_empty() => {
            return Err(format!("no driver has {address}"));
        }
        RequestedGpu::Amd(_) => {}
    }
    Ok(nodes)
}

/// The numbers of the device files of the other members of an AMD GPU's XGMI hive. The driver
/// resets all members of a hive together (`amdgpu_device_gpu_recover`).
pub(super) fn hive_device_numbers(
    address: &PciAddress,
    args: &ResetHelperArgs,
) -> Result<BTreeSet<DeviceNumber>, String> {
    let name = address.to_string();
    let devices = args.sysfs.join("bus/pci/devices");
    let mut numbers = BTreeSet::new();
    let Some(hive) = hive_id(&devices.join(&name))? else {
        return Ok(numbers);
    };
    let unlisted = |error| format!("the members of its XGMI hive cannot be listed: {error}");
    for entry in std::fs::read_dir(&devices).map_err(unlisted)? {
        let entry = entry.map_err(unlisted)?;
        let device = entry.path();
        if entry.file_name() != name.as_str() && hive_id(&device)?.as_ref() == Some(&hive) {
            numbers.append(&mut drm_device_numbers(&device.join("drm")));
        }
    }
    Ok(numbers)
}

/// The XGMI hive of a device; `None` if it is in none.
fn hive_id(device: &Path) -> Result<Option<Vec<u8>>, String> {
    let file = device.join("xgmi_hive_info/xgmi_hive_id");
    match read_at_most(&file, MAX_ATTRIBUTE_BYTES) {
        Ok(id) => Ok(Some(id)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
    }
}

fn read_text(path: &Path, max_bytes: u64) -> Option<String> {
    String::from_utf8(read_at_most(path, max_bytes).ok()?).ok()
}

fn read_hex(path: &Path) -> Option<u32> {
    let text = read_text(path, MAX_ATTRIBUTE_BYTES)?;
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// `card1`, `renderD128`.
fn drm_device_numbers(directory: &Path) -> BTreeSet<DeviceNumber> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let text = read_text(&entry.path().join("dev"), MAX_ATTRIBUTE_BYTES)?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(DeviceNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    });
    numbers.into_set()
}

/// `Device Minor: 3`, in `/proc/driver/nvidia/gpus/ADDRESS/information`.
fn nvidia_minor(procfs: &Path, address: &str) -> Option<u32> {
    let file = procfs.join("driver/nvidia/gpus").join(address);
    let text = read_text(&file.join("information"), MAX_TEXT_BYTES)?;
    let minor = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "Device Minor").then(|| value.trim())
    });
    minor?.parse().ok()
}

fn nvidia_major(procfs: &Path) -> u32 {
    let text = read_text(&procfs.join("devices"), MAX_TEXT_BYTES).unwrap_or_default();
    let characters = text.split("Block devices:").next().unwrap_or_default();
    let major = characters.lines().find_map(|line| {
        let (number, name) = line.trim().split_once(' ')?;
        let is_nvidia = matches!(name.trim(), "nvidia" | "nvidia-frontend");
        is_nvidia.then(|| number.parse().ok())?
    });
    major.unwrap_or(NVIDIA_MAJOR)
}

#[cfg(test)]
mod tests {
    use super::super::request::parse;
    use super::*;
    use clap::Parser as _;
    use std::fs;

    fn tree() -> (tempfile::TempDir, ResetHelperArgs) {
        let root = tempfile::tempdir().unwrap();
        let mut args = ResetHelperArgs::parse_from(["gpukill-reset"]);
        args.sysfs = root.path().join("sys");
        args.procfs = root.path().join("proc");
        (root, args)
    }

    fn write(path: std::path::PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn plug(args: &ResetHelperArgs, address: &str, vendor: &str, class: &str) {
        let device = args.sysfs.join("bus/pci/devices").join(address);
        write(device.join("vendor"), vendor);
        write(device.join("class"), class);
    }

    fn request_device_numbers(
        vendor: &str,
        args: &ResetHelperArgs,
    ) -> Result<Vec<(u32, u32)>, String> {
        let line = format!("gpukill-reset 2 reset {vendor} 0000:1b:00.0\n");
        let found = device_numbers(&parse(line.as_bytes()).unwrap().gpu, args)?;
        let numbers = found.into_iter();
        Ok(numbers.map(|it| (it.major, it.minor)).collect())
    }

    #[test]
    fn finds_the_device_numbers_of_a_gpu() {
        let (_root, args) = tree();
        assert_eq!(
            request_device_numbers("nvidia", &args),
            Err("there is no PCI device 0000:1b:00.0".into())
        );
        plug(&args, "0000:1b:00.0", "0x10de\n", "0x030200\n");
        assert_eq!(
            request_device_numbers("amd", &args),
            Err("0000:1b:00.0 is not a device of AMD".into())
        );
        assert_eq!(
            request_device_numbers("nvidia", &args),
            Err("the driver does not report the device file of 0000:1b:00.0".into())
        );
        let information = "Model: \t\t NVIDIA H100\nDevice Minor: \t 3\n";
        let file = "driver/nvidia/gpus/0000:1b:00.0/information";
        write(args.procfs.join(file), information);
        assert_eq!(request_device_numbers("nvidia", &args), Ok(vec![(195, 3)]));
        let devices = "Character devices:\n234 nvidia\n\nBlock devices:\n7 nvidia\n";
        write(args.procfs.join("devices"), devices);
        let drm = "bus/pci/devices/0000:1b:00.0/drm";
        write(args.sysfs.join(drm).join("renderD128/dev"), "226:128\n");
        assert_eq!(
            request_device_numbers("nvidia", &args),
            Ok(vec![(226, 128), (234, 3)])
        );
    }

    #[test]
    fn finds_the_other_members_of_a_hive() {
        let (_root, args) = tree();
        let plug_member = |address: &str, hive: Option<&str>, minor: u32| {
            let device = args.sysfs.join("bus/pci/devices").join(address);
            let dev = device.join("drm").join(format!("card{minor}")).join("dev");
            write(dev, &format!("226:{minor}\n"));
            if let Some(hive) = hive {
                write(device.join("xgmi_hive_info/xgmi_hive_id"), hive);
            }
        };
        plug_member("0000:1b:00.0", Some("77\n"), 0);
        plug_member("0000:1c:00.0", Some("77\n"), 1);
        plug_member("0000:1d:00.0", Some("78\n"), 2);
        plug_member("0000:1e:00.0", None, 3);
        let minors = |address: &str| -> Vec<u32> {
            let address = PciAddress::parse(address).unwrap();
            let numbers = hive_device_numbers(&address, &args).unwrap();
            numbers.into_iter().map(|number| number.minor).collect()
        };
        assert_eq!(minors("0000:1b:00.0"), [1]);
        assert_eq!(minors("0000:1c:00.0"), [0]);
        assert_eq!(minors("0000:1d:00.0"), [0; 0]);
        assert_eq!(minors("0000:1e:00.0"), [0; 0]);
        // A hive that cannot be read is no reason to reset it.
        let unreadable = args
            .sysfs
            .join("bus/pci/devices/0000:1e:00.0/xgmi_hive_info");
        fs::create_dir_all(unreadable.join("xgmi_hive_id")).unwrap();
        let address = PciAddress::parse("0000:1b:00.0").unwrap();
        assert!(hive_device_numbers(&address, &args).is_err());
    }

    #[test]
    fn refuses_devices_that_are_not_gpus() {
        let (_root, args) = tree();
        // The sound function of a GPU has the same vendor id.
        plug(&args, "0000:1b:00.0", "0x1002\n", "0x040300\n");
        assert_eq!(
            request_device_numbers("amd", &args),
            Err("0000:1b:00.0 is not a GPU".into())
        );
        plug(&args, "0000:1b:00.0", "0x1002\n", "0x120000\n");
        assert_eq!(
            request_device_numbers("amd", &args),
            Err("no driver has 0000:1b:00.0".into())
        );
    }
}
