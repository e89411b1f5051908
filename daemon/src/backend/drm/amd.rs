//! What amdgpu tells of a card, from files alone.
//!
//! Files of one value each are believed first; `gpu_metrics` fills what they do
//! not tell. Nothing below debugfs is ever touched: one of its files resets the
//! GPU when it is read.

mod clocks;

mod lines;

mod listed;

mod memory;

mod metrics;

mod parts;

mod ras;

mod seldom;

mod sensors;

mod topology;

pub(crate) mod untrusted;

use super::Told;
use super::card::Card;
use super::hwmon::{Hwmon, Kept};
use super::names;
use gpukill_proto::reading::Reading;
use metrics::Metrics;
use seldom::Seldom;
use std::path::{Path, PathBuf};
use std::time::Instant;
use topology::Topology;

/// One card, and what must be remembered of it from one poll to the next.
pub(crate) struct Amd {
    sysfs_root: PathBuf,
    host_root: PathBuf,
    /// Once it was looked for.
    name: Option<String>,
    seldom: Option<Seldom>,
    hwmon: Kept,
    topology: Topology,
    /// It shares its memory with a CPU. Once told, it stays so.
    integrated: bool,
}

impl Amd {
    /// Reads below these: `/sys`, and `/` for the lists of names.
    pub(crate) fn new(sysfs_root: &Path, host_root: &Path) -> Self {
        Self {
            sysfs_root: sysfs_root.to_path_buf(),
            host_root: host_root.to_path_buf(),
            name: None,
            seldom: None,
            hwmon: Kept::default(),
            topology: Topology::new(sysfs_root),
            integrated: false,
        }
    }

    /// What its files tell now. Never called while the card sleeps.
    pub(crate) fn read(&mut self, card: &Card, at: Instant) -> Told {
        let nodes = self.topology.nodes(card);
        let metrics = Metrics::read(&card.device().join("gpu_metrics"));
        self.integrated |= metrics.integrated || nodes.iter().any(|node| node.has_cores);
        let hwmon = self.hwmon.or(at, || Hwmon::of_or_only(card, "amdgpu"));
        let vitals = sensors::vitals(card, hwmon, &metrics);
        let vitals = self.seldom(card, at).fill(vitals);
        let vitals = topology::fill(&nodes, vitals);
        let processes = self.sysfs_root.join("class/kfd/kfd/proc");
        let (mut listed, faults) = match listed::users(&processes, &nodes) {
            Ok(listed) => (listed, Vec::new()),
            Err(fault) => (Vec::new(), vec![fault]),
        };
        if self.integrated {
            listed.iter_mut().for_each(memory::without_zero);
        }
        Told {
            name: Reading::Value(self.name(card)),
            memory: memory::of(card, &vitals, self.integrated),
            instances: parts::instances(card, &nodes, &vitals),
            nodes: parts::files(&self.sysfs_root, card, &nodes),
            listed,
            faults,
            vitals,
        }
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
