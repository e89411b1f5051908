//! The helper by itself believes nothing that it is told.

use super::{Box, FIRST, SECOND, asked};
use gpukill_tests::harness::{NOBODY, acting_as, can_act_as_others};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn nvidia(address: &str) -> Vec<u8> {
    format!("gpukill-reset 2 reset nvidia {address}\n").into_bytes()
}

fn amd(address: &str) -> Vec<u8> {
    format!("gpukill-reset 2 reset amd {address}\n").into_bytes()
}

#[test]
fn one_request_runs_one_command_with_nothing_of_the_environment() {
    let it = Box::new();
    assert_eq!(it.asked(&nvidia(FIRST)), "ok\n");
    assert_eq!(it.called(), [format!("--gpu-reset -i {FIRST}")]);
}

#[test]
fn what_is_no_request_is_refused_and_nothing_is_run() {
    let it = Box::new();
    let refused = |request: &[u8], why: &str| {
        let answer = it.asked(request);
        assert_eq!(answer, format!("failed {why}\n"), "{request:?}");
    };
    refused(b"", "the request is not one line");
    refused(b"\n", "it is no request of gpukilld");
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
        "it is no request of gpukilld",
    );
    refused(
        b"gpukill-reset 2 reset intel 0000:1b:00.0\n",
        "the request names no vendor whose GPUs can be reset",
    );
    refused(
        b"gpukill-reset 1 nvidia 0000:1b:00.0\n",
        "the request is of another version: install gpukilld and gpukill-reset from the same release",
    );
    refused(&[b'x'; 1 << 20], "the request is too long");
    refused(&[0xff; 8], "the request is not one line");
    assert_eq!(it.called(), [""; 0]);
}

#[test]
fn a_device_that_is_not_what_it_is_said_to_be_is_not_touched() {
    let it = Box::new();
    it.plug("0000:00:1f.3", "0x8086", "0x040300");
    it.plug("0000:1b:00.1", "0x10de", "0x040300");
    for (request, why) in [
        (
            nvidia("0000:ff:00.0"),
            "there is no PCI device 0000:ff:00.0",
        ),
        (
            nvidia("0000:00:1f.3"),
            "0000:00:1f.3 is no device of NVIDIA",
        ),
        (nvidia("0000:1b:00.1"), "0000:1b:00.1 is no GPU"),
        (amd(FIRST), "0000:1b:00.0 is no device of AMD"),
    ] {
        assert_eq!(it.asked(&request), format!("failed {why}\n"));
    }
    assert_eq!(it.called(), [""; 0]);
}

#[test]
fn a_gpu_that_somebody_has_open_is_not_reset() {
    let it = Box::new();
    it.invent(4711, "python", &["/dev/full"]);
    it.invent(4712, "python", &["/dev/full", "/dev/null"]);
    assert_eq!(
        it.asked(&nvidia(FIRST)),
        "failed it is in use by 4711, 4712\n"
    );
    assert_eq!(it.called(), [""; 0]);
    // The other one is free.
    assert_eq!(it.asked(&nvidia(SECOND)), "ok\n");
    assert_eq!(it.called(), [format!("--gpu-reset -i {SECOND}")]);
}

#[test]
fn where_not_everybody_can_be_seen_nothing_is_reset() {
    let it = Box::new();
    it.invent(4711, "python", &[]);
    it.write("proc/4711/fd", "no directory");
    let answer = it.asked(&nvidia(FIRST));
    assert!(
        answer.starts_with("failed processes cannot be looked at: "),
        "{answer}"
    );
    assert_eq!(it.called(), [""; 0]);
}

#[test]
fn whoever_is_neither_root_nor_the_daemon_is_refused() {
    let it = Box::new();
    let us = rustix::process::getuid().as_raw();
    let mut helper = it.helper();
    // The last one counts.
    helper.args(["--allow-uid", "7777777"]);
    let (peer, (ours, theirs)) = if us == 0 {
        if !can_act_as_others() {
            return;
        }
        let pair = || UnixStream::pair().unwrap();
        (NOBODY, acting_as(NOBODY, &[], pair))
    } else {
        (us, UnixStream::pair().unwrap())
    };
    let answer = asked(&mut helper, &nvidia(FIRST), ours, theirs);
    assert_eq!(
        answer,
        format!("failed uid {peer} may not ask for a reset\n")
    );
    assert_eq!(it.called(), [""; 0]);
}

#[test]
fn whoever_connects_and_says_nothing_is_not_waited_for() {
    let it = Box::new();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let began = Instant::now();
    let mut child = super::serve(&mut it.helper(), theirs);
    let mut answer = String::new();
    ours.read_to_string(&mut answer).unwrap();
    child.wait().unwrap();
    assert_eq!(answer, "failed no request came within 5 s\n");
    assert!(began.elapsed() < Duration::from_secs(25));
    assert_eq!(it.called(), [""; 0]);
}

#[test]
fn amds_step_is_to_read_one_file_and_the_driver_says_how_it_went() {
    let it = Box::new();
    let address = "0000:c1:00.0";
    it.plug(address, "0x1002", "0x038000");
    let drm = format!("sys/bus/pci/devices/{address}/drm");
    it.write(&format!("{drm}/card3/dev"), "1:5\n");
    assert_eq!(
        it.asked(&amd(address)),
        "failed the kernel shows no reset file: debugfs is not mounted, or it is locked down\n"
    );
    // Older kernels know it by its minor, newer ones by its address too.
    it.write("debug/dri/3/amdgpu_gpu_recover", "-62\n");
    assert_eq!(
        it.asked(&amd(address)),
        "failed the driver says that the reset failed: Timer expired (os error 62)\n"
    );
    it.write(&format!("debug/dri/{address}/amdgpu_gpu_recover"), "0\n");
    assert_eq!(it.asked(&amd(address)), "ok\n");
    it.invent(4711, "python", &["/dev/zero"]);
    assert_eq!(it.asked(&amd(address)), "failed it is in use by 4711\n");
}

#[test]
fn nothing_else_of_debugfs_is_ever_opened() {
    let it = Box::new();
    let address = "0000:c1:00.0";
    it.plug(address, "0x1002", "0x038000");
    let drm = format!("sys/bus/pci/devices/{address}/drm");
    it.write(&format!("{drm}/card3/dev"), "1:5\n");
    // Whoever opened one of these would wait for ever.
    for other in ["3/amdgpu_gpu_recover", "0/amdgpu_gpu_recover"] {
        let path = it.stage.path(&format!("debug/dri/{other}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    }
    it.write(&format!("debug/dri/{address}/amdgpu_gpu_recover"), "0\n");
    assert_eq!(it.asked(&amd(address)), "ok\n");
}

#[test]
fn a_check_says_what_a_reset_would_fail_at_and_changes_nothing() {
    let it = Box::new();
    it.write("persistent", "Enabled\n");
    let check = |address: &str| {
        let request = format!("gpukill-reset 2 check nvidia {address}\n");
        it.asked(request.as_bytes())
    };
    // Who has it open is ended between the check and the reset.
    it.invent(4711, "python", &["/dev/full"]);
    assert_eq!(check(FIRST), "ok\n");
    assert_eq!(
        check("0000:ff:00.0"),
        "failed there is no PCI device 0000:ff:00.0\n"
    );
    let tool = it.stage.path("nvidia-smi");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o644)).unwrap();
    let cannot = |why: &str| format!("failed {} {why}\n", tool.display());
    let permission = "cannot be run: Permission denied (os error 13)";
    assert_eq!(check(FIRST), cannot(permission));
    std::fs::remove_file(&tool).unwrap();
    let missing = "cannot be run: No such file or directory (os error 2)";
    assert_eq!(check(FIRST), cannot(missing));
    std::fs::create_dir(&tool).unwrap();
    assert_eq!(check(FIRST), cannot("is no file"));
    assert!(!it.stage.path("called").exists());
}

#[test]
fn a_check_of_amds_reset_file_does_not_read_it() {
    let it = Box::new();
    let address = "0000:c1:00.0";
    it.plug(address, "0x1002", "0x038000");
    let drm = format!("sys/bus/pci/devices/{address}/drm");
    it.write(&format!("{drm}/card3/dev"), "1:5\n");
    let request = format!("gpukill-reset 2 check amd {address}\n");
    let missing =
        "failed the kernel shows no reset file: debugfs is not mounted, or it is locked down\n";
    assert_eq!(it.asked(request.as_bytes()), missing);
    // What is in a pipe is gone when it was read.
    let path = it.stage.path("debug/dri/3/amdgpu_gpu_recover");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let open = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path);
    let mut pipe = open.unwrap();
    pipe.write_all(b"0\n").unwrap();
    assert_eq!(it.asked(request.as_bytes()), "ok\n");
    let mut left = [0; 2];
    pipe.read_exact(&mut left).unwrap();
    assert_eq!(&left, b"0\n");
}
