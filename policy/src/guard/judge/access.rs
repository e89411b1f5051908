//! What is not allowed at all: a device, a person or a process on it, a time.

use super::super::limits::Profile;
use super::book::Policy;
use super::finding::{Findings, Held, UNTOLD, Whom};
use super::named::UNNAMED;
use super::places::Chosen;
use super::scene::{Run, Scene};
use gpukill_proto::guard::RuleKind;

/// Whoever was there in any part of the bucket counts: who came and left in it was where
/// they may not be, though nobody can be ended for it.
pub(crate) fn judge(scene: &Scene<'_>, findings: &mut Findings) {
    let rules = scene.book.rules();
    let closed: Vec<usize> = (0..rules.gpus.len())
        .filter(|at| {
            let maintenance = rules.gpus[*at].maintenance.as_ref();
            maintenance.is_some_and(|hours| hours.contains(scene.bucket.civil))
        })
        .collect();
    let is_in_force: Vec<bool> = rules
        .times
        .iter()
        .map(|it| it.hours.contains(scene.bucket.civil))
        .collect();
    for (position, run) in scene.runs.iter().enumerate() {
        let mut found = |policy, kind, is: Result<bool, &str>| match is {
            Ok(true) if !run.is_told => {
                findings.unknown(policy, kind, Whom::Run(position), UNTOLD);
            }
            Ok(true) => {
                let held = Held::access(vec![position]);
                findings.holds(policy, kind, Whom::Run(position), held);
            }
            Ok(false) => {}
            Err(why) => findings.unknown(policy, kind, Whom::Run(position), why.to_owned()),
        };
        let place = |policy: Policy| match policy {
            Policy::Gpu(at) => scene.places.gpus[at].has(run.device),
            Policy::Time(at) if is_in_force[at] => scene.places.times[at].has(run.device),
            Policy::Time(_)
            | Policy::Default
            | Policy::User(_)
            | Policy::Group(_)
            | Policy::Behaviour(_) => Ok(false),
        };
        for (policy, kind) in &run.selected.forbidden {
            found(*policy, *kind, place(*policy));
        }
        for (policy, kind, why) in &run.selected.doubtful {
            if place(*policy) != Ok(false) {
                found(*policy, *kind, Err(*why));
            }
        }
        for at in &closed {
            let policy = Policy::Gpu(*at);
            found(policy, RuleKind::Maintenance, place(policy));
        }
        for (policy, is) in lists(scene, run) {
            found(policy, RuleKind::Gpu, is);
        }
    }
}

/// What the lists of devices of those that it counts for say: its owner's, and where
/// that has none, each of its groups'.
fn lists<'a>(scene: &'a Scene<'_>, run: &Run<'_>) -> Vec<(Policy, Result<bool, &'a str>)> {
    let profile = &scene.profiles[run.profile].0;
    let mut unnamed = profile.doubtful_users.iter().copied();
    let unnamed = unnamed.by_ref().filter(|at| has_lists(scene, *at));
    let unnamed: Vec<usize> = unnamed.collect();
    let known = known_lists(scene, profile, run.device);
    if unnamed.is_empty() {
        return known;
    }
    let may_be = unnamed.into_iter().map(|at| {
        let (allowed, blocked) = &scene.places.users[at];
        (Policy::User(at), is_kept_off(allowed, blocked, run.device))
    });
    may_be
        .chain(known)
        .map(|(policy, is)| match is {
            Ok(false) => (policy, Ok(false)),
            Ok(true) | Err(_) => (policy, Err(UNNAMED)),
        })
        .collect()
}

/// Whether the policy of a user has such lists.
fn has_lists(scene: &Scene<'_>, user: usize) -> bool {
    let policy = &scene.book.rules().users[user];
    !policy.allowed_gpus.is_empty() || !policy.blocked_gpus.is_empty()
}

fn known_lists<'a>(
    scene: &'a Scene<'_>,
    profile: &'a Profile,
    device: Option<usize>,
) -> Vec<(Policy, Result<bool, &'a str>)> {
    let of_user = profile.user.filter(|at| has_lists(scene, *at));
    if let Some(at) = of_user {
        let (allowed, blocked) = &scene.places.users[at];
        return vec![(Policy::User(at), is_kept_off(allowed, blocked, device))];
    }
    let groups = profile.groups.iter().map(|at| {
        let (allowed, blocked) = &scene.places.groups[*at];
        (Policy::Group(*at), is_kept_off(allowed, blocked, device))
    });
    // Whoever may belong to a group is kept off nothing by it.
    let doubtful = profile.doubtful.iter().map(|at| {
        let (allowed, blocked) = &scene.places.groups[*at];
        let is = match is_kept_off(allowed, blocked, device) {
            Ok(false) => Ok(false),
            Ok(true) | Err(_) => Err("whether it belongs to the group is not known"),
        };
        (Policy::Group(*at), is)
    });
    // Whom a label names is kept off what they are kept off, and allowed nothing by it.
    let labelled = profile.labelled_user.map(|at| {
        let (allowed, blocked) = &scene.places.users[at];
        (Policy::User(at), is_kept_off(allowed, blocked, device))
    });
    groups.chain(doubtful).chain(labelled).collect()
}

fn is_kept_off<'a>(
    allowed: &'a Chosen,
    blocked: &'a Chosen,
    device: Option<usize>,
) -> Result<bool, &'a str> {
    match (blocked.has(device), allowed.has(device)) {
        (Ok(true), _) | (_, Ok(false)) => Ok(true),
        (Err(why), _) | (_, Err(why)) => Err(why),
        (Ok(false), Ok(true)) => Ok(false),
    }
}
