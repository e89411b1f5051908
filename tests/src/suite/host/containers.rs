//! Containers as cgroups name them, in a simulated `/proc`.

use gpukill_tests::harness::{FakeProcess, FakeProcfs, TestBox, eventually_equals, skip};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const A: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const B: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

/// For each cgroup text the container (runtime and short id), and its full id or the reason
/// why it is unknown.
fn containers(cgroups: &[String]) -> (TestBox, Vec<Value>) {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let pids = 1000..;
    let mut processes = Vec::new();
    for (pid, cgroup) in pids.zip(cgroups) {
        procfs.add_process(FakeProcess {
            pid,
            name: "python",
            uid: 1,
            start_ticks: 100,
            cmdline: "python\0",
            cgroup,
        });
        processes.push(json!({"pid": pid, "memory": 1 << 20}));
    }
    test_box.set_driver_state(&json!({"gpus": [{"processes": processes}]}));
    let daemon = test_box.start_with(
        test_box
            .daemon_command()
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()),
    );
    let procs = || test_box.list()["procs"].as_array().unwrap().clone();
    eventually_equals(&cgroups.len(), || procs().len());
    let found = procs()
        .into_iter()
        .map(|process| match process["reasons"]["container"].as_str() {
            None => json!([process["container"], process["container_id"]]),
            Some(reason) => json!([process["container"], reason]),
        })
        .collect();
    assert_eq!(test_box.ctl(&["list", "--details", "--containers"]).code, 0);
    daemon.stop();
    (test_box, found)
}

#[test]
fn runtimes_are_recognized_by_cgroup() {
    let short_a = &A[..12];
    let short_b = &B[..12];
    let a = |runtime: &str| json!([format!("{runtime}/{short_a}"), A]);
    let b = |runtime: &str| json!([format!("{runtime}/{short_b}"), B]);
    let host = json!([null, null]);
    let cases = [
        (format!("0::/system.slice/docker-{A}.scope\n"), a("docker")),
        (
            format!("12:memory:/docker/{A}\n1:name=systemd:/docker/{A}\n"),
            a("docker"),
        ),
        // Root inside a container chooses the name of the next one freely.
        (format!("0::/docker/{A}/docker/{B}\n"), a("docker")),
        (
            format!("0::/system.slice/hub.service/docker-{A}.scope\n"),
            host.clone(),
        ),
        (format!("4:memory:/user/bob/0/docker/{A}\n"), host.clone()),
        (
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{A}.scope\n"),
            a("containerd"),
        ),
        (
            format!("0::/kubepods.slice/kubepods-pod1.slice/crio-{B}.scope\n"),
            b("cri-o"),
        ),
        (
            format!("11:cpuset:/kubepods/besteffort/pod1/{A}\n"),
            a("kubernetes"),
        ),
        (
            format!(
                "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope/container\n"
            ),
            a("podman"),
        ),
        (
            format!("0::/machine.slice/libpod-conmon-{A}.scope\n"),
            host.clone(),
        ),
        (
            "0::/lxc.payload.web01/init.scope\n".into(),
            json!(["lxc/web01", "web01"]),
        ),
        (
            "0::/machine.slice/machine-deb\\x2d12.scope/payload\n".into(),
            json!(["systemd-nspawn/deb-12", "deb-12"]),
        ),
        (
            "0::/user.slice/user-1000.slice/session-3.scope\n".into(),
            host.clone(),
        ),
        (
            "0::/system.slice/slurmstepd.scope/job_1/step_0/user/task_0\n".into(),
            host.clone(),
        ),
        (String::new(), host),
        // A path outside of this namespace is unknown, which is not the same as no
        // container.
        (
            "0::/../../x\n".into(),
            json!([null, "failed: its cgroup is not visible to gpukilld"]),
        ),
        (
            "\u{1b}[31mgarbage".into(),
            json!([null, "failed: unreadable cgroup"]),
        ),
    ];
    let (texts, expected): (Vec<String>, Vec<Value>) = cases.into_iter().unzip();
    assert_eq!(containers(&texts).1, expected);
}

/// The directory of cgroup files recorded on real boxes: `GPUKILL_CAPTURES`, or beside the
/// workspace.
fn recordings_directory() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let named = std::env::var_os("GPUKILL_CAPTURES").map_or(beside, PathBuf::from);
    Some(named.join("cgroup")).filter(|directory| directory.is_dir())
}

#[test]
fn recorded_cgroups_name_their_container() {
    let Some(directory) = recordings_directory() else {
        return skip("no recordings here; GPUKILL_CAPTURES names their directory");
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let texts: Vec<String> = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    for ((file, text), found) in files.iter().zip(&texts).zip(containers(&texts).1) {
        assert_eq!(found[1], json!(first_id(text)), "{}", file.display());
    }
}

/// The first 64 hexadecimal digits in a row on the first line: the id of the outermost
/// container, whatever its runtime. Root in that container names the inner ones.
fn first_id(text: &str) -> Option<&str> {
    let mut words = text.lines().next()?.split(|c: char| !c.is_ascii_hexdigit());
    words.find(|word| word.len() == 64)
}

#[test]
fn fake_procfs_can_hold_real_processes() {
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    let process = gpukill_tests::harness::TestProcess::start("python");
    procfs.link_real_process(process.pid());
    test_box.set_driver_state(&json!({"gpus": [{"processes": [{"pid": process.pid()}]}]}));
    let daemon = test_box.start_with(
        test_box
            .daemon_command()
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root()),
    );
    eventually_equals(&json!("python 1000"), || {
        test_box.list()["procs"][0]["command"].clone()
    });
    daemon.stop();
}
