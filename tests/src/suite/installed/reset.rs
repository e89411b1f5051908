//! The last step of a reset, over the real socket unit.

use super::{Installed, STAND_IN};
use gpukill_tests::harness::{Invented, Procfs, becomes, eventually};
use serde_json::json;

const ADDRESS: &str = "0000:1b:00.0";
const SOCKET: &str = "/run/gpukill-reset.sock";

/// What the stand-in of `nvidia-smi` was called with is noted here: of `/usr` the helper
/// can write nothing.
const CALLED: &str = "/var/lib/stand-in/called";

/// Sends its second argument to the socket of its first, and prints the answer. A helper that
/// refuses its caller closes the socket without reading.
const ASKS: &str = "use IO::Socket::UNIX; $SIG{PIPE} = 'IGNORE';
    my $helper = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die \"$!\\n\";
    print $helper $ARGV[1]; shutdown $helper, 1; print <$helper>;";

#[test]
fn root_and_the_daemon_alone_have_a_gpu_reset_over_the_socket_unit() {
    let Some(it) = Installed::with("") else {
        return;
    };
    plug(&it);
    it.does(&["systemctl", "restart", "gpukilld"]);
    let request = format!("gpukill-reset 2 reset nvidia {ADDRESS}\n");
    let ask = ["perl", "-e", ASKS, SOCKET, &request];
    for user in ["alice", "olga", "ada"] {
        let ran = it.run(user, &ask);
        assert_eq!(ran.stderr, "Permission denied\n", "{ran:?}");
    }
    assert!(!it.path(CALLED).exists());
    let ran = it.run("root", &ask);
    assert_eq!(ran.stdout, "ok\n", "{ran:?}");
    // As the sensor is: of that user, without a capability.
    let ran = it.run("gpukill", &ask);
    let only = "failed of the daemon's user only the daemon may ask for a reset\n";
    assert_eq!(ran.stdout, only, "{ran:?}");
    // With every capability, of a user namespace of its own.
    let as_root = ["unshare", "--user", "--map-root-user"];
    let ran = it.run("gpukill", &[&as_root[..], &ask].concat());
    assert_eq!(ran.stdout, only, "{ran:?}");
    let ran = it.run("root", &["perl", "-e", ASKS, SOCKET, "reboot\n"]);
    assert_eq!(ran.stdout, "failed it is no request of gpukilld\n");
    let reset = ["gpukillctl", "reset", "--gpu", "0", "--yes"];
    let ran = it.run("alice", &reset);
    assert_eq!(ran.code, 4, "{ran:?}");
    let one = format!("--gpu-reset -i {ADDRESS}\n");
    assert_eq!(called(&it), one);
    eventually("the GPU is there", || {
        let list = it.json("root", &["list", "-o", "json"]);
        (list["gpus"].as_array()?.len() == 1).then_some(())
    });
    let ran = it.run("olga", &reset);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(called(&it), one.repeat(2));
    // Nothing stays of those that are over, however they ended.
    let units = ["systemctl", "list-units", "--no-legend", "gpukill-reset@*"];
    becomes(&String::new(), || it.does(&units));
}

fn called(it: &Installed) -> String {
    let called = std::fs::read_to_string(it.path(CALLED)).unwrap();
    let calls = called.lines().filter(|call| !call.starts_with("--query"));
    calls.map(|call| format!("{call}\n")).collect()
}

/// A GPU that can be reset, and what is needed for it.
fn plug(it: &Installed) {
    let proc = format!("{STAND_IN}/proc");
    let procfs = Procfs::at(it.path(&proc));
    procfs.invent(Invented {
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
        "#!/bin/sh\necho \"$*\" >> {CALLED}\ncase \"$*\" in --query*) echo Disabled;; esac\n"
    );
    it.write(&tool, &notes);
    it.does(&["chmod", "755", &tool]);
    it.does(&["mkdir", "/var/lib/stand-in"]);
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
    it.does(&["systemctl", "daemon-reload"]);
    it.play(
        &json!({"gpus": [{"pci": format!("0000{ADDRESS}"), "minor": 7, "persistence": false}]}),
    );
}
