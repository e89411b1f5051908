//! Tests of cards that are GPUs, and of those that are not.

use super::*;

fn card_tree(name: &str, uevent: &str, nodes: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let device = root.path().join("class/drm").join(name).join("device");
    for (node, number) in nodes {
        let directory = device.join("drm").join(node);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("dev"), number).unwrap();
    }
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("uevent"), uevent).unwrap();
    root
}

fn find_cards(uevent: &str, nodes: &[(&str, &str)]) -> Vec<DrmCard> {
    list_all_cards(card_tree("card1", uevent, nodes).path())
}

const AMD: &str = "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:C1:00.0\n";

#[test]
fn card_has_pci_id_and_device_files() {
    let nodes = [("card1", "226:1\n"), ("renderD128", "226:128\n")];
    let card = find_cards(AMD, &nodes).pop().unwrap();
    assert_eq!(card.id(), DeviceId("0000:c1:00.0".into()));
    assert_eq!(card.vendor(), Vendor::Amd);
    let pci = card.pci.unwrap();
    assert_eq!(
        (pci.vendor, pci.device, pci.revision),
        (0x1002, 0x744c, None)
    );
    let numbers: Vec<_> = card
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node.number.major, node.number.minor))
        .collect();
    assert_eq!(numbers, [("card1", 226, 1), ("renderD128", 226, 128)]);
}

#[test]
fn display_only_drivers_are_not_gpus() {
    let render = [("renderD128", "226:128")];
    for (driver, nodes, is_gpu) in [
        ("ast", &[][..], false),
        ("mgag200", &[], false),
        ("simple-framebuffer", &[], false),
        ("virtio_gpu", &render, false),
        ("vgem", &render, false),
        ("nvidia", &render, false),
        ("panfrost", &[], true),
        // An unknown driver.
        ("brandnew", &render, true),
        ("brandnew", &[], false),
    ] {
        let found = find_cards(&format!("DRIVER={driver}\n"), nodes);
        assert_eq!(!found.is_empty(), is_gpu, "{driver} {nodes:?}");
    }
}

#[test]
fn connectors_and_garbage_are_not_cards() {
    for name in ["card0-DP-1", "card", "cardx", "renderD128", "version"] {
        assert_eq!(
            list_all_cards(card_tree(name, AMD, &[]).path()),
            [],
            "{name}"
        );
    }
    for uevent in ["", "DRIVER", "\0\x1b[31m=\n"] {
        assert_eq!(find_cards(uevent, &[]), [], "{uevent:?}");
    }
    // Not a PCI address, so it is ignored.
    let odd = find_cards("DRIVER=amdgpu\nPCI_ID=1002:1\nPCI_SLOT_NAME=../../x\n", &[]);
    assert_eq!(odd[0].pci, None);
    assert_eq!(odd[0].id(), DeviceId("card1".into()));
}

#[test]
fn suspended_card_is_recognized() {
    let root = card_tree("card1", AMD, &[]);
    let power = root.path().join("class/drm/card1/device/power");
    std::fs::create_dir_all(&power).unwrap();
    for (status, sleeps) in [
        ("suspended\n", true),
        ("suspending\n", true),
        ("active\n", false),
        ("unsupported\n", false),
    ] {
        std::fs::write(power.join("runtime_status"), status).unwrap();
        assert_eq!(list_all_cards(root.path())[0].is_suspended(), sleeps);
    }
}

#[test]
fn cards_are_reread_on_change_or_interval() {
    let root = card_tree("card1", AMD, &[("renderD128", "226:128")]);
    let drm = root.path().join("class/drm");
    let mut cards = CardList::new(root.path());
    let start = Instant::now();
    let mut read_cards = |seconds| -> Vec<(String, String)> {
        let now = start + Duration::from_secs(seconds);
        let cards = cards.refresh(|driver| driver != "xe", now).iter();
        cards
            .map(|card| (card.name.clone(), card.driver.clone()))
            .collect()
    };
    let card = |name: &str, driver: &str| (name.to_owned(), driver.to_owned());
    let one = card("card1", "amdgpu");
    assert_eq!(
        [read_cards(0), read_cards(2)],
        [[one.clone()], [one.clone()]]
    );
    // A new card has no files yet.
    let device = drm.join("card2/device");
    std::fs::create_dir_all(&device).unwrap();
    assert_eq!(
        [read_cards(4), read_cards(6)],
        [[one.clone()], [one.clone()]]
    );
    std::fs::write(device.join("uevent"), "DRIVER=i915\n").unwrap();
    let both = [one, card("card2", "i915")];
    assert_eq!(
        [read_cards(8), read_cards(10)],
        [both.clone(), both.clone()]
    );
    // A change without removal is noticed as well.
    std::fs::write(device.join("uevent"), "DRIVER=xe\n").unwrap();
    assert_eq!(read_cards(25), both);
    assert_eq!(read_cards(26), both[..1]);
    std::fs::rename(drm.join("card1"), drm.join("gone")).unwrap();
    assert_eq!(read_cards(28), []);
}
