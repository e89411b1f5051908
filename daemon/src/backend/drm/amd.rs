//! Reads an amdgpu card, from files alone.
//!
//! Files of one value each take precedence; `gpu_metrics` fills the gaps. Nothing below debugfs is
//! read: reading one of its files resets the GPU.

mod cached;
mod clocks;
pub(crate) mod fuzz_api;
mod kfd_processes;
mod memory;
mod metrics;
mod partitions;
mod ras;
mod sensors;
mod slow_attributes;
mod topology;

use super::CardReadings;
use super::card::DrmCard;
use super::hwmon::{CachedHwmon, Hwmon};
use super::missing_attributes::CardAttributes;
use super::sysfs::{self, ATTRIBUTE_MAX, Attribute};
use crate::backend::MemoryReadings;
use crate::fault::FaultCause;
use cached::CachedAttributes;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::model::{FaultCode, Vitals};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use topology::KfdTopology;

/// One card, and the state kept from one poll to the next.
pub(crate) struct AmdCard {
    sysfs_root: PathBuf,
    attributes: CardAttributes,
    slow: Option<(Instant, Vitals)>,
    cached: Option<CachedAttributes>,
    hwmon: CachedHwmon,
    topology: KfdTopology,
    /// The card shares its memory with a CPU. Never cleared once set.
    integrated: bool,
}

impl AmdCard {
    /// Reads this card below this root: `/sys`.
    pub(crate) fn new(card: &DrmCard, sysfs_root: &Path) -> Self {
        Self {
            sysfs_root: sysfs_root.to_path_buf(),
            attributes: CardAttributes::new(card.device_directory()),
            slow: None,
            cached: None,
            hwmon: CachedHwmon::default(),
            topology: KfdTopology::new(sysfs_root),
            integrated: false,
        }
    }

    /// Reads the card's files. Never called while the card is suspended.
    pub(crate) fn read(&mut self, card: &DrmCard, at: Instant) -> CardReadings {
        self.attributes.begin_poll(at);
        let nodes = self.topology.nodes(card, at);
        let (metrics, shares_die) = metrics::read(&self.attributes.attribute("gpu_metrics"));
        let hwmon = self
            .hwmon
            .get_or_find(at, || Hwmon::find_or_only(card, "amdgpu"));
        // The voltage of a north bridge, which discrete cards do not have (`amdgpu_pm.c`).
        let has_north_bridge = hwmon.is_some_and(|it| it.channel("in", "vddnb").is_some());
        let vitals = sensors::vitals(&self.attributes, hwmon, metrics);
        let generation = self.topology.generation();
        let cached = self.cached.take().filter(|it| it.is_valid(generation, at));
        let read = || CachedAttributes::read(&self.attributes, hwmon, generation, at);
        let cached = self.cached.insert(cached.unwrap_or_else(read));
        self.integrated |= shares_die
            || has_north_bridge
            || cached.is_host_memory
            || nodes.iter().any(|node| node.has_cores);
        let vitals = vitals
            .or_if_unsupported(cached.vitals.clone())
            .or_if_unsupported(self.slow_attributes(card, at).clone())
            .or_if_unsupported(topology::clock_limits(&nodes));
        let (memory, vitals) = self.read_counters(vitals);
        let (mut listed, faults) =
            match kfd_processes::read_processes(&self.kfd_process_directory(), &nodes) {
                Ok(listed) => (listed, Vec::new()),
                Err(what) => {
                    let fault = FaultCause::new(FaultCode::ProcessListFailed, what);
                    (Vec::new(), vec![fault])
                }
            };
        if self.integrated {
            listed.iter_mut().for_each(memory::clear_zero_memory);
        }
        CardReadings {
            memory,
            instances: partitions::partition_instances(card, &nodes, &vitals),
            nodes: partitions::device_nodes(&self.sysfs_root, card, &nodes),
            kfd_processes: listed,
            faults,
            vitals,
        }
    }

    /// Adds the card's memory, and the host memory used through it, to `vitals`. The driver keeps
    /// these counters itself (`amdgpu_vram_mgr.c`, `amdgpu_gtt_mgr.c`): reading them does not
    /// access the card, which may fall asleep meanwhile.
    pub(crate) fn read_counters(&self, vitals: Vitals) -> (MemoryReadings, Vitals) {
        let cached = self.cached.as_ref();
        let size = |kept: Option<&Reading<Bytes>>| kept.cloned().unwrap_or(Reading::Unsupported);
        let vitals = Vitals {
            gtt_total: size(cached.map(|it| &it.vitals.gtt_total)),
            gtt_used: sensors::read_size(&self.attributes.attribute("mem_info_gtt_used")),
            ..vitals
        };
        let total = size(cached.map(|it| &it.vram_total));
        let memory = memory::read_memory(&self.attributes, total, &vitals, self.integrated);
        (memory, vitals)
    }

    /// Whether KFD's list has no process, as far as it can be read. KFD keeps the list itself
    /// (`kfd_process.c`) and accesses the card only for processes that have queues on it.
    pub(crate) fn has_no_kfd_processes(&self) -> bool {
        let users = kfd_processes::read_processes(
            &self.kfd_process_directory(),
            self.topology.cached_nodes(),
        );
        users.is_ok_and(|users| users.is_empty())
    }

    fn kfd_process_directory(&self) -> PathBuf {
        self.sysfs_root.join("class/kfd/kfd/proc")
    }

    /// After a card has slept, reads again every attribute that was missing.
    pub(crate) fn forget_missing_attributes(&mut self) {
        self.attributes.retry_all();
    }

    fn slow_attributes(&mut self, card: &DrmCard, at: Instant) -> &Vitals {
        let is_recent = |then| at.saturating_duration_since(then) < slow_attributes::READ_INTERVAL;
        let kept = self.slow.take().filter(|(then, _)| is_recent(*then));
        let read = || (at, slow_attributes::read(card));
        let (_, vitals) = self.slow.insert(kept.unwrap_or_else(read));
        vitals
    }
}

/// The failure of a file that cannot be parsed.
const NOT_UNDERSTOOD: &str = "not understood";

/// Reads a file through `parse`. A failure does not quote the file's text.
fn read_parsed<T>(
    file: &(impl Attribute + ?Sized),
    parse: impl FnOnce(&str) -> Option<T>,
) -> Reading<T> {
    match file.read(&mut [0; ATTRIBUTE_MAX]) {
        Ok(bytes) => parse(&String::from_utf8_lossy(bytes))
            .map_or_else(|| Reading::Failed(NOT_UNDERSTOOD.into()), Reading::Value),
        Err(error) => sysfs::failure(&error),
    }
}

/// Parses lines of a key, a blank and a number, as KFD writes them. Other lines are skipped: some
/// of KFD's lines hold text.
fn parse_numbers(text: &str) -> BTreeMap<&str, u64> {
    text.lines()
        .filter_map(|line| {
            let (key, value) = line.split_once(' ')?;
            Some((key, value.trim_ascii().parse().ok()?))
        })
        .into_map()
}

#[cfg(test)]
mod tests;
