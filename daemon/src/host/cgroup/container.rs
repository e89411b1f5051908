//! Containers, by the names that their runtimes give to cgroups.

use super::{Contained, Teller, is_unit, user_manager};
use gpukill_proto::snapshot::ContainerId;
use gpukill_proto::text::visible;

/// The outermost container of a path, where somebody vouches for it, and where
/// in the path it is. Who is root in a container may have groups of any name
/// below it, so one within it is never believed.
pub(super) fn container(parts: &[&str]) -> Option<(usize, Contained)> {
    let above = |at| parts.get(..at).unwrap_or_default();
    let mut all = parts.iter().enumerate();
    let (at, part, (runtime, id)) =
        all.find_map(|(at, part)| Some((at, part, from_part(part, above(at))?)))?;
    let contained = Contained {
        id: ContainerId {
            runtime: runtime.to_owned(),
            // Whoever may make a cgroup may name it.
            id: visible(id.as_bytes(), 128),
        },
        pod: above(at).iter().rev().find_map(|part| pod(part)),
        teller: teller(part, above(at))?,
    };
    Some((at, contained))
}

/// Whose files may tell about a container of this name there; `None` where
/// anybody might have named it.
fn teller(part: &str, above: &[&str]) -> Option<Teller> {
    match user_manager(above) {
        Some(uid) if uid != 0 => return Some(Teller::User(uid)),
        Some(_) | None => {}
    }
    let mut units = above.iter().filter(|part| is_unit(part));
    let (first, second) = (units.next(), units.next());
    let is_of_the_box = match first {
        // What `pam_cgfs` makes, `/user/bob/0`, is that user's.
        None => above.first() != Some(&"user"),
        // A unit may have been given its group to divide as it likes. So does
        // root's own systemd, and podman where a service of the system runs it.
        Some(unit) => {
            let by_a_service = second.is_none()
                && above.last() == Some(unit)
                && unit.ends_with(".service")
                && !unit.starts_with("user@")
                && part.starts_with("libpod-payload-");
            let by_root = user_manager(above) == Some(0) && part.starts_with("libpod-");
            by_a_service || by_root
        }
    };
    is_of_the_box.then_some(Teller::System)
}

/// What the groups of the runtimes begin with.
const SCOPES: [(&str, &str); 7] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("crio-", "cri-o"),
    ("libpod-", "podman"),
    ("libpod-payload-", "podman"),
    ("nerdctl-", "containerd"),
    ("containerd-", "containerd"),
];

/// The runtime and the id, where this part is a container's.
fn from_part(part: &str, above: &[&str]) -> Option<(&'static str, String)> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    for (prefix, runtime) in SCOPES {
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
    let machine = unescaped(machine?);
    // Unescaped it may be anything; systemd gives machines names of hosts. The
    // name of a libvirt guest begins so: that is no container.
    let is_machine = is_name(&machine) && !machine.starts_with("qemu-");
    is_machine.then_some(("systemd-nspawn", machine))
}

/// The uid of the pod that this part is, with dashes. A static pod's is a hash
/// of 32 digits.
fn pod(part: &str) -> Option<String> {
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

/// Whether this is a name that containerd takes: safe as a part of a path.
pub(in crate::host) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        && text.len() <= 76
}

/// systemd writes what it does not take in a name as `\x2d`.
fn unescaped(name: &str) -> String {
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
