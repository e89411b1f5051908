//! The helper alone trusts no part of a request.

use super::{FIRST_GPU, ResetBox, SECOND_GPU, request_helper_over};
use gpukill_tests::harness::{NOBODY_UID, can_run_as_other_users, run_as_user};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn nvidia_request(address: &str) -> Vec<u8> {
    format!("gpukill-reset 2 reset nvidia {address}\n").into_bytes()
}

fn amd_request(address: &str) -> Vec<u8> {
    format!("gpukill-reset 2 reset amd {address}\n").into_bytes()
}

#[test]
fn request_runs_one_command_with_clean_environment() {
    let it = ResetBox::new();
    assert_eq!(it.request_helper(&nvidia_request(FIRST_GPU)), "ok\n");
    assert_eq!(it.recorded_calls(), [format!("--gpu-reset -i {FIRST_GPU}")]);
}

#[test]
fn invalid_requests_are_refused() {
    let it = ResetBox::new();
    let refused = |request: &[u8], why: &str| {
        let answer = it.request_helper(request);
        assert_eq!(answer, format!("failed {why}\n"), "{request:?}");
    };
    refused(b"", "the request is not one line");
    refused(b"\n", "it is not a request of gpukilld");
    refused(
        b"gpukill-reset 2 reset nvidia 0000:1b:00.0",
        "the request is not one line",
    );
    refused(
        b"gpukill-reset 2 reset nvidia 0000:1b:00.0\nmore",
        "the request is not one line",
    );
    refused(
        b"gpukill-reset 2 reset nvidia $(reboot)\n",
        "the request has no PCI address",
    );
    refused(
        b"gpukill-reset 2 reset nvidia ../../../etc\n",
        "the request has no PCI address",
    );
    refused(
        b"gpukill-reset 2 reset nvidia 0000:1b:00.0 --id=0\n",
        "it is not a request of gpukilld",
    );
    refused(
        b"gpukill-reset 2 reset intel 0000:1b:00.0\n",
        "the request names no vendor with GPUs that can be reset",
    );
    refused(
        b"gpukill-reset 1 nvidia 0000:1b:00.0\n",
        "the request is of another version: install gpukilld and gpukill-reset from the same \
        release",
    );
    refused(&[b'x'; 1 << 20], "the request is too long");
    refused(&[0xff; 8], "the request is not one line");
    assert_eq!(it.recorded_calls(), [""; 0]);
}

#[test]
fn only_matching_devices_are_reset() {
    let it = ResetBox::new();
    it.add_pci_device("0000:00:1f.3", "0x8086", "0x040300");
    it.add_pci_device("0000:1b:00.1", "0x10de", "0x040300");
    for (request, why) in [
        (
            nvidia_request("0000:ff:00.0"),
            "there is no PCI device 0000:ff:00.0",
        ),
        (
            nvidia_request("0000:00:1f.3"),
            "0000:00:1f.3 is not a device of NVIDIA",
        ),
        (nvidia_request("0000:1b:00.1"), "0000:1b:00.1 is not a GPU"),
        (
            amd_request(FIRST_GPU),
            "0000:1b:00.0 is not a device of AMD",
        ),
    ] {
        assert_eq!(it.request_helper(&request), format!("failed {why}\n"));
    }
    assert_eq!(it.recorded_calls(), [""; 0]);
}

#[test]
fn gpu_in_use_is_not_reset() {
    let it = ResetBox::new();
    it.add_process(4711, "python", &["/dev/full"]);
    it.add_process(4712, "python", &["/dev/full", "/dev/null"]);
    assert_eq!(
        it.request_helper(&nvidia_request(FIRST_GPU)),
        "failed it is in use by 4711, 4712\n"
    );
    assert_eq!(it.recorded_calls(), [""; 0]);
    // The other GPU is free.
    assert_eq!(it.request_helper(&nvidia_request(SECOND_GPU)), "ok\n");
    assert_eq!(
        it.recorded_calls(),
        [format!("--gpu-reset -i {SECOND_GPU}")]
    );
}

#[test]
fn incomplete_scan_prevents_a_reset() {
    let it = ResetBox::new();
    it.add_process(4711, "python", &[]);
    it.write_file("proc/4711/fd", "no directory");
    let answer = it.request_helper(&nvidia_request(FIRST_GPU));
    assert!(
        answer.starts_with("failed cannot scan processes: "),
        "{answer}"
    );
    assert_eq!(it.recorded_calls(), [""; 0]);
}

#[test]
fn only_root_and_the_daemon_may_request() {
    let it = ResetBox::new();
    let us = rustix::process::getuid().as_raw();
    let mut helper = it.helper_command();
    // The last option takes precedence.
    helper.args(["--allow-uid", "7777777"]);
    let (peer, (ours, theirs)) = if us == 0 {
        if !can_run_as_other_users() {
            return;
        }
        let pair = || UnixStream::pair().unwrap();
        (NOBODY_UID, run_as_user(NOBODY_UID, &[], pair))
    } else {
        (us, UnixStream::pair().unwrap())
    };
    let answer = request_helper_over(&mut helper, &nvidia_request(FIRST_GPU), ours, theirs);
    assert_eq!(
        answer,
        format!("failed uid {peer} may not request a reset\n")
    );
    assert_eq!(it.recorded_calls(), [""; 0]);
}

#[test]
fn silent_client_times_out() {
    let it = ResetBox::new();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let started_at = Instant::now();
    let mut child = super::start_helper(&mut it.helper_command(), theirs);
    let mut answer = String::new();
    ours.read_to_string(&mut answer).unwrap();
    child.wait().unwrap();
    assert_eq!(answer, "failed no request came within 5 s\n");
    assert!(started_at.elapsed() < Duration::from_secs(25));
    assert_eq!(it.recorded_calls(), [""; 0]);
}

#[test]
fn amd_reset_reads_one_debugfs_file() {
    let it = ResetBox::new();
    let address = "0000:c1:00.0";
    it.add_pci_device(address, "0x1002", "0x038000");
    let drm = format!("sys/bus/pci/devices/{address}/drm");
    it.write_file(&format!("{drm}/card3/dev"), "1:5\n");
    assert_eq!(
        it.request_helper(&amd_request(address)),
        "failed the kernel shows no reset file: debugfs is not mounted, or it is locked down\n"
    );
    // Older kernels name the directory by the minor number, newer ones by the address too.
    it.write_file("debug/dri/3/amdgpu_gpu_recover", "-62\n");
    assert_eq!(
        it.request_helper(&amd_request(address)),
        "failed the driver reports that the reset failed: Timer expired (os error 62)\n"
    );
    it.write_file(&format!("debug/dri/{address}/amdgpu_gpu_recover"), "0\n");
    assert_eq!(it.request_helper(&amd_request(address)), "ok\n");
    it.add_process(4711, "python", &["/dev/zero"]);
    assert_eq!(
        it.request_helper(&amd_request(address)),
        "failed it is in use by 4711\n"
    );
}

#[test]
fn amd_reset_needs_an_unused_hive() {
    let it = ResetBox::new();
    let (address, other) = ("0000:c1:00.0", "0000:c2:00.0");
    for (address, card) in [(address, "card3/dev"), (other, "card4/dev")] {
        it.add_pci_device(address, "0x1002", "0x038000");
        let device = format!("sys/bus/pci/devices/{address}");
        let number = if card.contains('3') { "1:5\n" } else { "1:7\n" };
        it.write_file(&format!("{device}/drm/{card}"), number);
        it.write_file(&format!("{device}/xgmi_hive_info/xgmi_hive_id"), "77\n");
    }
    it.write_file(&format!("debug/dri/{address}/amdgpu_gpu_recover"), "0\n");
    assert_eq!(it.request_helper(&amd_request(address)), "ok\n");
    it.add_process(4711, "python", &["/dev/full"]);
    assert_eq!(
        it.request_helper(&amd_request(address)),
        "failed it is reset with all GPUs of its XGMI hive: it is in use by 4711\n"
    );
}

#[test]
fn no_other_debugfs_file_is_opened() {
    let it = ResetBox::new();
    let address = "0000:c1:00.0";
    it.add_pci_device(address, "0x1002", "0x038000");
    let drm = format!("sys/bus/pci/devices/{address}/drm");
    it.write_file(&format!("{drm}/card3/dev"), "1:5\n");
    // Opening one of these would block for ever.
    for other in ["3/amdgpu_gpu_recover", "0/amdgpu_gpu_recover"] {
        let path = it.test_box.path(&format!("debug/dri/{other}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    }
    it.write_file(&format!("debug/dri/{address}/amdgpu_gpu_recover"), "0\n");
    assert_eq!(it.request_helper(&amd_request(address)), "ok\n");
}

#[test]
fn check_reports_reset_errors_and_changes_nothing() {
    let it = ResetBox::new();
    it.write_file("persistent", "Enabled\n");
    let check = |address: &str| {
        let request = format!("gpukill-reset 2 check nvidia {address}\n");
        it.request_helper(request.as_bytes())
    };
    // A holder is no error of the check: it is ended between the check and the reset.
    it.add_process(4711, "python", &["/dev/full"]);
    assert_eq!(check(FIRST_GPU), "ok\n");
    assert_eq!(
        check("0000:ff:00.0"),
        "failed there is no PCI device 0000:ff:00.0\n"
    );
    let tool = it.test_box.path("nvidia-smi");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o644)).unwrap();
    let cannot = |why: &str| format!("failed {} {why}\n", tool.display());
    let permission = "cannot be run: Permission denied (os error 13)";
    assert_eq!(check(FIRST_GPU), cannot(permission));
    std::fs::remove_file(&tool).unwrap();
    let missing = "cannot be run: No such file or directory (os error 2)";
    assert_eq!(check(FIRST_GPU), cannot(missing));
    std::fs::create_dir(&tool).unwrap();
    assert_eq!(check(FIRST_GPU), cannot("is not a file"));
    assert!(!it.test_box.path("called").exists());
}

#[test]
fn check_does_not_read_amds_reset_file() {
    let it = ResetBox::new();
    let address = "0000:c1:00.0";
    it.add_pci_device(address, "0x1002", "0x038000");
    let drm = format!("sys/bus/pci/devices/{address}/drm");
    it.write_file(&format!("{drm}/card3/dev"), "1:5\n");
    let request = format!("gpukill-reset 2 check amd {address}\n");
    let missing =
        "failed the kernel shows no reset file: debugfs is not mounted, or it is locked down\n";
    assert_eq!(it.request_helper(request.as_bytes()), missing);
    // Reading a pipe would remove its contents.
    let path = it.test_box.path("debug/dri/3/amdgpu_gpu_recover");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let open = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path);
    let mut pipe = open.unwrap();
    pipe.write_all(b"0\n").unwrap();
    assert_eq!(it.request_helper(request.as_bytes()), "ok\n");
    let mut left = [0; 2];
    pipe.read_exact(&mut left).unwrap();
    assert_eq!(&left, b"0\n");
}
