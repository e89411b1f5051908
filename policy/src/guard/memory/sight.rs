//! Which devices have told who uses them, since the daemon last began to look. Of
//! another nobody is known to be gone: a driver takes a while to answer after a start,
//! and may come and go. One that tells nothing for a whole day does not come back.

use super::super::bucket::Bucket;
use super::super::losses::Losses;
use super::Memory;
use super::proof::Seen;
use crate::usage::DeviceUsage;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::snapshot::DeviceId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is in sight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sight {
    told: BTreeSet<DeviceId>,
    /// Others by which somebody is known, and for how many milliseconds of judged time
    /// they have told nothing.
    silent: BTreeMap<DeviceId, u64>,
}

/// So many milliseconds of judged time a device may be out of sight before whoever is
/// known by it is gone. A driver that is repaired, a card that waits for an admin over
/// night: these come back; a card that was taken out does not.
const GONE: u64 = 24 * 3_600_000;

impl Sight {
    /// Looks at the next bucket, that follows the one before or comes after a gap.
    pub(crate) fn look(&mut self, bucket: &Bucket, follows: bool) {
        let is_kept = |id: &DeviceId| follows && bucket.devices.contains_key(id);
        for id in self.told.extract_if(.., |id| !is_kept(id)) {
            self.silent.insert(id, 0);
        }
        let of_nobody = bucket.devices.iter().filter(|(_, it)| has_told(&it.usage));
        let mut tell: BTreeSet<&DeviceId> = of_nobody.map(|(id, _)| id).into_set();
        let of_somebody = bucket.runs.iter();
        let of_somebody = of_somebody.filter(|(_, it)| it.usage.held_ms > 0 || bucket.seen_ms == 0);
        tell.extend(of_somebody.map(|(run, _)| &run.device));
        for id in tell {
            if !self.told.contains(id) && bucket.devices.contains_key(id) {
                self.told.insert(id.clone());
            }
        }
        for run in bucket.runs.keys() {
            if !self.told.contains(&run.device) && !self.silent.contains_key(&run.device) {
                self.silent.insert(run.device.clone(), 0);
            }
        }
        self.wait(bucket.seen_ms);
    }

    /// Some are gone by what their drivers say: nothing waits for them.
    fn give_up(&mut self, losses: &Losses) {
        let gone = self.told.extract_if(.., |id| losses.is_gone(id));
        let gone: Vec<DeviceId> = gone.collect();
        self.silent.extend(gone.into_iter().map(|id| (id, GONE)));
        for (id, ms) in &mut self.silent {
            if losses.is_gone(id) {
                *ms = GONE;
            }
        }
    }

    /// Waits for those that tell nothing, and forgets them when nobody is known by them
    /// any more: of the others by which somebody is known too, each has told by then, or
    /// is gone as well.
    fn wait(&mut self, seen_ms: u64) {
        let told = &self.told;
        self.silent.retain(|id, ms| {
            *ms = ms.saturating_add(seen_ms);
            !told.contains(id) && *ms < 2 * GONE
        });
    }

    /// Whether all of these have told, or will not any more.
    pub(crate) fn is_of_all<'d>(&self, devices: impl IntoIterator<Item = &'d DeviceId>) -> bool {
        let is_gone = |id| self.silent.get(id).is_some_and(|ms| *ms >= GONE);
        let mut devices = devices.into_iter();
        devices.all(|id| self.told.contains(id) || is_gone(id))
    }
}

impl Memory {
    /// What is known besides the samples: the devices that their drivers do not list any
    /// more, also where that began before the daemon was started, and whether a process
    /// lives. A violation waits for neither: what a device held that is gone, and what a
    /// process held that has ended, is held no more.
    pub fn loses(&mut self, losses: &Losses, lives: &dyn Fn(u32, u64) -> bool) {
        self.sight.give_up(losses);
        let sight = &self.sight;
        let stays = |seen: &Seen| {
            let run = &seen.run;
            sight.told.contains(&run.device) || lives(run.pid, run.start_ticks)
        };
        let clocks = self.clocks.values_mut().flat_map(|it| it.of.values_mut());
        for opened in clocks.filter_map(|clock| clock.opened.as_mut()) {
            let evidence = &mut opened.evidence;
            // Of others that are not named it is not known whether they live.
            if evidence.runs.len() == evidence.count as usize {
                evidence.runs.retain(stays);
                evidence.count = u32::try_from(evidence.runs.len()).unwrap_or(u32::MAX);
            }
        }
    }
}

/// Whether a device that tells of nobody has told that there is nobody. One that works
/// may have been asked for that alone.
const fn has_told(usage: &DeviceUsage) -> bool {
    usage.free_ms > 0 || usage.held_ms > 0
}
