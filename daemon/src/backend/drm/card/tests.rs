//! Cards that are GPUs, and those that are not.

use super::*;

/// A card with this driver in a tree of its own.
fn tree(name: &str, uevent: &str, nodes: &[(&str, &str)]) -> tempfile::TempDir {
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

fn found(uevent: &str, nodes: &[(&str, &str)]) -> Vec<Card> {
    cards(tree("card1", uevent, nodes).path())
}

const AMD: &str = "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:C1:00.0\n";

#[test]
fn a_card_is_known_by_its_pci_address_and_has_its_device_files() {
    let nodes = [("card1", "226:1\n"), ("renderD128", "226:128\n")];
    let card = found(AMD, &nodes).pop().unwrap();
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
fn what_only_shows_pictures_is_no_gpu() {
    let render = [("renderD128", "226:128")];
    for (driver, nodes, is_gpu) in [
        ("ast", &[][..], false),
        ("mgag200", &[], false),
        ("simple-framebuffer", &[], false),
        ("virtio_gpu", &render, false),
        ("vgem", &render, false),
        ("nvidia", &render, false),
        ("panfrost", &[], true),
        // Nobody has heard of it.
        ("brandnew", &render, true),
        ("brandnew", &[], false),
    ] {
        let found = found(&format!("DRIVER={driver}\n"), nodes);
        assert_eq!(!found.is_empty(), is_gpu, "{driver} {nodes:?}");
    }
}

#[test]
fn connectors_and_nonsense_are_no_cards() {
    for name in ["card0-DP-1", "card", "cardx", "renderD128", "version"] {
        assert_eq!(cards(tree(name, AMD, &[]).path()), [], "{name}");
    }
    for uevent in ["", "DRIVER", "\0\x1b[31m=\n"] {
        assert_eq!(found(uevent, &[]), [], "{uevent:?}");
    }
    // Not a PCI address: nothing is made of it.
    let odd = found("DRIVER=amdgpu\nPCI_ID=1002:1\nPCI_SLOT_NAME=../../x\n", &[]);
    assert_eq!(odd[0].pci, None);
    assert_eq!(odd[0].id(), DeviceId("card1".into()));
}

#[test]
fn a_card_that_sleeps_says_so() {
    let root = tree("card1", AMD, &[]);
    let power = root.path().join("class/drm/card1/device/power");
    std::fs::create_dir_all(&power).unwrap();
    for (status, sleeps) in [("suspended\n", true), ("active\n", false)] {
        std::fs::write(power.join("runtime_status"), status).unwrap();
        assert_eq!(cards(root.path())[0].is_suspended(), sleeps);
    }
}
