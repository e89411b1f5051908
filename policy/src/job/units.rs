//! Which systemd services and scopes keep people's work and are none themselves,
//! by their names.

use gpukill_proto::snapshot::Unit;

/// Services that keep others' work, before `.service` and a template's `@…`.
const SERVICES: &[&str] = &[
    // Ways in.
    "amazon-ssm-agent",
    "autovt",
    "console-getty",
    "container-getty",
    "dropbear",
    "getty",
    "mosh",
    "serial-getty",
    "ssh",
    "sshd",
    "tailscaled",
    "teleport",
    "ttyd",
    // What starts things at times.
    "anacron",
    "atd",
    "cron",
    "crond",
    "cronie",
    "fcron",
    // What starts and watches what its configuration names.
    "supervisor",
    "supervisord",
    // A batch scheduler's own, where its jobs have no groups of their own.
    "condor",
    "lsfd",
    "pbs",
    "pbs_jobs",
    "pbs_mom",
    "sge_execd",
    "sgeexecd",
    "slurmd",
    "slurmstepd",
    // Multiplexers, editors and terminals of people.
    "code-server",
    "code-tunnel",
    "rstudio-server",
    "screen",
    "tmux",
    "gnome-terminal-server",
    // Desktops.
    "display-manager",
    "gdm",
    "gdm3",
    "greetd",
    "lightdm",
    "ly",
    "lxdm",
    "nxserver",
    "sddm",
    "vncserver",
    "xdm",
    // A user's own systemd.
    "user",
];

/// How the names of scopes begin that are sessions, panes or tabs, or an editor
/// with its terminals.
const SCOPES: &[&str] = &[
    "ptyxis-spawn-",
    "session-",
    "snap.code-insiders.",
    "snap.code.",
    "tmux-spawn-",
];

/// Whether this unit keeps people's work and is none itself: sessions, shells,
/// Jupyter servers, desktops.
pub(super) fn keeps(unit: &Unit) -> bool {
    if let Some(scope) = unit.name.strip_suffix(".scope") {
        let of_a_desktop = unit.manager.is_some() && is_of_a_desktop(scope);
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
        // `xrdp` and `xrdp-sesman`; Grid Engine adds its cell: `sgeexecd.p6444`.
        || template.starts_with("xrdp")
        || template.starts_with("sgeexecd.")
        || (unit.manager.is_some() && is_of_a_desktop(service))
}

/// Desktops start each application in a unit of its own, and each shell of a
/// terminal too. Which of them is a terminal no name tells for sure; below, the
/// tree of processes tells it.
fn is_of_a_desktop(name: &str) -> bool {
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
