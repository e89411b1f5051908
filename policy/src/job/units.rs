//! Recognizes systemd services and scopes that are session hosts, by their names.

use gpukill_proto::model::Unit;

/// Services that host other work: the name before `.service` and before the `@…` of a
/// template.
#[rustfmt::skip]
const SERVICES: &[&str] = &[
    // Login services.
    "amazon-ssm-agent", "autovt", "console-getty", "container-getty", "dropbear", "getty", "mosh",
    "serial-getty", "ssh", "sshd", "tailscaled", "teleport", "ttyd",
    // Schedulers of timed commands.
    "anacron", "atd", "cron", "crond", "cronie", "fcron",
    // Supervisors of configured programs.
    "supervisor", "supervisord",
    // Batch schedulers that give their jobs no control groups of their own.
    "condor", "lsfd", "pbs", "pbs_jobs", "pbs_mom", "sge_execd", "sgeexecd", "slurmd", "slurmstepd",
    // Multiplexers, editors and terminals of people.
    "code-server", "code-tunnel", "rstudio-server", "screen", "tmux", "gnome-terminal-server",
    // Desktops.
    "display-manager", "gdm", "gdm3", "greetd", "lightdm", "ly", "lxdm", "nxserver", "sddm",
    "vncserver", "xdm",
    // The systemd instance of a user.
    "user",
];

/// Prefixes of scopes that are sessions, panes or tabs, or an editor with its
/// terminals.
const SCOPES: &[&str] = &[
    "ptyxis-spawn-",
    "session-",
    "snap.code-insiders.",
    "snap.code.",
    "tmux-spawn-",
];

/// Whether the unit is a session host: a session, shell, Jupyter server or desktop.
pub(super) fn is_session_unit(unit: &Unit) -> bool {
    if let Some(scope) = unit.name.strip_suffix(".scope") {
        let of_a_desktop = unit.manager.is_some() && is_desktop_unit(scope);
        return of_a_desktop
            || scope == "init"
            || scope == "slurmstepd"
            || SCOPES.iter().any(|head| scope.starts_with(head))
            || scope.ends_with("_slurmstepd");
    }
    let Some(service) = unit.name.strip_suffix(".service") else {
        return false;
    };
    let template = service
        .split_once('@')
        .map_or(service, |(template, _)| template);
    SERVICES.contains(&template)
        // The hub, its proxy, and the servers it spawns: `jupyter-alice-singleuser`.
        || template.starts_with("jupyter")
        // `xrdp` and `xrdp-sesman`. Grid Engine adds its cell: `sgeexecd.p6444`.
        || template.starts_with("xrdp")
        || template.starts_with("sgeexecd.")
        || (unit.manager.is_some() && is_desktop_unit(service))
}

/// Whether a desktop manages this unit. Desktops start each application, and each shell
/// of a terminal, in a unit of its own. No name identifies a terminal for sure; the
/// process tree below the unit does.
fn is_desktop_unit(name: &str) -> bool {
    [
        "app-",
        "vte-spawn-",
        "dbus-",
        "gnome-",
        "org.gnome.",
        "plasma-",
        "xfce",
    ]
    .iter()
    .any(|head| name.starts_with(head))
        || name == "dbus"
}
