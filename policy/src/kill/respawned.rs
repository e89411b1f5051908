//! Finds processes that replaced ended ones, and what started them.

use super::{ProcessInfo, ProcessTable};
use gpukill_proto::kill::{Reaper, Respawn};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::reading::Reading;
use std::collections::BTreeSet;

/// Returns new processes that run the same program for the same user as an ended
/// process, and were started by the same unit or by the same, still running parent. A
/// process that starts the same program elsewhere does not count.
#[must_use]
pub fn find_respawned(
    ended: &BTreeSet<ProcessKey>,
    members: &BTreeSet<ProcessKey>,
    first: &ProcessTable,
    now: &ProcessTable,
) -> Vec<Respawn> {
    let gone: Vec<&ProcessInfo> = first
        .values()
        .filter(|process| ended.contains(&process.lineage.key))
        .collect();
    let is_new = |process: &&ProcessInfo| {
        let before = first.get(&process.lineage.key.pid);
        before.is_none_or(|before| before.lineage.key != process.lineage.key)
            && !members.contains(&process.lineage.key)
    };
    let new = now.values().filter(is_new);
    new.filter_map(|process| {
        let of = gone.iter().find(|gone| runs_same_program(gone, process));
        of.and_then(|gone| build_respawn(gone, process, members, first, now))
    })
    .collect()
}

/// Whether both run the same program for the same person.
fn runs_same_program(gone: &ProcessInfo, new: &ProcessInfo) -> bool {
    gone.lineage.executable.is_some()
        && gone.lineage.executable == new.lineage.executable
        && gone.lineage.has_same_person(&new.lineage)
        && (gone.command.known().is_none() || gone.command == new.command)
}

fn build_respawn(
    gone: &ProcessInfo,
    new: &ProcessInfo,
    members: &BTreeSet<ProcessKey>,
    first: &ProcessTable,
    now: &ProcessTable,
) -> Option<Respawn> {
    let unit = gone.lineage.unit.clone().filter(|unit| {
        // A scope contains processes that others start, and starts none itself.
        unit.name.ends_with(".service") && new.lineage.unit.as_ref() == Some(unit)
    });
    let parent = now.get(&new.parent).filter(|parent| {
        let same = first
            .get(&gone.parent)
            .is_some_and(|it| it.lineage.key == parent.lineage.key);
        // Process 1 adopts every orphan.
        same && parent.lineage.key.pid > 1 && !members.contains(&parent.lineage.key)
    });
    if unit.is_none() && parent.is_none() {
        return None;
    }
    Some(Respawn {
        key: new.lineage.key,
        name: new.lineage.name.clone(),
        unit,
        parent: parent.map(|parent| Reaper {
            pid: parent.lineage.key.pid,
            name: Reading::Value(parent.lineage.name.clone()),
        }),
    })
}
