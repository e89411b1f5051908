//! Tests of each kind of protected process, and of processes that only look like one.

use super::super::*;
use super::fixture::*;
use gpukill_proto::kill::{KillRequest, KillScope, PlannedAction, ProtectionReason};

/// A system account.
pub(super) const SYSTEM: u32 = 999;

const FIRST: &str = "it is process 1, and all other processes depend on it";
const WATCHES: &str = "it monitors the devices and holds no memory";
const DISPLAY: &str = "it is a display server and ends with its session";
const MPS: &str = "it is an MPS server, and all its clients would end with it";
pub(super) const LOGIN: &str = "it is a login service or keeps login sessions";

/// The protection of this process.
fn find_protection(test_host: &KillTestHost, pid: u32) -> Option<ProtectionReason> {
    protection::protection_of(
        &test_host.process_table[&pid],
        &test_host.daemon_family(),
        &test_host.protection,
    )
}

/// The protection of process 300.
pub(super) fn protection_reason(test_host: &KillTestHost) -> Option<String> {
    find_protection(test_host, 300).map(|it| it.why)
}

/// The protection of a process of root with this name and change.
pub(super) fn root_protection_reason(
    name: &str,
    change: impl FnOnce(&mut ProcessInfo),
) -> Option<String> {
    let mut test_host = KillTestHost::new();
    let process = test_host.add(process(300, 1, 0, name));
    change(process);
    protection_reason(&test_host)
}

#[test]
fn each_kind_is_protected() {
    let executing = |path: &'static str| {
        move |process: &mut ProcessInfo| process.lineage.executable = Some(path.to_owned())
    };
    let cases: [(&str, &str, &str); 20] = [
        (
            "nvidia-persistenced",
            "/usr/bin/nvidia-persistenced",
            WATCHES,
        ),
        ("nv-hostengine", "/usr/bin/nv-hostengine", WATCHES),
        ("nv-fabricmanager", "/usr/bin/nv-fabricmanager", WATCHES),
        (
            "nvidia_gpu_exporter",
            "/usr/local/bin/nvidia_gpu_exporter",
            WATCHES,
        ),
        ("gpukilld", "/usr/sbin/gpukilld", WATCHES),
        (
            "nvidia-cuda-mps-control",
            "/usr/bin/nvidia-cuda-mps-control",
            MPS,
        ),
        (
            "nvidia-cuda-mps-server",
            "/opt/nvidia/bin/nvidia-cuda-mps-server",
            MPS,
        ),
        ("Xorg", "/usr/lib/xorg/Xorg", DISPLAY),
        ("X", "/usr/lib/xorg/Xorg", DISPLAY),
        ("Xwayland", "/usr/bin/Xwayland (deleted)", DISPLAY),
        ("gnome-shell", "/usr/bin/gnome-shell", DISPLAY),
        (
            "gdm-session-worker",
            "/usr/libexec/gdm-session-worker",
            DISPLAY,
        ),
        ("kwin_wayland", "/bin/kwin_wayland", DISPLAY),
        ("sddm", "/usr/bin/sddm", DISPLAY),
        ("lightdm", "/usr/sbin/lightdm", DISPLAY),
        ("sshd", "/usr/sbin/sshd", LOGIN),
        ("sshd-session", "/usr/lib/openssh/sshd-session", LOGIN),
        ("login", "/bin/login", LOGIN),
        ("systemd-logind", "/lib/systemd/systemd-logind", LOGIN),
        ("systemd", "/lib64/systemd/systemd", LOGIN),
    ];
    for (name, path, expected) in cases {
        assert_eq!(
            root_protection_reason(name, executing(path)).as_deref(),
            Some(expected),
            "{name}"
        );
        let unknown = root_protection_reason(name, |process| process.lineage.executable = None);
        assert_eq!(unknown.as_deref(), Some(expected), "{name}");
    }
    for name in ["python", "torchrun", "nvtop", "nvidia-smi", "bash", "vllm"] {
        assert_eq!(root_protection_reason(name, |_| {}), None, "{name}");
    }
}

#[test]
fn process_1_and_kernel_threads_are_protected() {
    let test_host = KillTestHost::new();
    assert_eq!(
        find_protection(&test_host, 1),
        Some(ProtectionReason::always(FIRST))
    );
    let thread = root_protection_reason("kworker/0:1", |process| process.is_kernel_thread = true);
    assert_eq!(thread.as_deref(), Some("it is a kernel thread"));
}

#[test]
fn daemon_ancestors_and_children_are_protected() {
    let mut test_host = KillTestHost::new();
    test_host.add(process(40, 1, 0, "s6-svscan"));
    test_host.add(process(50, 40, 0, "run"));
    test_host.process_mut(90).parent = 50;
    test_host.fork(92, 91, "python");
    test_host.add(process(300, 50, 0, "python"));
    for pid in [40, 50, 90, 91, 92] {
        test_host.process_mut(pid).lineage.name = "python".into();
    }
    let all = [40, 50, 90, 91, 92, 300].map(|pid| find_protection(&test_host, pid));
    let expected = [
        Some("it is an ancestor of gpukilld"),
        Some("it is an ancestor of gpukilld"),
        Some("it is gpukilld"),
        Some("it is part of gpukilld"),
        Some("it is part of gpukilld"),
        None,
    ];
    assert_eq!(all, expected.map(|why| why.map(ProtectionReason::always)));
}

#[test]
fn parent_cycle_terminates() {
    let mut test_host = KillTestHost::new();
    test_host.process_mut(90).parent = 91;
    test_host.add(process(300, 301, 0, "python"));
    test_host.add(process(301, 300, 0, "python"));
    assert_eq!(protection_reason(&test_host), None);
}

/// With a walk to the top for each process this takes minutes: 200 million steps in each check.
#[test]
fn long_chain_of_children_is_planned() {
    const LENGTH: u32 = 20_000;
    let mut test_host = KillTestHost::new();
    test_host.add(process(1_000, 1, ALICE, "python"));
    test_host.list_process(1_000, 0, 1);
    for pid in 1_001..1_000 + LENGTH {
        test_host.fork(pid, pid - 1, "python");
    }
    let plan = test_host.plan(&alice(), &request(pids(&[1_000]), KillScope::Tree));
    let targets = plan.unwrap().targets;
    assert_eq!(targets.len(), 20_000);
}

#[test]
fn lookalikes_are_not_protected() {
    type LookalikeChange = fn(&mut ProcessInfo);
    let elsewhere: LookalikeChange = |p| p.lineage.executable = Some("/home/eve/Xorg".into());
    let cases: [(&str, &str, LookalikeChange); 7] = [
        ("it lies where eve writes", "Xorg", elsewhere),
        ("it is another program", "sshd", |p| {
            p.lineage.executable = Some("/usr/bin/python3.12".into());
        }),
        ("of another kind", "Xorg", |p| {
            p.lineage.executable = Some("/usr/sbin/sshd".into());
        }),
        ("its directory only begins like one", "sshd", |p| {
            p.lineage.executable = Some("/usrs/bin/sshd".into());
        }),
        ("of no directory", "sshd", |p| {
            p.lineage.executable = Some("/usr".into())
        }),
        ("of a path that is none", "sshd", |p| {
            p.lineage.executable = Some("usr/bin/sshd".into())
        }),
        ("in a namespace of eve's", "nvidia-persistenced", |p| {
            p.namespace_owner = Reading::Value(Some(1005));
        }),
    ];
    for (what, name, change) in cases {
        assert_eq!(root_protection_reason(name, change), None, "{what}");
    }
    let in_doubt =
        root_protection_reason("Xorg", |p| p.namespace_owner = Reading::Failed("x".into()));
    assert_eq!(in_doubt.as_deref(), Some(DISPLAY));
}

/// The protection of process 300 with this name and change, under these settings of the
/// admin.
pub(super) fn by_admin(
    protection: fn(&mut Protection),
    name: &str,
    change: impl FnOnce(&mut ProcessInfo),
) -> Option<String> {
    let mut test_host = KillTestHost::new();
    protection(&mut test_host.protection);
    change(test_host.add(process(300, 1, ALICE, name)));
    protection_reason(&test_host)
}

/// As [`by_admin`], for a process of a system account.
pub(super) fn by_admin_of_system(
    protection: fn(&mut Protection),
    name: &str,
    change: impl FnOnce(&mut ProcessInfo),
) -> Option<String> {
    by_admin(protection, name, |process| {
        process.lineage.uid = Some(SYSTEM);
        process.uids = Reading::Value(Uids::from_single(SYSTEM));
        change(process);
    })
}

#[test]
fn names_are_protected() {
    let named: fn(&mut Protection) = |p| p.names = vec!["inference-server".into()];
    let path: fn(&mut Protection) = |p| p.names = vec!["/srv/bin/serve".into()];
    let executing = |path: &'static str| {
        move |process: &mut ProcessInfo| process.lineage.executable = Some(path.to_owned())
    };
    let whole = Some("the admin protects the name inference-server");
    let of_path = Some("the admin protects the name /srv/bin/serve");
    let there = executing("/opt/lab/inference-server");
    let cases = [
        (
            "cut",
            by_admin_of_system(named, "inference-server", there),
            whole,
        ),
        (
            "not known what it executes",
            by_admin_of_system(named, "inference-server", |p| p.lineage.executable = None),
            whole,
        ),
        (
            "another",
            by_admin_of_system(named, "inference", executing("/opt/lab/inference")),
            None,
        ),
        (
            "a copy",
            by_admin_of_system(
                named,
                "inference-server",
                executing("/home/eve/inference-server"),
            ),
            None,
        ),
        (
            "a name only",
            by_admin_of_system(named, "inference-server", executing("/usr/bin/python3")),
            None,
        ),
        (
            "a path",
            by_admin_of_system(path, "serve", executing("/srv/bin/serve")),
            of_path,
        ),
        (
            "whatever it calls itself",
            by_admin_of_system(path, "x", executing("/srv/bin/serve")),
            of_path,
        ),
        (
            "another path",
            by_admin_of_system(path, "serve", executing("/home/eve/serve")),
            None,
        ),
        (
            "no path",
            by_admin_of_system(path, "serve", |p| p.lineage.executable = None),
            of_path,
        ),
        (
            "no path, another name",
            by_admin_of_system(path, "x", |p| p.lineage.executable = None),
            None,
        ),
        (
            "a person's",
            by_admin(
                named,
                "inference-server",
                executing("/opt/lab/inference-server"),
            ),
            None,
        ),
        (
            "a person's path",
            by_admin(path, "serve", executing("/srv/bin/serve")),
            None,
        ),
        (
            "a path of a container",
            by_admin_of_system(path, "serve", |p| {
                p.lineage.executable = Some("/srv/bin/serve".into());
                p.program = Reading::Value(ProgramOrigin::Elsewhere);
            }),
            None,
        ),
        (
            "in a namespace of somebody's",
            by_admin_of_system(path, "serve", |p| {
                p.lineage.executable = Some("/srv/bin/serve".into());
                p.namespace_owner = Reading::Value(Some(ALICE));
            }),
            None,
        ),
    ];
    for (what, found, expected) in cases {
        assert_eq!(found.as_deref(), expected, "{what}");
    }
}

#[test]
fn protection_holds_for_root_and_owner() {
    let mut test_host = KillTestHost::new();
    test_host.add(process(300, 1, SYSTEM, "nv-hostengine"));
    test_host.list_process(300, 0, 1);
    let test_host = test_host.with_jobs();
    for caller in [caller(0, &[]), olga(), caller(ALICE, &[])] {
        for any_process in [false, caller.uid == 0] {
            let request = KillRequest {
                any_process,
                force: true,
                ..request(pids(&[300]), KillScope::Process)
            };
            let plan = test_host.plan(&caller, &request).unwrap();
            assert_eq!(
                plan.targets[0].action,
                PlannedAction::Protected(ProtectionReason::unless_overridden(WATCHES))
            );
        }
    }
}
