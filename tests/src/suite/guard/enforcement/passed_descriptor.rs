//! A GPU descriptor that a process passes to a process of another user (SCM_RIGHTS): the
//! receiver is neither warned nor ended because of it, but a device that the receiver opens
//! itself counts.

use super::{GuardBox, guard_steps, wait_for_polls};
use gpukill_tests::harness::{
    FakeCard, FakeProcfs, TestBox, TestProcess, can_run_as_other_users, eventually,
    eventually_equals, process_has_ended, run_as_user, test_uid,
};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Two users, and a user with a subordinate uid.
const SENDER: u32 = test_uid(121);
const RECEIVER: u32 = test_uid(122);
const SUPERIOR: u32 = test_uid(123);
const SUBORDINATE: u32 = test_uid(124);

/// The role of a helper process, and the directory where it reports its descriptor.
const ROLE_VARIABLE: &str = "GPUKILL_PASSED_PART";
const DIRECTORY_VARIABLE: &str = "GPUKILL_PASSED_PLACE";

/// An AMD card with `/dev/full` as its render node.
const CARD: FakeCard<'_> = FakeCard {
    name: "card1",
    driver: "amdgpu",
    pci: Some(("0000:c1:00.0", "1002:744C")),
    nodes: &[("card1", "1:99"), ("renderD128", "1:7")],
    files: &[
        ("mem_info_vram_total", "25769803776\n"),
        ("mem_info_vram_used", "9663676416\n"),
        ("gpu_busy_percent", "50\n"),
    ],
};

/// Only the sender may use the GPU.
fn rules() -> String {
    format!(
        "[global]\ndry_run = false\n[enforcement]\nsoft_enforcement = false\n\
         hard_enforcement = true\n[gpu_policies.0]\nallowed_users = [\"{SENDER}\"]\n"
    )
}

/// A helper process with a role. One end of a socket pair is its standard input.
struct HelperProcess {
    process: TestProcess,
    place: PathBuf,
}

impl HelperProcess {
    fn start(test_box: &TestBox, uid: u32, part: &str, input: impl Into<Stdio>) -> Self {
        let place = test_box.path(part);
        std::fs::create_dir(&place).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&place, mode).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "guard::enforcement::passed_descriptor::helper_process",
            ])
            .env(ROLE_VARIABLE, part)
            .env(DIRECTORY_VARIABLE, &place)
            .process_group(0);
        let input: Stdio = input.into();
        let process = run_as_user(uid, &[], move || {
            TestProcess::spawn_with_input(&mut command, input)
        });
        Self { process, place }
    }

    /// The descriptor that the helper has open.
    fn descriptor(&self) -> u32 {
        eventually("it has the device open", || {
            let text = std::fs::read_to_string(self.place.join("fd")).ok()?;
            text.parse().ok()
        })
    }

    /// Adds the helper to the simulated `/proc`, without the kernel's fdinfo.
    fn add_to_procfs(&self, procfs: &FakeProcfs) {
        procfs.link_with_changed_files(self.process.pid(), &[("fdinfo", None)]);
        let directory = procfs.root().join(self.process.pid().to_string());
        std::fs::create_dir(directory.join("fdinfo")).unwrap();
    }

    /// Makes the descriptor belong to this DRM client.
    fn set_drm_client(&self, procfs: &FakeProcfs, id: u32) {
        let text = format!(
            "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{id}\ndrm-pdev:\t0000:c1:00.0\n\
             drm-resident-vram:\t9437184 KiB\n"
        );
        let file = format!("fdinfo/{}", self.descriptor());
        procfs.write(self.process.pid(), &file, &text);
    }
}

fn report_descriptor(place: &Path, descriptor: &OwnedFd) {
    let new = place.join("new");
    std::fs::write(&new, descriptor.as_raw_fd().to_string()).unwrap();
    std::fs::rename(new, place.join("fd")).unwrap();
}

fn open_the_gpu() -> OwnedFd {
    File::open("/dev/full").unwrap().into()
}

/// Sends the descriptor through the socket at standard input.
fn send_descriptor(descriptor: &OwnedFd) {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [descriptor.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = [IoSlice::new(b"x")];
    sendmsg(std::io::stdin(), &bytes, &mut control, SendFlags::empty()).unwrap();
}

fn receive_descriptor() -> OwnedFd {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    loop {
        let mut bytes = [IoSliceMut::new(&mut byte)];
        match recvmsg(
            std::io::stdin(),
            &mut bytes,
            &mut control,
            RecvFlags::empty(),
        ) {
            Err(Errno::INTR) => {}
            received => break received.map(|_| ()).unwrap(),
        }
    }
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    descriptors.next().unwrap().next().unwrap()
}

#[test]
fn helper_process() {
    let (Some(part), Some(place)) = (
        std::env::var_os(ROLE_VARIABLE),
        std::env::var_os(DIRECTORY_VARIABLE),
    ) else {
        return;
    };
    let place = PathBuf::from(place);
    let descriptor = match part.to_str() {
        Some("server") => receive_descriptor(),
        _ => open_the_gpu(),
    };
    report_descriptor(&place, &descriptor);
    if part == "sender" {
        while !place.join("go").exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        send_descriptor(&descriptor);
    }
    // Runs until it is killed.
    std::thread::sleep(Duration::from_secs(600));
}

/// The entry of this process in `holders`.
fn holder_fields(test_box: &TestBox, pid: u32, fields: &[&str]) -> Option<Value> {
    let document = test_box.json(&["holders", "--gpu", "0", "-o", "json"]);
    let holders = document["held_gpus"][0]["holders"].as_array()?.clone();
    let holder = holders.into_iter().find(|it| it["pid"] == pid)?;
    Some(fields.iter().map(|field| holder[*field].clone()).collect())
}

#[test]
fn passed_descriptor_ends_no_process() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(test_box) = GuardBox::test_box_with_rules(&rules()) else {
        return;
    };
    test_box.sysfs().add_card(CARD);
    let procfs = FakeProcfs::new(test_box.path("proc"));
    std::fs::write(procfs.root().join("meminfo"), "MemTotal: 16777216 kB\n").unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let server = HelperProcess::start(&test_box, RECEIVER, "server", OwnedFd::from(one));
    let sender = HelperProcess::start(&test_box, SENDER, "sender", OwnedFd::from(other));
    server.add_to_procfs(&procfs);
    sender.add_to_procfs(&procfs);
    sender.set_drm_client(&procfs, 1);
    let mut command = test_box.daemon_command();
    command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = test_box.start_with(&mut command);
    let listed = || {
        let list = test_box.list();
        let rows = list["procs"].as_array().unwrap().iter();
        rows.map(|row| row["pid"].clone()).collect::<Vec<_>>()
    };
    eventually_equals(&vec![json!(sender.process.pid())], listed);
    wait_for_polls(&test_box);
    assert_eq!(guard_steps(&test_box), Vec::<Value>::new());

    std::fs::write(sender.place.join("go"), "").unwrap();
    server.set_drm_client(&procfs, 1);
    let sent_by = sender.process.pid();
    procfs.remove_process(sent_by);
    drop(sender);
    let fields = ["role", "listed", "passed_from_pid", "passed_from_uid"];
    let passed = Some(json!(["passed", false, sent_by, SENDER]));
    eventually_equals(&passed, || {
        holder_fields(&test_box, server.process.pid(), &fields)
    });
    assert_eq!(listed(), Vec::<Value>::new());
    wait_for_polls(&test_box);
    let pid = server.process.pid().to_string();
    let explained = test_box.ctl(&["explain", &pid]).stdout;
    let expected = format!("descriptor passed from {sent_by} (uid {SENDER}): counted for nobody");
    assert!(explained.contains(&expected), "{explained}");
    assert_eq!(guard_steps(&test_box), Vec::<Value>::new());

    // A process of the same user that opens the GPU itself is ended.
    let intruder = HelperProcess::start(&test_box, RECEIVER, "intruder", Stdio::null());
    intruder.add_to_procfs(&procfs);
    intruder.set_drm_client(&procfs, 2);
    eventually("the intruder is ended", || {
        process_has_ended(intruder.process.pid()).then_some(())
    });
    wait_for_polls(&test_box);
    assert!(
        !process_has_ended(server.process.pid()),
        "the server was ended"
    );
    daemon.stop();
}

#[test]
fn subordinate_uid_does_not_hide_a_holder() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(test_box) = GuardBox::test_box_with_rules(&rules()) else {
        return;
    };
    test_box.sysfs().add_card(CARD);
    let procfs = FakeProcfs::new(test_box.path("proc"));
    std::fs::write(procfs.root().join("meminfo"), "MemTotal: 16777216 kB\n").unwrap();
    let opener = HelperProcess::start(&test_box, SUPERIOR, "opener", Stdio::null());
    let helper = HelperProcess::start(&test_box, SUBORDINATE, "helper", Stdio::null());
    for process in [&opener, &helper] {
        process.add_to_procfs(&procfs);
        process.set_drm_client(&procfs, 1);
    }
    let range = format!("{SUPERIOR}:{SUBORDINATE}:1\n");
    let mut command = test_box.daemon_command_with_subuid(&range);
    command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = test_box.start_with(&mut command);
    eventually("the opener is ended", || {
        process_has_ended(opener.process.pid()).then_some(())
    });
    procfs.remove_process(opener.process.pid());
    // The descriptor that the opener leaves to its subordinate uid belongs to the same person.
    eventually("the helper is ended", || {
        process_has_ended(helper.process.pid()).then_some(())
    });
    procfs.remove_process(helper.process.pid());
    daemon.stop();
}
