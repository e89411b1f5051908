//! Which container a process runs in, from the text of `/proc/PID/cgroup`.
//!
//! The patterns are those of Docker, Podman, containerd, CRI-O, Kubernetes, LXC
//! and systemd-nspawn with cgroup v1, v2 and both. Names, images and pods come
//! from the runtimes' files, not from here.

use gpukill_proto::snapshot::ContainerId;
use gpukill_proto::text::visible;

/// More of a cgroup file than this is not read.
pub(crate) const CGROUP_MAX: u64 = 64 << 10;

/// The container that this cgroup text names, the innermost one where they
/// nest; `None` on the host.
pub(crate) fn parse(text: &str) -> Option<ContainerId> {
    // Version 1 has a line per controller; all name the same container, or the
    // controller is not used for it.
    text.lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .find_map(from_path)
}

fn from_path(path: &str) -> Option<ContainerId> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    // From the inside out: what runs in a container may have groups of its own,
    // and a container may hold others.
    let positions = (0..parts.len()).rev();
    positions.into_iter().find_map(|at| {
        let parents = parts.get(..at).unwrap_or_default();
        parts.get(at).and_then(|part| from_part(part, parents))
    })
}

fn from_part(part: &str, parents: &[&str]) -> Option<ContainerId> {
    let container = |runtime: &str, id: &str| {
        Some(ContainerId {
            runtime: runtime.to_owned(),
            // Whoever may make a cgroup may name it.
            id: visible(id.as_bytes(), 128),
        })
    };
    let name = part.strip_suffix(".scope").unwrap_or(part);
    // The monitor of a container runs beside it, not in it.
    if name.contains("-conmon-") || name.starts_with("lxc.monitor") {
        return None;
    }
    for (prefix, runtime) in SCOPES {
        if let Some(id) = name.strip_prefix(prefix).filter(|id| is_hash(id)) {
            return container(runtime, id);
        }
    }
    let parent = parents.last().copied().unwrap_or_default();
    if is_hash(name) {
        let runtime = match parent {
            "docker" | "buildkit" => "docker",
            "libpod_parent" => "podman",
            _ if parents.iter().any(|part| part.starts_with("kubepods")) => "kubernetes",
            _ => "containerd",
        };
        return container(runtime, name);
    }
    if let Some(name) = name.strip_prefix("lxc.payload.") {
        return container("lxc", name);
    }
    if parent == "lxc" {
        return container("lxc", name);
    }
    if let Some(machine) = name
        .strip_prefix("machine-")
        .filter(|_| parent == "machine.slice")
    {
        // The name of a libvirt guest begins so; that is no container.
        let machine = machine.replace("\\x2d", "-");
        return if machine.starts_with("qemu-") {
            None
        } else {
            container("systemd-nspawn", &machine)
        };
    }
    None
}

/// What the scopes of the runtimes begin with.
const SCOPES: [(&str, &str); 6] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("crio-", "cri-o"),
    ("libpod-", "podman"),
    ("nerdctl-", "containerd"),
    ("containerd-", "containerd"),
];

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn seen(text: &str) -> Option<(String, String)> {
        parse(text).map(|container| (container.runtime, container.id))
    }

    #[test]
    fn each_runtime_is_known_by_its_cgroup() {
        let cases = [
            (format!("0::/system.slice/docker-{A}.scope"), "docker", A),
            (
                format!(
                    "0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-{A}.scope"
                ),
                "docker",
                A,
            ),
            (
                format!("12:memory:/docker/{A}\n1:name=systemd:/docker/{A}"),
                "docker",
                A,
            ),
            (
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice/cri-containerd-{A}.scope"
                ),
                "containerd",
                A,
            ),
            (
                format!("0::/kubepods.slice/kubepods-podx.slice/crio-{A}.scope"),
                "cri-o",
                A,
            ),
            (
                format!("11:memory:/kubepods/besteffort/pod12/{A}"),
                "kubernetes",
                A,
            ),
            (
                format!("0::/machine.slice/libpod-{A}.scope/container"),
                "podman",
                A,
            ),
            (format!("0::/default/{A}"), "containerd", A),
            (format!("0::/docker/{A}/docker/{B}"), "docker", B),
            (
                format!("0::/system.slice/docker-{A}.scope/init.scope"),
                "docker",
                A,
            ),
            (
                "0::/lxc.payload.web01/init.scope".to_owned(),
                "lxc",
                "web01",
            ),
            ("3:devices:/lxc/101/ns".to_owned(), "lxc", "101"),
            (
                "0::/machine.slice/machine-deb\\x2d12.scope/payload".to_owned(),
                "systemd-nspawn",
                "deb-12",
            ),
        ];
        for (text, runtime, id) in cases {
            assert_eq!(
                seen(&text),
                Some((runtime.to_owned(), id.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn the_host_is_no_container() {
        let cases = [
            "0::/user.slice/user-1000.slice/session-3.scope".to_owned(),
            "0::/".to_owned(),
            "0::/system.slice/ssh.service".to_owned(),
            "0::/../../x".to_owned(),
            format!("0::/machine.slice/libpod-conmon-{A}.scope"),
            "0::/lxc.monitor.web01".to_owned(),
            "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope".to_owned(),
            "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0".to_owned(),
            String::new(),
            "garbage".to_owned(),
        ];
        for text in cases {
            assert_eq!(seen(&text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_can_panic_it(text in "\\PC{0,200}") {
            let _ = parse(&text);
        }
    }
}
