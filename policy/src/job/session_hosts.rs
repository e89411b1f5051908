//! Recognizes session hosts: programs that run the work of people and do none
//! themselves, such as shells, terminals and session servers. A process chooses its own
//! name, so its executable must agree with its name where the executable is known. A
//! file that a person owns counts only while its process leads its session, or its
//! process group on a terminal, as the server of a multiplexer and an interactive shell
//! do. Names are the kernel's, truncated to 15 bytes.
//!
//! A person also chooses the code that runs in a program of the system (`LD_PRELOAD`).
//! So the user must be one that such a program runs as:
//!
//! | program | user | session host |
//! |---|---|---|
//! | login programs, cron, display managers | root, a system account | yes |
//! | | a person | never |
//! | systemd, (sd-pam) | root, a system account | yes |
//! | | a person | in the unit of the person's own manager |
//! | shells, multiplexers, terminals, desktops, servers of ssh, notebooks and editors, supervisors | any | yes |
//!
//! The user does not verify the last row: people run these programs themselves, and one
//! of them may restart the processes below it, as a shell script does. Such a process is
//! no part of the job of a process below it. It is no reason to leave a process out of
//! its own job: [`crate::kill::scope`] decides that by the process table.

use super::ProcessLineage;
use super::script::target_name;
use crate::kill::protection::is_system_path;

/// Programs that run one command for their caller. A service may need such a program,
/// so it never splits a service into several jobs.
const SHELLS: &[&str] = &[
    "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "ksh93", "mksh", "nu", "pwsh", "rbash",
    "sh", "tcsh", "xonsh", "zsh", // Run a command as another user.
    "doas", "runuser", "su", "sudo",
];

/// Programs that start work for people and outlive it.
const SERVERS: &[&str] = &[
    // Multiplexers, and programs that keep a session over a bad connection.
    "SCREEN",
    "abduco",
    "byobu",
    "dtach",
    "etserver",
    "etterminal",
    "mosh-server",
    "screen",
    "tmux",
    "tmux: client",
    "tmux: server",
    "zellij",
    // Login programs. The process of a session of sshd runs as its user.
    "dropbear",
    "sshd",
    "sshd-auth",
    "sshd-session",
    "ttyd",
    // Schedulers of timed commands.
    "anacron",
    // Managers of services.
    "openrc-run",
    "runsv",
    "runsvdir",
    "s6-supervise",
    "s6-svscan",
    "supervisord",
    // Jupyter and similar servers.
    "configurable-ht",
    "jupyter",
    "jupyter-lab",
    "jupyter-noteboo",
    "jupyter-server",
    "jupyterhub",
    "jupyterhub-sing",
    "marimo",
    "rserver",
    "rstudio-server",
    // Servers of editors that run elsewhere.
    "code",
    "code-server",
    "code-tunnel",
    "cursor",
    "cursor-server",
    // Desktops and their terminals.
    "Xorg",
    "Xvnc",
    "Xwayland",
    "alacritty",
    "cinnamon-sessio",
    "foot",
    "gdm-wayland-ses",
    "gdm-x-session",
    "gnome-session-b",
    "gnome-shell",
    "gnome-terminal-",
    "i3",
    "kitty",
    "konsole",
    "kwin_wayland",
    "kwin_x11",
    "mate-session",
    "mate-terminal",
    "openbox",
    "plasmashell",
    "ptyxis",
    "ptyxis-agent",
    "sway",
    "terminator",
    "tilix",
    "urxvt",
    "urxvtd",
    "wezterm-gui",
    "wezterm-mux-ser",
    "xfce4-panel",
    "xfce4-session",
    "xfce4-terminal",
    "xterm",
];

/// Programs that start work for people, and that only root and system accounts run.
const SYSTEM_SERVERS: &[&str] = &[
    // Login programs.
    "agetty",
    "getty",
    "login",
    "mingetty",
    // Schedulers of timed commands.
    "CRON",
    "atd",
    "cron",
    "crond",
    "fcron",
    // Managers of services and sessions.
    "init",
    "systemd-logind",
    // Display managers.
    "gdm",
    "gdm-session-wor",
    "gdm3",
    "lightdm",
    "sddm",
    "sddm-helper",
    "xrdp-sesman",
];

/// Processes of systemd, which manages the units of the host and of each person.
const SYSTEMD: &[&str] = &["(sd-pam)", "systemd"];

/// All names in the lists, as the kernel truncates them.
#[cfg(test)]
pub(super) fn all_names() -> impl Iterator<Item = &'static str> {
    let lists = [SHELLS, SERVERS, SYSTEM_SERVERS, SYSTEMD];
    lists.into_iter().flatten().copied()
}

/// The programs in [`SERVERS`] that start notebook kernels.
const NOTEBOOK_SERVERS: &[&str] = &[
    "jupyter",
    "jupyter-lab",
    "jupyter-noteboo",
    "jupyter-server",
    "jupyterhub-sing",
    "code",
    "code-server",
    "cursor",
    "cursor-server",
];

/// Session hosts that are scripts or modules, so their executable is an interpreter.
const SCRIPTS: &[&str] = &[
    "byobu",
    "code-server",
    "configurable-http-proxy",
    "jupyter",
    "jupyter-lab",
    "jupyter-notebook",
    "jupyter-server",
    "jupyter_server",
    "jupyterhub",
    "jupyterhub-singleuser",
    "jupyterhub.singleuser",
    "jupyterlab",
    "marimo",
    "nbclassic",
    "notebook",
    "supervisord",
    "terminator",
];

/// The scripts in [`SCRIPTS`] that start notebook kernels.
const NOTEBOOK_SCRIPTS: &[&str] = &[
    "code-server",
    "jupyter",
    "jupyter-lab",
    "jupyter-notebook",
    "jupyter-server",
    "jupyter_server",
    "jupyterhub-singleuser",
    "jupyterhub.singleuser",
    "jupyterlab",
    "nbclassic",
    "notebook",
];

/// Executables that are session hosts under many names: busybox and toybox, systemd's
/// own children, and editors with an embedded browser.
const MULTI_NAME_PROGRAMS: &[&str] = &["busybox", "electron", "systemd-executor", "toybox"];

/// Directories of editor servers.
const EDITOR_DIRECTORIES: &[&str] = &[
    "/.cache/JetBrains/RemoteDev",
    "/.cursor-server/",
    "/.positron-server/",
    "/.vscode-server-insiders/",
    "/.vscode-server/",
    "/.vscode/cli/servers/",
    "/.vscodium-server/",
    "/.windsurf-server/",
    "/.zed_server/",
];

/// Programs that start the workers of one job, each in a process group of its own.
const LAUNCHERS: &[&str] = &[
    "accelerate",
    "deepspeed",
    "horovodrun",
    "mpiexec",
    "mpirun",
    "orterun",
    "prterun",
    "srun",
    "torchrun",
];

/// Length of the kernel's process name, in bytes.
const NAME_MAX: usize = 15;

/// Whether the program is an interpreter. Node gives its first thread V8's name for it
/// (20 and later: `node-MainThread`, then `MainThread`).
fn is_interpreter(name: &str) -> bool {
    matches!(name, "node" | "nodejs" | "MainThread" | "node-MainThread")
        || name.starts_with("python")
        || name.starts_with("pypy")
}

/// Whether the process is an interpreter, by its executable, or by its name where the
/// executable is unknown.
pub(super) fn is_interpreter_process(process: &ProcessLineage) -> bool {
    is_interpreter(executable_name(process).unwrap_or(&process.name))
}

/// Whether the process starts the workers of one job.
pub(super) fn is_launcher(process: &ProcessLineage) -> bool {
    let program = executable_name(process);
    [Some(process.name.as_str()), program]
        .iter()
        .flatten()
        .any(|name| LAUNCHERS.contains(name))
        || is_interpreter_process(process)
}

/// Whether the process is a session host.
pub(crate) fn is_session_host(process: &ProcessLineage) -> bool {
    has_verified_name(process, SHELLS) || is_session_server(process)
}

/// Whether a process of this name may be a session host, where no more is known of it.
pub(crate) fn may_be_session_host(name: &str) -> bool {
    is_listed(name) || SYSTEM_SERVERS.contains(&name) || MULTI_NAME_PROGRAMS.contains(&name)
}

/// Whether people run a session host of this name, too.
fn is_listed(name: &str) -> bool {
    SHELLS.contains(&name) || SERVERS.contains(&name) || SYSTEMD.contains(&name)
}

/// Whether the process is a session server, such as a multiplexer, a login program or a
/// Jupyter server. It hosts the work of people who come and go, which a shell does not.
pub(crate) fn is_session_server(process: &ProcessLineage) -> bool {
    let is_systems_own = process.is_system_account();
    has_verified_name(process, SERVERS)
        || (is_systems_own && has_verified_name(process, SYSTEM_SERVERS))
        || ((is_systems_own || is_in_own_manager(process)) && has_verified_name(process, SYSTEMD))
        || is_editor_process(process)
        || runs_any_script(process, SCRIPTS)
}

/// Whether the process is where systemd starts the manager of its user's units, or its
/// unit is unknown. A person's other processes have a unit of their own, or that of a
/// session, and cannot leave it for a manager outside of it.
fn is_in_own_manager(process: &ProcessLineage) -> bool {
    process.unit.as_ref().is_none_or(|unit| match unit.manager {
        Some(_) => unit.name == "init.scope" && unit.manager == process.uid,
        None => {
            let of = unit.name.strip_prefix("user@");
            let of = of.and_then(|of| of.strip_suffix(".service"));
            of.is_some_and(|of| of.parse::<u32>().ok() == process.uid)
        }
    })
}

/// Whether the process starts notebook kernels: a Jupyter server, or the server of an
/// editor.
pub(crate) fn is_notebook_server(process: &ProcessLineage) -> bool {
    has_verified_name(process, NOTEBOOK_SERVERS)
        || is_editor_process(process)
        || runs_any_script(process, NOTEBOOK_SCRIPTS)
}

fn has_verified_name(process: &ProcessLineage, names: &[&str]) -> bool {
    names.contains(&process.name.as_str())
        && executable_name(process).is_none_or(|program| {
            may_have_name(program, &process.name)
                && (is_user_installed(program)
                    || is_system_executable(process)
                    || leads_session_or_group(process))
        })
}

/// Whether people usually install this program themselves: an interpreter or an editor.
fn is_user_installed(program: &str) -> bool {
    is_interpreter(program) || NOTEBOOK_SERVERS.contains(&truncate_name(program))
}

/// Whether the executable lies where only root writes.
fn is_system_executable(process: &ProcessLineage) -> bool {
    let path = process.executable.as_deref();
    path.is_some_and(is_system_path)
}

/// Whether other processes may run below it as its session or as commands of a shell.
fn leads_session_or_group(process: &ProcessLineage) -> bool {
    process.is_session_leader() || (process.on_terminal && process.group == process.key.pid)
}

/// Whether a process of this executable is a session host under this name.
fn may_have_name(program: &str, name: &str) -> bool {
    if is_interpreter(program) {
        return name == "xonsh" || SCRIPTS.iter().any(|script| truncate_name(script) == name);
    }
    // People preload code into programs of the system, and change the name.
    let is_systems = SYSTEM_SERVERS.contains(&name);
    let is_known =
        |program: &str| is_listed(program) || (is_systems && SYSTEM_SERVERS.contains(&program));
    // `screen-4.9.0` and `bash5` carry a version.
    let base = program.trim_end_matches(|c: char| c.is_ascii_digit() || ".-_".contains(c));
    truncate_name(program) == name
        || is_known(truncate_name(program))
        || is_known(base)
        || MULTI_NAME_PROGRAMS.contains(&program)
}

/// Truncates a name as the kernel does.
fn truncate_name(name: &str) -> &str {
    name.get(..NAME_MAX).unwrap_or(name)
}

/// The file name of the executable.
pub(crate) fn executable_name(process: &ProcessLineage) -> Option<&str> {
    let path = process.executable.as_deref()?;
    // The kernel marks a replaced file so.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next()
}

fn is_editor_process(process: &ProcessLineage) -> bool {
    process.executable.as_deref().is_some_and(is_editor_path)
}

fn is_editor_path(path: &str) -> bool {
    EDITOR_DIRECTORIES
        .iter()
        .any(|directory| path.contains(directory))
}

/// Whether the process is an interpreter that runs one of these scripts, or a program
/// that comes with an editor.
fn runs_any_script(process: &ProcessLineage, scripts: &[&str]) -> bool {
    let Some(arguments) = process.arguments.as_deref() else {
        return false;
    };
    let script = target_name(arguments).unwrap_or_default();
    let name = script.rsplit('/').next().unwrap_or_default();
    // Editors come with their own interpreters.
    let program = arguments.first().map_or("", String::as_str);
    is_interpreter_process(process)
        && (scripts.contains(&name) || is_editor_path(script) || is_editor_path(program))
}
