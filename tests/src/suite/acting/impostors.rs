//! Processes that are called like what is protected: a name protects root and system
//! accounts that execute the host's own file, and a person's display server at a seat.

use super::{Box, all, document, endings, is_inside};
use gpukill_tests::harness::{
    Actor, Driver, Procfs, Stage, acting_as, can_act_as_others, copy_program, eventually, is_over,
    skip,
};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A person, and a system account: users that no box has.
const ALICE: u32 = 60_001;
const SYSTEM: u32 = 77;

/// A directory where root alone writes, of this mount namespace alone.
fn own_opt() {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "mode=0755", "none", "/opt"])
        .status();
    assert!(mounted.unwrap().success());
}

/// A program of the system's with this name, which does nothing.
fn program(name: &str) -> PathBuf {
    let path = Path::new("/opt").join(name);
    copy_program("/bin/sleep", &path);
    path
}

/// This program, run by this user, as soon as it executes it.
fn run_as(uid: u32, command: &mut Command) -> Actor {
    Actor::of(command.uid(uid).gid(uid))
}

/// A process of this user whose code is the user's own, in a program of the system's:
/// a library that is loaded into it sleeps. `None` where that cannot be made here.
fn preloaded(it: &Box, uid: u32, program: &str) -> Option<Actor> {
    let source = it.stage.path("own.c");
    std::fs::write(
        &source,
        "#include <unistd.h>\n__attribute__((constructor)) static void run(void)\n\
         { for (;;) pause(); }\n",
    )
    .unwrap();
    let library = it.stage.path("own.so");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    if !Path::new(program).exists() || !compiler.status().is_ok_and(|it| it.success()) {
        skip("here is no such program, or no compiler");
        return None;
    }
    let actor = run_as(uid, Command::new(program).env("LD_PRELOAD", &library));
    eventually("it is that program", || {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", actor.pid())).ok()?;
        let file = std::fs::read_link(format!("/proc/{}/exe", actor.pid())).ok()?;
        (program.ends_with(name.trim()) && file.file_name() == Path::new(program).file_name())
            .then_some(())
    });
    Some(actor)
}

/// A process of this user in a mount namespace where this path is another file.
fn mounted_over(uid: u32, path: &Path, file: &Path) -> Actor {
    let script = format!(
        "mount --bind {} {} && exec setpriv --reuid {uid} --regid {uid} --clear-groups {} 1000",
        file.display(),
        path.display(),
        path.display()
    );
    let mut command = Command::new("unshare");
    let actor = Actor::of(command.args(["--mount", "sh", "-c", &script]));
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    eventually("it is that program", || {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", actor.pid())).ok()?;
        (comm.trim() == name).then_some(())
    });
    actor
}

/// Whether `kill` with force ends it.
fn ends(it: &Box, actor: &Actor) -> bool {
    let ran = it.says(&[&actor.pid().to_string(), "--force", "--yes"]);
    match ran.code {
        0 => {
            assert!(is_over(actor.pid()), "{ran:?}");
            true
        }
        code => {
            let hint = "hint: root may end it with --override-protected\n";
            assert!(code == 4 && ran.stderr.ends_with(hint), "{ran:?}");
            assert!(!is_over(actor.pid()), "{ran:?}");
            false
        }
    }
}

#[test]
fn a_name_protects_root_and_system_accounts_that_execute_the_hosts_file() {
    if !is_inside(
        "acting::impostors::a_name_protects_root_and_system_accounts_that_execute_the_hosts_file",
    ) || !can_act_as_others()
    {
        return;
    }
    own_opt();
    let it = Box::configured("[protect]\nnames = [\"serve\", \"/opt/engine\"]");
    for name in ["Xorg", "sshd", "serve", "engine"] {
        let path = program(name);
        let copy = it.stage.path(name);
        copy_program("/bin/sleep", &copy);
        let sleeper = |uid| run_as(uid, Command::new(&path).arg("1000"));
        // An upgrade replaces the file while one of them runs.
        let old = sleeper(0);
        std::fs::remove_file(&path).unwrap();
        program(name);
        let cases = [
            ("root's", sleeper(0), true),
            ("a system account's", sleeper(SYSTEM), true),
            ("root's, replaced", old, true),
            ("a person's", sleeper(ALICE), false),
            (
                "another file of root's",
                mounted_over(0, &path, &copy),
                false,
            ),
            (
                "another file of a person's",
                mounted_over(ALICE, &path, &copy),
                false,
            ),
        ];
        let pids: Vec<u32> = cases.iter().map(|(_, actor, _)| actor.pid()).collect();
        it.lists(&pids);
        for (whose, actor, is_protected) in &cases {
            assert_eq!(ends(&it, actor), !is_protected, "{name}: {whose}");
        }
    }
}

#[test]
fn own_code_in_a_program_of_the_system_is_the_persons() {
    if !is_inside("acting::impostors::own_code_in_a_program_of_the_system_is_the_persons")
        || !can_act_as_others()
    {
        return;
    }
    let it = Box::new();
    let Some(actor) = preloaded(&it, ALICE, "/usr/sbin/agetty") else {
        return;
    };
    let pid = actor.pid().to_string();
    let never = || it.stage.json(&["explain", &pid, "-o", "json"])["never_ended"].take();
    it.lists(&[actor.pid()]);
    assert_eq!(never(), json!(null));
    assert!(ends(&it, &actor));
}

#[test]
fn root_alone_overrides_a_protection_and_the_record_says_so() {
    if !is_inside("acting::impostors::root_alone_overrides_a_protection_and_the_record_says_so")
        || !can_act_as_others()
    {
        return;
    }
    own_opt();
    let it = Box::configured("[access]\noperator_group = \"daemon\"");
    let path = program("sshd");
    let [one, other] = [(); 2].map(|()| run_as(0, Command::new(&path).arg("1000")));
    it.lists(&[one.pid(), other.pid(), it.daemon.pid()]);
    let [pid, others] = [one.pid(), other.pid()].map(|pid| pid.to_string());
    let why = "people log in through it, or it keeps their sessions";
    let ran = acting_as(ALICE, &[1], || {
        it.says(&[&pid, "--override-protected", "--yes"])
    });
    let refused = "gpukillctl: cannot end what is protected\nhint: ask root\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (4, refused), "{ran:?}");
    // What its conditions mean is not named.
    let ran = it.says(&["--gpu", "0", "--override-protected", "--batch", "--yes"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let plan = document(&it.says(&[&pid, "--override-protected", "--dry-run", "-o", "json"])).1;
    let target = &plan["targets"][0];
    assert_eq!(
        (&target["fate"], &target["overridden"]),
        (&json!("end"), &json!(why))
    );
    let shown = it.says(&[&pid, "--override-protected", "--dry-run"]).stdout;
    assert!(shown.contains(&format!("{why}: overridden")), "{shown}");
    assert!(!is_over(one.pid()));
    let (code, report) = it.kill(&[&pid, "--override-protected", "--yes"]);
    assert_eq!(
        (code, endings(&report)),
        (0, all(&[one.pid()], "ended", "SIGTERM"))
    );
    let act = it.recorded();
    assert_eq!(act["plan"]["override_protected"], json!(true));
    assert_eq!(act["plan"]["targets"][0]["overridden"], json!(why));
    // The daemon itself is nobody's to end, and the other is not named.
    let daemon = it.daemon.pid().to_string();
    let ran = it.says(&[&daemon, "--override-protected", "--yes"]);
    let refused = format!("gpukillctl: cannot end process {daemon}: it is gpukilld\n");
    assert_eq!((ran.code, ran.stderr), (4, refused));
    let ran = it.says(&[&others, "--yes"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(!is_over(other.pid()));
}

#[test]
fn a_persons_display_server_is_protected_while_its_session_is_active_at_a_seat() {
    if !is_inside(
        "acting::impostors::a_persons_display_server_is_protected_while_its_session_is_active_at_a_seat",
    ) || !can_act_as_others()
    {
        return;
    }
    own_opt();
    let stage = Stage::new();
    let procfs = Procfs::at(stage.path("proc"));
    procfs.link(1);
    let sessions = stage.path("home/run/systemd/sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    let is_in = |active: u32, seat: &str| {
        let text = format!(
            "UID={ALICE}\nACTIVE={active}\nREMOTE=0\nTYPE=wayland\nCLASS=user\n{seat}LEADER=7\n"
        );
        std::fs::write(sessions.join("new"), text).unwrap();
        std::fs::rename(sessions.join("new"), sessions.join("4")).unwrap();
    };
    is_in(1, "SEAT=seat0\n");
    let mut daemon = stage.daemon();
    daemon
        .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root())
        .env("GPUKILLD_BACKENDS_HOST_ROOT", stage.path("home"));
    let it = Box {
        driver: Driver::start(&stage, super::TEARDOWN),
        daemon: stage.start_with(&mut daemon),
        stage,
    };
    let slice = format!("/user.slice/user-{ALICE}.slice");
    let places = [
        (format!("{slice}/session-4.scope"), true),
        (
            format!("{slice}/user@{ALICE}.service/session.slice/shell.service"),
            true,
        ),
        // Of no session at a seat, and of scopes that users make and name.
        (format!("{slice}/session-5.scope"), false),
        (
            "/user.slice/user-7.slice/user@7.service/session-4.scope".to_owned(),
            false,
        ),
        ("/".to_owned(), false),
    ];
    let path = program("gnome-shell");
    let shell = |cgroup: &str| {
        let actor = run_as(ALICE, Command::new(&path).arg("1000"));
        procfs.dress(actor.pid(), &[("cgroup", Some(&format!("0::{cgroup}\n")))]);
        actor
    };
    let ends_shell = |cgroup: &str| {
        let actor = shell(cgroup);
        it.lists(&[actor.pid()]);
        ends(&it, &actor)
    };
    for (cgroup, is_protected) in &places {
        assert_eq!(ends_shell(cgroup), !is_protected, "{cgroup}");
    }
    // Somebody else came to the seat, or there never was one.
    for (active, seat) in [(0, "SEAT=seat0\n"), (1, "")] {
        is_in(active, seat);
        for (cgroup, _) in &places[..2] {
            assert!(ends_shell(cgroup), "{cgroup}");
        }
    }
    // At a seat, too, no other name protects what a person runs.
    is_in(1, "SEAT=seat0\n");
    let login = program("agetty");
    let actor = run_as(ALICE, Command::new(login).arg("1000"));
    let cgroup = format!("0::{}\n", places[0].0);
    procfs.dress(actor.pid(), &[("cgroup", Some(&cgroup))]);
    it.lists(&[actor.pid()]);
    assert!(ends(&it, &actor));
}
