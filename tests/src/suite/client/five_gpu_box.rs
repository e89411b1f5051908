//! A box that is the same in every test, five GPUs and simulated processes, so that whole
//! screens can be compared.

use gpukill_tests::harness::{
    Daemon, FakeProcess, FakeProcfs, TestBox, eventually, failed_readings,
};
use serde_json::{Value, json};

/// A uid for which no box has a name.
pub(super) const NAMELESS_UID: u32 = 3_999_999_999;

const GIB: u64 = 1 << 30;

/// Starts the box and waits until nothing about it changes any more.
pub(super) fn start() -> (TestBox, Daemon) {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    for process in processes() {
        procfs.add_process(process);
    }
    test_box.set_driver_state(&gpus(false));
    let daemon = test_box.start_with(
        test_box
            .daemon_command()
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()),
    );
    wait_until_settled(&test_box, "ok");
    test_box.set_driver_state(&gpus(true));
    wait_until_settled(&test_box, "lost");
    (test_box, daemon)
}

/// Waits until names are known, no reading is stale and the last GPU has the state `last`.
fn wait_until_settled(test_box: &TestBox, last: &str) {
    eventually("the box of five", || {
        let list = test_box.list();
        let root = list["procs"][0]["user"] == "root";
        let nameless = list["procs"][3]["reasons"]["user"] == "unsupported";
        let fresh = failed_readings(&list["gpus"][0]) == json!({});
        (root && nameless && fresh && list["gpus"][4]["state"] == last).then_some(())
    });
}

fn processes() -> [FakeProcess<'static>; 4] {
    let train = FakeProcess {
        pid: 48_213,
        name: "python",
        uid: 0,
        start_ticks: 1000,
        cmdline: "python\0train.py\0--model\0llama-70b\0--rank\x000\0",
        cgroup: "0::/user.slice/user-0.slice/session-3.scope\n",
    };
    [
        train,
        FakeProcess {
            pid: 48_214,
            cmdline: "python\0train.py\0--model\0llama-70b\0--rank\x001\0",
            ..train
        },
        FakeProcess {
            pid: 50_001,
            name: "tensorboard",
            cmdline: "tensorboard\0--logdir\0runs\0",
            ..train
        },
        FakeProcess {
            pid: 51_002,
            name: "jupyter-lab",
            uid: NAMELESS_UID,
            cmdline: "jupyter-lab\0--no-browser\0",
            cgroup: "0::/system.slice/docker-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope\n",
            ..train
        },
    ]
}

fn gpus(last_is_lost: bool) -> Value {
    let memory = |used: u64| json!({"total": 80 * GIB, "used": used});
    json!({"driver": "580.65.06", "cuda": 13000, "gpus": [
        {
            "uuid": "GPU-8f3c1111-0000-0000-0000-000000000000", "pci": "00000000:1B:00.0",
            "name": "NVIDIA H100 80GB HBM3", "memory": memory(64 * GIB),
            "utilization": {"gpu": 98}, "temperature": 71, "power_mw": 688_000,
            "processes": [
                {"pid": 48_213, "memory": 40 * GIB, "sm": 50},
                {"pid": 48_214, "memory": 23 * GIB, "sm": 48},
                {"pid": 50_001, "memory": GIB / 2},
            ],
        },
        {
            "uuid": "GPU-8f3c2222-0000-0000-0000-000000000000", "pci": "00000000:43:00.0",
            "name": "NVIDIA H100 80GB HBM3", "memory": memory(49 * GIB),
            "temperature": 41, "power_mw": 120_000, "ecc": {"volatile_uncorrected": 3},
            "processes": [{"pid": 51_002, "memory": 49 * GIB}],
        },
        {
            "uuid": "GPU-12345678-0000-0000-0000-000000000000", "pci": "00000000:52:00.0",
            "name": "NVIDIA H100 80GB HBM3", "memory": memory(35 * GIB), "temperature": 38,
            "power_mw": 98_000,
        },
        {
            "uuid": "GPU-9abc0000-0000-0000-0000-000000000000", "pci": "00000000:61:00.0",
            "name": "NVIDIA GeForce RTX 2080 SUPER", "memory": {"total": 8 * GIB, "used": GIB / 8},
            "temperature": 33, "power_mw": null, "ecc": null,
            "errors": {"nvmlDeviceGetUtilizationRates": 999},
        },
        {
            "uuid": "GPU-def00000-0000-0000-0000-000000000000", "pci": "00000000:9D:00.0",
            "name": "NVIDIA H100 80GB HBM3", "lost": last_is_lost,
        },
    ]})
}
