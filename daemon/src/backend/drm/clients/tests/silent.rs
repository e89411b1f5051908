//! Drivers that tell nothing of who has their cards open.

use super::*;

/// `/dev/null`, which stands for the card's file here.
const FILE: DeviceNumber = DeviceNumber { major: 1, minor: 3 };

/// What the kernel tells of any descriptor.
const PLAIN: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\n";

/// A card of this driver whose node of this name is open as descriptor 3.
fn opened(driver: &str, node: &str, file: &str, text: &str) -> Stage {
    let mut stage = Stage::with(driver, Some(SLOT));
    stage.card.nodes = vec![Node {
        name: node.into(),
        number: FILE,
        shared: false,
    }];
    open(&mut stage, process(7), file, text);
    stage
}

fn open(stage: &mut Stage, key: ProcessKey, file: &str, text: &str) {
    stage.open(key, 3, text);
    stage.found.processes.get_mut(&key).unwrap()[0].number = FILE;
    let link = stage.directory(key.pid).join("fd/3");
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(file, link).unwrap();
}

#[test]
fn who_has_a_card_open_whose_driver_tells_nothing_uses_it_and_no_more_is_known() {
    for driver in ["radeon", "amdgpu", "nouveau"] {
        let mut stage = opened(driver, "renderD128", "/dev/null", PLAIN);
        let expected = Used {
            processes: vec![Client {
                key: process(7),
                sharing: Sharing::NONE,
                host_sharing: Sharing::NONE,
                memory: Reading::Unsupported,
                host_memory: Reading::Unsupported,
                utilization: Utilization::unknown(&Reading::Unsupported),
                used_for: Use::default(),
            }],
            utilization: Reading::Unsupported,
            encoder: Reading::Unsupported,
            decoder: Reading::Unsupported,
            has_own_memory: false,
            sharers: Vec::new(),
            passed: Vec::new(),
            fault: None,
            unseen: None,
        };
        assert_eq!(stage.next(), expected, "{driver}");
        // It is not read again at each poll, and not forgotten either.
        assert_eq!(stage.next(), expected, "{driver}");
        stage.found.processes.clear();
        assert_eq!(stage.next().processes, [], "{driver}");
    }
}

#[test]
fn who_only_shows_pictures_or_has_closed_it_or_tells_of_another_card_is_no_user() {
    let other = "drm-driver:\tradeon\ndrm-client-id:\t1\ndrm-pdev:\t0000:09:00.0\n";
    for (node, file, text) in [
        ("card1", "/dev/null", PLAIN),
        // The number of the descriptor is another file's now.
        ("renderD128", "/dev/zero", PLAIN),
        ("renderD128", "/nonexistent", PLAIN),
        ("renderD128", "/dev/null", other),
        // Its driver tells, if nothing that is understood.
        ("renderD128", "/dev/null", "drm-driver:\t\n"),
    ] {
        let used = opened("radeon", node, file, text).next();
        assert_eq!((used.processes, used.unseen), (vec![], None), "{file}");
    }
}

#[test]
fn where_a_driver_tells_of_one_what_tells_nothing_is_none() {
    let mut stage = opened("amdgpu", "renderD128", "/dev/null", &amdgpu(1, ""));
    open(&mut stage, process(8), "/dev/null", PLAIN);
    let pids = |used: &Used| -> Vec<u32> {
        let processes = used.processes.iter();
        processes.map(|client| client.key.pid).collect()
    };
    assert_eq!(pids(&stage.next()), [7]);
    stage.found.processes.remove(&process(7));
    assert_eq!(pids(&stage.next()), [0; 0]);
}
