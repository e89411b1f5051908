//! The last step of a reset, over the real socket unit.

use super::{InstalledBox, STAND_IN};
use gpukill_tests::harness::{FakeProcess, FakeProcfs, eventually, eventually_equals};
use serde_json::json;

const ADDRESS: &str = "0000:1b:00.0";
const SOCKET: &str = "/run/gpukill-reset.sock";

/// The stand-in for `nvidia-smi` writes its arguments here, because the helper cannot write
/// to `/usr`.
const CALLS_FILE: &str = "/var/lib/stand-in/called";

/// A Perl program that sends its second argument to the socket of its first, and prints the
/// answer. A helper that refuses its caller closes the socket without reading.
const SEND_REQUEST_SCRIPT: &str = "use IO::Socket::UNIX; $SIG{PIPE} = 'IGNORE';
    my $helper = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die \"$!\\n\";
    print $helper $ARGV[1]; shutdown $helper, 1; print <$helper>;";

#[test]
fn only_root_and_daemon_reset_over_the_socket() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    add_resettable_gpu(&it);
    it.run_as_root(&["systemctl", "restart", "gpukilld"]);
    let request = format!("gpukill-reset 2 reset nvidia {ADDRESS}\n");
    let ask = ["perl", "-e", SEND_REQUEST_SCRIPT, SOCKET, &request];
    for user in ["alice", "olga", "ada"] {
        let ran = it.run(user, &ask);
        assert_eq!(ran.stderr, "Permission denied\n", "{ran:?}");
    }
    assert!(!it.path(CALLS_FILE).exists());
    let ran = it.run("root", &ask);
    assert_eq!(ran.stdout, "ok\n", "{ran:?}");
    // Like the sensor: the daemon's user without capabilities.
    let ran = it.run("gpukill", &ask);
    let only = "failed of the processes of the daemon's user, only the daemon itself may request \
    a reset\n";
    assert_eq!(ran.stdout, only, "{ran:?}");
    // The daemon's user with every capability in its own user namespace.
    let as_root = ["unshare", "--user", "--map-root-user"];
    let ran = it.run("gpukill", &[&as_root[..], &ask].concat());
    assert_eq!(ran.stdout, only, "{ran:?}");
    let ran = it.run(
        "root",
        &["perl", "-e", SEND_REQUEST_SCRIPT, SOCKET, "reboot\n"],
    );
    assert_eq!(ran.stdout, "failed it is not a request of gpukilld\n");
    let reset = ["gpukillctl", "reset", "--gpu", "0", "--yes"];
    let ran = it.run("alice", &reset);
    assert_eq!(ran.code, 4, "{ran:?}");
    let one = format!("--gpu-reset -i {ADDRESS}\n");
    assert_eq!(recorded_calls(&it), one);
    eventually("the GPU is there", || {
        let list = it.json("root", &["list", "-o", "json"]);
        (list["gpus"].as_array()?.len() == 1).then_some(())
    });
    let ran = it.run("olga", &reset);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(recorded_calls(&it), one.repeat(2));
    // No unit of a finished reset stays, whatever its result was.
    let units = ["systemctl", "list-units", "--no-legend", "gpukill-reset@*"];
    eventually_equals(&String::new(), || it.run_as_root(&units));
}

fn recorded_calls(it: &InstalledBox) -> String {
    let called = std::fs::read_to_string(it.path(CALLS_FILE)).unwrap();
    let calls = called.lines().filter(|call| !call.starts_with("--query"));
    calls.map(|call| format!("{call}\n")).collect()
}

/// Adds a GPU that can be reset, and the files that a reset needs.
fn add_resettable_gpu(it: &InstalledBox) {
    let proc = format!("{STAND_IN}/proc");
    let procfs = FakeProcfs::new(it.path(&proc));
    procfs.add_process(FakeProcess {
        pid: 1,
        name: "systemd",
        uid: 0,
        start_ticks: 1,
        cmdline: "systemd\0",
        cgroup: "0::/\n",
    });
    std::fs::create_dir(procfs.root().join("1/fd")).unwrap();
    it.write(
        &format!("{proc}/devices"),
        "Character devices:\n  1 nvidia\n",
    );
    it.write(&format!("{proc}/meminfo"), "MemTotal:       16777216 kB\n");
    it.write(
        &format!("{proc}/driver/nvidia/gpus/{ADDRESS}/information"),
        "Model: \t NVIDIA H100\nDevice Minor: \t 7\n",
    );
    let device = format!("{STAND_IN}/sys/bus/pci/devices/{ADDRESS}");
    it.write(&format!("{device}/vendor"), "0x10de\n");
    it.write(&format!("{device}/class"), "0x030200\n");
    let tool = format!("{STAND_IN}/nvidia-smi");
    let notes = format!(
        "#!/bin/sh\necho \"$*\" >> {CALLS_FILE}\ncase \"$*\" in --query*) echo Disabled;; esac\n"
    );
    it.write(&tool, &notes);
    it.run_as_root(&["chmod", "755", &tool]);
    it.run_as_root(&["mkdir", "/var/lib/stand-in"]);
    it.write(
        "/etc/systemd/system/gpukill-reset@.service.d/stand-in.conf",
        &format!(
            "[Service]\nExecStart=\nExecStart=/usr/libexec/gpukill/gpukill-reset \
             --nvidia-smi {tool} --sysfs {STAND_IN}/sys --procfs {proc}\n"
        ),
    );
    it.write(
        "/etc/systemd/system/gpukilld.service.d/roots.conf",
        &format!("[Service]\nEnvironment=GPUKILLD_BACKENDS_PROCFS_ROOT={proc}\n"),
    );
    it.run_as_root(&["systemctl", "daemon-reload"]);
    it.set_driver_state(
        &json!({"gpus": [{"pci": format!("0000{ADDRESS}"), "minor": 7, "persistence": false}]}),
    );
}
