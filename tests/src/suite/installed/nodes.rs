//! NVIDIA's device files, where nobody has made them yet.

use super::{Installed, STAND_IN};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

const UNIT: &str = "gpukill-nodes.service";

/// As NVIDIA's tool: it makes what it is asked for, here as a script.
const TOOL: &str = "#!/bin/sh -e
echo \"asked: $*\"
while [ \"$1\" = -c ]; do
    case $2 in 255) file=/dev/nvidiactl ;; *) file=/dev/nvidia$2 ;; esac
    mknod $file c 195 $2; chmod 666 $file; chown 0:0 $file
    shift 2
done
";

#[test]
fn the_device_files_of_a_loaded_driver_are_made_before_the_daemon_starts() {
    let Some(it) = Installed::with("") else {
        return;
    };
    // Without the driver nobody asks for them.
    assert_eq!(it.property(UNIT, "ConditionResult"), "no");
    load_driver(&it);
    it.does(&["systemctl", "restart", "gpukilld"]);
    let id = format!(
        "_SYSTEMD_INVOCATION_ID={}",
        it.property(UNIT, "InvocationID")
    );
    let told = it.journal(&[&id, "_TRANSPORT=stdout"]);
    let told: Vec<_> = told.iter().map(|entry| &entry["MESSAGE"]).collect();
    assert_eq!(told, ["asked: -c 255 -c 0 -c 7"]);
    for (name, minor) in [("nvidiactl", 255), ("nvidia0", 0), ("nvidia7", 7)] {
        let node = it.path(&format!("/dev/{name}")).metadata().unwrap();
        assert!(node.file_type().is_char_device(), "{name}");
        assert_eq!(node.rdev(), rustix::fs::makedev(195, minor), "{name}");
        assert_eq!(node.mode() & 0o777, 0o666, "{name}");
    }
}

/// What the driver shows of two GPUs, one with a number that is none, and its tool.
fn load_driver(it: &Installed) {
    let driver = format!("{STAND_IN}/driver");
    it.write(&format!("{driver}/nvidia/params"), "");
    for (address, minor) in [("01", "0"), ("1b", "7"), ("ff", "7; reboot")] {
        let file = format!("{driver}/nvidia/gpus/0000:{address}:00.0/information");
        let text = format!("Model: \t NVIDIA H100\nDevice Minor: \t {minor}\n");
        it.write(&file, &text);
    }
    it.does(&["mount", "--bind", &driver, "/proc/driver"]);
    it.write("/usr/bin/nvidia-modprobe", TOOL);
    it.does(&["chmod", "755", "/usr/bin/nvidia-modprobe"]);
    // The unit has a /proc of its own, which is the kernel's, without that driver.
    it.write(
        &format!("/etc/systemd/system/{UNIT}.d/stand-in.conf"),
        &format!("[Service]\nBindReadOnlyPaths={driver}:/proc/driver\n"),
    );
    it.does(&["systemctl", "daemon-reload"]);
}
