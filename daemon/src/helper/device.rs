//! The device that is meant: whether there is one of that vendor at that address,
//! and the numbers of its device files.

use super::Args;
use super::request::Gpu;
use crate::holders::DeviceNumber;
use crate::procfs::file::read_at_most;
use gpukill_proto::collect::IntoSet as _;
use std::collections::BTreeSet;
use std::path::Path;

/// An attribute of sysfs is one line.
const LINE: u64 = 128;

/// What NVIDIA's driver tells of a GPU, and the kernel of all drivers.
const TEXT: u64 = 64 << 10;

/// The number of NVIDIA's driver since it exists (`nv.h`), where `/proc/devices`
/// does not tell another.
const NVIDIA: u32 = 195;

/// The numbers of the files that are this device's own.
pub(super) fn nodes(gpu: &Gpu, args: &Args) -> Result<BTreeSet<DeviceNumber>, String> {
    let address = gpu.address();
    let directory = args.sysfs.join("bus/pci/devices").join(address.to_string());
    if !directory.is_dir() {
        return Err(format!("there is no PCI device {address}"));
    }
    let (vendor, name) = match gpu {
        Gpu::Nvidia(_) => (0x10de, "NVIDIA"),
        Gpu::Amd(_) => (0x1002, "AMD"),
    };
    if hexadecimal(&directory.join("vendor")) != Some(vendor) {
        return Err(format!("{address} is no device of {name}"));
    }
    // PCI's base class 3: display controllers, and 3D controllers without one.
    // AMD's Instinct accelerators are of base class 0x12.
    let class = hexadecimal(&directory.join("class")).map(|class| class >> 16);
    if !matches!(class, Some(0x03 | 0x12)) {
        return Err(format!("{address} is no GPU"));
    }
    let mut nodes = of_drm(&directory.join("drm"));
    match gpu {
        Gpu::Nvidia(_) => {
            let minor = minor_of_nvidia(&args.procfs, &address.to_string());
            let minor = minor.ok_or_else(|| {
                format!("the driver does not tell which device file {address} has")
            })?;
            let major = major_of_nvidia(&args.procfs);
            nodes.insert(DeviceNumber { major, minor });
        }
        Gpu::Amd(_) if nodes.is_empty() => {
            return Err(format!("no driver has {address}"));
        }
        Gpu::Amd(_) => {}
    }
    Ok(nodes)
}

fn text(path: &Path, most: u64) -> Option<String> {
    String::from_utf8(read_at_most(path, most).ok()?).ok()
}

fn hexadecimal(path: &Path) -> Option<u32> {
    let text = text(path, LINE)?;
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// `card1`, `renderD128`.
fn of_drm(directory: &Path) -> BTreeSet<DeviceNumber> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let text = text(&entry.path().join("dev"), LINE)?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(DeviceNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    });
    numbers.into_set()
}

/// `Device Minor: 3`, of `/proc/driver/nvidia/gpus/ADDRESS/information`.
fn minor_of_nvidia(procfs: &Path, address: &str) -> Option<u32> {
    let file = procfs.join("driver/nvidia/gpus").join(address);
    let text = text(&file.join("information"), TEXT)?;
    let minor = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "Device Minor").then(|| value.trim())
    });
    minor?.parse().ok()
}

fn major_of_nvidia(procfs: &Path) -> u32 {
    let text = text(&procfs.join("devices"), TEXT).unwrap_or_default();
    let characters = text.split("Block devices:").next().unwrap_or_default();
    let told = characters.lines().find_map(|line| {
        let (number, name) = line.trim().split_once(' ')?;
        let is_it = matches!(name.trim(), "nvidia" | "nvidia-frontend");
        is_it.then(|| number.parse().ok())?
    });
    told.unwrap_or(NVIDIA)
}

#[cfg(test)]
mod tests {
    use super::super::request::parse;
    use super::*;
    use clap::Parser as _;
    use std::fs;

    fn tree() -> (tempfile::TempDir, Args) {
        let root = tempfile::tempdir().unwrap();
        let mut args = Args::parse_from(["gpukill-reset"]);
        args.sysfs = root.path().join("sys");
        args.procfs = root.path().join("proc");
        (root, args)
    }

    fn write(path: std::path::PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn plug(args: &Args, address: &str, vendor: &str, class: &str) {
        let device = args.sysfs.join("bus/pci/devices").join(address);
        write(device.join("vendor"), vendor);
        write(device.join("class"), class);
    }

    fn asked(vendor: &str, args: &Args) -> Result<Vec<(u32, u32)>, String> {
        let line = format!("gpukill-reset 2 reset {vendor} 0000:1b:00.0\n");
        let found = nodes(&parse(line.as_bytes()).unwrap().gpu, args)?;
        let numbers = found.into_iter();
        Ok(numbers.map(|it| (it.major, it.minor)).collect())
    }

    #[test]
    fn a_gpu_is_known_by_vendor_class_and_the_numbers_of_its_files() {
        let (_root, args) = tree();
        assert_eq!(
            asked("nvidia", &args),
            Err("there is no PCI device 0000:1b:00.0".into())
        );
        plug(&args, "0000:1b:00.0", "0x10de\n", "0x030200\n");
        assert_eq!(
            asked("amd", &args),
            Err("0000:1b:00.0 is no device of AMD".into())
        );
        assert_eq!(
            asked("nvidia", &args),
            Err("the driver does not tell which device file 0000:1b:00.0 has".into())
        );
        let told = "Model: \t\t NVIDIA H100\nDevice Minor: \t 3\n";
        let file = "driver/nvidia/gpus/0000:1b:00.0/information";
        write(args.procfs.join(file), told);
        assert_eq!(asked("nvidia", &args), Ok(vec![(195, 3)]));
        let devices = "Character devices:\n234 nvidia\n\nBlock devices:\n7 nvidia\n";
        write(args.procfs.join("devices"), devices);
        let drm = "bus/pci/devices/0000:1b:00.0/drm";
        write(args.sysfs.join(drm).join("renderD128/dev"), "226:128\n");
        assert_eq!(asked("nvidia", &args), Ok(vec![(226, 128), (234, 3)]));
    }

    #[test]
    fn what_is_no_gpu_is_not_touched() {
        let (_root, args) = tree();
        // The sound of a card has the vendor's number too.
        plug(&args, "0000:1b:00.0", "0x1002\n", "0x040300\n");
        assert_eq!(asked("amd", &args), Err("0000:1b:00.0 is no GPU".into()));
        plug(&args, "0000:1b:00.0", "0x1002\n", "0x120000\n");
        assert_eq!(
            asked("amd", &args),
            Err("no driver has 0000:1b:00.0".into())
        );
    }
}
