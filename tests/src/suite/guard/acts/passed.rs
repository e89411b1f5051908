//! A descriptor of a GPU that one user's process passes to another's (SCM_RIGHTS): the
//! receiver is neither warned nor ended for it, and what it opens itself counts.

use super::{Box, goes_on, steps};
use gpukill_tests::harness::{
    Actor, Card, Procfs, Stage, acting_as, becomes, can_act_as_others, eventually, is_over, user,
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

/// Two users, and a subordinate one of a third.
const SENDER: u32 = user(121);
const RECEIVER: u32 = user(122);
const SUPERIOR: u32 = user(123);
const SUBORDINATE: u32 = user(124);

/// What a process of this test does, and the directory that it says so in.
const PART: &str = "GPUKILL_PASSED_PART";
const PLACE: &str = "GPUKILL_PASSED_PLACE";

/// An AMD card whose render node is `/dev/full`.
const CARD: Card<'_> = Card {
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

/// A real process with a part of its own. Its other end is its standard input.
struct Player {
    actor: Actor,
    place: PathBuf,
}

impl Player {
    fn start(stage: &Stage, uid: u32, part: &str, input: impl Into<Stdio>) -> Self {
        let place = stage.path(part);
        std::fs::create_dir(&place).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&place, mode).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "guard::acts::passed::a_part_in_another_test"])
            .env(PART, part)
            .env(PLACE, &place)
            .process_group(0);
        let input: Stdio = input.into();
        let actor = acting_as(uid, &[], move || Actor::with(&mut command, input));
        Self { actor, place }
    }

    /// The descriptor that it has open.
    fn descriptor(&self) -> u32 {
        eventually("it has the device open", || {
            let said = std::fs::read_to_string(self.place.join("fd")).ok()?;
            said.parse().ok()
        })
    }

    /// Lets it be seen, without what the kernel tells of its descriptors.
    fn is_seen(&self, procfs: &Procfs) {
        procfs.dress(self.actor.pid(), &[("fdinfo", None)]);
        let directory = procfs.root().join(self.actor.pid().to_string());
        std::fs::create_dir(directory.join("fdinfo")).unwrap();
    }

    /// Its descriptor is one of this client.
    fn has_client(&self, procfs: &Procfs, id: u32) {
        let text = format!(
            "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{id}\ndrm-pdev:\t0000:c1:00.0\n\
             drm-resident-vram:\t9437184 KiB\n"
        );
        let file = format!("fdinfo/{}", self.descriptor());
        procfs.write(self.actor.pid(), &file, &text);
    }
}

fn say(place: &Path, descriptor: &OwnedFd) {
    let new = place.join("new");
    std::fs::write(&new, descriptor.as_raw_fd().to_string()).unwrap();
    std::fs::rename(new, place.join("fd")).unwrap();
}

fn open_the_gpu() -> OwnedFd {
    File::open("/dev/full").unwrap().into()
}

/// Sends it to whoever has the other end of the standard input.
fn send(descriptor: &OwnedFd) {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [descriptor.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = [IoSlice::new(b"x")];
    sendmsg(std::io::stdin(), &bytes, &mut control, SendFlags::empty()).unwrap();
}

fn receive() -> OwnedFd {
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
fn a_part_in_another_test() {
    let (Some(part), Some(place)) = (std::env::var_os(PART), std::env::var_os(PLACE)) else {
        return;
    };
    let place = PathBuf::from(place);
    let descriptor = match part.to_str() {
        Some("server") => receive(),
        _ => open_the_gpu(),
    };
    say(&place, &descriptor);
    if part == "sender" {
        while !place.join("go").exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        send(&descriptor);
    }
    // Until it is ended.
    std::thread::sleep(Duration::from_secs(600));
}

/// What `holders` says of this process.
fn held(stage: &Stage, pid: u32, fields: &[&str]) -> Option<Value> {
    let document = stage.json(&["holders", "--gpu", "0", "-o", "json"]);
    let holders = document["held_gpus"][0]["holders"].as_array()?.clone();
    let holder = holders.into_iter().find(|it| it["pid"] == pid)?;
    Some(fields.iter().map(|field| holder[*field].clone()).collect())
}

#[test]
fn whoever_was_passed_a_descriptor_of_another_user_is_not_ended_for_it() {
    if !can_act_as_others() {
        return;
    }
    let Some(stage) = Box::stage(&rules()) else {
        return;
    };
    stage.sysfs().plug(CARD);
    let procfs = Procfs::at(stage.path("proc"));
    std::fs::write(procfs.root().join("meminfo"), "MemTotal: 16777216 kB\n").unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let server = Player::start(&stage, RECEIVER, "server", OwnedFd::from(one));
    let sender = Player::start(&stage, SENDER, "sender", OwnedFd::from(other));
    server.is_seen(&procfs);
    sender.is_seen(&procfs);
    sender.has_client(&procfs, 1);
    let mut command = stage.daemon();
    command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = stage.start_with(&mut command);
    let listed = || {
        let list = stage.list();
        let rows = list["procs"].as_array().unwrap().iter();
        rows.map(|row| row["pid"].clone()).collect::<Vec<_>>()
    };
    becomes(&vec![json!(sender.actor.pid())], listed);
    goes_on(&stage);
    assert_eq!(steps(&stage), Vec::<Value>::new());

    std::fs::write(sender.place.join("go"), "").unwrap();
    server.has_client(&procfs, 1);
    let sent_by = sender.actor.pid();
    procfs.forget(sent_by);
    drop(sender);
    let fields = ["role", "listed", "passed_from_pid", "passed_from_uid"];
    let passed = Some(json!(["passed", false, sent_by, SENDER]));
    becomes(&passed, || held(&stage, server.actor.pid(), &fields));
    assert_eq!(listed(), Vec::<Value>::new());
    goes_on(&stage);
    let pid = server.actor.pid().to_string();
    let explained = stage.ctl(&["explain", &pid]).stdout;
    let expected = format!("descriptor passed from {sent_by} (uid {SENDER}): counted for nobody");
    assert!(explained.contains(&expected), "{explained}");
    assert_eq!(steps(&stage), Vec::<Value>::new());

    // Whoever opens the GPU without leave is ended, of the same user.
    let intruder = Player::start(&stage, RECEIVER, "intruder", Stdio::null());
    intruder.is_seen(&procfs);
    intruder.has_client(&procfs, 2);
    eventually("the intruder is ended", || {
        is_over(intruder.actor.pid()).then_some(())
    });
    goes_on(&stage);
    assert!(!is_over(server.actor.pid()), "the server was ended");
    daemon.stop();
}

#[test]
fn whoever_has_a_second_user_hold_the_same_descriptor_is_ended_for_it() {
    if !can_act_as_others() {
        return;
    }
    let Some(stage) = Box::stage(&rules()) else {
        return;
    };
    stage.sysfs().plug(CARD);
    let procfs = Procfs::at(stage.path("proc"));
    std::fs::write(procfs.root().join("meminfo"), "MemTotal: 16777216 kB\n").unwrap();
    let opener = Player::start(&stage, SUPERIOR, "opener", Stdio::null());
    let helper = Player::start(&stage, SUBORDINATE, "helper", Stdio::null());
    for player in [&opener, &helper] {
        player.is_seen(&procfs);
        player.has_client(&procfs, 1);
    }
    let range = format!("{SUPERIOR}:{SUBORDINATE}:1\n");
    let mut command = stage.daemon_with_subordinates(&range);
    command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let daemon = stage.start_with(&mut command);
    eventually("the opener is ended", || {
        is_over(opener.actor.pid()).then_some(())
    });
    procfs.forget(opener.actor.pid());
    // What the opener leaves behind is the same person's.
    eventually("the helper is ended", || {
        is_over(helper.actor.pid()).then_some(())
    });
    procfs.forget(helper.actor.pid());
    daemon.stop();
}
