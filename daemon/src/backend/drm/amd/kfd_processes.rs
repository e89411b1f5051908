//! Reads the processes that KFD lists below `/sys/class/kfd/kfd/proc`: a directory each, named by
//! the pid on the host.
//!
//! `sdma_*` is not read: reading it waits for the address space of the process.

use super::topology::KfdNode;
use crate::backend::drm::{KfdProcess, sysfs};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent};
use std::io;
use std::path::{Path, PathBuf};

/// A process has one context, and a few more on new kernels.
const CONTEXTS_MAX: usize = 64;

/// More queues are ignored.
const QUEUES_MAX: usize = 1_024;

/// The processes that use these nodes, by pid.
///
/// # Errors
/// When the list exists and cannot be read.
pub(super) fn read_processes(
    directory: &Path,
    nodes: &[KfdNode],
) -> Result<Vec<KfdProcess>, String> {
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
    let mut users: Vec<KfdProcess> = sysfs::entries(directory)
        .into_iter()
        .filter_map(|(name, directory)| read_process(parse_pid(&name)?, &directory, nodes))
        .collect();
    users.sort_indirect_by_key(|user| user.pid);
    Ok(users)
}

/// A name that is one plain number above zero.
fn parse_pid(name: &str) -> Option<u32> {
    let plain = name.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with('0');
    plain.then(|| name.parse().ok()).flatten()
}

/// Reads one process; `None` if it does not use these nodes: every process that opens `/dev/kfd`
/// gets a directory, with zeros for every GPU of the host.
fn read_process(pid: u32, directory: &Path, nodes: &[KfdNode]) -> Option<KfdProcess> {
    let contexts = context_directories(directory);
    let each = || {
        let of = |context| nodes.iter().map(move |node| (context, node));
        contexts.iter().flat_map(of)
    };
    let memory = sum_values(
        each().map(|(context, node)| sysfs::number(&context.join(format!("vram_{}", node.gpu_id)))),
    );
    let units = sum_values(each().map(|(context, node)| {
        let file = format!("stats_{}/cu_occupancy", node.gpu_id);
        sysfs::number(&context.join(file))
    }));
    let holds = !matches!(memory, Reading::Value(0) | Reading::Unsupported);
    let computes = matches!(units, Reading::Value(1..));
    let queued = || contexts.iter().any(|context| has_queue(context, nodes));
    (holds || computes || queued()).then(|| KfdProcess {
        pid,
        memory: memory.map(Bytes),
        occupancy: occupancy(units, nodes),
    })
}

/// The process's own directory, and those of its further contexts, which have the same files.
fn context_directories(directory: &Path) -> Vec<PathBuf> {
    let is_context = |name: &str| {
        name.strip_prefix("context_")
            .and_then(parse_context_number)
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

fn parse_context_number(name: &str) -> Option<u32> {
    if name == "0" {
        Some(0)
    } else {
        parse_pid(name)
    }
}

/// The sum of all values. A missing file adds nothing: not every context has every GPU, and a
/// process may end while it is read. One failed file fails the sum.
fn sum_values(values: impl Iterator<Item = Reading<u64>>) -> Reading<u64> {
    values.fold(Reading::Unsupported, |sum, value| {
        sum.combine_supported(value, |sum, value| {
            Reading::Value(sum.saturating_add(value))
        })
    })
}

/// The share of the nodes' compute units.
fn occupancy(units: Reading<u64>, nodes: &[KfdNode]) -> Reading<Percent> {
    let each = nodes.iter().map(|node| node.compute_units);
    let all = each.reduce(|sum, units| sum?.checked_add(units?)).flatten();
    match (units, all) {
        (Reading::Value(units), Some(all)) if all > 0 => {
            // Rounded up: one busy unit among hundreds is not an idle GPU.
            let share = units.saturating_mul(100).div_ceil(all);
            match u32::try_from(share) {
                Ok(share @ 0..=100) => Reading::Value(Percent(share)),
                _ => Reading::impossible(format_args!("{units} of {all}")),
            }
        }
        (Reading::Value(_), _) => Reading::Unsupported,
        (unknown, _) => unknown.as_unknown(),
    }
}

fn has_queue(context: &Path, nodes: &[KfdNode]) -> bool {
    sysfs::entries(&context.join("queues"))
        .into_iter()
        .take(QUEUES_MAX)
        .any(|(_, queue)| {
            let on = sysfs::number(&queue.join("gpuid"));
            let on = on.known().copied();
            nodes.iter().any(|node| on == Some(node.gpu_id.into()))
        })
}
