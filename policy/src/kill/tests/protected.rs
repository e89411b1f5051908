//! What nobody ends, one kind after the other, and who only looks like it.

use super::super::*;
use super::scene::*;
use gpukill_proto::kill::{Fate, KillRequest, KillScope, Protected};

/// A system account.
pub(super) const SYSTEM: u32 = 999;

const FIRST: &str = "it is process 1, on which all others depend";
const WATCHES: &str = "it watches the devices, and holds no memory";
const DISPLAY: &str = "it is a display server: it ends with its session";
const MPS: &str = "it is an MPS server: all its clients would end with it";
pub(super) const LOGIN: &str = "people log in through it, or it keeps their sessions";

/// How this process is protected.
fn protected(scene: &Scene, pid: u32) -> Option<Protected> {
    protected::protection(&scene.crowd[&pid], &scene.crowd, &scene.protection)
}

/// Why process 300 is protected.
pub(super) fn why(scene: &Scene) -> Option<String> {
    protected(scene, 300).map(|it| it.why)
}

/// Why a process of root's is protected that is such.
pub(super) fn why_of(name: &str, change: impl FnOnce(&mut Candidate)) -> Option<String> {
    let mut scene = Scene::new();
    let process = scene.add(process(300, 1, 0, name));
    change(process);
    why(&scene)
}

#[test]
fn each_kind_of_process_on_which_others_depend_is_protected() {
    let executing = |path: &'static str| {
        move |process: &mut Candidate| process.kin.executable = Some(path.to_owned())
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
            why_of(name, executing(path)).as_deref(),
            Some(expected),
            "{name}"
        );
        let unknown = why_of(name, |process| process.kin.executable = None);
        assert_eq!(unknown.as_deref(), Some(expected), "{name}");
    }
    for name in ["python", "torchrun", "nvtop", "nvidia-smi", "bash", "vllm"] {
        assert_eq!(why_of(name, |_| {}), None, "{name}");
    }
}

#[test]
fn process_1_and_threads_of_the_kernel_are_protected() {
    let scene = Scene::new();
    assert_eq!(protected(&scene, 1), Some(Protected::always(FIRST)));
    let thread = why_of("kworker/0:1", |process| process.is_kernel_thread = true);
    assert_eq!(thread.as_deref(), Some("it is a thread of the kernel"));
}

#[test]
fn the_daemon_what_it_runs_below_and_what_it_started_are_protected() {
    let mut scene = Scene::new();
    scene.add(process(40, 1, 0, "s6-svscan"));
    scene.add(process(50, 40, 0, "run"));
    scene.at(90).parent = 50;
    scene.fork(92, 91, "python");
    scene.add(process(300, 50, 0, "python"));
    for pid in [40, 50, 90, 91, 92] {
        scene.at(pid).kin.name = "python".into();
    }
    let all = [40, 50, 90, 91, 92, 300].map(|pid| protected(&scene, pid));
    let expected = [
        Some("gpukilld runs below it"),
        Some("gpukilld runs below it"),
        Some("it is gpukilld"),
        Some("it is a part of gpukilld"),
        Some("it is a part of gpukilld"),
        None,
    ];
    assert_eq!(all, expected.map(|why| why.map(Protected::always)));
}

#[test]
fn parents_that_are_read_as_a_circle_end_no_loop() {
    let mut scene = Scene::new();
    scene.at(90).parent = 91;
    scene.add(process(300, 301, 0, "python"));
    scene.add(process(301, 300, 0, "python"));
    assert_eq!(why(&scene), None);
}

#[test]
fn a_process_that_only_looks_like_one_is_not_protected() {
    type Change = fn(&mut Candidate);
    let elsewhere: Change = |p| p.kin.executable = Some("/home/eve/Xorg".into());
    let cases: [(&str, &str, Change); 7] = [
        ("it lies where eve writes", "Xorg", elsewhere),
        ("it is another program", "sshd", |p| {
            p.kin.executable = Some("/usr/bin/python3.12".into());
        }),
        ("of another kind", "Xorg", |p| {
            p.kin.executable = Some("/usr/sbin/sshd".into());
        }),
        ("its directory only begins like one", "sshd", |p| {
            p.kin.executable = Some("/usrs/bin/sshd".into());
        }),
        ("of no directory", "sshd", |p| {
            p.kin.executable = Some("/usr".into())
        }),
        ("of a path that is none", "sshd", |p| {
            p.kin.executable = Some("usr/bin/sshd".into())
        }),
        ("in a namespace of eve's", "nvidia-persistenced", |p| {
            p.namespace_owner = Reading::Value(Some(1005));
        }),
    ];
    for (what, name, change) in cases {
        assert_eq!(why_of(name, change), None, "{what}");
    }
    let in_doubt = why_of("Xorg", |p| p.namespace_owner = Reading::Failed("x".into()));
    assert_eq!(in_doubt.as_deref(), Some(DISPLAY));
}

/// Why process 300 is protected that is such, where the admin protects this.
pub(super) fn by_admin(
    protection: fn(&mut Protection),
    name: &str,
    change: impl FnOnce(&mut Candidate),
) -> Option<String> {
    let mut scene = Scene::new();
    protection(&mut scene.protection);
    change(scene.add(process(300, 1, ALICE, name)));
    why(&scene)
}

/// As [`by_admin`], of a process of a system account.
pub(super) fn by_admin_of_system(
    protection: fn(&mut Protection),
    name: &str,
    change: impl FnOnce(&mut Candidate),
) -> Option<String> {
    by_admin(protection, name, |process| {
        process.kin.uid = Some(SYSTEM);
        process.uids = Reading::Value(Uids::all(SYSTEM));
        change(process);
    })
}

#[test]
fn the_admin_protects_by_name() {
    let named: fn(&mut Protection) = |p| p.names = vec!["inference-server".into()];
    let path: fn(&mut Protection) = |p| p.names = vec!["/srv/bin/serve".into()];
    let executing = |path: &'static str| {
        move |process: &mut Candidate| process.kin.executable = Some(path.to_owned())
    };
    let whole = Some("the admin protects what is called inference-server");
    let of_path = Some("the admin protects what is called /srv/bin/serve");
    let there = executing("/opt/lab/inference-server");
    let cases = [
        (
            "cut",
            by_admin_of_system(named, "inference-server", there),
            whole,
        ),
        (
            "not known what it executes",
            by_admin_of_system(named, "inference-server", |p| p.kin.executable = None),
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
            by_admin_of_system(path, "serve", |p| p.kin.executable = None),
            of_path,
        ),
        (
            "no path, another name",
            by_admin_of_system(path, "x", |p| p.kin.executable = None),
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
                p.kin.executable = Some("/srv/bin/serve".into());
                p.program = Reading::Value(ProgramOrigin::Elsewhere);
            }),
            None,
        ),
        (
            "in a namespace of somebody's",
            by_admin_of_system(path, "serve", |p| {
                p.kin.executable = Some("/srv/bin/serve".into());
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
fn what_is_protected_is_so_for_root_and_for_whoever_owns_it() {
    let mut scene = Scene::new();
    scene.add(process(300, 1, SYSTEM, "nv-hostengine"));
    scene.uses(300, 0, 1);
    let scene = scene.with_jobs();
    for caller in [caller(0, &[]), olga(), caller(ALICE, &[])] {
        for any_process in [false, caller.uid == 0] {
            let request = KillRequest {
                any_process,
                force: true,
                ..request(pids(&[300]), KillScope::Process)
            };
            let plan = scene.plan(&caller, &request).unwrap();
            assert_eq!(
                plan.targets[0].fate,
                Fate::Protected(Protected::unless_overridden(WATCHES))
            );
        }
    }
}
