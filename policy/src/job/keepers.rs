//! What keeps people's work and is none itself: shells, terminals, servers of
//! sessions. A process can call itself what it likes, so that its executable
//! has to agree with its name where that is known. A person's own file counts only
//! while its process leads its session, or its process group on a terminal, as the
//! server of a multiplexer and an interactive shell do. Names are the kernel's, of
//! which it keeps 15 bytes.

use super::Kin;
use super::script::script;
use crate::kill::protected::is_the_systems;

/// Programs that run one command for whoever calls them. A service may need one
/// for that, so that they make no jobs of a service's parts.
const SHELLS: &[&str] = &[
    "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "ksh93", "mksh", "nu", "pwsh", "rbash",
    "sh", "tcsh", "xonsh", "zsh", // From one user to another.
    "doas", "runuser", "su", "sudo",
];

/// Programs that start what people want, and outlive it.
const SERVERS: &[&str] = &[
    // Multiplexers, and what keeps a session over a bad line.
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
    // Ways in.
    "agetty",
    "dropbear",
    "getty",
    "login",
    "mingetty",
    "sshd",
    "sshd-auth",
    "sshd-session",
    "ttyd",
    // What starts things at times.
    "CRON",
    "anacron",
    "atd",
    "cron",
    "crond",
    "fcron",
    // Managers of services and sessions.
    "(sd-pam)",
    "init",
    "openrc-run",
    "runsv",
    "runsvdir",
    "s6-supervise",
    "s6-svscan",
    "supervisord",
    "systemd",
    "systemd-logind",
    // Jupyter and its like.
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
    // Editors that run on a box for somebody elsewhere.
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
    "gdm",
    "gdm-session-wor",
    "gdm-wayland-ses",
    "gdm-x-session",
    "gdm3",
    "gnome-session-b",
    "gnome-shell",
    "gnome-terminal-",
    "i3",
    "kitty",
    "konsole",
    "kwin_wayland",
    "kwin_x11",
    "lightdm",
    "mate-session",
    "mate-terminal",
    "openbox",
    "plasmashell",
    "ptyxis",
    "ptyxis-agent",
    "sddm",
    "sddm-helper",
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
    "xrdp-sesman",
    "xterm",
];

/// The kernel's names of all of them.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SHELLS.iter().chain(SERVERS).copied()
}

/// Those of [`SERVERS`] that start the kernels of notebooks.
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

/// Keepers that are scripts or modules, so that an interpreter is their
/// executable.
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

/// Those of [`SCRIPTS`] that start the kernels of notebooks.
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

/// Executables that are keepers under many names: of small boxes, of systemd's
/// own children, and of editors that bring a browser.
const MANY_NAMED: &[&str] = &["busybox", "electron", "systemd-executor", "toybox"];

/// Where editors lie that run on a box for somebody elsewhere.
const EDITORS: &[&str] = &[
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

/// Programs that start the workers of one job, each in a process group of its
/// own.
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

/// How many bytes of a name the kernel keeps.
const NAME_MAX: usize = 15;

/// Programs that run others' code. Node calls its first thread what V8 calls it
/// (20 and later: `node-MainThread`, then `MainThread`).
fn is_interpreter(name: &str) -> bool {
    matches!(name, "node" | "nodejs" | "MainThread" | "node-MainThread")
        || name.starts_with("python")
        || name.starts_with("pypy")
}

/// Whether it runs others' code, by its executable, or by its name where that is
/// not known.
pub(super) fn interprets(process: &Kin) -> bool {
    is_interpreter(program(process).unwrap_or(&process.name))
}

/// Whether it starts the workers of one job.
pub(super) fn launches(process: &Kin) -> bool {
    let program = program(process);
    [Some(process.name.as_str()), program]
        .iter()
        .flatten()
        .any(|name| LAUNCHERS.contains(name))
        || interprets(process)
}

/// Whether this process only keeps people's work.
pub(crate) fn is_keeper(process: &Kin) -> bool {
    is_named(process, SHELLS) || is_server(process)
}

/// Whether a process of this name may be one, where no more is known of it.
pub(crate) fn is_called_like_one(name: &str) -> bool {
    SHELLS.contains(&name) || SERVERS.contains(&name) || MANY_NAMED.contains(&name)
}

/// Whether this process keeps the work of people who come and go, as a shell
/// does not: a multiplexer, a way in, a Jupyter server.
pub(crate) fn is_server(process: &Kin) -> bool {
    is_named(process, SERVERS) || is_of_an_editor(process) || runs_a_server(process)
}

/// Whether this process starts the kernels of notebooks: a Jupyter server, or an editor's
/// server.
pub(crate) fn is_notebook_server(process: &Kin) -> bool {
    is_named(process, NOTEBOOK_SERVERS)
        || is_of_an_editor(process)
        || runs_one_of(process, NOTEBOOK_SCRIPTS)
}

fn is_named(process: &Kin, names: &[&str]) -> bool {
    names.contains(&process.name.as_str())
        && program(process).is_none_or(|program| {
            may_be_called(program, &process.name)
                && (is_installed_by_people(program) || is_of_the_system(process) || leads(process))
        })
}

/// Whether this program is a person's own file as a rule: an interpreter, or an editor.
fn is_installed_by_people(program: &str) -> bool {
    is_interpreter(program) || NOTEBOOK_SERVERS.contains(&cut(program))
}

/// Whether its executable lies where root alone writes.
fn is_of_the_system(process: &Kin) -> bool {
    let path = process.executable.as_deref();
    path.is_some_and(is_the_systems)
}

/// Whether others may run below it as their session or as commands of a shell.
fn leads(process: &Kin) -> bool {
    process.leads_its_session() || (process.on_terminal && process.group == process.key.pid)
}

/// Whether this executable's process is a keeper where it is called so.
fn may_be_called(program: &str, name: &str) -> bool {
    if is_interpreter(program) {
        return name == "xonsh" || SCRIPTS.iter().any(|script| cut(script) == name);
    }
    let is_known = |name: &str| SHELLS.contains(&name) || SERVERS.contains(&name);
    // `screen-4.9.0` and `bash5` are called after what they are a version of.
    let base = program.trim_end_matches(|c: char| c.is_ascii_digit() || ".-_".contains(c));
    cut(program) == name
        || is_known(cut(program))
        || is_known(base)
        || MANY_NAMED.contains(&program)
}

/// What the kernel would keep of this name.
fn cut(name: &str) -> &str {
    name.get(..NAME_MAX).unwrap_or(name)
}

/// The name of its executable.
pub(crate) fn program(process: &Kin) -> Option<&str> {
    let path = process.executable.as_deref()?;
    // As the kernel says that it was replaced since.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next()
}

fn is_of_an_editor(process: &Kin) -> bool {
    process.executable.as_deref().is_some_and(lies_in_an_editor)
}

fn lies_in_an_editor(path: &str) -> bool {
    EDITORS.iter().any(|place| path.contains(place))
}

fn runs_a_server(process: &Kin) -> bool {
    runs_one_of(process, SCRIPTS)
}

/// Whether it is an interpreter that runs one of these scripts, or what an editor brings.
fn runs_one_of(process: &Kin, scripts: &[&str]) -> bool {
    let Some(arguments) = process.arguments.as_deref() else {
        return false;
    };
    let script = script(arguments).unwrap_or_default();
    let name = script.rsplit('/').next().unwrap_or_default();
    // Editors bring interpreters of their own.
    let program = arguments.first().map_or("", String::as_str);
    interprets(process)
        && (scripts.contains(&name) || lies_in_an_editor(script) || lies_in_an_editor(program))
}
