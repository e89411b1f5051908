//! `cargo run -p gpukill-tests --example screenshots -- DIRECTORY`: draws each page of a simulated host
//! in both themes and three widths, with the Chromium of this machine.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a tool of the tests"
)]

use gpukill_tests::harness::{Browser, FakeProcess, FakeProcfs, Gateway, TestBox, eventually};
use serde_json::{Value, json};
use std::path::PathBuf;

const GIB: u64 = 1 << 30;

/// The processes of the host: pid, uid, GPU, memory in GiB, share of the GPU, cgroup and command line.
/// The uids are those of users that every Linux has.
const PROCESSES: &[(u32, u32, usize, u64, u64, &str, &str)] = &[
    (
        48_213,
        1,
        0,
        62,
        97,
        "/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0",
        "python\0train.py\0--model\0llama-70b\0",
    ),
    (
        48_214,
        1,
        1,
        62,
        98,
        "/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0",
        "python\0train.py\0--model\0llama-70b\0",
    ),
    (
        49_100,
        2,
        4,
        69,
        24,
        "/system.slice/vllm.service",
        "vllm\0serve\0meta-llama/Llama-3-8B\0--port\08000\0",
    ),
    (
        51_002,
        3,
        5,
        48,
        0,
        "/user.slice/user-3.slice/session-3.scope",
        "python\0-m\0ipykernel_launcher\0-f\0kernel-9a.json\0",
    ),
    (
        52_001,
        4,
        2,
        12,
        40,
        "/user.slice/user-4.slice/session-5.scope",
        "python\0evaluate.py\0",
    ),
    (
        52_002,
        5,
        2,
        8,
        20,
        "/user.slice/user-5.slice/session-6.scope",
        "<b>bold</b>\0\u{5e9}\u{5dc}\u{5d5}\u{5dd}\0&amp;\0",
    ),
    (
        52_003,
        6,
        2,
        4,
        10,
        "/user.slice/user-6.slice/session-7.scope",
        "a-program-with-a-very-long-name-that-does-not-end-before-the-line-does\0--with\0many-arguments\0",
    ),
];

fn main() {
    let directory = std::env::args().nth(1).map(PathBuf::from);
    let directory = directory.unwrap_or_else(|| PathBuf::from("target/screenshots"));
    std::fs::create_dir_all(&directory).unwrap();
    let Some(mut browser) = Browser::start() else {
        println!("there is no Chromium on this machine: set CHROMIUM to its path");
        return;
    };
    for (host, gpus) in [("host", 8), ("one", 1), ("many", 64)] {
        draw_host(&mut browser, &directory.join(host), gpus);
    }
    println!("{}", directory.display());
}

/// Draws the pages of a host with this number of GPUs.
fn draw_host(browser: &mut Browser, directory: &std::path::Path, gpus: usize) {
    std::fs::create_dir_all(directory).unwrap();
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    for (pid, uid, gpu, _, _, cgroup, cmdline) in PROCESSES {
        if *gpu < gpus {
            procfs.add_process(FakeProcess {
                pid: *pid,
                name: cmdline.split(['\0', '-']).next().unwrap_or_default(),
                uid: *uid,
                start_ticks: 100,
                cmdline,
                cgroup: &format!("0::{cgroup}\n"),
            });
        }
    }
    test_box.set_driver_state(&driver_state(gpus));
    let mut command = test_box.daemon_command();
    command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let _daemon = test_box.start_with(&mut command);
    let gateway = Gateway::start(&test_box, "");
    let pages: &[(&str, &str)] = &[
        ("overview", "/"),
        ("gpu", "/gpu/0"),
        ("process", "/process/48213"),
        ("person", "/person/daemon"),
        ("history", "/history?range=1h"),
        ("guard", "/guard"),
        ("rogue", "/rogue"),
        ("actions", "/actions"),
        ("status", "/status"),
    ];
    for (name, path) in pages {
        for theme in ["light", "dark"] {
            for (width, height) in [(360, 1600), (1280, 1600), (2560, 1440)] {
                browser.set_screen((width, height), theme);
                browser.load(&format!("http://{}{path}", gateway.address()));
                eventually("the page is whole", || {
                    let late = "document.getElementById('live').className !== 'live on' || \
                                document.querySelector('main .busy') !== null";
                    (browser.evaluate(late) == false).then_some(())
                });
                let file = directory.join(format!("{name}-{theme}-{width}.png"));
                browser.save_screenshot(&file);
            }
        }
    }
}

/// What the driver reports: GPU 6 keeps memory that no process explains, GPU 7 is divided, and from
/// 32 GPUs on there are as many as a map needs.
fn driver_state(count: usize) -> Value {
    let gpus = (0..count).map(|index| {
        let processes = PROCESSES.iter().filter(|it| it.2 == index);
        let listed: Vec<Value> = processes
            .clone()
            .map(|(pid, _, _, gib, share, ..)| {
                json!({ "pid": pid, "memory": gib * GIB, "sm": share })
            })
            .collect();
        let held: u64 = processes.clone().map(|it| it.3 * GIB).sum();
        let busy: u64 = processes.map(|it| it.4).sum::<u64>().min(100);
        let (busy, held) = match index {
            6 => (0, 35 * GIB),
            0..=7 => (busy, held + GIB / 2),
            _ => ((index as u64 * 37) % 101, (index as u64 * 13) % 80 * GIB),
        };
        let mut gpu = json!({
            "name": "NVIDIA H100 80GB HBM3",
            "memory": { "total": 80 * GIB, "reserved": GIB / 2, "used": held },
            "utilization": { "gpu": busy, "memory": busy / 2 },
            "temperature": 34 + busy * 2 / 5,
            "power_mw": 72_000 + busy * 6_000,
            "power_limit_mw": 700_000,
            "processes": listed,
        });
        if index == 7 {
            gpu["mig"] = true.into();
            gpu["instances"] = json!([
                { "gpu_instance": 1, "compute_instance": 0 },
                { "gpu_instance": 2, "compute_instance": 0 },
            ]);
        }
        gpu
    });
    json!({ "driver": "580.65.06", "cuda": 13_000, "gpus": gpus.collect::<Vec<_>>() })
}
