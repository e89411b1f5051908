//! NVIDIA's device files where no program has created them yet.

use super::{InstalledBox, STAND_IN};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

const UNIT: &str = "gpukill-nodes.service";

/// A script in place of NVIDIA's tool: it creates the device files that its arguments name.
const TOOL: &str = "#!/bin/sh -e
echo \"asked: $*\"
while [ \"$1\" = -c ]; do
    case $2 in 255) file=/dev/nvidiactl ;; *) file=/dev/nvidia$2 ;; esac
    mknod $file c 195 $2; chmod 666 $file; chown 0:0 $file
    shift 2
done
";

#[test]
fn device_files_exist_before_daemon_start() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    // Without the driver the tool does not run.
    assert_eq!(it.unit_property(UNIT, "ConditionResult"), "no");
    simulate_driver(&it);
    it.run_as_root(&["systemctl", "restart", "gpukilld"]);
    let id = format!(
        "_SYSTEMD_INVOCATION_ID={}",
        it.unit_property(UNIT, "InvocationID")
    );
    let messages = it.journal(&[&id, "_TRANSPORT=stdout"]);
    let messages: Vec<_> = messages.iter().map(|entry| &entry["MESSAGE"]).collect();
    assert_eq!(messages, ["asked: -c 255 -c 0 -c 7"]);
    for (name, minor) in [("nvidiactl", 255), ("nvidia0", 0), ("nvidia7", 7)] {
        let node = it.path(&format!("/dev/{name}")).metadata().unwrap();
        assert!(node.file_type().is_char_device(), "{name}");
        assert_eq!(node.rdev(), rustix::fs::makedev(195, minor), "{name}");
        assert_eq!(node.mode() & 0o777, 0o666, "{name}");
    }
}

/// Simulates a loaded driver of two GPUs, with a third entry of an invalid minor number,
/// and its tool.
fn simulate_driver(it: &InstalledBox) {
    let driver = format!("{STAND_IN}/driver");
    it.write(&format!("{driver}/nvidia/params"), "");
    for (address, minor) in [("01", "0"), ("1b", "7"), ("ff", "7; reboot")] {
        let file = format!("{driver}/nvidia/gpus/0000:{address}:00.0/information");
        let text = format!("Model: \t NVIDIA H100\nDevice Minor: \t {minor}\n");
        it.write(&file, &text);
    }
    it.run_as_root(&["mount", "--bind", &driver, "/proc/driver"]);
    it.write("/usr/bin/nvidia-modprobe", TOOL);
    it.run_as_root(&["chmod", "755", "/usr/bin/nvidia-modprobe"]);
    // The unit has a `/proc` of its own, mounted by the kernel without the simulated
    // driver.
    it.write(
        &format!("/etc/systemd/system/{UNIT}.d/stand-in.conf"),
        &format!("[Service]\nBindReadOnlyPaths={driver}:/proc/driver\n"),
    );
    it.run_as_root(&["systemctl", "daemon-reload"]);
}
