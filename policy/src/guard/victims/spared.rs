//! Why a job is not ended, or not yet.

use super::super::clock::Due;
use super::super::judge::{Job, Scene};
use gpukill_proto::guard::{GuardAction, GuardMode, RuleKind};
use std::collections::BTreeSet;

/// Whether the grace of whose job it is is over, where there is one.
pub(super) fn is_due(scene: &Scene<'_>, job: &Job, due: &Due) -> bool {
    match due {
        Due::Nobody => false,
        Due::Anybody => true,
        Due::Of { over, .. } => {
            let uid = scene.people[job.person].uid;
            uid.is_some_and(|uid| over.contains(&uid))
        }
    }
}

/// Whether whose job it is was warned, where that is needed.
pub(super) fn is_warned(scene: &Scene<'_>, job: &Job, due: &Due) -> bool {
    match due {
        Due::Nobody | Due::Anybody => true,
        Due::Of { warned, .. } => {
            let uid = scene.people[job.person].uid;
            uid.is_some_and(|uid| warned.contains(&uid))
        }
    }
}

/// Why the guard does not end a job.
pub(super) fn may_not(scene: &Scene<'_>, job: &Job) -> Option<&'static str> {
    if job.spare.is_some() {
        return job.spare;
    }
    let is_unclear = job.runs.iter().any(|run| {
        let about = &scene.runs[*run].judged.about;
        about.scheduler.is_none() || about.pod_of_the_box().is_none()
    });
    is_unclear.then_some("whether a scheduler or Kubernetes owns it is not known")
}

/// Why a job is left alone though others of those who break a rule together are not: its
/// owner's own policy is milder.
pub(super) fn left_alone(scene: &Scene<'_>, job: &Job, mode: GuardMode) -> Option<&'static str> {
    let rules = scene.book.rules();
    let users = job.runs.iter().flat_map(|run| {
        let (profile, _) = &scene.profiles[scene.runs[*run].profile];
        profile.users()
    });
    let mut measures = users.map(|at| &rules.users[at].measures);
    measures.find_map(|it| {
        let is_told = it.action == Some(GuardAction::Warn);
        let is_rehearsed = it.mode == Some(GuardMode::DryRun) && mode > GuardMode::DryRun;
        match () {
            () if is_told => Some("its owner is only warned"),
            () if is_rehearsed => Some("its owner's rules are a dry run"),
            () => None,
        }
    })
}

pub(super) fn why_nobody(spared: BTreeSet<String>, kind: RuleKind) -> String {
    /// So many are named.
    const NAMED: usize = 3;
    let count = spared.len();
    let mut named: Vec<String> = spared.into_iter().take(NAMED).collect();
    if count > NAMED {
        named.push(format!("{} more", count - NAMED));
    }
    if named.is_empty() {
        return format!(
            "no process is known by whom the {} would change",
            kind.name()
        );
    }
    named.join("; ")
}
