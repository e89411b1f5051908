//! Finds the cards below `/sys/class/drm`, and decides which of them are GPUs.

use super::sysfs;
use crate::backend::DeviceNode;
use crate::fd_scan::DeviceNumber;
use crate::procfs::read_at_most;
use gpukill_proto::collect::{IntoMap as _, SortIndirect as _};
use gpukill_proto::model::{DeviceId, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use std::collections::BTreeMap;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// GPU drivers. A card with another driver is a GPU if it has a render node.
#[rustfmt::skip]
const GPU_DRIVERS: [&str; 19] = [
    "amdgpu", "radeon", "i915", "xe", "nouveau", "nova", "asahi", "apple-gpu", "etnaviv", "lima",
    "msm", "msm_dpu", "panfrost", "panthor", "powervr", "tegra", "v3d", "vc4", "pvrsrvkm",
];

/// Drivers with a render node and no GPU: displays of virtual machines, and test drivers.
const NON_GPU_DRIVERS: [&str; 6] = [
    "vgem",
    "vkms",
    "virtio_gpu",
    "virtio-gpu",
    "vmwgfx",
    "virtio-pci",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DrmCard {
    /// Such as `card1`; it may change at the next boot.
    pub(crate) name: String,
    /// `/sys/class/drm/card1`
    pub(crate) directory: PathBuf,
    /// The driver, such as `amdgpu`.
    pub(crate) driver: String,
    /// `None` for a card that is not on a PCI bus.
    pub(crate) pci: Option<PciIdentity>,
    /// The name of a platform device, such as `206400000.gpu`.
    pub(crate) platform: Option<String>,
    /// `card1` and `renderD128`, where their numbers are known.
    pub(crate) nodes: Vec<DeviceNode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PciIdentity {
    /// `0000:c1:00.0`, as sysfs writes it.
    pub(crate) slot: String,
    pub(crate) vendor: u16,
    pub(crate) device: u16,
    /// The revision, where known.
    pub(crate) revision: Option<u8>,
}

impl DrmCard {
    /// The stable identity of the card.
    pub(crate) fn id(&self) -> DeviceId {
        let platform = self.platform.as_ref();
        match &self.pci {
            Some(pci) => DeviceId(pci.slot.clone()),
            None => DeviceId(platform.unwrap_or(&self.name).clone()),
        }
    }

    pub(crate) fn pci_slot(&self) -> Reading<String> {
        let pci = self.pci.as_ref();
        pci.map_or(Reading::Unsupported, |pci| Reading::Value(pci.slot.clone()))
    }

    pub(crate) fn device_directory(&self) -> PathBuf {
        self.directory.join("device")
    }

    pub(crate) fn vendor(&self) -> Vendor {
        match (
            self.pci.as_ref().map(|pci| pci.vendor),
            self.driver.as_str(),
        ) {
            (Some(0x1002), _) => Vendor::Amd,
            (Some(0x8086), _) => Vendor::Intel,
            (Some(0x10de), _) => Vendor::Nvidia,
            (_, "asahi" | "apple-gpu") => Vendor::Apple,
            _ => Vendor::Other,
        }
    }

    /// Whether the card is suspended. A suspended card must not be read: reading would wake it.
    pub(crate) fn is_suspended(&self) -> bool {
        let status = sysfs::text(&self.device_directory().join("power/runtime_status"));
        let asleep = ["suspended", "suspending", "resuming"];
        status
            .known()
            .is_some_and(|it| asleep.contains(&it.as_str()))
    }
}

/// The GPUs of the requested kernel drivers, by name. NVIDIA's own driver is excluded: NVML reports
/// its GPUs.
pub(crate) struct CardList {
    directory: PathBuf,
    /// The last listing: names, and the inode numbers of their entries. A card that is plugged in
    /// again has another inode.
    listing: Vec<(String, u64)>,
    cards: Vec<DrmCard>,
    /// When the cards were read.
    read_at: Option<Instant>,
    /// Every card had a driver, and two readings in a row were equal.
    is_settled: bool,
}

/// How often apparently unchanged cards are read again: the interval of the slow attributes.
const REREAD_INTERVAL: Duration = Duration::from_secs(16);

impl CardList {
    pub(crate) fn new(sysfs_root: &Path) -> Self {
        Self {
            directory: sysfs_root.join("class/drm"),
            listing: Vec::new(),
            cards: Vec::new(),
            read_at: None,
            is_settled: false,
        }
    }

    /// The current cards. They are read only when a card came or went, and again until they are
    /// settled: a card appears before all its files do.
    pub(crate) fn refresh(&mut self, wanted: impl Fn(&str) -> bool, at: Instant) -> &[DrmCard] {
        let listed = list_cards(&self.directory);
        let is_listed = listed == self.listing;
        let is_old = |then| at.saturating_duration_since(then) >= REREAD_INTERVAL;
        if is_listed && self.is_settled && !self.read_at.is_none_or(is_old) {
            return &self.cards;
        }
        let mut have_drivers = true;
        let mut cards = Vec::new();
        for (name, _) in &listed {
            let directory = self.directory.join(name);
            let uevent = read_uevent(&directory.join("device/uevent"));
            have_drivers &= uevent.contains_key("DRIVER");
            let driver = uevent.get("DRIVER").filter(|driver| wanted(driver));
            cards.extend(driver.map(|driver| read_card(name, directory, driver, &uevent)));
        }
        cards.retain(is_gpu);
        self.is_settled = is_listed && have_drivers && cards == self.cards;
        self.read_at = Some(at);
        self.listing = listed;
        self.cards = cards;
        &self.cards
    }
}

/// All cards of a tree, with any driver.
#[cfg(test)]
pub(crate) fn list_all_cards(sysfs_root: &Path) -> Vec<DrmCard> {
    let mut cards = CardList::new(sysfs_root);
    cards.refresh(|_| true, Instant::now()).to_vec()
}

/// The cards, GPUs or not, by name; none if the directory does not exist.
fn list_cards(directory: &Path) -> Vec<(String, u64)> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut all: Vec<(String, u64)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.ino())))
        .filter(|(name, _)| is_card(name))
        .take(4_096)
        .collect();
    all.sort_indirect();
    all
}

/// Such as `card1`, but not `card1-DP-1`, which is a connector.
fn is_card(name: &str) -> bool {
    let number = name.strip_prefix("card").unwrap_or_default();
    !number.is_empty() && number.len() < 6 && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn read_card(
    name: &str,
    directory: PathBuf,
    driver: &str,
    uevent: &BTreeMap<String, String>,
) -> DrmCard {
    let device = directory.join("device");
    let nodes = sysfs::entries(&device.join("drm"))
        .into_iter()
        .filter(|(node, _)| node == name || node.starts_with("renderD"))
        .filter_map(|(name, directory)| read_node(name, &directory, false))
        .collect();
    DrmCard {
        pci: parse_pci(uevent, &device),
        platform: platform_name(&device),
        name: name.to_owned(),
        directory,
        driver: driver.to_owned(),
        nodes,
    }
}

/// Parses a `uevent` file: `KEY=value` lines.
fn read_uevent(file: &Path) -> BTreeMap<String, String> {
    let bytes = read_at_most(file, 4_096).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines
        .map(|(key, value)| (key.to_owned(), sanitize(value.as_bytes(), 128)))
        .into_map()
}

fn parse_pci(uevent: &BTreeMap<String, String>, device: &Path) -> Option<PciIdentity> {
    let slot = uevent.get("PCI_SLOT_NAME").filter(|slot| is_slot(slot))?;
    let (vendor, model) = uevent.get("PCI_ID")?.split_once(':')?;
    let revision = sysfs::hexadecimal(&device.join("revision"));
    Some(PciIdentity {
        slot: slot.to_ascii_lowercase(),
        vendor: u16::from_str_radix(vendor, 16).ok()?,
        device: u16::from_str_radix(model, 16).ok()?,
        revision: revision.known().and_then(|it| u8::try_from(*it).ok()),
    })
}

/// Such as `0000:c1:00.0`: a domain of four to eight digits, bus, device, function.
fn is_slot(text: &str) -> bool {
    let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut parts = text.splitn(3, ':');
    let (Some(domain), Some(bus), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Some((device, function)) = rest.split_once('.') else {
        return false;
    };
    (4..=8).contains(&domain.len())
        && (bus.len(), device.len(), function.len()) == (2, 2, 1)
        && [domain, bus, device, function].into_iter().all(hexadecimal)
}

/// The name of the device itself, for a device on no bus that names it better.
fn platform_name(device: &Path) -> Option<String> {
    let target = std::fs::read_link(device).ok()?;
    let name = target.file_name()?.to_str()?;
    Some(sanitize(name.as_bytes(), 64))
}

/// The device file of this name, with the number in its directory of sysfs.
pub(crate) fn read_node(name: String, directory: &Path, shared: bool) -> Option<DeviceNode> {
    let number = sysfs::read_parsed(&directory.join("dev"), device_number);
    Some(DeviceNode {
        number: *number.known()?,
        name,
        shared,
    })
}

/// Parses `226:128`.
fn device_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(DeviceNumber::new(major.parse().ok()?, minor.parse().ok()?))
}

fn is_gpu(card: &DrmCard) -> bool {
    let driver = card.driver.as_str();
    if driver.starts_with("nvidia")
        || driver.starts_with("amdgpu_xcp")
        || NON_GPU_DRIVERS.contains(&driver)
    {
        return false;
    }
    let renders = |node: &DeviceNode| node.name.starts_with("renderD");
    GPU_DRIVERS.contains(&driver) || card.nodes.iter().any(renders)
}

#[cfg(test)]
mod tests;
