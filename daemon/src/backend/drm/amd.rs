//! What amdgpu tells of a card, from files alone.
//!
//! Files of one value each are believed first; `gpu_metrics` fills what they do
//! not tell. Nothing below debugfs is read here: one of its files resets the GPU
//! when it is read.

mod clocks;

mod lines;

mod listed;

mod memory;

mod metrics;

mod parts;

mod ras;

mod seldom;

mod sensors;

mod steady;

mod topology;

pub(crate) mod untrusted;

use super::Told;
use super::card::Card;
use super::hwmon::{Hwmon, Kept};
use super::lacking::Attributes;
use super::names;
use crate::backend::MemoryReadings;
use crate::faults::FaultCause;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{FaultCode, Vitals};
use gpukill_proto::units::Bytes;
use metrics::Metrics;
use seldom::Seldom;
use std::path::{Path, PathBuf};
use std::time::Instant;
use steady::Steady;
use topology::Topology;

/// One card, and what must be remembered of it from one poll to the next.
pub(crate) struct Amd {
    sysfs_root: PathBuf,
    host_root: PathBuf,
    /// Once it was looked for.
    name: Option<String>,
    attributes: Attributes,
    seldom: Option<Seldom>,
    steady: Option<Steady>,
    hwmon: Kept,
    topology: Topology,
    /// It shares its memory with a CPU. Once told, it stays so.
    integrated: bool,
}

impl Amd {
    /// Reads this card below these: `/sys`, and `/` for the lists of names.
    pub(crate) fn new(card: &Card, sysfs_root: &Path, host_root: &Path) -> Self {
        Self {
            sysfs_root: sysfs_root.to_path_buf(),
            host_root: host_root.to_path_buf(),
            name: None,
            attributes: Attributes::below(card.device()),
            seldom: None,
            steady: None,
            hwmon: Kept::default(),
            topology: Topology::new(sysfs_root),
            integrated: false,
        }
    }

    /// What its files tell now. Never called while the card sleeps.
    pub(crate) fn read(&mut self, card: &Card, at: Instant) -> Told {
        self.attributes.at(at);
        let nodes = self.topology.nodes(card, at);
        let metrics = Metrics::read(&self.attributes.named("gpu_metrics"));
        let hwmon = self.hwmon.or(at, || Hwmon::of_or_only(card, "amdgpu"));
        // The voltage of a north bridge, which cards do not have (`amdgpu_pm.c`).
        let has_north_bridge = hwmon.is_some_and(|it| it.channel("in", "vddnb").is_some());
        let vitals = sensors::vitals(&self.attributes, hwmon, &metrics);
        let generation = self.topology.generation();
        let steady = self.steady.take().filter(|it| it.holds(generation, at));
        let read = || Steady::read(&self.attributes, hwmon, generation, at);
        let steady = self.steady.insert(steady.unwrap_or_else(read));
        self.integrated |= metrics.integrated
            || has_north_bridge
            || steady.is_host_memory
            || nodes.iter().any(|node| node.has_cores);
        let vitals = steady.fill(vitals);
        let vitals = self.seldom(card, at).fill(vitals);
        let vitals = topology::fill(&nodes, vitals);
        let (memory, vitals) = self.counted(vitals);
        let (mut listed, faults) = match listed::users(&self.processes(), &nodes) {
            Ok(listed) => (listed, Vec::new()),
            Err(what) => {
                let fault = FaultCause::new(FaultCode::ProcessListFailed, what);
                (Vec::new(), vec![fault])
            }
        };
        if self.integrated {
            listed.iter_mut().for_each(memory::without_zero);
        }
        Told {
            name: Reading::Value(self.name(card)),
            memory,
            instances: parts::instances(card, &nodes, &vitals),
            nodes: parts::files(&self.sysfs_root, card, &nodes),
            listed,
            faults,
            vitals,
        }
    }

    /// Its memory, and those vitals with what is used of the host's through it. The
    /// driver keeps count of these itself (`amdgpu_vram_mgr.c`, `amdgpu_gtt_mgr.c`):
    /// the card is not asked, and may fall asleep meanwhile.
    pub(crate) fn counted(&self, vitals: Vitals) -> (MemoryReadings, Vitals) {
        let steady = self.steady.as_ref();
        let size = |kept: Option<&Reading<Bytes>>| kept.cloned().unwrap_or(Reading::Unsupported);
        let vitals = Vitals {
            gtt_total: size(steady.map(|it| &it.gtt_total)),
            gtt_used: sensors::size(&self.attributes.named("mem_info_gtt_used")),
            ..vitals
        };
        let total = size(steady.map(|it| &it.vram_total));
        let memory = memory::of(&self.attributes, total, &vitals, self.integrated);
        (memory, vitals)
    }

    /// Whether nobody is in KFD's list, as far as that tells. KFD keeps it itself
    /// (`kfd_process.c`): the card is asked only for those who have queues on it.
    pub(crate) fn is_listed_empty(&self) -> bool {
        let users = listed::users(&self.processes(), self.topology.known());
        users.is_ok_and(|users| users.is_empty())
    }

    fn processes(&self) -> PathBuf {
        self.sysfs_root.join("class/kfd/kfd/proc")
    }

    /// After a card has slept, everything that it lacked is asked for again.
    pub(crate) fn slept(&mut self) {
        self.attributes.forget();
    }

    fn seldom(&mut self, card: &Card, at: Instant) -> &Seldom {
        let old = self.seldom.take().filter(|seldom| !seldom.is_old(at));
        self.seldom
            .insert(old.unwrap_or_else(|| Seldom::read(card, at)))
    }

    fn name(&mut self, card: &Card) -> String {
        let name = || names::of(&self.host_root, card);
        self.name.get_or_insert_with(name).clone()
    }
}

#[cfg(test)]
mod tests;
