//! Tests of session hosts.

use super::*;

#[test]
fn tree_starts_below_session_hosts() {
    let cases = [
        (
            "a command of a shell",
            vec![lineage(9, "bash"), lineage(8, "sshd")],
            100,
        ),
        (
            "a worker of a launcher",
            vec![
                lineage(50, "torchrun"),
                lineage(9, "bash"),
                lineage(8, "tmux: server"),
            ],
            50,
        ),
        (
            "a worker of a script",
            vec![
                lineage(50, "python"),
                lineage(49, "train.sh"),
                lineage(9, "zsh"),
            ],
            49,
        ),
        (
            "what outlived its shell",
            vec![lineage(50, "python"), lineage(8, "systemd")],
            50,
        ),
        (
            "all the way up",
            vec![lineage(50, "python"), lineage(40, "python")],
            40,
        ),
        (
            "a kernel of Jupyter",
            vec![lineage(9, "jupyter-lab"), lineage(8, "bash")],
            100,
        ),
        (
            "a kernel of a Jupyter that Python runs",
            vec![command(
                lineage(9, "python3"),
                "python3 -m jupyterlab --port 8888",
            )],
            100,
        ),
        (
            "a worker of a kernel",
            vec![
                command(
                    lineage(50, "python3.12"),
                    "python3.12 -m ipykernel_launcher -f x.json",
                ),
                command(
                    lineage(9, "python3.12"),
                    "/opt/bin/python3.12 /opt/bin/jupyter-lab",
                ),
            ],
            50,
        ),
        (
            "what an editor's server started",
            vec![
                lineage(50, "python"),
                command(
                    lineage(9, "node"),
                    "/home/a/.vscode-server/bin/1/node out/server-main.js",
                ),
            ],
            50,
        ),
        (
            "what another editor's server started",
            vec![command(
                lineage(9, "node"),
                "node --inspect /home/a/.cursor-server/bin/1/out/server-main.js",
            )],
            100,
        ),
        (
            "a worker of a script that lies beside a Jupyter",
            vec![command(
                lineage(50, "python3"),
                "python3 -u /srv/jupyterhub/train.py --name jupyter-lab",
            )],
            50,
        ),
        (
            "at a time",
            vec![lineage(50, "backup"), lineage(9, "sh"), lineage(8, "cron")],
            50,
        ),
        ("alone", vec![], 100),
    ];
    for (what, ancestors, expected) in cases {
        assert_eq!(
            tree(&lineage(100, "python"), &ancestors),
            expected,
            "{what}"
        );
    }
}

#[test]
fn session_hosts_by_executable() {
    let node = "/home/a/.vscode-server/bin/1/node";
    let keepers = [
        executing(9, "MainThread", node),
        executing(9, "node-MainThread", "/home/a/.cursor-server/cli/node"),
        executing(
            9,
            "java",
            "/home/a/.cache/JetBrains/RemoteDev/dist/1/jbr/bin/java",
        ),
        executing(
            9,
            "zed-remote-serv",
            "/home/a/.zed_server/zed-remote-server",
        ),
        executing(9, "bash", "/usr/bin/bash"),
        executing(9, "sh", "/usr/bin/dash"),
        executing(9, "ash", "/bin/busybox"),
        executing(9, "sshd", "/usr/sbin/sshd (deleted)"),
        executing(9, "tmux: server", "/usr/bin/tmux"),
        executing(9, "SCREEN", "/usr/bin/screen-4.9.0"),
        executing(9, "gnome-session-b", "/usr/libexec/gnome-session-binary"),
        executing(9, "jupyter-lab", "/usr/bin/python3.12"),
        executing(9, "(sd-pam)", "/usr/lib/systemd/systemd-executor"),
        lineage(9, "cinnamon-sessio"),
        lineage(9, "i3"),
        lineage(9, "Xvnc"),
        command(
            executing(9, "MainThread", "/usr/bin/node"),
            "node /opt/code-server",
        ),
        command(lineage(9, "MainThread"), "node /a/.windsurf-server/main.js"),
        command(
            executing(9, "x", "/usr/bin/python3"),
            "python3 -m marimo edit",
        ),
    ];
    for keeper in keepers {
        assert_eq!(
            tree(&lineage(100, "python"), std::slice::from_ref(&keeper)),
            100,
            "{keeper:?}"
        );
    }
    let others = [
        // A process needs one prctl to take this name.
        executing(9, "bash", "/usr/bin/python3.12"),
        executing(9, "tmux: server", "/opt/train/bin/train"),
        executing(9, "jupyter-lab", "/opt/train/bin/train"),
        executing(9, "train.sh", "/usr/bin/bash"),
        command(
            executing(9, "python3", "/opt/train"),
            "python3 -m jupyterlab",
        ),
        command(lineage(9, "python3"), "python3 -c x jupyter-lab"),
    ];
    for other in others {
        assert_eq!(
            tree(&lineage(100, "python"), std::slice::from_ref(&other)),
            9,
            "{other:?}"
        );
    }
}

#[test]
fn session_host_units_are_no_jobs() {
    let keepers = [
        ("session-3.scope", None),
        ("session-c1.scope", None),
        ("init.scope", None),
        ("init.scope", Some(ALICE)),
        ("user@1000.service", None),
        ("getty@tty1.service", None),
        ("sshd.service", None),
        ("sshd@7-10.0.0.1:22-10.0.0.2:5555.service", None),
        ("cron.service", None),
        ("jupyterhub.service", None),
        ("jupyter-alice-singleuser.service", None),
        ("tmux.service", Some(ALICE)),
        ("tmux-spawn-0b3c.scope", Some(ALICE)),
        ("gdm.service", None),
        ("slurmd.service", None),
        ("node1_slurmstepd.scope", None),
        ("app-gnome-org.gnome.Terminal-4242.scope", Some(ALICE)),
        ("app-org.kde.konsole-1.scope", Some(ALICE)),
        ("vte-spawn-1f.scope", Some(ALICE)),
        ("gnome-terminal-server.service", Some(ALICE)),
        ("dbus.service", Some(ALICE)),
        ("rstudio-server.service", None),
        ("teleport.service", None),
        ("supervisor.service", None),
        ("supervisord.service", None),
        ("amazon-ssm-agent.service", None),
        ("tailscaled.service", None),
        ("ttyd.service", None),
        ("xrdp.service", None),
        ("xrdp-sesman.service", None),
        ("vncserver@:1.service", None),
        ("nxserver.service", None),
        ("sge_execd.service", None),
        ("sgeexecd.p6444.service", None),
        ("snap.code.code-0b3c.scope", Some(ALICE)),
        ("ptyxis-spawn-0b3c.scope", Some(ALICE)),
    ];
    for (name, manager) in keepers {
        assert!(is_session_unit(&unit(name, manager)), "{name}");
    }
    let jobs = [
        ("train.service", None),
        ("ollama.service", None),
        ("train.service", Some(ALICE)),
        // Such a unit may host sessions; its name does not show it.
        ("run-r0123.scope", Some(ALICE)),
        ("run-u7.service", None),
        // In the system's own systemd these are ordinary services.
        ("app-server.service", None),
        ("machine-qemu\\x2d1.scope", None),
    ];
    for (name, manager) in jobs {
        assert!(!is_session_unit(&unit(name, manager)), "{name}");
    }
}

#[test]
fn own_file_must_lead_to_host_sessions() {
    let of = |path: &str, group: u32, session: u32, on_terminal: bool| {
        let name = path.rsplit('/').next().unwrap();
        is_session_host(&ProcessLineage {
            group,
            session,
            on_terminal,
            ..executing(9, name, path)
        })
    };
    for name in ["tmux", "screen", "bash", "sudo"] {
        let own = format!("/home/alice/bin/{name}");
        assert!(of(&format!("/usr/bin/{name}"), 1, 1, false), "{name}");
        assert!(of(&format!("/usr/local/bin/{name}"), 1, 1, false), "{name}");
        assert!(!of(&own, 1, 1, false), "{name}");
        assert!(!of(&own, 9, 1, false), "{name}");
        assert!(!of(&own, 1, 1, true), "{name}");
        // A server, the shell of a pane, and a shell on a terminal.
        assert!(of(&own, 9, 9, false), "{name}");
        assert!(of(&own, 9, 9, true), "{name}");
        assert!(of(&own, 9, 1, true), "{name}");
    }
    // People usually install editors themselves.
    assert!(of("/home/alice/Applications/cursor", 1, 1, false));
    assert!(of("/snap/code/1/usr/share/code/code", 1, 1, false));
}

#[test]
fn login_programs_belong_to_the_system() {
    for (name, path) in [
        ("agetty", "/usr/sbin/agetty"),
        ("login", "/usr/bin/login"),
        ("CRON", "/usr/sbin/cron"),
        ("crond", "/bin/busybox"),
        ("gdm-session-wor", "/usr/libexec/gdm-session-worker"),
        ("systemd-logind", "/usr/lib/systemd/systemd-logind"),
    ] {
        let is_host = |uid, uid_min, namespace_creator| {
            let process = ProcessLineage {
                uid,
                uid_min,
                namespace_creator,
                ..executing(9, name, path)
            };
            assert_eq!(is_session_host(&process), is_session_server(&process));
            is_session_host(&process)
        };
        assert!(is_host(Some(0), 1000, None), "{name}");
        assert!(is_host(Some(999), 1000, None), "{name}");
        assert!(is_host(None, 1000, None), "{name}");
        // A person, who may have preloaded any code, also as root of a namespace.
        assert!(!is_host(Some(ALICE), 1000, None), "{name}");
        assert!(!is_host(Some(999), 500, None), "{name}");
        assert!(!is_host(Some(0), 1000, Some(ALICE)), "{name}");
        // Such a process above a worker is part of the worker's job.
        let above = [executing(9, name, path), lineage(8, "bash")];
        assert_eq!(tree(&lineage(100, "python"), &above), 9, "{name}");
        // Another name, or another program of the system, does not help.
        let renamed = executing(9, "bash", path);
        assert_eq!(is_session_host(&renamed), path == "/bin/busybox", "{path}");
    }
}

#[test]
fn systemd_of_a_person_runs_in_its_own_unit() {
    let is_host = |uid: u32, name: &str, unit: Option<Unit>| {
        is_session_host(&ProcessLineage {
            uid: Some(uid),
            unit,
            ..executing(9, name, "/usr/lib/systemd/systemd")
        })
    };
    for name in ["systemd", "(sd-pam)"] {
        for (place, expected) in [
            (unit("init.scope", Some(ALICE)), true),
            (unit("user@1000.service", None), true),
            (unit("init.scope", Some(1001)), false),
            (unit("user@1001.service", None), false),
            (unit("session-3.scope", None), false),
            (unit("train.service", Some(ALICE)), false),
        ] {
            let actual = is_host(ALICE, name, Some(place.clone()));
            assert_eq!(actual, expected, "{name} {place:?}");
            assert!(is_host(0, name, Some(place)), "{name}");
        }
        assert!(is_host(ALICE, name, None), "{name}");
    }
}
