//! Reads what the NVIDIA kernel driver reports below `/proc/driver/nvidia`: enough to name the GPUs
//! when NVML is not available.

use super::{BackendReadings, DeviceReadings};
use crate::procfs::read_at_most;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::{BackendState, DeviceId, FaultCode, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use std::path::Path;

/// Files are not read further; the driver writes some hundred bytes.
const MAX_FILE_BYTES: u64 = 4 << 10;

/// More devices are ignored.
const MAX_DEVICES: usize = 256;

/// The longest text that is kept, in bytes.
const TEXT_MAX: usize = 128;

/// The readings available without NVML; `None` when the driver is not loaded. Everything but names
/// is failed, for this reason.
pub(super) fn read_without_nvml(
    procfs: &Path,
    code: FaultCode,
    why: &str,
) -> Option<BackendReadings> {
    let root = procfs.join("driver/nvidia");
    let version = read_file(&root.join("version"))?;
    let failed = Reading::Failed(why.to_owned());
    let mut devices: Vec<_> = std::fs::read_dir(root.join("gpus"))
        .into_iter()
        .flatten()
        .take(MAX_DEVICES)
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let text = read_file(&entry.path().join("information"))?;
            Some(parse_device(
                &entry.file_name().to_string_lossy(),
                &text,
                &failed,
            ))
        })
        .collect();
    // The order in which NVML counts. Minor numbers have another order on many hosts.
    devices.sort_indirect_by(|a, b| a.pci.known().cmp(&b.pci.known()));
    for (index, device) in (0..).zip(&mut devices) {
        device.index = index;
    }
    Some(BackendReadings {
        driver: parse_driver_version(&version).map_or_else(
            || Reading::Failed("the driver does not report its version".into()),
            Reading::Value,
        ),
        devices,
        ..BackendReadings::without_devices(BackendState::Failed(code, why.to_owned()))
    })
}

fn read_file(path: &Path) -> Option<String> {
    let bytes = read_at_most(path, MAX_FILE_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the version from `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06 Sun …`: the
/// first word of numbers and dots.
pub(crate) fn parse_driver_version(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("NVRM version:"))?;
    let is_version = |word: &&str| {
        let parts: Vec<&str> = word.split('.').collect();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        parts.len() >= 2 && parts.iter().all(is_number)
    };
    let version = line.split_ascii_whitespace().find(is_version)?;
    Some(sanitize(version.as_bytes(), TEXT_MAX))
}

/// Parses one device from its `information` file; `address` is the name of its directory.
pub(crate) fn parse_device(address: &str, text: &str, failed: &Reading<()>) -> DeviceReadings {
    let value = |key: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        // A driver that has not woken the device fills in question marks.
        let known = |value: &&str| !value.is_empty() && !value.contains('?');
        Some(value.trim()).filter(known)
    };
    let shown = |text: &str| sanitize(text.as_bytes(), TEXT_MAX);
    let pci = shown(address);
    let id = value("GPU UUID").map_or_else(|| pci.clone(), shown);
    let mut device = DeviceReadings::unknown(DeviceId(id), 0, Vendor::Nvidia, failed);
    if let Some(model) = value("Model").filter(|model| *model != "Unknown") {
        device.name = Reading::Value(shown(model));
    }
    if let Some(minor) = value("Device Minor").and_then(|minor| minor.parse().ok()) {
        device.vitals.minor = Reading::Value(minor);
    }
    device.pci = Reading::Value(pci);
    device
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_kernel_modules_have_a_version() {
        for (text, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 2025\n\
                 GCC version:  gcc version 12.2.0\n",
                Some("580.65.06"),
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.48  Release\n",
                Some("590.48"),
            ),
            ("GCC version: 12.2.0\n", None),
            ("", None),
        ] {
            assert_eq!(parse_driver_version(text).as_deref(), version, "{text}");
        }
    }

    #[test]
    fn id_is_the_uuid_or_pci_address() {
        let failed = Reading::Failed("no NVML".to_owned());
        let text = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 120\n\
                    GPU UUID: \t GPU-0123\nDevice Minor: \t 3\nGPU Excluded:\t No\n";
        let awake = parse_device("0000:1b:00.0", text, &failed);
        assert_eq!(awake.id.0, "GPU-0123");
        assert_eq!(awake.name.known().unwrap(), "NVIDIA H100 80GB HBM3");
        assert_eq!(awake.vitals.minor, Reading::Value(3));
        assert_eq!(awake.memory.used.failure(), Some("no NVML"));
        let asleep = "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????\nDevice Minor: \t x\n";
        let asleep = parse_device("0000:1b:00.0", asleep, &failed);
        assert_eq!(asleep.id.0, "0000:1b:00.0");
        assert_eq!(asleep.name.failure(), Some("no NVML"));
        assert_eq!(asleep.vitals.minor.failure(), Some("no NVML"));
    }

    #[test]
    fn devices_are_ordered_by_pci_address() {
        let procfs = tempfile::tempdir().unwrap();
        let driver = procfs.path().join("driver/nvidia");
        for (minor, bus) in ["b7", "07", "4e", "0f", "90", "47"].iter().enumerate() {
            let gpu = driver.join(format!("gpus/0000:{bus}:00.0"));
            std::fs::create_dir_all(&gpu).unwrap();
            std::fs::write(
                gpu.join("information"),
                format!("Device Minor: \t {minor}\n"),
            )
            .unwrap();
        }
        std::fs::write(driver.join("version"), "").unwrap();
        let devices = read_without_nvml(procfs.path(), FaultCode::DriverError, "no NVML")
            .unwrap()
            .devices;
        let rows: Vec<_> = devices
            .iter()
            .map(|it| (it.index, it.id.0.as_str(), it.vitals.minor.known().copied()))
            .collect();
        let expected = [
            (0, "0000:07:00.0", Some(1)),
            (1, "0000:0f:00.0", Some(3)),
            (2, "0000:47:00.0", Some(5)),
            (3, "0000:4e:00.0", Some(2)),
            (4, "0000:90:00.0", Some(4)),
            (5, "0000:b7:00.0", Some(0)),
        ];
        assert_eq!(rows, expected);
    }

    proptest! {
        #[test]
        fn any_text_parses_without_panic(text in "\\PC{0,200}", address in "\\PC{0,20}") {
            let _ = parse_driver_version(&text);
            let _ = parse_device(&address, &text, &Reading::Unsupported);
        }
    }
}
