//! Programs that hold devices for everybody, by the kernel's names of them.

/// How many bytes of a name the kernel keeps.
const NAME_MAX: usize = 15;

/// Services that watch devices for everybody, and hold no memory of them.
const SERVICES: &[&str] = &[
    "dcgm-exporter",
    "gpukilld",
    "nv-fabricmanager",
    "nv-hostengine",
    "nvidia-persistenced",
    "nvidia-powerd",
    "nvidia_gpu_exporter",
    "nvsm_core",
];

/// What people watch devices with.
const TOOLS: &[&str] = &[
    "all-smi",
    "dcgmi",
    "dcgmproftester",
    "gpukillctl",
    "gpustat",
    "nvidia-smi",
    "nvitop",
    "nvtop",
];

/// Through which people log in, and what keeps their sessions.
const LOGINS: &[&str] = &[
    "(sd-pam)",
    "agetty",
    "dropbear",
    "getty",
    "init",
    "login",
    "mingetty",
    "sshd",
    "sshd-auth",
    "sshd-session",
    "systemd",
    "systemd-logind",
    "xrdp",
    "xrdp-sesman",
];

/// Display servers, compositors, and what starts them.
const DISPLAYS: &[&str] = &[
    "Hyprland",
    "X",
    "Xorg",
    "Xvnc",
    "Xwayland",
    "cinnamon",
    "cosmic-comp",
    "gamescope",
    "gdm",
    "gdm-session-worker",
    "gdm-wayland-session",
    "gdm-x-session",
    "gdm3",
    "gnome-session-binary",
    "gnome-shell",
    "greetd",
    "kwin_wayland",
    "kwin_x11",
    "labwc",
    "lightdm",
    "mutter",
    "niri",
    "nxagent",
    "plasmashell",
    "sddm",
    "sddm-greeter",
    "sddm-helper",
    "sway",
    "wayfire",
    "weston",
    "xfwm4",
];

/// The MPS server, and what controls it.
const MPS: &[&str] = &["nvidia-cuda-mps-server", "nvidia-cuda-mps-control"];

/// What takes in the children of those that end, in a session or a container.
const REAPERS: &[&str] = &[
    "catatonit",
    "docker-init",
    "dumb-init",
    "init",
    "systemd",
    "tini",
];

/// What runs containers and jobs for others.
const RUNTIMES: &[&str] = &[
    "conmon",
    "containerd",
    "containerd-shim",
    "containerd-shim-runc-v2",
    "crun",
    "dockerd",
    "kubelet",
    "podman",
    "runc",
    "slurmd",
    "slurmstepd",
];

/// Whether a process of this name watches devices, and holds no memory of them.
pub(crate) fn is_monitor(name: &str) -> bool {
    is_service(name) || is_one_of(TOOLS, name)
}

/// Whether a process of this name watches devices for everybody.
pub(crate) fn is_service(name: &str) -> bool {
    // The daemon's sensor says in its name where it is.
    is_one_of(SERVICES, name) || name.starts_with("gpukilld")
}

/// Whether people log in through a process of this name, or it keeps their
/// sessions.
pub(crate) fn is_login(name: &str) -> bool {
    is_one_of(LOGINS, name)
}

/// Whether a process of this name draws a desktop.
pub(crate) fn is_display(name: &str) -> bool {
    is_one_of(DISPLAYS, name)
}

/// Whether a process of this name is an MPS server, or what controls one: the
/// kernel's name is the same.
pub(crate) fn is_mps(name: &str) -> bool {
    is_one_of(MPS, name)
}

/// Whether a process of this name takes in the children of those that end.
pub(super) fn is_reaper(name: &str) -> bool {
    is_one_of(REAPERS, name)
}

/// Whether a process of this name runs others' containers and jobs.
pub(crate) fn is_runtime(name: &str) -> bool {
    is_one_of(RUNTIMES, name)
}

/// The whole name of a program that watches devices, of which the kernel keeps
/// the beginning.
pub(super) fn whole(name: &str) -> &str {
    let monitors = SERVICES.iter().chain(TOOLS).copied();
    monitors
        .into_iter()
        .find(|whole| cut(whole) == name)
        .unwrap_or(name)
}

fn is_one_of(programs: &[&str], name: &str) -> bool {
    programs
        .iter()
        .any(|program| *program == name || cut(program) == name)
}

/// What the kernel keeps of this name. All of them are ASCII.
pub(crate) fn cut(name: &str) -> &str {
    name.get(..NAME_MAX).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_what_the_kernel_keeps_of_their_names() {
        for name in [
            "nvidia-persiste",
            "nvidia-persistenced",
            "nv-hostengine",
            "gpukilld: GPU 3",
        ] {
            assert!(is_monitor(name), "{name}");
        }
        for name in ["python", "nvidia", "nvidia-persist", "nvidia-cuda-mps", ""] {
            assert!(!is_monitor(name), "{name}");
        }
        assert!(is_mps("nvidia-cuda-mps") && !is_mps("nvidia-cuda"));
        assert!(is_display("gnome-session-b") && !is_display("python"));
        assert!(is_runtime("containerd-shim") && is_reaper("tini"));
        assert_eq!(whole("nvidia-persiste"), "nvidia-persistenced");
        assert_eq!(whole("python"), "python");
    }
}
