//! Recognizes containers by the names that runtimes give to cgroups.

use super::{CgroupContainer, ContainerManager, is_unit, user_manager};
use gpukill_proto::model::ContainerId;
use gpukill_proto::text::sanitize;

/// Whether root alone can create cgroups in a directory; `None` if that is unknown.
type IsRoots<'a> = &'a dyn Fn(&[&str]) -> Option<bool>;

/// The outermost trusted container of a path, and its position in the path. Root of a container may
/// create cgroups of any name below it, so a container inside another one is never believed.
pub(super) fn find_container(
    parts: &[&str],
    is_roots: IsRoots<'_>,
) -> Option<(usize, CgroupContainer)> {
    let above = |at| parts.get(..at).unwrap_or_default();
    let mut all = parts.iter().enumerate();
    let (at, part, (runtime, id)) =
        all.find_map(|(at, part)| Some((at, part, parse_part(part, above(at))?)))?;
    let contained = CgroupContainer {
        id: ContainerId {
            runtime: runtime.to_owned(),
            // A user who may create a cgroup chooses its name.
            id: sanitize(id.as_bytes(), 128),
        },
        pod: above(at).iter().rev().find_map(|part| pod_uid(part)),
        manager: manager(part, above(at), is_roots)?,
    };
    Some((at, contained))
}

/// The manager of a container with this name at this place; `None` where any user might have chosen
/// the name.
fn manager(part: &str, above: &[&str], is_roots: IsRoots<'_>) -> Option<ContainerManager> {
    match user_manager(above) {
        Some(uid) if uid != 0 => return Some(ContainerManager::User(uid)),
        Some(_) | None => {}
    }
    let mut units = above.iter().filter(|part| is_unit(part));
    let (first, second) = (units.next(), units.next());
    let is_of_host = match first {
        // A group made by `pam_cgfs`, `/user/bob/0`, belongs to that user.
        None if above.first() == Some(&"user") => false,
        None => is_roots(above).unwrap_or_else(|| is_known_directory(above)),
        // A unit may have a delegated cgroup that it divides freely. So do root's own systemd, and
        // podman run by a system service of root.
        Some(unit) => {
            let by_a_service = second.is_none()
                && above.last() == Some(unit)
                && unit.ends_with(".service")
                && !unit.starts_with("user@")
                && part.starts_with("libpod-payload-")
                && is_roots(above) == Some(true);
            let by_root = user_manager(above) == Some(0) && part.starts_with("libpod-");
            by_a_service || by_root
        }
    };
    is_of_host.then_some(ContainerManager::System)
}

/// Whether only root creates cgroups here by the custom of systemd and the runtimes: below slices,
/// and below the directories that runtimes make.
fn is_known_directory(above: &[&str]) -> bool {
    let is_slice = |part: &&str| part.ends_with(".slice");
    let is_runtimes = |first: &&str| {
        matches!(
            *first,
            "besteffort"
                | "buildkit"
                | "burstable"
                | "default"
                | "docker"
                | "k8s.io"
                | "kubelet"
                | "kubepods"
                | "libpod_parent"
                | "lxc"
                | "lxc.payload"
        ) || pod_uid(first).is_some()
    };
    above.iter().all(is_slice) || above.first().is_some_and(is_runtimes)
}

const RUNTIME_PREFIXES: [(&str, &str); 7] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("crio-", "cri-o"),
    ("libpod-", "podman"),
    ("libpod-payload-", "podman"),
    ("nerdctl-", "containerd"),
    ("containerd-", "containerd"),
];

/// The runtime and the id, where this part names a container.
fn parse_part(part: &str, above: &[&str]) -> Option<(&'static str, String)> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    for (prefix, runtime) in RUNTIME_PREFIXES {
        // A monitor, `libpod-conmon-…`, runs beside its container.
        if let Some(id) = name.strip_prefix(prefix).filter(|id| is_hash(id)) {
            return Some((runtime, id.to_owned()));
        }
    }
    let parent = above.last().copied().unwrap_or_default();
    if is_hash(name) {
        let runtime = match parent {
            "docker" | "buildkit" => "docker",
            "libpod_parent" => "podman",
            _ if above.iter().any(|part| part.contains("kubepods")) => "kubernetes",
            _ => "containerd",
        };
        return Some((runtime, name.to_owned()));
    }
    if above == ["default"] && is_name(name) {
        // The namespace of containerd that `ctr` uses.
        return Some(("containerd", name.to_owned()));
    }
    let lxc = part.strip_prefix("lxc.payload.");
    if let Some(name) = lxc.or_else(|| matches!(parent, "lxc" | "lxc.payload").then_some(part)) {
        return Some(("lxc", name.to_owned()));
    }
    let machine = part
        .strip_prefix("machine-")
        .and_then(|name| name.strip_suffix(".scope"))
        .or_else(|| {
            part.strip_prefix("systemd-nspawn@")?
                .strip_suffix(".service")
        })
        .filter(|_| parent == "machine.slice");
    let machine = unescape(machine?);
    // An unescaped name may contain anything; systemd gives machines host names. The prefix is that
    // of a libvirt guest, which is no container.
    let is_machine = is_name(&machine) && !machine.starts_with("qemu-");
    is_machine.then_some(("systemd-nspawn", machine))
}

/// The uid of the pod that this part names, with dashes. The uid of a static pod is a hash of 32
/// digits.
fn pod_uid(part: &str) -> Option<String> {
    // `pod74ba62da-…`, or `kubepods-besteffort-pod74ba62da_….slice`.
    let escaped = match part.strip_suffix(".slice") {
        Some(slice) => slice.rsplit_once("-pod")?.1,
        None => part.strip_prefix("pod")?,
    };
    let uid = escaped.replace('_', "-");
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes = uid.bytes().filter(|byte| *byte == b'-').count();
    let fits = digits == 32 && matches!(dashes, 0 | 4) && uid.len() == digits + dashes;
    fits.then_some(uid)
}

pub(in crate::host) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether containerd accepts this name: it is safe as a part of a path.
pub(in crate::host) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        && text.len() <= 76
}

/// Decodes systemd's escape of forbidden characters, as in `\x2d`.
fn unescape(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend(before.as_bytes());
        let digits = after.get(..2);
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.extend(b"\\x");
                rest = after;
            }
        }
    }
    bytes.extend(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}
