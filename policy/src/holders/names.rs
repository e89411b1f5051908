//! Programs that hold devices for everybody, by the kernel's names of them.

/// How many bytes of a name the kernel keeps.
const NAME_MAX: usize = 15;

/// Programs that watch devices, and hold no memory of them.
const MONITORS: &[&str] = &[
    "all-smi",
    "dcgm-exporter",
    "dcgmi",
    "dcgmproftester",
    "gpukilld",
    "gpukillctl",
    "gpustat",
    "nv-fabricmanager",
    "nv-hostengine",
    "nvidia-persistenced",
    "nvidia-powerd",
    "nvidia-smi",
    "nvidia_gpu_exporter",
    "nvitop",
    "nvsm_core",
    "nvtop",
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
pub(super) fn is_monitor(name: &str) -> bool {
    // The daemon's sensor says in its name where it is.
    is_one_of(MONITORS, name) || name.starts_with("gpukilld")
}

/// Whether a process of this name draws a desktop.
pub(super) fn is_display(name: &str) -> bool {
    is_one_of(DISPLAYS, name)
}

/// Whether a process of this name is an MPS server, or what controls one: the
/// kernel's name is the same.
pub(super) fn is_mps(name: &str) -> bool {
    is_one_of(MPS, name)
}

/// Whether a process of this name takes in the children of those that end.
pub(super) fn is_reaper(name: &str) -> bool {
    is_one_of(REAPERS, name)
}

/// Whether a process of this name runs others' containers and jobs.
pub(super) fn is_runtime(name: &str) -> bool {
    is_one_of(RUNTIMES, name)
}

/// The whole name of a program that watches devices, of which the kernel keeps
/// the beginning.
pub(super) fn whole(name: &str) -> &str {
    let monitors = MONITORS.iter().copied();
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
fn cut(name: &str) -> &str {
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
