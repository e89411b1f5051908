//! Names, images, pods and owners of containers, from the files of their runtimes below a
//! simulated root.

use super::{gpu_with_processes, row_when, select_fields};
use gpukill_tests::harness::{
    Daemon, FakeProcess, FakeProcfs, NOBODY_UID, TestBox, can_run_as_other_users,
    eventually_equals, skip,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

const POD: &str = "74ba62da-1a3d-11e7-bb11-080027cb0e22";

/// A box with simulated processes in simulated containers.
struct ContainerBox {
    test_box: TestBox,
    procfs: FakeProcfs,
}

impl ContainerBox {
    fn new() -> Self {
        let test_box = TestBox::new();
        let procfs = FakeProcfs::new(test_box.path("proc"));
        std::fs::create_dir(test_box.path("host")).unwrap();
        Self { test_box, procfs }
    }

    /// Writes a file below the root of the host.
    fn write(&self, file: &str, text: &str) {
        let path = self.path(file);
        std::fs::write(path.with_extension("new"), text).unwrap();
        std::fs::rename(path.with_extension("new"), path).unwrap();
    }

    fn path(&self, file: &str) -> PathBuf {
        let path = self.test_box.path("host").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn add_process(&self, pid: u32, uid: u32, cgroup: &str) {
        self.procfs.add_process(FakeProcess {
            pid,
            name: "python",
            uid,
            start_ticks: 100,
            cmdline: "python\0",
            cgroup,
        });
    }

    fn start(&self) -> Daemon {
        let mut daemon = self.test_box.daemon_command();
        daemon
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root())
            .env("GPUKILLD_BACKENDS_HOST_ROOT", self.test_box.path("host"))
            .env("GPUKILLD_ACCESS_OWNER_LABEL", "com.example.user");
        self.test_box.start_with(&mut daemon)
    }

    /// Waits until the container of a process was looked up, and returns its row.
    fn row(&self, pid: u32) -> Value {
        row_when(&self.test_box, pid, |row| {
            let reason = row["reasons"]["container_name"].as_str();
            reason != Some("failed: not read yet") && row["owner"].is_string()
        })
    }
}

fn container_id(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn docker_config_file(id: &str) -> String {
    format!("var/lib/docker/containers/{id}/config.v2.json")
}

#[test]
fn runtime_files_name_container_image_and_pod() {
    let host = ContainerBox::new();
    let oci = |text: Value| json!({"ociVersion": "1.1.0", "annotations": text}).to_string();
    let task = "io.containerd.runtime.v2.task";
    let storage = "containers/storage/overlay-containers";
    let in_pod = format!("kubepods.slice/kubepods-pod{}.slice", POD.replace('-', "_"));
    let cri = oci(json!({
        "io.kubernetes.cri.container-name": "trainer",
        "io.kubernetes.cri.image-name": "pytorch:2",
        "io.kubernetes.cri.sandbox-name": "train-0",
        "io.kubernetes.cri.sandbox-namespace": "team",
    }));
    let crio = oci(json!({
        "io.kubernetes.container.name": "trainer",
        "io.kubernetes.cri-o.ImageName": "pytorch:2",
        "io.kubernetes.pod.name": "train-0",
        "io.kubernetes.pod.namespace": "team",
    }));
    let docker_file = json!({"Name": "/train", "Config": {"Image": "pytorch:2"}}).to_string();
    let list = |id: &str| {
        let metadata = json!({"image-name": "pytorch:2", "name": "train"}).to_string();
        json!([{"id": id, "names": ["train"], "metadata": metadata}]).to_string()
    };
    let cases = [
        (
            format!("0::/system.slice/docker-{}.scope\n", container_id('1')),
            docker_config_file(&container_id('1')),
            docker_file,
            json!(["train", "pytorch:2", "docker", null, null, null]),
        ),
        (
            format!("0::/{in_pod}/cri-containerd-{}.scope\n", container_id('2')),
            format!(
                "run/containerd/{task}/k8s.io/{}/config.json",
                container_id('2')
            ),
            cri.clone(),
            json!(["trainer", "pytorch:2", "containerd", "train-0", "team", POD]),
        ),
        (
            format!(
                "4:memory:/kubepods/burstable/pod{POD}/{}\n",
                container_id('3')
            ),
            format!(
                "run/k3s/containerd/{task}/k8s.io/{}/config.json",
                container_id('3')
            ),
            cri,
            json!(["trainer", "pytorch:2", "kubernetes", "train-0", "team", POD]),
        ),
        (
            format!("0::/{in_pod}/crio-{}.scope\n", container_id('4')),
            format!("run/{storage}/{}/userdata/config.json", container_id('4')),
            crio,
            json!(["trainer", "pytorch:2", "cri-o", "train-0", "team", POD]),
        ),
        (
            format!(
                "0::/machine.slice/libpod-{}.scope/container\n",
                container_id('5')
            ),
            format!("var/lib/{storage}/containers.json"),
            list(&container_id('5')),
            json!(["train", "pytorch:2", "podman", null, null, null]),
        ),
        (
            format!("0::/system.slice/nerdctl-{}.scope\n", container_id('6')),
            format!(
                "run/containerd/{task}/default/{}/config.json",
                container_id('6')
            ),
            oci(json!({"nerdctl/name": "train"})),
            json!(["train", null, "containerd", null, null, null]),
        ),
        (
            "0::/lxc.payload.web01\n".into(),
            "unused".into(),
            String::new(),
            json!(["web01", null, "lxc", null, null, null]),
        ),
        (
            format!("0::/system.slice/docker-{}.scope\n", container_id('7')),
            "unused".into(),
            String::new(),
            json!([null, null, "docker", null, null, null]),
        ),
    ];
    let pids: Vec<u32> = (1001..).take(cases.len()).collect();
    for (pid, (cgroup, file, text, _)) in pids.iter().zip(&cases) {
        host.add_process(*pid, 1, cgroup);
        host.write(file, text);
    }
    host.test_box.set_driver_state(&gpu_with_processes(&pids));
    let daemon = host.start();
    let names = [
        "container_name",
        "container_image",
        "container_runtime",
        "pod",
        "pod_namespace",
        "pod_uid",
    ];
    for (pid, (cgroup, _, _, expected)) in pids.iter().zip(cases) {
        let row = host.row(*pid);
        let found: Value = names.iter().map(|name| row[*name].clone()).collect();
        assert_eq!(found, expected, "{cgroup}");
    }
    let nameless = host.row(*pids.last().unwrap());
    let reason = &nameless["reasons"]["container_name"];
    assert_eq!(reason, "failed: no file of its runtime names it");
    assert_eq!(nameless["job_kind"], "container");
    assert_eq!(host.test_box.faults(), []);
    daemon.stop();
}

#[test]
fn container_owner_is_label_or_container() {
    let host = ContainerBox::new();
    let labelled = |person: &str| {
        json!({"Name": "/train", "Config": {"Labels": {"com.example.user": person}}}).to_string()
    };
    host.write(&docker_config_file(&container_id('1')), &labelled("alice"));
    host.write(
        &docker_config_file(&container_id('2')),
        &json!({"Name": "/web"}).to_string(),
    );
    host.write(
        &docker_config_file(&container_id('3')),
        &labelled(" \u{1b}[2J\u{202e}bob "),
    );
    let cgroup = |digit| format!("0::/system.slice/docker-{}.scope\n", container_id(digit));
    host.add_process(1001, 0, &cgroup('1'));
    host.add_process(1002, 0, &cgroup('2'));
    host.add_process(1003, 4242, &cgroup('2'));
    host.add_process(1004, 4242, &cgroup('1'));
    host.add_process(1005, 0, &cgroup('3'));
    host.add_process(1006, 0, "0::/\n");
    // A user with a systemd of their own can name a cgroup after a container of the box:
    // such a name proves nothing, least of all an owner.
    let forged = format!(
        "0::/user.slice/user-4242.slice/user@4242.service/docker-{}.scope\n",
        container_id('1')
    );
    host.add_process(1007, 4242, &forged);
    let nested = format!(
        "0::/docker/{}/docker/{}\n",
        container_id('2'),
        container_id('1')
    );
    host.add_process(1008, 0, &nested);
    let pids: Vec<u32> = (1001..=1008).collect();
    host.test_box.set_driver_state(&gpu_with_processes(&pids));
    let daemon = host.start();
    let root = super::user_name(0);
    let cases = [
        (1001, json!(["alice", null, "label"])),
        (1002, json!(["container web", null, "container"])),
        // Uid 4242 comes from the image and is no user of this box.
        (1003, json!(["container web", null, "container"])),
        (1004, json!(["alice", null, "label"])),
        (1005, json!(["\\x1b[2J\\u{202e}bob", null, "label"])),
        (1006, json!([root, 0, "user"])),
        (1007, json!(["4242", 4242, "user"])),
        (1008, json!(["container web", null, "container"])),
    ];
    for (pid, expected) in cases {
        let found = || {
            let row = host.row(pid);
            json!([row["owner"], row["owner_uid"], row["owner_kind"]])
        };
        eventually_equals(&expected, found);
    }
    // Both the owner and the uid select a process.
    let chosen = |user: &str| {
        let list = host.test_box.json(&["list", "-o", "json", "--user", user]);
        let procs = list["procs"].as_array().unwrap().clone();
        procs
            .iter()
            .map(|row| row["pid"].clone())
            .collect::<Value>()
    };
    assert_eq!(chosen("alice"), json!([1001, 1004]));
    assert_eq!(chosen("4242"), json!([1003, 1004, 1007]));
    assert_eq!(chosen("container web"), json!([1002, 1003, 1008]));
    assert_eq!(host.row(1003)["uid"], 4242);
    // A container with the same id in a user's own cgroup is a different container, and a
    // different job.
    let job = |pid| host.row(pid)["job_id"].clone();
    let hash = container_id('1');
    assert_eq!(job(1001), format!("docker/{hash}"));
    assert_eq!(job(1007), format!("user 4242, docker/{hash}"));
    assert_eq!(job(1008), job(1002));
    daemon.stop();
}

#[test]
fn hostile_runtime_files_are_refused() {
    let host = ContainerBox::new();
    let cgroup = |digit| format!("0::/system.slice/docker-{}.scope\n", container_id(digit));
    host.write(&docker_config_file(&container_id('1')), "{\"Name\": \"/x\"");
    let huge = format!("{{\"Name\": \"/x\", \"pad\": \"{}\"}}", "x".repeat(2 << 20));
    host.write(&docker_config_file(&container_id('2')), &huge);
    let fifo = host.path(&docker_config_file(&container_id('3')));
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    host.write("secret.json", "{\"Name\": \"/secret\"}");
    let link = host.path(&docker_config_file(&container_id('4')));
    std::os::unix::fs::symlink(host.path("secret.json"), link).unwrap();
    let deep = "[".repeat(100_000);
    host.write(&docker_config_file(&container_id('5')), &deep);
    let long = json!({"Name": "\u{1b}[31m".repeat(1000)}).to_string();
    host.write(&docker_config_file(&container_id('6')), &long);
    host.write(
        &docker_config_file(&container_id('7')),
        &json!({"Name": "/well"}).to_string(),
    );
    let pids: Vec<u32> = (1001..=1007).collect();
    for (pid, digit) in pids.iter().zip("1234567".chars()) {
        host.add_process(*pid, 0, &cgroup(digit));
    }
    host.test_box.set_driver_state(&gpu_with_processes(&pids));
    let daemon = host.start();
    let cases = [
        (1001, "failed: the runtime's file is malformed in line 1"),
        (1002, "failed: config.v2.json is longer than 1 MiB"),
        (1003, "failed: config.v2.json is not a regular file"),
        (1004, "failed: its path contains a link"),
        (1005, "failed: the runtime's file is malformed in line 1"),
    ];
    for (pid, reason) in cases {
        let row = host.row(pid);
        assert_eq!(row["reasons"]["container_name"], reason);
        let digit = (pid - 1000).to_string();
        assert_eq!(row["owner"], format!("container {}", digit.repeat(12)));
    }
    let long = host.row(1006)["container_name"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(long.len() <= 128 && long.starts_with("\\x1b[31m"), "{long}");
    assert_eq!(host.row(1007)["container_name"], "well");
    assert_eq!(host.test_box.faults(), []);
    daemon.stop();
}

#[test]
fn container_with_same_id_is_looked_up_again() {
    let host = ContainerBox::new();
    let cgroup = format!("0::/system.slice/docker-{}.scope\n", container_id('1'));
    host.add_process(1001, 0, &cgroup);
    host.write(
        &docker_config_file(&container_id('1')),
        &json!({"Name": "/before"}).to_string(),
    );
    host.test_box.set_driver_state(&gpu_with_processes(&[1001]));
    let daemon = host.start();
    assert_eq!(host.row(1001)["owner"], "container before");
    host.test_box.set_driver_state(&gpu_with_processes(&[]));
    eventually_equals(&0, || {
        host.test_box.list()["procs"].as_array().unwrap().len()
    });
    host.write(
        &docker_config_file(&container_id('1')),
        &json!({"Name": "/after"}).to_string(),
    );
    host.test_box.set_driver_state(&gpu_with_processes(&[1001]));
    row_when(&host.test_box, 1001, |row| {
        row["owner"] == "container after"
    });
    daemon.stop();
}

#[test]
fn rootless_container_is_named_by_its_owners_files() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(home) = home_directory(NOBODY_UID) else {
        return skip("user nobody has no home directory here");
    };
    let host = ContainerBox::new();
    let storage = ".local/share/containers/storage/overlay-containers";
    let file = |digit: char| {
        let home = home.trim_start_matches('/');
        let list = json!([{"id": container_id(digit), "names": ["mine"]}]).to_string();
        host.write(&format!("{home}/{storage}/containers.json"), &list);
        host.path(&format!("{home}/{storage}/containers.json"))
    };
    let cgroup = |digit| {
        let scope = format!("libpod-{}.scope", container_id(digit));
        let user = format!("user.slice/user-{NOBODY_UID}.slice/user@{NOBODY_UID}.service");
        format!("0::/{user}/user.slice/{scope}\n")
    };
    // A file of root in the directory of the user is ignored: it may be the target of a
    // link.
    file('1');
    host.add_process(1001, NOBODY_UID, &cgroup('1'));
    host.test_box.set_driver_state(&gpu_with_processes(&[1001]));
    let daemon = host.start();
    let row = host.row(1001);
    assert_eq!(
        row["reasons"]["container_name"],
        "failed: containers.json belongs to another user"
    );
    let theirs = file('2');
    std::os::unix::fs::chown(theirs, Some(NOBODY_UID), None).unwrap();
    host.add_process(1002, NOBODY_UID, &cgroup('2'));
    host.test_box.set_driver_state(&gpu_with_processes(&[1002]));
    let row = row_when(&host.test_box, 1002, |row| row["container_name"] == "mine");
    let found = select_fields(
        &row,
        &["container_runtime", "unit_manager_uid", "owner_uid"],
    );
    let expected = json!({
        "container_runtime": "podman",
        "unit_manager_uid": NOBODY_UID,
        "owner_uid": NOBODY_UID,
    });
    assert_eq!(found, expected);
    daemon.stop();
}

/// The home directory of a user, from the name service.
fn home_directory(uid: u32) -> Option<String> {
    let output = Command::new("getent")
        .args(["passwd", &uid.to_string()])
        .output()
        .ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    Some(line.split(':').nth(5)?.to_owned())
}
