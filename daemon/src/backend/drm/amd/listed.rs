//! The processes that KFD lists below `/sys/class/kfd/kfd/proc`, a directory
//! each, named by the host's pid.
//!
//! `sdma_*` is left alone: reading it waits for the process's address space.

use super::topology::GpuNode;
use crate::backend::drm::{Listed, sysfs};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent};
use std::io;
use std::path::{Path, PathBuf};

/// A process has one context, and a few more on new kernels.
const CONTEXTS_MAX: usize = 64;

/// The most queues that are looked at.
const QUEUES_MAX: usize = 1_024;

/// The users of these nodes, by pid.
///
/// # Errors
/// Why the list itself could not be read, where there is one.
pub(super) fn users(directory: &Path, nodes: &[GpuNode]) -> Result<Vec<Listed>, String> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    if let Err(error) = std::fs::read_dir(directory)
        && error.kind() != io::ErrorKind::NotFound
    {
        let why = sysfs::failure::<()>(&error);
        let why = why.failure().unwrap_or("not readable");
        return Err(format!("KFD's list of processes: {why}"));
    }
    let mut users: Vec<Listed> = sysfs::entries(directory)
        .into_iter()
        .filter_map(|(name, directory)| user(number(&name)?, &directory, nodes))
        .collect();
    users.sort_indirect_by_key(|user| user.pid);
    Ok(users)
}

/// A name that is one plain number above zero.
fn number(name: &str) -> Option<u32> {
    let plain = name.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with('0');
    plain.then(|| name.parse().ok()).flatten()
}

/// `None` of a process that does not use these nodes: whoever opens `/dev/kfd`
/// gets a directory, with zeros for every GPU of the box.
fn user(pid: u32, directory: &Path, nodes: &[GpuNode]) -> Option<Listed> {
    let places = places(directory);
    let each = || {
        let of = |place| nodes.iter().map(move |node| (place, node));
        places.iter().flat_map(of)
    };
    let memory = sum(
        each().map(|(place, node)| sysfs::number(&place.join(format!("vram_{}", node.gpu_id))))
    );
    let units = sum(each().map(|(place, node)| {
        let file = format!("stats_{}/cu_occupancy", node.gpu_id);
        sysfs::number(&place.join(file))
    }));
    let holds = !matches!(memory, Reading::Value(0) | Reading::Unsupported);
    let computes = matches!(units, Reading::Value(1..));
    let queued = || places.iter().any(|place| has_queue(place, nodes));
    (holds || computes || queued()).then(|| Listed {
        pid,
        memory: memory.map(Bytes),
        occupancy: occupancy(units, nodes),
    })
}

/// The process's own directory, and those of its further contexts, which have
/// the same files.
fn places(directory: &Path) -> Vec<PathBuf> {
    let is_context = |name: &str| {
        name.strip_prefix("context_")
            .and_then(number_or_zero)
            .is_some()
    };
    let contexts = sysfs::entries(directory)
        .into_iter()
        .filter(|(name, _)| is_context(name))
        .map(|(_, context)| context)
        .take(CONTEXTS_MAX);
    std::iter::once(directory.to_path_buf())
        .chain(contexts)
        .collect()
}

fn number_or_zero(name: &str) -> Option<u32> {
    if name == "0" { Some(0) } else { number(name) }
}

/// What all of them tell together. A file that is not there adds nothing: not
/// every context has every GPU, and a process may end while it is read. One that
/// fails leaves no sum.
fn sum(values: impl Iterator<Item = Reading<u64>>) -> Reading<u64> {
    values.fold(Reading::Unsupported, |sum, value| match (sum, value) {
        (Reading::Value(sum), Reading::Value(value)) => Reading::Value(sum.saturating_add(value)),
        (Reading::Unsupported, value) => value,
        (sum, Reading::Unsupported) => sum,
        (Reading::Value(_), failed) | (failed, _) => failed,
    })
}

/// The share of the nodes' compute units.
fn occupancy(units: Reading<u64>, nodes: &[GpuNode]) -> Reading<Percent> {
    let each = nodes.iter().map(|node| node.compute_units);
    let all = each.reduce(|sum, units| sum?.checked_add(units?)).flatten();
    match (units, all) {
        (Reading::Value(units), Some(all)) if all > 0 => {
            // Rounded up: one unit of hundreds is no idle GPU.
            let share = units.saturating_mul(100).div_ceil(all);
            match u32::try_from(share) {
                Ok(share @ 0..=100) => Reading::Value(Percent(share)),
                _ => Reading::impossible(format_args!("{units} of {all}")),
            }
        }
        (Reading::Value(_), _) => Reading::Unsupported,
        (unknown, _) => unknown.because(),
    }
}

/// Whether a queue of this process is on one of these nodes.
fn has_queue(place: &Path, nodes: &[GpuNode]) -> bool {
    sysfs::entries(&place.join("queues"))
        .into_iter()
        .take(QUEUES_MAX)
        .any(|(_, queue)| {
            let on = sysfs::number(&queue.join("gpuid"));
            let on = on.known().copied();
            nodes.iter().any(|node| on == Some(node.gpu_id.into()))
        })
}
