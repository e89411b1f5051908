//! Names of programs that hold devices for all users, as the kernel truncates them.

/// Length of the kernel's process name, in bytes.
const NAME_MAX: usize = 15;

/// Services that monitor devices for all users and hold no device memory.
#[rustfmt::skip]
const SERVICES: &[&str] = &[
    "dcgm-exporter", "gpukilld", "nv-fabricmanager", "nv-hostengine", "nvidia-persistenced",
    "nvidia-powerd", "nvidia_gpu_exporter", "nvsm_core",
];

/// Tools with which people monitor devices.
#[rustfmt::skip]
const TOOLS: &[&str] = &[
    "all-smi", "dcgmi", "dcgmproftester", "gpukillctl", "gpustat", "nvidia-smi", "nvitop", "nvtop",
];

/// Programs through which people log in, and that keep their sessions.
#[rustfmt::skip]
const LOGINS: &[&str] = &[
    "(sd-pam)", "agetty", "dropbear", "getty", "init", "login", "mingetty", "sshd", "sshd-auth",
    "sshd-session", "systemd", "systemd-logind", "xrdp", "xrdp-sesman",
];

/// Display servers, compositors and the programs that start them.
#[rustfmt::skip]
const DISPLAYS: &[&str] = &[
    "Hyprland", "X", "Xorg", "Xvnc", "Xwayland", "cinnamon", "cosmic-comp", "gamescope", "gdm",
    "gdm-session-worker", "gdm-wayland-session", "gdm-x-session", "gdm3", "gnome-session-binary",
    "gnome-shell", "greetd", "kwin_wayland", "kwin_x11", "labwc", "lightdm", "mutter", "niri",
    "nxagent", "plasmashell", "sddm", "sddm-greeter", "sddm-helper", "sway", "wayfire", "weston",
    "xfwm4",
];

const MPS: &[&str] = &["nvidia-cuda-mps-server", "nvidia-cuda-mps-control"];

/// Programs that adopt orphaned processes, in a session or a container.
const REAPERS: &[&str] = &[
    "catatonit",
    "docker-init",
    "dumb-init",
    "init",
    "systemd",
    "tini",
];

/// Programs that run containers and jobs of others.
#[rustfmt::skip]
const RUNTIMES: &[&str] = &[
    "conmon", "containerd", "containerd-shim", "containerd-shim-runc-v2", "crun", "dockerd",
    "kubelet", "podman", "runc", "slurmd", "slurmstepd",
];

/// Whether a process of this name monitors devices and holds no device memory.
pub(crate) fn is_monitor(name: &str) -> bool {
    is_service(name) || contains_name(TOOLS, name)
}

/// Whether a process of this name monitors devices for all users.
pub(crate) fn is_service(name: &str) -> bool {
    // The daemon's sensor has a suffix in its name.
    contains_name(SERVICES, name) || name.starts_with("gpukilld")
}

/// Whether people log in through a process of this name, or it keeps their sessions.
pub(crate) fn is_login(name: &str) -> bool {
    contains_name(LOGINS, name)
}

/// Whether a process of this name draws a desktop.
pub(crate) fn is_display(name: &str) -> bool {
    contains_name(DISPLAYS, name)
}

/// Whether a process of this name is an MPS server or its control program: the
/// truncated name is the same.
pub(crate) fn is_mps(name: &str) -> bool {
    contains_name(MPS, name)
}

/// Whether a process of this name adopts orphaned processes.
pub(super) fn is_reaper(name: &str) -> bool {
    contains_name(REAPERS, name)
}

/// Whether a process of this name runs containers and jobs of others.
pub(crate) fn is_runtime(name: &str) -> bool {
    contains_name(RUNTIMES, name)
}

/// The full name of a monitoring program, of which the kernel keeps the beginning.
pub(super) fn full_name(name: &str) -> &str {
    let monitors = SERVICES.iter().chain(TOOLS).copied();
    monitors
        .into_iter()
        .find(|whole| truncate_name(whole) == name)
        .unwrap_or(name)
}

fn contains_name(programs: &[&str], name: &str) -> bool {
    programs
        .iter()
        .any(|program| *program == name || truncate_name(program) == name)
}

/// Truncates a name as the kernel does. All names are ASCII.
pub(crate) fn truncate_name(name: &str) -> &str {
    name.get(..NAME_MAX).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_names_are_recognized() {
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
        assert_eq!(full_name("nvidia-persiste"), "nvidia-persistenced");
        assert_eq!(full_name("python"), "python");
    }
}
