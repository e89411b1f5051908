//! Tests of drivers that report nothing on the holders of their cards.

use super::*;

/// `/dev/null`, in place of the card's file.
const FILE: DeviceNumber = DeviceNumber { major: 1, minor: 3 };

/// The kernel's report on any descriptor.
const PLAIN: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\n";

/// A card of this driver with its only node of this name open as descriptor 3.
fn fixture_with_open_node(driver: &str, node: &str, file: &str, text: &str) -> ClientFixture {
    let mut fixture = ClientFixture::with_driver(driver, Some(SLOT));
    fixture.card.nodes = vec![DeviceNode {
        name: node.into(),
        number: FILE,
        shared: false,
    }];
    open_node(&mut fixture, process(7), file, text);
    fixture
}

fn open_node(fixture: &mut ClientFixture, key: ProcessKey, file: &str, text: &str) {
    fixture.open(key, 3, text);
    fixture.found.processes.get_mut(&key).unwrap()[0].number = FILE;
    let link = fixture.directory(key.pid).join("fd/3");
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(file, link).unwrap();
}

#[test]
fn holder_without_report_is_a_user() {
    for driver in ["radeon", "amdgpu", "nouveau"] {
        let mut fixture = fixture_with_open_node(driver, "renderD128", "/dev/null", PLAIN);
        let expected = CardUsage {
            processes: vec![ProcessUsage {
                key: process(7),
                sharing: Sharing::NONE,
                host_sharing: Sharing::NONE,
                memory: Reading::Unsupported,
                host_memory: Reading::Unsupported,
                utilization: Utilization::unknown(&Reading::Unsupported),
                used_for: GpuUse::default(),
            }],
            utilization: Reading::Unsupported,
            encoder: Reading::Unsupported,
            decoder: Reading::Unsupported,
            has_own_memory: false,
            shared_clients: Vec::new(),
            passed_clients: Vec::new(),
            fault: None,
            incomplete_reason: None,
        };
        assert_eq!(fixture.poll_next_second(), expected, "{driver}");
        // It is not read again at each poll, and not forgotten either.
        assert_eq!(fixture.poll_next_second(), expected, "{driver}");
        fixture.found.processes.clear();
        assert_eq!(fixture.poll_next_second().processes, [], "{driver}");
    }
}

#[test]
fn display_or_closed_holder_is_no_user() {
    let other = "drm-driver:\tradeon\ndrm-client-id:\t1\ndrm-pdev:\t0000:09:00.0\n";
    for (node, file, text) in [
        ("card1", "/dev/null", PLAIN),
        // The descriptor number now belongs to another file.
        ("renderD128", "/dev/zero", PLAIN),
        ("renderD128", "/nonexistent", PLAIN),
        ("renderD128", "/dev/null", other),
        // Its driver reports clients, even if this report is not understood.
        ("renderD128", "/dev/null", "drm-driver:\t\n"),
    ] {
        let used = fixture_with_open_node("radeon", node, file, text).poll_next_second();
        assert_eq!(
            (used.processes, used.incomplete_reason),
            (vec![], None),
            "{file}"
        );
    }
}

#[test]
fn reporting_driver_needs_a_report() {
    let mut fixture = fixture_with_open_node("amdgpu", "renderD128", "/dev/null", &amdgpu(1, ""));
    open_node(&mut fixture, process(8), "/dev/null", PLAIN);
    let pids = |used: &CardUsage| -> Vec<u32> {
        let processes = used.processes.iter();
        processes.map(|client| client.key.pid).collect()
    };
    assert_eq!(pids(&fixture.poll_next_second()), [7]);
    fixture.found.processes.remove(&process(7));
    assert_eq!(pids(&fixture.poll_next_second()), [0; 0]);
}
