//! Processes that take a protected name, or the name of a session host. A protected name protects
//! processes of root and system accounts that execute the host's own file, and a person's display
//! server at a seat. No name keeps a process out of its job.

use super::{
    KillBox, all_with_ending, is_in_test_namespaces, outcomes, parse_output, planned_pids, sorted,
};
use gpukill_tests::harness::{
    FakeDriver, FakeProcfs, Script, TestBox, TestProcess, can_run_as_other_users, copy_program,
    eventually, eventually_equals, process_has_ended, run_as_user, skip,
};
use serde_json::json;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A person and a system account; no machine has these uids.
const ALICE: u32 = 60_001;
const SYSTEM: u32 = 77;

/// Mounts a tmpfs in this mount namespace where only root may write.
fn mount_private_opt() {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "mode=0755", "none", "/opt"])
        .status();
    assert!(mounted.unwrap().success());
}

/// Creates a system program with this name that sleeps.
fn create_system_program(name: &str) -> PathBuf {
    let path = Path::new("/opt").join(name);
    copy_program("/bin/sleep", &path);
    path
}

/// Starts this command as this user.
fn run_as(uid: u32, command: &mut Command) -> TestProcess {
    TestProcess::spawn(command.uid(uid).gid(uid))
}

/// Compiles a library that sleeps when a program preloads it. Returns `None` where this program
/// is not installed, or there is no compiler.
fn compile_preloaded_code(it: &KillBox, program: &str) -> Option<PathBuf> {
    let source = it.test_box.path("own.c");
    std::fs::write(
        &source,
        "#include <unistd.h>\n__attribute__((constructor)) static void run(void)\n\
         { for (;;) pause(); }\n",
    )
    .unwrap();
    let library = it.test_box.path("own.so");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    if !Path::new(program).exists() || !compiler.status().is_ok_and(|it| it.success()) {
        skip("here is no such program, or no compiler");
        return None;
    }
    Some(library)
}

/// Waits until the process executes this program and has its name.
fn wait_until_executing(pid: u32, program: &str) {
    eventually("it is that program", || {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let file = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        (program.ends_with(name.trim()) && file.file_name() == Path::new(program).file_name())
            .then_some(())
    });
}

/// Starts a process of this user in a mount namespace where `path` is another file.
fn start_with_bind_mount(uid: u32, path: &Path, file: &Path) -> TestProcess {
    let script = format!(
        "mount --bind {} {} && exec setpriv --reuid {uid} --regid {uid} --clear-groups {} 1000",
        file.display(),
        path.display(),
        path.display()
    );
    let mut command = Command::new("unshare");
    let process = TestProcess::spawn(command.args(["--mount", "sh", "-c", &script]));
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    eventually("it is that program", || {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", process.pid())).ok()?;
        (comm.trim() == name).then_some(())
    });
    process
}

/// Whether `kill --force` ends the process.
fn kill_succeeds(it: &KillBox, process: &TestProcess) -> bool {
    let ran = it.kill_output(&[&process.pid().to_string(), "--force", "--yes"]);
    match ran.code {
        0 => {
            assert!(process_has_ended(process.pid()), "{ran:?}");
            true
        }
        code => {
            let hint = "hint: root may end it with --override-protected\n";
            assert!(code == 4 && ran.stderr.ends_with(hint), "{ran:?}");
            assert!(!process_has_ended(process.pid()), "{ran:?}");
            false
        }
    }
}

#[test]
fn name_protects_only_the_hosts_file() {
    if !is_in_test_namespaces("kill::impostors::name_protects_only_the_hosts_file")
        || !can_run_as_other_users()
    {
        return;
    }
    mount_private_opt();
    let it = KillBox::with_settings("[protect]\nnames = [\"serve\", \"/opt/engine\"]");
    for name in ["Xorg", "sshd", "serve", "engine"] {
        let path = create_system_program(name);
        let copy = it.test_box.path(name);
        copy_program("/bin/sleep", &copy);
        let sleeper = |uid| run_as(uid, Command::new(&path).arg("1000"));
        // An upgrade replaces the file while a process runs it.
        let old = sleeper(0);
        std::fs::remove_file(&path).unwrap();
        create_system_program(name);
        let cases = [
            ("root's", sleeper(0), true),
            ("a system account's", sleeper(SYSTEM), true),
            ("root's, replaced", old, true),
            ("a person's", sleeper(ALICE), false),
            (
                "another file of root's",
                start_with_bind_mount(0, &path, &copy),
                false,
            ),
            (
                "another file of a person's",
                start_with_bind_mount(ALICE, &path, &copy),
                false,
            ),
        ];
        let pids: Vec<u32> = cases.iter().map(|(_, process, _)| process.pid()).collect();
        it.add_gpu_processes(&pids);
        for (case, process, is_protected) in &cases {
            assert_eq!(kill_succeeds(&it, process), !is_protected, "{name}: {case}");
        }
    }
}

#[test]
fn preloaded_code_is_not_protected() {
    if !is_in_test_namespaces("kill::impostors::preloaded_code_is_not_protected")
        || !can_run_as_other_users()
    {
        return;
    }
    let it = KillBox::new();
    let program = "/usr/sbin/agetty";
    let Some(library) = compile_preloaded_code(&it, program) else {
        return;
    };
    let process = run_as(ALICE, Command::new(program).env("LD_PRELOAD", library));
    wait_until_executing(process.pid(), program);
    let pid = process.pid().to_string();
    let never = || it.test_box.json(&["explain", &pid, "-o", "json"])["never_ended"].take();
    it.add_gpu_processes(&[process.pid()]);
    assert_eq!(never(), json!(null));
    assert!(kill_succeeds(&it, &process));
}

#[test]
fn disguised_helper_ends_with_its_job() {
    if !is_in_test_namespaces("kill::impostors::disguised_helper_ends_with_its_job")
        || !can_run_as_other_users()
    {
        return;
    }
    mount_private_opt();
    let it = KillBox::new();
    let program = "/usr/sbin/agetty";
    let Some(library) = compile_preloaded_code(&it, program) else {
        return;
    };
    let multiplexer = create_system_program("tmux");
    // One helper is in a user namespace of its own, where this kernel lets people make one.
    let commands = format!(
        "setpriv --reuid={ALICE} --regid={ALICE} --clear-groups launcher -c 'echo $$
         worker 1000 & echo $!
         unshare --user true && ns=\"unshare --user\"
         $ns env LD_PRELOAD={} {program} & echo $!
         {} 1000 & echo $!; wait' & wait; true",
        library.display(),
        multiplexer.display()
    );
    let script = Script::run(&it.test_box, &commands);
    let [launcher, worker, login, server] = script.next_pids();
    wait_until_executing(login, program);
    wait_until_executing(server, "/opt/tmux");
    it.add_gpu_processes(&[worker]);
    let arguments = [&worker.to_string(), "--scope", "job"];
    let whole = sorted([launcher, worker, login, server]);
    let (code, plan) = it.kill_json(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!(code, 0, "{plan:#}");
    let planned = planned_pids(&plan);
    if planned.iter().any(|pid| !whole.contains(pid)) {
        return skip("the tests run in a container, which is the job of all of them");
    }
    assert_eq!(planned, whole);
    let (code, report) = it.kill_json(&[&arguments[..], &["--yes"]].concat());
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&whole, "ended", "SIGTERM"))
    );
    eventually_equals(&Vec::new(), || script.running_pids());
}

#[test]
fn only_root_overrides_a_protection() {
    if !is_in_test_namespaces("kill::impostors::only_root_overrides_a_protection")
        || !can_run_as_other_users()
    {
        return;
    }
    mount_private_opt();
    let it = KillBox::with_settings("[access]\noperator_group = \"daemon\"");
    let path = create_system_program("sshd");
    let [one, other] = [(); 2].map(|()| run_as(0, Command::new(&path).arg("1000")));
    it.add_gpu_processes(&[one.pid(), other.pid(), it.daemon.pid()]);
    let [pid, others] = [one.pid(), other.pid()].map(|pid| pid.to_string());
    let why = "it is a login service or keeps login sessions";
    let ran = run_as_user(ALICE, &[1], || {
        it.kill_output(&[&pid, "--override-protected", "--yes"])
    });
    let refused = "gpukillctl: cannot end protected processes\nhint: ask root\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (4, refused), "{ran:?}");
    // A condition does not name a process, so the override does not apply.
    let ran = it.kill_output(&["--gpu", "0", "--override-protected", "--batch", "--yes"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let plan =
        parse_output(&it.kill_output(&[&pid, "--override-protected", "--dry-run", "-o", "json"])).1;
    let target = &plan["targets"][0];
    assert_eq!(
        (&target["planned_action"], &target["overridden"]),
        (&json!("end"), &json!(why))
    );
    let shown = it
        .kill_output(&[&pid, "--override-protected", "--dry-run"])
        .stdout;
    assert!(shown.contains(&format!("{why}: overridden")), "{shown}");
    assert!(!process_has_ended(one.pid()));
    let (code, report) = it.kill_json(&[&pid, "--override-protected", "--yes"]);
    assert_eq!(
        (code, outcomes(&report)),
        (0, all_with_ending(&[one.pid()], "ended", "SIGTERM"))
    );
    let action = it.newest_action();
    assert_eq!(action["plan"]["override_protected"], json!(true));
    assert_eq!(action["plan"]["targets"][0]["overridden"], json!(why));
    // The daemon cannot be ended at all, and the override does not extend to processes that are
    // not named.
    let daemon = it.daemon.pid().to_string();
    let ran = it.kill_output(&[&daemon, "--override-protected", "--yes"]);
    let refused = format!("gpukillctl: cannot end process {daemon}: it is gpukilld\n");
    assert_eq!((ran.code, ran.stderr), (4, refused));
    let ran = it.kill_output(&[&others, "--yes"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(!process_has_ended(other.pid()));
}

#[test]
fn active_display_server_is_protected() {
    if !is_in_test_namespaces("kill::impostors::active_display_server_is_protected")
        || !can_run_as_other_users()
    {
        return;
    }
    mount_private_opt();
    let test_box = TestBox::new();
    let procfs = FakeProcfs::new(test_box.path("proc"));
    procfs.link_real_process(1);
    let sessions = test_box.path("home/run/systemd/sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    let is_in = |active: u32, seat: &str| {
        let text = format!(
            "UID={ALICE}\nACTIVE={active}\nREMOTE=0\nTYPE=wayland\nCLASS=user\n{seat}LEADER=7\n"
        );
        std::fs::write(sessions.join("new"), text).unwrap();
        std::fs::rename(sessions.join("new"), sessions.join("4")).unwrap();
    };
    is_in(1, "SEAT=seat0\n");
    let mut daemon = test_box.daemon_command();
    daemon
        .env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root())
        .env("GPUKILLD_BACKENDS_HOST_ROOT", test_box.path("home"));
    let it = KillBox {
        driver: FakeDriver::start(&test_box, super::MEMORY_RELEASE_TIME),
        daemon: test_box.start_with(&mut daemon),
        test_box,
    };
    let slice = format!("/user.slice/user-{ALICE}.slice");
    let places = [
        (format!("{slice}/session-4.scope"), true),
        (
            format!("{slice}/user@{ALICE}.service/session.slice/shell.service"),
            true,
        ),
        // These processes are in no session at a seat, and users can create and name such
        // scopes.
        (format!("{slice}/session-5.scope"), false),
        (
            "/user.slice/user-7.slice/user@7.service/session-4.scope".to_owned(),
            false,
        ),
        ("/".to_owned(), false),
    ];
    let path = create_system_program("gnome-shell");
    let shell = |cgroup: &str| {
        let process = run_as(ALICE, Command::new(&path).arg("1000"));
        procfs.link_with_changed_files(
            process.pid(),
            &[("cgroup", Some(&format!("0::{cgroup}\n")))],
        );
        process
    };
    let ends_shell = |cgroup: &str| {
        let process = shell(cgroup);
        it.add_gpu_processes(&[process.pid()]);
        kill_succeeds(&it, &process)
    };
    for (cgroup, is_protected) in &places {
        assert_eq!(ends_shell(cgroup), !is_protected, "{cgroup}");
    }
    // Another session is active at the seat, or the session has no seat.
    for (active, seat) in [(0, "SEAT=seat0\n"), (1, "")] {
        is_in(active, seat);
        for (cgroup, _) in &places[..2] {
            assert!(ends_shell(cgroup), "{cgroup}");
        }
    }
    // No other name protects a person's process, not even at a seat.
    is_in(1, "SEAT=seat0\n");
    let login = create_system_program("agetty");
    let process = run_as(ALICE, Command::new(login).arg("1000"));
    let cgroup = format!("0::{}\n", places[0].0);
    procfs.link_with_changed_files(process.pid(), &[("cgroup", Some(&cgroup))]);
    it.add_gpu_processes(&[process.pid()]);
    assert!(kill_succeeds(&it, &process));
}
