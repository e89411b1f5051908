//! Reads the KFD nodes (`/sys/class/kfd/kfd/topology`) of a card: one, or one for each partition of
//! a divided card.

use super::{parse_numbers, read_parsed};
use crate::backend::drm::card::{DrmCard, PciIdentity};
use crate::backend::drm::{sum_sizes, sysfs};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Megahertz};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No card has more partitions.
const NODES_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KfdNode {
    /// KFD's number of the node in file names. It changes with the card's mode.
    pub(super) gpu_id: u32,
    /// The N of `/dev/dri/renderDN`; `None` where the node has none.
    pub(super) render_minor: Option<u32>,
    /// The number of compute units of the whole node.
    pub(super) compute_units: Option<u64>,
    /// The node also has processor cores: a GPU on a die with a CPU.
    pub(super) has_cores: bool,
    /// The card memory available to the node.
    pub(super) memory: Reading<Bytes>,
    /// The highest clock of its compute units.
    pub(super) clock_max: Option<Megahertz>,
    /// The highest clock of its memory.
    pub(super) memory_clock_max: Option<Megahertz>,
    /// Domain, bus, device and function.
    address: (u64, u64),
    /// The partition number within the card.
    part: u64,
}

/// The host's KFD topology, as one card needs it.
pub(super) struct KfdTopology {
    directory: PathBuf,
    /// The nodes, and the generation that changes with them.
    cached: Option<(u64, Vec<KfdNode>)>,
    /// When no topology was found.
    missing_since: Option<Instant>,
}

/// How often a host without a topology is checked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(16);

impl KfdTopology {
    pub(super) fn new(sysfs_root: &Path) -> Self {
        Self {
            directory: sysfs_root.join("class/kfd/kfd/topology"),
            cached: None,
            missing_since: None,
        }
    }

    /// The nodes of this card, the first partition first.
    pub(super) fn nodes(&mut self, card: &DrmCard, at: Instant) -> Vec<KfdNode> {
        let is_recent = |then| at.saturating_duration_since(then) < RETRY_INTERVAL;
        if self.missing_since.is_some_and(is_recent) {
            return Vec::new();
        }
        let generation = sysfs::number(&self.directory.join("generation_id"));
        let generation = generation.known().copied();
        if let Some((of, nodes)) = &self.cached
            && Some(*of) == generation
        {
            return nodes.clone();
        }
        let directory = self.directory.join("nodes");
        self.missing_since = (generation.is_none() && !directory.exists()).then_some(at);
        let nodes = read_nodes(&directory, card);
        // A change during this reading shows at the next poll.
        self.cached = generation.map(|generation| (generation, nodes.clone()));
        nodes
    }

    /// The nodes of the last reading.
    pub(super) fn cached_nodes(&self) -> &[KfdNode] {
        self.cached.as_ref().map_or(&[], |(_, nodes)| nodes)
    }

    /// The generation of the last reading; `None` where there is none.
    pub(super) fn generation(&self) -> Option<u64> {
        self.cached.as_ref().map(|(generation, _)| *generation)
    }
}

pub(super) fn clock_limits(nodes: &[KfdNode]) -> Vitals {
    let greatest = |clock: fn(&KfdNode) -> Option<Megahertz>| {
        let greatest = nodes.iter().filter_map(clock).max();
        greatest.map_or(Reading::Unsupported, Reading::Value)
    };
    Vitals {
        clock_sm_max: greatest(|node| node.clock_max),
        clock_memory_max: greatest(|node| node.memory_clock_max),
        ..Vitals::unknown(&Reading::Unsupported)
    }
}

fn read_nodes(directory: &Path, card: &DrmCard) -> Vec<KfdNode> {
    let mut nodes: Vec<KfdNode> = sysfs::entries(directory)
        .into_iter()
        .filter_map(|(_, directory)| read_node(&directory))
        .filter(|node| belongs_to(node, card))
        .collect();
    nodes.sort_indirect_by_key(|node| (node.part, node.render_minor, node.gpu_id));
    nodes.truncate(NODES_MAX);
    nodes
}

/// Reads one node; `None` for a CPU, and for a node that disappears.
fn read_node(directory: &Path) -> Option<KfdNode> {
    let gpu_id = *sysfs::number(&directory.join("gpu_id")).known()?;
    let gpu_id = u32::try_from(gpu_id).ok().filter(|id| *id != 0)?;
    let properties = read_parsed(&directory.join("properties"), |text| {
        parse_node(text, gpu_id)
    });
    let mut node = properties.known()?.clone();
    let banks = directory.join("mem_banks");
    node.memory = memory(&banks);
    node.memory_clock_max = memory_clock_max(&banks);
    Some(node)
}

/// Parses the `properties` of a node.
pub(super) fn parse_node(text: &str, gpu_id: u32) -> Option<KfdNode> {
    let numbers = parse_numbers(text);
    let number = |key: &str| numbers.get(key).copied();
    let location = number("location_id")?;
    let simds_per_unit = number("simd_per_cu").filter(|it| *it > 0);
    let compute_units = simds_per_unit.and_then(|it| Some(number("simd_count")? / it));
    Some(KfdNode {
        gpu_id,
        render_minor: number("drm_render_minor")
            .and_then(|minor| u32::try_from(minor).ok())
            .filter(|minor| *minor > 0),
        compute_units: compute_units.filter(|it| *it > 0),
        has_cores: number("cpu_cores_count").is_some_and(|cores| cores > 0),
        memory: Reading::Unsupported,
        clock_max: number("max_engine_clk_fcompute").and_then(valid_clock),
        memory_clock_max: None,
        // The upper four bits of the location are the partition number.
        address: (number("domain").unwrap_or(0), location & 0xffff),
        part: location >> 28,
    })
}

/// A clock in megahertz. 0 means unknown, and no clock runs at 20 GHz.
fn valid_clock(megahertz: u64) -> Option<Megahertz> {
    let clock = u32::try_from(megahertz).ok();
    clock.filter(|it| (1..=20_000).contains(it)).map(Megahertz)
}

/// A number from each memory bank. Banks on the card itself are heaps 1 and 2, visible and
/// invisible to the CPU; other banks count as 0.
fn own_bank_values(directory: &Path, key: &str) -> Vec<Reading<u64>> {
    let number = |(_, bank): (String, PathBuf)| {
        read_parsed(&bank.join("properties"), |text| {
            let numbers = parse_numbers(text);
            let own = matches!(numbers.get("heap_type")?, 1 | 2);
            Some(if own { *numbers.get(key)? } else { 0 })
        })
    };
    sysfs::entries(directory).into_iter().map(number).collect()
}

fn memory_clock_max(banks: &Path) -> Option<Megahertz> {
    let clocks = own_bank_values(banks, "mem_clk_max").into_iter();
    clocks.filter_map(|it| valid_clock(*it.known()?)).max()
}

fn memory(banks: &Path) -> Reading<Bytes> {
    sum_sizes(own_bank_values(banks, "size_in_bytes"))
}

/// A node belongs to a card by its render node, or by its address, which the partitions of a card
/// share: their render nodes are not the card's own.
fn belongs_to(node: &KfdNode, card: &DrmCard) -> bool {
    let name = node.render_minor.map(|minor| format!("renderD{minor}"));
    let named = name.is_some_and(|name| card.nodes.iter().any(|node| node.name == name));
    named || card.pci.as_ref().and_then(kfd_address) == Some(node.address)
}

/// Converts `0000:c1:00.0` to KFD's encoding: the domain, and the rest in sixteen bits.
fn kfd_address(pci: &PciIdentity) -> Option<(u64, u64)> {
    let (domain, rest) = pci.slot.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let [domain, bus, device, function] =
        [domain, bus, device, function].map(|digits| u64::from_str_radix(digits, 16).ok());
    Some((domain?, bus? << 8 | device? << 3 | function?))
}
