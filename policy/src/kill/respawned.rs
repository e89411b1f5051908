//! Who came in the place of processes that were ended, and who started them.

use super::{Candidate, Crowd};
use gpukill_proto::kill::{Reaper, Respawn};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeSet;

/// Processes that were not there before, do the same for the same user as one that
/// has ended, and were started by the same unit, or by the same parent that goes
/// on. Whoever just starts the same program elsewhere is none.
#[must_use]
pub fn respawned(
    ended: &BTreeSet<ProcessKey>,
    members: &BTreeSet<ProcessKey>,
    first: &Crowd,
    now: &Crowd,
) -> Vec<Respawn> {
    let gone: Vec<&Candidate> = first
        .values()
        .filter(|process| ended.contains(&process.kin.key))
        .collect();
    let is_new = |process: &&Candidate| {
        let before = first.get(&process.kin.key.pid);
        before.is_none_or(|before| before.kin.key != process.kin.key)
            && !members.contains(&process.kin.key)
    };
    let new = now.values().filter(is_new);
    new.filter_map(|process| {
        let of = gone.iter().find(|gone| does_the_same(gone, process));
        of.and_then(|gone| respawn(gone, process, members, first, now))
    })
    .collect()
}

/// Whether one runs what the other ran, for the same person.
fn does_the_same(gone: &Candidate, new: &Candidate) -> bool {
    gone.kin.executable.is_some()
        && gone.kin.executable == new.kin.executable
        && gone.kin.is_same_persons(&new.kin)
        && (gone.command.known().is_none() || gone.command == new.command)
}

fn respawn(
    gone: &Candidate,
    new: &Candidate,
    members: &BTreeSet<ProcessKey>,
    first: &Crowd,
    now: &Crowd,
) -> Option<Respawn> {
    let unit = gone.kin.unit.clone().filter(|unit| {
        // A scope holds what others start, and starts nothing itself.
        unit.name.ends_with(".service") && new.kin.unit.as_ref() == Some(unit)
    });
    let parent = now.get(&new.parent).filter(|parent| {
        let same = first
            .get(&gone.parent)
            .is_some_and(|it| it.kin.key == parent.kin.key);
        // Process 1 takes in everybody's children.
        same && parent.kin.key.pid > 1 && !members.contains(&parent.kin.key)
    });
    if unit.is_none() && parent.is_none() {
        return None;
    }
    Some(Respawn {
        key: new.kin.key,
        name: new.kin.name.clone(),
        unit,
        parent: parent.map(|parent| Reaper {
            pid: parent.kin.key.pid,
            name: Reading::Value(parent.kin.name.clone()),
        }),
    })
}
