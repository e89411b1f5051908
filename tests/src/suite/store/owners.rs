//! Stored records keep the owner that a process had at that time.

use gpukill_tests::harness::{FakeProcess, FakeProcfs, TestBox, eventually};
use serde_json::{Value, json};

#[test]
fn owner_from_label_is_stored_and_selectable() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let id = "a".repeat(64);
    let directory = test_box.path("host/var/lib/docker/containers").join(&id);
    std::fs::create_dir_all(&directory).unwrap();
    let config = json!({"Name": "/train", "Config": {"Labels": {"com.example.user": "alice"}}});
    std::fs::write(directory.join("config.v2.json"), config.to_string()).unwrap();
    for (pid, cgroup) in [
        (1001, format!("0::/system.slice/docker-{id}.scope")),
        (1002, "0::/".into()),
    ] {
        procfs.add_process(FakeProcess {
            pid,
            name: "python",
            uid: 4_000_000,
            start_ticks: 100,
            cmdline: "python\0",
            cgroup: &cgroup,
        });
    }
    test_box.set_driver_state(&json!({"gpus": [{"processes": [
        {"pid": 1001, "memory": 1}, {"pid": 1002, "memory": 2},
    ]}]}));
    let mut daemon = test_box.daemon_command();
    daemon
        .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root())
        .env("GPUKILLD_BACKENDS_HOST_ROOT", test_box.path("host"))
        .env("GPUKILLD_ACCESS_OWNER_LABEL", "com.example.user");
    let daemon = test_box.start_with(&mut daemon);
    let owners = |arguments: &[&str]| {
        eventually("records with owners", || {
            let ran = test_box.ctl(&[&["audit", "--samples", "-o", "json"], arguments].concat());
            let document: Value = serde_json::from_str(&ran.stdout).ok()?;
            let records = document["records"].as_array()?;
            let newest = records.first()?["timestamp"].clone();
            let mut owners: Vec<_> = records
                .iter()
                .filter(|it| it["timestamp"] == newest && it["owner"].is_string())
                .map(|it| json!([it["pid"], it["owner"], it["owner_uid"], it["owner_kind"]]))
                .collect();
            owners.sort_by_key(|owner| owner[0].as_u64());
            (!owners.is_empty()).then_some(owners)
        })
    };
    let labelled = json!([1001, "alice", null, "label"]);
    let plain = json!([1002, "4000000", 4_000_000, "user"]);
    assert_eq!(
        owners(&["--process", "^python$"]),
        [labelled.clone(), plain.clone()]
    );
    assert_eq!(
        owners(&["--user", "alice"]),
        std::slice::from_ref(&labelled)
    );
    // The uid of the process selects it too, as in `list`.
    assert_eq!(owners(&["--user", "4000000"]), [labelled, plain]);
    daemon.stop();
}
