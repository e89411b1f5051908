//! What cards are called, from the lists that distributions ship: `amdgpu.ids`
//! of libdrm, and `pci.ids`.

use super::card::{Card, Pci};
use super::sysfs;
use crate::procfs::file::read_at_most;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vendor;
use gpukill_proto::text::visible;
use std::path::Path;

/// The lists have about a megabyte and a half; what is longer than this is none.
const LIST_MAX: u64 = 8 << 20;

/// The longest name that is kept, in bytes.
const NAME_MAX: usize = 128;

/// The list of AMD's products, which knows what a revision is sold as.
const AMD_PRODUCTS: &str = "usr/share/libdrm/amdgpu.ids";

/// The list of all devices, where distributions have it.
const DEVICES: [&str; 2] = ["usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"];

/// AMD's vendor number; `amdgpu.ids` has no other's products.
const AMD: u16 = 0x1002;

/// What a card is called: as it is sold, or as its chip is called; where no list
/// has it, as its board (amdgpu) or the device tree names it, and else by its maker
/// or driver and its number or place. `host_root` is where the host's files are
/// seen. Reads files of a megabyte: ask once. Wakes no card: none of this is asked
/// of its chip.
pub(crate) fn of(host_root: &Path, card: &Card) -> String {
    let listed = card.pci.as_ref().and_then(|pci| listed(host_root, pci));
    let device = card.device();
    listed
        .or_else(|| board(&device.join("product_name")))
        .or_else(|| compatible(&device.join("of_node/compatible")))
        .unwrap_or_else(|| by_number(card))
}

/// Boards without a name of their own have a blank line.
fn board(file: &Path) -> Option<String> {
    match sysfs::text(file) {
        Reading::Value(name) => Some(name).filter(|name| !name.is_empty()),
        Reading::Unsupported | Reading::Failed(_) | Reading::Stale(..) | Reading::Withheld => None,
    }
}

/// The first of the names in a device tree, which is the most exact:
/// `rockchip,rk3588-mali`. A NUL byte ends each.
fn compatible(file: &Path) -> Option<String> {
    let bytes = read_at_most(file, 4_096).ok()?;
    shown(bytes.split(|byte| *byte == 0).next()?)
}

/// `AMD 1002:744c`, or `panfrost ff9a0000.gpu` of one that is on no PCI bus.
fn by_number(card: &Card) -> String {
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

/// As the lists have it, if one does.
fn listed(host_root: &Path, pci: &Pci) -> Option<String> {
    let product = || {
        let list = (pci.vendor == AMD).then(|| list(host_root, AMD_PRODUCTS))??;
        product(&list, pci.device, pci.revision?)
    };
    let device = |path: &str| device(&list(host_root, path)?, pci.vendor, pci.device);
    product().or_else(|| DEVICES.iter().find_map(|path| device(path)))
}

fn list(host_root: &Path, path: &str) -> Option<Vec<u8>> {
    let bytes = read_at_most(&host_root.join(path), LIST_MAX + 1).ok()?;
    // Half a list would give half a name at its end.
    (bytes.len() as u64 <= LIST_MAX).then_some(bytes)
}

/// Of `744C, C8, AMD Radeon RX 7900 XTX`, with tabs: device, revision, name.
pub(super) fn product(list: &[u8], device: u16, revision: u8) -> Option<String> {
    lines(list).find_map(|line| {
        let mut parts = line.splitn(3, |byte| *byte == b',');
        let (first, second, name) = (parts.next()?, parts.next()?, parts.next()?);
        let here = number(first, 4) == Some(device) && number(second, 2) == Some(revision.into());
        here.then(|| shown(name)).flatten()
    })
}

/// Of a vendor's line and, below it, its devices', each after one tab.
pub(super) fn device(list: &[u8], vendor: u16, device: u16) -> Option<String> {
    let mut lines = lines(list).filter(|line| !line.starts_with(b"#"));
    lines.find(|line| entry(line).is_some_and(|(it, _)| it == vendor))?;
    lines
        // The next line at the margin begins another vendor, or another list.
        .take_while(|line| line.is_empty() || line.starts_with(b"\t"))
        .filter_map(|line| entry(line.strip_prefix(b"\t")?))
        .find(|(number, _)| *number == device)
        .and_then(|(_, name)| shown(name))
}

/// `744c  Navi 31`: four digits, two blanks, a name.
fn entry(line: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, rest) = line.split_at_checked(4)?;
    Some((number(digits, 4)?, rest.strip_prefix(b"  ")?))
}

fn lines(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b'\n')
}

/// A hexadecimal number of at most so many digits, and nothing else.
fn number(text: &[u8], digits: usize) -> Option<u16> {
    let text = text.trim_ascii();
    let plain = (1..=digits).contains(&text.len()) && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| plain)?;
    u16::from_str_radix(text, 16).ok()
}

fn shown(name: &[u8]) -> Option<String> {
    Some(visible(name.trim_ascii(), NAME_MAX)).filter(|name| !name.is_empty())
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

    fn card(vendor: u16, device: u16, revision: Option<u8>) -> Pci {
        Pci {
            slot: "0000:03:00.0".into(),
            vendor,
            device,
            revision,
        }
    }

    #[test]
    fn a_card_is_called_as_it_is_sold_and_else_as_its_chip() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [(AMD_PRODUCTS, PRODUCTS), (DEVICES[1], IDS)] {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        for (vendor, device, revision, called) in [
            (AMD, 0x744c, Some(0xc8), Some("AMD Radeon RX 7900 XTX")),
            (AMD, 0x744c, Some(0xcc), Some("AMD Radeon RX 7900 XT")),
            // Sold as something that no list has yet, or by a nameless line.
            (
                AMD,
                0x744c,
                Some(0x01),
                Some("Navi 31 [Radeon RX 7900 XT/7900 XTX]"),
            ),
            (
                AMD,
                0x744c,
                None,
                Some("Navi 31 [Radeon RX 7900 XT/7900 XTX]"),
            ),
            (AMD, 0x73bf, Some(0xc0), Some("Navi 21 [Radeon RX 6900 XT]")),
            (AMD, 0x73ff, Some(0xc1), Some("AMD \\x1b[31mred")),
            (0x8086, 0x56a0, None, Some("DG2 [Arc A770]")),
            // Another vendor's device has this number.
            (AMD, 0x15bf, None, None),
            (0x8086, 0x744c, Some(0xc8), None),
            (0x10de, 0x744c, None, None),
        ] {
            let found = listed(root.path(), &card(vendor, device, revision));
            assert_eq!(
                found.as_deref(),
                called,
                "{vendor:x}:{device:x} {revision:?}"
            );
        }
        assert_eq!(
            listed(Path::new("/nonexistent"), &card(AMD, 0x744c, None)),
            None
        );
    }

    #[test]
    fn a_card_that_no_list_names_has_the_name_of_its_board_or_place() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("class/drm/card1");
        let device = directory.join("device");
        std::fs::create_dir_all(device.join("of_node")).unwrap();
        let called = |driver: &str, pci: Option<Pci>, board: &str, tree: &str| {
            std::fs::write(device.join("product_name"), board).unwrap();
            std::fs::write(device.join("of_node/compatible"), tree).unwrap();
            let card = Card {
                name: "card1".into(),
                directory: directory.clone(),
                driver: driver.into(),
                pci,
                platform: None,
                nodes: Vec::new(),
            };
            of(root.path(), &card)
        };
        let on_pci = |vendor| Some(card(vendor, 0x744c, None));
        for (driver, pci, board, tree, name) in [
            ("amdgpu", on_pci(AMD), "\n", "", "AMD 1002:744c"),
            ("amdgpu", on_pci(AMD), "Board\x1b\n", "", "Board\\x1b"),
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
    fn a_list_that_is_too_long_to_be_one_is_none() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(DEVICES[0]);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let length = usize::try_from(LIST_MAX).unwrap();
        let mut text = IDS.as_bytes().to_vec();
        text.resize(length, b'\n');
        std::fs::write(&file, &text).unwrap();
        let card = card(0x8086, 0x56a0, None);
        assert_eq!(
            listed(root.path(), &card).as_deref(),
            Some("DG2 [Arc A770]")
        );
        text.push(b'\n');
        std::fs::write(&file, &text).unwrap();
        assert_eq!(listed(root.path(), &card), None);
    }

    proptest! {
        #[test]
        fn a_list_of_any_bytes_gives_a_bounded_name(
            bytes: Vec<u8>, vendor: u16, model: u16, revision: u8,
        ) {
            for name in [product(&bytes, model, revision), device(&bytes, vendor, model)] {
                prop_assert!(name.is_none_or(|name| (1..=NAME_MAX).contains(&name.len())));
            }
        }
    }
}
