//! The cards below `/sys/class/drm`, and which of them are GPUs.

use super::sysfs;
use crate::backend::Node;
use crate::holders::DeviceNumber;
use crate::procfs::file::read_at_most;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::snapshot::{DeviceId, Vendor};
use gpukill_proto::text::visible;
use std::collections::BTreeMap;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Drivers of GPUs. One that is not here is a GPU's where it has a render node.
const GPU_DRIVERS: [&str; 19] = [
    "amdgpu",
    "radeon",
    "i915",
    "xe",
    "nouveau",
    "nova",
    "asahi",
    "apple-gpu",
    "etnaviv",
    "lima",
    "msm",
    "msm_dpu",
    "panfrost",
    "panthor",
    "powervr",
    "tegra",
    "v3d",
    "vc4",
    "pvrsrvkm",
];

/// Drivers that have a render node and no GPU: pictures of a virtual machine or
/// of a test.
const NO_GPU: [&str; 6] = [
    "vgem",
    "vkms",
    "virtio_gpu",
    "virtio-gpu",
    "vmwgfx",
    "virtio-pci",
];

/// One card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Card {
    /// `card1`; another one after the next boot.
    pub(crate) name: String,
    /// `/sys/class/drm/card1`
    pub(crate) directory: PathBuf,
    /// Its driver: `amdgpu`.
    pub(crate) driver: String,
    /// `None` for one that is not on a PCI bus.
    pub(crate) pci: Option<Pci>,
    /// The name of the platform device, where it is one: `206400000.gpu`.
    pub(crate) platform: Option<String>,
    /// `card1` and `renderD128`, where their numbers are told.
    pub(crate) nodes: Vec<Node>,
}

/// What PCI tells of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pci {
    /// `0000:c1:00.0`, as sysfs writes it.
    pub(crate) slot: String,
    pub(crate) vendor: u16,
    pub(crate) device: u16,
    /// Where it is told.
    pub(crate) revision: Option<u8>,
}

impl Card {
    /// Names it for good.
    pub(crate) fn id(&self) -> DeviceId {
        let platform = self.platform.as_ref();
        match &self.pci {
            Some(pci) => DeviceId(pci.slot.clone()),
            None => DeviceId(platform.unwrap_or(&self.name).clone()),
        }
    }

    /// The device's own directory.
    pub(crate) fn device(&self) -> PathBuf {
        self.directory.join("device")
    }

    /// Who made it.
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

    /// Whether it sleeps. It must not be asked anything then: that would wake it.
    pub(crate) fn is_suspended(&self) -> bool {
        let status = sysfs::text(&self.device().join("power/runtime_status"));
        let asleep = ["suspended", "suspending", "resuming"];
        status
            .known()
            .is_some_and(|it| asleep.contains(&it.as_str()))
    }
}

/// The GPUs whose driver is a part of the kernel, by name, of those drivers that
/// somebody wants. NVIDIA's own driver is not one: NVML tells of those.
pub(crate) struct Cards {
    directory: PathBuf,
    /// What was listed last: names, and the numbers of their entries. A card
    /// that is plugged in again has another one.
    listed: Vec<(String, u64)>,
    cards: Vec<Card>,
    /// When they were read.
    at: Option<Instant>,
    /// Every card told its driver, and was twice the same.
    is_settled: bool,
}

/// So often cards are read again that seem to be as they were: as often as what
/// they seldom tell.
const AGAIN: Duration = Duration::from_secs(16);

impl Cards {
    pub(crate) fn new(sysfs_root: &Path) -> Self {
        Self {
            directory: sysfs_root.join("class/drm"),
            listed: Vec::new(),
            cards: Vec::new(),
            at: None,
            is_settled: false,
        }
    }

    /// Those that are there now. The cards themselves are read only when one came
    /// or went, and again until they are settled: a card is seen before all its
    /// files are.
    pub(crate) fn now(&mut self, wanted: impl Fn(&str) -> bool, at: Instant) -> &[Card] {
        let listed = listed(&self.directory);
        let is_listed = listed == self.listed;
        let is_old = |then| at.saturating_duration_since(then) >= AGAIN;
        if is_listed && self.is_settled && !self.at.is_none_or(is_old) {
            return &self.cards;
        }
        let mut have_drivers = true;
        let mut cards = Vec::new();
        for (name, _) in &listed {
            let directory = self.directory.join(name);
            let told = uevent(&directory.join("device/uevent"));
            have_drivers &= told.contains_key("DRIVER");
            let driver = told.get("DRIVER").filter(|driver| wanted(driver));
            cards.extend(driver.map(|driver| card(name, directory, driver, &told)));
        }
        cards.retain(is_gpu);
        self.is_settled = is_listed && have_drivers && cards == self.cards;
        self.at = Some(at);
        self.listed = listed;
        self.cards = cards;
        &self.cards
    }
}

/// All of a tree, whatever their drivers.
#[cfg(test)]
pub(crate) fn cards(sysfs_root: &Path) -> Vec<Card> {
    let mut cards = Cards::new(sysfs_root);
    cards.now(|_| true, Instant::now()).to_vec()
}

/// Cards, GPUs or not, by name; none where there is no such directory.
fn listed(directory: &Path) -> Vec<(String, u64)> {
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

/// `card1`, and not `card1-DP-1`, which is a connector.
fn is_card(name: &str) -> bool {
    let number = name.strip_prefix("card").unwrap_or_default();
    !number.is_empty() && number.len() < 6 && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn card(name: &str, directory: PathBuf, driver: &str, told: &BTreeMap<String, String>) -> Card {
    let device = directory.join("device");
    let nodes = sysfs::entries(&device.join("drm"))
        .into_iter()
        .filter(|(node, _)| node == name || node.starts_with("renderD"))
        .filter_map(|(name, directory)| {
            let number = sysfs::parsed(&directory.join("dev"), device_number);
            Some(Node {
                number: *number.known()?,
                name,
                shared: false,
            })
        })
        .collect();
    Card {
        pci: pci(told, &device),
        platform: platform(&device),
        name: name.to_owned(),
        directory,
        driver: driver.to_owned(),
        nodes,
    }
}

/// What a `uevent` file says: `KEY=value` lines.
fn uevent(file: &Path) -> BTreeMap<String, String> {
    let bytes = read_at_most(file, 4_096).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines
        .map(|(key, value)| (key.to_owned(), visible(value.as_bytes(), 128)))
        .into_map()
}

fn pci(told: &BTreeMap<String, String>, device: &Path) -> Option<Pci> {
    let slot = told.get("PCI_SLOT_NAME").filter(|slot| is_slot(slot))?;
    let (vendor, model) = told.get("PCI_ID")?.split_once(':')?;
    let revision = sysfs::hexadecimal(&device.join("revision"));
    Some(Pci {
        slot: slot.to_ascii_lowercase(),
        vendor: u16::from_str_radix(vendor, 16).ok()?,
        device: u16::from_str_radix(model, 16).ok()?,
        revision: revision.known().and_then(|it| u8::try_from(*it).ok()),
    })
}

/// `0000:c1:00.0`: a domain of four to eight digits, bus, device, function.
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

/// The name of the device itself, where it is on no bus that names it better.
fn platform(device: &Path) -> Option<String> {
    let target = std::fs::read_link(device).ok()?;
    let name = target.file_name()?.to_str()?;
    Some(visible(name.as_bytes(), 64))
}

/// `226:128`
pub(crate) fn device_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(DeviceNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

fn is_gpu(card: &Card) -> bool {
    let driver = card.driver.as_str();
    if driver.starts_with("nvidia") || driver.starts_with("amdgpu_xcp") || NO_GPU.contains(&driver)
    {
        return false;
    }
    let renders = |node: &Node| node.name.starts_with("renderD");
    GPU_DRIVERS.contains(&driver) || card.nodes.iter().any(renders)
}

#[cfg(test)]
mod tests;
