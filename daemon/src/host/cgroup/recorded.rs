//! Tests with cgroup files recorded on real hosts, where the recordings are available.

use super::*;
use crate::procfs::recordings;

#[test]
fn recorded_cgroups_are_recognized() {
    let Some(directory) = recordings("cgroup") else {
        return;
    };
    let expected = [
        ("v1-docker-cgroupfs", "docker 31cb02944da7", None),
        // The outer container: root in it names the inner one, `ec08435e0426`.
        ("v1-docker-in-docker", "docker a9a5ad238e59", None),
        ("v1-docker-systemd", "docker 9ec39b91f3d7", None),
        (
            "v1-kubepods-cgroupfs",
            "kubernetes cb1eadb7abe3",
            Some("74ba62da-1a3d-11e7-bb11-080027cb0e22"),
        ),
        (
            "v1-kubepods-nested-child",
            "kubernetes c04e0a88a1de",
            Some("f8a694f2-7c08-11e9-98da-000c29077430"),
        ),
        (
            "v1-kubepods-systemd-containerd",
            "containerd f45298cd514d",
            Some("dd1bf9d1-241d-47f5-8e25-12de83135812"),
        ),
        (
            "v1-kubepods-systemd-docker",
            "docker b5b6f2da8008",
            Some("045b1e35-7f13-11e7-ac42-0050568ffca0"),
        ),
    ];
    for (file, container, pod) in expected {
        let text = std::fs::read_to_string(directory.join(file).with_extension("txt")).unwrap();
        let group = CgroupLocation::parse(&text, CgroupView::Whole, None);
        let found = group.container.known().unwrap().as_ref().unwrap();
        let short = format!("{} {}", found.id.runtime, &found.id.id[..12]);
        assert_eq!(
            (short.as_str(), found.pod.as_deref()),
            (container, pod),
            "{file}"
        );
    }
    let host = std::fs::read_to_string(directory.join("v1-host-root.txt")).unwrap();
    let nowhere = CgroupLocation {
        container: Reading::Value(None),
        unit: Reading::Value(None),
        session: Reading::Value(None),
        scheduler: Reading::Value(None),
        slice: None,
    };
    assert_eq!(
        CgroupLocation::parse(&host, CgroupView::Whole, None),
        nowhere
    );
}
