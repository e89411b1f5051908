//! The nodes of KFD (`/sys/class/kfd/kfd/topology`) that belong to a card: one,
//! or one for each part of a card that is divided.

use super::lines;
use crate::backend::drm::card::{Card, Pci};
use crate::backend::drm::sysfs;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::{Bytes, Megahertz};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No card is divided into more parts.
const NODES_MAX: usize = 64;

/// A GPU as KFD counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GpuNode {
    /// What KFD calls it in the names of files; another one after a change of
    /// the card's mode.
    pub(super) gpu_id: u32,
    /// The N of `/dev/dri/renderDN`; `None` where it has none.
    pub(super) render_minor: Option<u32>,
    /// Of the whole node.
    pub(super) compute_units: Option<u64>,
    /// The node has processor cores too: a GPU on a die with a CPU.
    pub(super) has_cores: bool,
    /// What it can use of the card's memory.
    pub(super) memory: Reading<Bytes>,
    /// The greatest clock of its compute units.
    pub(super) clock_max: Option<Megahertz>,
    /// The greatest clock of its memory.
    pub(super) memory_clock_max: Option<Megahertz>,
    /// Domain, bus, device and function.
    address: (u64, u64),
    /// Which part of its card it is.
    part: u64,
}

/// The topology of a box, as one card needs it.
pub(super) struct Topology {
    directory: PathBuf,
    /// The nodes, and the number that changes with them.
    known: Option<(u64, Vec<GpuNode>)>,
    /// When there was none.
    none_at: Option<Instant>,
}

/// So often a box without a topology is asked whether it has one now.
const AGAIN: Duration = Duration::from_secs(16);

impl Topology {
    pub(super) fn new(sysfs_root: &Path) -> Self {
        Self {
            directory: sysfs_root.join("class/kfd/kfd/topology"),
            known: None,
            none_at: None,
        }
    }

    /// The nodes of this card, the first part first.
    pub(super) fn nodes(&mut self, card: &Card, at: Instant) -> Vec<GpuNode> {
        let is_young = |then| at.saturating_duration_since(then) < AGAIN;
        if self.none_at.is_some_and(is_young) {
            return Vec::new();
        }
        let generation = sysfs::number(&self.directory.join("generation_id"));
        let generation = generation.known().copied();
        if let Some((of, nodes)) = &self.known
            && Some(*of) == generation
        {
            return nodes.clone();
        }
        let directory = self.directory.join("nodes");
        self.none_at = (generation.is_none() && !directory.exists()).then_some(at);
        let nodes = read(&directory, card);
        // A change in the middle of that shows in the next poll.
        self.known = generation.map(|generation| (generation, nodes.clone()));
        nodes
    }

    /// The nodes as they were when they were last asked for.
    pub(super) fn known(&self) -> &[GpuNode] {
        self.known.as_ref().map_or(&[], |(_, nodes)| nodes)
    }

    /// The number of what was read last; `None` where there is none.
    pub(super) fn generation(&self) -> Option<u64> {
        self.known.as_ref().map(|(generation, _)| *generation)
    }
}

/// Those vitals, with what else the nodes of a card tell of it.
pub(super) fn fill(nodes: &[GpuNode], vitals: Vitals) -> Vitals {
    let greatest = |clock: fn(&GpuNode) -> Option<Megahertz>| {
        let greatest = nodes.iter().filter_map(clock).max();
        greatest.map_or(Reading::Unsupported, Reading::Value)
    };
    let clock_sm_max = match vitals.clock_sm_max {
        Reading::Unsupported => greatest(|node| node.clock_max),
        told => told,
    };
    let clock_memory_max = match vitals.clock_memory_max {
        Reading::Unsupported => greatest(|node| node.memory_clock_max),
        told => told,
    };
    Vitals {
        clock_sm_max,
        clock_memory_max,
        ..vitals
    }
}

fn read(directory: &Path, card: &Card) -> Vec<GpuNode> {
    let mut nodes: Vec<GpuNode> = sysfs::entries(directory)
        .into_iter()
        .filter_map(|(_, directory)| node(&directory))
        .filter(|node| is_of(node, card))
        .collect();
    nodes.sort_indirect_by_key(|node| (node.part, node.render_minor, node.gpu_id));
    nodes.truncate(NODES_MAX);
    nodes
}

/// `None` of a node that is a CPU, or that goes away.
fn node(directory: &Path) -> Option<GpuNode> {
    let gpu_id = *sysfs::number(&directory.join("gpu_id")).known()?;
    let gpu_id = u32::try_from(gpu_id).ok().filter(|id| *id != 0)?;
    let properties = lines::parsed(&directory.join("properties"), |text| parse(text, gpu_id));
    let mut node = properties.known()?.clone();
    let banks = directory.join("mem_banks");
    node.memory = memory(&banks);
    node.memory_clock_max = memory_clock_max(&banks);
    Some(node)
}

/// The `properties` of a node.
pub(super) fn parse(text: &str, gpu_id: u32) -> Option<GpuNode> {
    let told = lines::numbers(text);
    let number = |key: &str| told.get(key).copied();
    let location = number("location_id")?;
    let simds_per_unit = number("simd_per_cu").filter(|it| *it > 0);
    let compute_units = simds_per_unit.and_then(|it| Some(number("simd_count")? / it));
    Some(GpuNode {
        gpu_id,
        render_minor: number("drm_render_minor")
            .and_then(|minor| u32::try_from(minor).ok())
            .filter(|minor| *minor > 0),
        compute_units: compute_units.filter(|it| *it > 0),
        has_cores: number("cpu_cores_count").is_some_and(|cores| cores > 0),
        memory: Reading::Unsupported,
        clock_max: number("max_engine_clk_fcompute").and_then(clock),
        memory_clock_max: None,
        // The upper four bits of the location are the part's number.
        address: (number("domain").unwrap_or(0), location & 0xffff),
        part: location >> 28,
    })
}

/// A clock in megahertz. 0 is told where none is known, and no clock has twenty
/// gigahertz.
fn clock(megahertz: u64) -> Option<Megahertz> {
    let clock = u32::try_from(megahertz).ok();
    clock.filter(|it| (1..=20_000).contains(it)).map(Megahertz)
}

/// A number of each bank on the card itself: heaps 1 and 2, which the CPU can and
/// cannot see. Of the others 0.
fn of_own_banks(directory: &Path, key: &str) -> Vec<Reading<u64>> {
    let number = |(_, bank): (String, PathBuf)| {
        lines::parsed(&bank.join("properties"), |text| {
            let told = lines::numbers(text);
            let own = matches!(told.get("heap_type")?, 1 | 2);
            Some(if own { *told.get(key)? } else { 0 })
        })
    };
    sysfs::entries(directory).into_iter().map(number).collect()
}

fn memory_clock_max(banks: &Path) -> Option<Megahertz> {
    let clocks = of_own_banks(banks, "mem_clk_max").into_iter();
    clocks.filter_map(|it| clock(*it.known()?)).max()
}

fn memory(banks: &Path) -> Reading<Bytes> {
    let mut sum = 0_u64;
    for size in of_own_banks(banks, "size_in_bytes") {
        match size {
            Reading::Value(size) => sum = sum.saturating_add(size),
            unknown => return unknown.because(),
        }
    }
    match sum {
        0 => Reading::Unsupported,
        sum => Reading::Value(Bytes(sum)),
    }
}

/// By its render node; and by its address, which the parts of a card share: their
/// render nodes are not the card's own.
fn is_of(node: &GpuNode, card: &Card) -> bool {
    let name = node.render_minor.map(|minor| format!("renderD{minor}"));
    let named = name.is_some_and(|name| card.nodes.iter().any(|node| node.name == name));
    named || card.pci.as_ref().and_then(address) == Some(node.address)
}

/// `0000:c1:00.0` as KFD counts: the domain, and the rest in sixteen bits.
fn address(pci: &Pci) -> Option<(u64, u64)> {
    let (domain, rest) = pci.slot.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let [domain, bus, device, function] =
        [domain, bus, device, function].map(|digits| u64::from_str_radix(digits, 16).ok());
    Some((domain?, bus? << 8 | device? << 3 | function?))
}
