//! Finds the names of cards in the lists that distributions ship: `amdgpu.ids` of libdrm, and
//! `pci.ids`; without these, the driver's name or the name of a common product.

use super::card::{DrmCard, PciIdentity};
use super::common_devices::{amd_product, intel_product};
use super::sysfs;
use crate::procfs::read_at_most;
use gpukill_proto::model::Vendor;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use std::path::Path;

/// The lists have about a megabyte and a half; a longer file is ignored.
const LIST_MAX: u64 = 8 << 20;

/// The longest name that is kept, in bytes.
const NAME_MAX: usize = 128;

/// The list of AMD products, which has the product name of each revision.
const AMD_PRODUCTS: &str = "usr/share/libdrm/amdgpu.ids";

/// The list of all devices, at the places that distributions use.
const DEVICE_LISTS: [&str; 2] = ["usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"];

/// AMD's PCI vendor number; `amdgpu.ids` lists no other vendor.
const AMD_VENDOR: u16 = 0x1002;

/// Intel's PCI vendor number.
const INTEL_VENDOR: u16 = 0x8086;

/// The name of a card, from the first of these sources that has one:
///
/// 1. the lists of product and chip names below `host_root`, where the host's files are visible
/// 2. the name of its board (amdgpu) or the device tree
/// 3. a table of common products
/// 4. the name of its chip (KFD)
/// 5. its vendor or driver, with its number or location
///
/// Reads files of a megabyte, so call it once. Wakes no card: none of this accesses the chip.
pub(crate) fn card_name(host_root: &Path, card: &DrmCard) -> String {
    let listed = card
        .pci
        .as_ref()
        .and_then(|pci| listed_name(host_root, pci));
    let device = card.device_directory();
    listed
        .or_else(|| board_name(&device.join("product_name")))
        .or_else(|| device_tree_name(&device.join("of_node/compatible")))
        .or_else(|| common_product(card.pci.as_ref()?).map(str::to_owned))
        .or_else(|| chip_name(card))
        .unwrap_or_else(|| fallback_name(card))
}

fn common_product(pci: &PciIdentity) -> Option<&'static str> {
    match pci.vendor {
        AMD_VENDOR => amd_product(pci.device, pci.revision),
        INTEL_VENDOR => intel_product(pci.device),
        _ => None,
    }
}

/// The name of the chip in the node that KFD has of the card, such as `AMD vega20`. `None` for
/// chips that report their parts themselves: these have one name for all.
fn chip_name(card: &DrmCard) -> Option<String> {
    let mut names = card.nodes.iter().map(|node| node.name.as_str());
    let minor = names.find_map(|name| name.strip_prefix("renderD"))?;
    let own = format!("drm_render_minor {minor}");
    // Of `/sys/class/drm/card1`.
    let sysfs_root = card.directory.ancestors().nth(3)?;
    let nodes = sysfs::entries(&sysfs_root.join("class/kfd/kfd/topology/nodes"));
    let (_, node) = nodes.into_iter().find(|(_, node)| {
        let properties = read_at_most(&node.join("properties"), 4_096).unwrap_or_default();
        lines(&properties).any(|line| line.trim_ascii() == own.as_bytes())
    })?;
    let name = printable_name(&read_at_most(&node.join("name"), 4_096).ok()?)?;
    (name != "ip discovery").then(|| format!("AMD {name}"))
}

/// Boards without a name of their own have a blank line.
fn board_name(file: &Path) -> Option<String> {
    match sysfs::text(file) {
        Reading::Value(name) => Some(name).filter(|name| !name.is_empty()),
        Reading::Unsupported | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => None,
    }
}

/// The first name in a device tree, which is the most specific: `rockchip,rk3588-mali`. A NUL byte
/// ends each name.
fn device_tree_name(file: &Path) -> Option<String> {
    let bytes = read_at_most(file, 4_096).ok()?;
    printable_name(bytes.split(|byte| *byte == 0).next()?)
}

/// Such as `AMD 1002:744c`, or `panfrost ff9a0000.gpu` for a card on no PCI bus.
fn fallback_name(card: &DrmCard) -> String {
    let maker = match card.vendor() {
        Vendor::Amd => "AMD",
        Vendor::Intel => "Intel",
        Vendor::Nvidia | Vendor::Apple | Vendor::Other => &card.driver,
    };
    match &card.pci {
        Some(pci) => format!("{maker} {:04x}:{:04x}", pci.vendor, pci.device),
        None => format!("{maker} {}", card.platform.as_ref().unwrap_or(&card.name)),
    }
}

/// The name in the lists, if one has it.
fn listed_name(host_root: &Path, pci: &PciIdentity) -> Option<String> {
    let product = || {
        let list = (pci.vendor == AMD_VENDOR).then(|| read_list(host_root, AMD_PRODUCTS))??;
        find_product(&list, pci.device, pci.revision?)
    };
    let device = |path: &str| find_device(&read_list(host_root, path)?, pci.vendor, pci.device);
    product().or_else(|| DEVICE_LISTS.iter().find_map(|path| device(path)))
}

fn read_list(host_root: &Path, path: &str) -> Option<Vec<u8>> {
    let bytes = read_at_most(&host_root.join(path), LIST_MAX + 1).ok()?;
    // A truncated list would have a truncated name at its end.
    (bytes.len() as u64 <= LIST_MAX).then_some(bytes)
}

/// Finds the name in lines of `744C, C8, AMD Radeon RX 7900 XTX`, with tabs: device, revision,
/// name.
pub(super) fn find_product(list: &[u8], device: u16, revision: u8) -> Option<String> {
    lines(list).find_map(|line| {
        let mut parts = line.splitn(3, |byte| *byte == b',');
        let (first, second, name) = (parts.next()?, parts.next()?, parts.next()?);
        let here = parse_hexadecimal(first, 4) == Some(device)
            && parse_hexadecimal(second, 2) == Some(revision.into());
        here.then(|| printable_name(name)).flatten()
    })
}

/// Finds the name in the device lines below the vendor's line. A device line begins with one tab.
pub(super) fn find_device(list: &[u8], vendor: u16, device: u16) -> Option<String> {
    let mut lines = lines(list).filter(|line| !line.starts_with(b"#"));
    lines.find(|line| parse_entry(line).is_some_and(|(it, _)| it == vendor))?;
    lines
        // The next line without a tab begins another vendor, or another list.
        .take_while(|line| line.is_empty() || line.starts_with(b"\t"))
        .filter_map(|line| parse_entry(line.strip_prefix(b"\t")?))
        .find(|(number, _)| *number == device)
        .and_then(|(_, name)| printable_name(name))
}

/// Parses `744c  Navi 31`: four digits, two blanks, a name.
fn parse_entry(line: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, rest) = line.split_at_checked(4)?;
    Some((parse_hexadecimal(digits, 4)?, rest.strip_prefix(b"  ")?))
}

fn lines(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b'\n')
}

/// A hexadecimal number of at most this many digits, and nothing else.
fn parse_hexadecimal(text: &[u8], digits: usize) -> Option<u16> {
    let text = text.trim_ascii();
    let plain = (1..=digits).contains(&text.len()) && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| plain)?;
    u16::from_str_radix(text, 16).ok()
}

fn printable_name(name: &[u8]) -> Option<String> {
    Some(sanitize(name.trim_ascii(), NAME_MAX)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PRODUCTS: &str = "# comment\n1.0.0\n\
        744C,\tC8,\tAMD Radeon RX 7900 XTX\n\
        744C,\tCC,\tAMD Radeon RX 7900 XT\n\
        73BF,\tC0,\t\n\
        73FF,\tC1,\tAMD \x1b[31mred\n";

    const IDS: &str = "# 1002  not this\n\
        0e11  Compaq\n\t744c  Not an AMD\n\
        1002  Advanced Micro Devices, Inc. [AMD/ATI]\n\
        # of 2023\n\
        \t73bf  Navi 21 [Radeon RX 6900 XT]\n\
        \t\t1002 744c  A board of that\n\
        \t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX]\n\
        8086  Intel Corporation\n\t56a0  DG2 [Arc A770]\n\t15bf  Not an AMD\n\
        C 03  Display controller\n";

    fn card(vendor: u16, device: u16, revision: Option<u8>) -> PciIdentity {
        PciIdentity {
            slot: "0000:03:00.0".into(),
            vendor,
            device,
            revision,
        }
    }

    #[test]
    fn product_name_precedes_chip_name() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [(AMD_PRODUCTS, PRODUCTS), (DEVICE_LISTS[1], IDS)] {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        for (vendor, device, revision, called) in [
            (
                AMD_VENDOR,
                0x744c,
                Some(0xc8),
                Some("AMD Radeon RX 7900 XTX"),
            ),
            (
                AMD_VENDOR,
                0x744c,
                Some(0xcc),
                Some("AMD Radeon RX 7900 XT"),
            ),
            // A product that no list has yet, or a line without a name.
            (
                AMD_VENDOR,
                0x744c,
                Some(0x01),
                Some("Navi 31 [Radeon RX 7900 XT/7900 XTX]"),
            ),
            (
                AMD_VENDOR,
                0x744c,
                None,
                Some("Navi 31 [Radeon RX 7900 XT/7900 XTX]"),
            ),
            (
                AMD_VENDOR,
                0x73bf,
                Some(0xc0),
                Some("Navi 21 [Radeon RX 6900 XT]"),
            ),
            (AMD_VENDOR, 0x73ff, Some(0xc1), Some("AMD \\x1b[31mred")),
            (0x8086, 0x56a0, None, Some("DG2 [Arc A770]")),
            // Another vendor's device has this number.
            (AMD_VENDOR, 0x15bf, None, None),
            (0x8086, 0x744c, Some(0xc8), None),
            (0x10de, 0x744c, None, None),
        ] {
            let found = listed_name(root.path(), &card(vendor, device, revision));
            assert_eq!(
                found.as_deref(),
                called,
                "{vendor:x}:{device:x} {revision:?}"
            );
        }
        assert_eq!(
            listed_name(Path::new("/nonexistent"), &card(AMD_VENDOR, 0x744c, None)),
            None
        );
    }

    #[test]
    fn unlisted_card_has_a_fallback_name() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("class/drm/card1");
        let device = directory.join("device");
        std::fs::create_dir_all(device.join("of_node")).unwrap();
        let called = |driver: &str, pci: Option<PciIdentity>, board: &str, tree: &str| {
            std::fs::write(device.join("product_name"), board).unwrap();
            std::fs::write(device.join("of_node/compatible"), tree).unwrap();
            let card = DrmCard {
                name: "card1".into(),
                directory: directory.clone(),
                driver: driver.into(),
                pci,
                platform: None,
                nodes: Vec::new(),
            };
            card_name(root.path(), &card)
        };
        let on_pci = |vendor| Some(card(vendor, 0x744c, None));
        for (driver, pci, board, tree, name) in [
            ("amdgpu", on_pci(AMD_VENDOR), "\n", "", "AMD 1002:744c"),
            (
                "amdgpu",
                on_pci(AMD_VENDOR),
                "Board\x1b\n",
                "",
                "Board\\x1b",
            ),
            ("xe", on_pci(0x8086), "", "", "Intel 8086:744c"),
            ("nouveau", on_pci(0x10de), "", "", "nouveau 10de:744c"),
            (
                "panthor",
                None,
                "",
                "rockchip,mali\0arm,mali\0",
                "rockchip,mali",
            ),
            ("panfrost", None, "", "\0arm,mali", "panfrost card1"),
        ] {
            assert_eq!(called(driver, pci, board, tree), name, "{driver} {board:?}");
        }
    }

    #[test]
    fn card_without_lists_has_a_common_or_chip_name() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("class/drm/card1");
        let node = root.path().join("class/kfd/kfd/topology/nodes/1");
        std::fs::create_dir_all(directory.join("device")).unwrap();
        std::fs::create_dir_all(&node).unwrap();
        let properties = "simd_count 240\ndrm_render_minor 128\nlocation_id 768\n";
        std::fs::write(node.join("properties"), properties).unwrap();
        let called = |pci: PciIdentity, kfd: &str, render: &str| {
            std::fs::write(node.join("name"), kfd).unwrap();
            let number = crate::fd_scan::DeviceNumber::new(226, 128);
            let card = DrmCard {
                name: "card1".into(),
                directory: directory.clone(),
                driver: "amdgpu".into(),
                pci: Some(pci),
                platform: None,
                nodes: vec![crate::backend::DeviceNode {
                    name: render.into(),
                    number,
                    shared: false,
                }],
            };
            card_name(root.path(), &card)
        };
        let (mi300, unknown) = (0x74a1, 0x66af);
        for (vendor, device, kfd, render, name) in [
            (
                AMD_VENDOR,
                mi300,
                "aldebaran\n",
                "renderD128",
                "AMD Instinct MI300X",
            ),
            (INTEL_VENDOR, 0xe20b, "", "renderD128", "Intel Arc B580"),
            (AMD_VENDOR, unknown, "vega20\n", "renderD128", "AMD vega20"),
            (
                AMD_VENDOR,
                unknown,
                "vega20\n",
                "renderD129",
                "AMD 1002:66af",
            ),
            (
                AMD_VENDOR,
                unknown,
                "ip discovery\n",
                "renderD128",
                "AMD 1002:66af",
            ),
            (AMD_VENDOR, unknown, "\n", "renderD128", "AMD 1002:66af"),
        ] {
            let found = called(card(vendor, device, None), kfd, render);
            assert_eq!(found, name, "{kfd:?} {render}");
        }
        // The name of the board is the driver's own.
        std::fs::write(directory.join("device/product_name"), "Board\n").unwrap();
        assert_eq!(
            called(card(AMD_VENDOR, mi300, None), "", "renderD128"),
            "Board"
        );
    }

    #[test]
    fn oversized_list_is_ignored() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(DEVICE_LISTS[0]);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let length = usize::try_from(LIST_MAX).unwrap();
        let mut text = IDS.as_bytes().to_vec();
        text.resize(length, b'\n');
        std::fs::write(&file, &text).unwrap();
        let card = card(0x8086, 0x56a0, None);
        assert_eq!(
            listed_name(root.path(), &card).as_deref(),
            Some("DG2 [Arc A770]")
        );
        text.push(b'\n');
        std::fs::write(&file, &text).unwrap();
        assert_eq!(listed_name(root.path(), &card), None);
    }

    proptest! {
        #[test]
        fn any_list_gives_a_bounded_name(
            bytes: Vec<u8>, vendor: u16, model: u16, revision: u8,
        ) {
            for name in [find_product(&bytes, model, revision), find_device(&bytes, vendor, model)] {
                prop_assert!(name.is_none_or(|name| (1..=NAME_MAX).contains(&name.len())));
            }
        }
    }
}
