//! Which processes does a request mean, by its conditions alone?

use super::belongs::Kindred;
use super::condition::{Conditions, Holds};
use super::usage::{Usage, is_zombie, usage};
use super::{Candidate, Seen};
use crate::access::is_root_of_the_box;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{KillRequest, KillScope, KillSignal, LONGEST_PATIENCE_MS, MOST_PIDS};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

/// Those whom a request names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meant {
    /// Of these all conditions hold.
    pub keys: BTreeSet<ProcessKey>,
    /// So many others may be meant: what a condition asks of them is not known,
    /// and no other condition excludes them.
    pub unjudged: u32,
}

/// Whom the request means, of those that use a device or have one open (with
/// [`KillRequest::any_process`], of all). In a scope wider than the process, a pid
/// may be named that uses none itself, as launchers do, where something that
/// belongs to it does.
///
/// # Errors
/// [`Refusal::Invalid`] for a request that makes no sense, [`Refusal::NoMatch`]
/// where a GPU or a pid that it names is none, [`Refusal::Denied`] where it asks
/// for any process, or for protected ones, and the caller is not root of the box.
pub fn meant(request: &KillRequest, seen: &Seen<'_>) -> Result<Meant, Refusal> {
    is_sound(request)?;
    if request.override_protected && !is_root_of_the_box(seen.caller) {
        return Err(Refusal::Denied {
            asked: "end what is protected".into(),
            ask: "root".into(),
        });
    }
    let conditions = Conditions::new(&request.selector, seen)?;
    if request.any_process {
        return one_of_all(request, seen);
    }
    let usage = usage(seen.snapshot, seen.holders);
    let mut meant = Meant {
        keys: launchers(request, seen, &usage)?,
        unjudged: 0,
    };
    for (key, used) in &usage {
        let Some(process) = seen.crowd.get(&key.pid) else {
            continue;
        };
        // The pid is another's by now.
        if process.kin.key != *key {
            continue;
        }
        match conditions.judge(process, used, seen) {
            Holds::Yes => {
                meant.keys.insert(*key);
            }
            Holds::Unknown => meant.unjudged = meant.unjudged.saturating_add(1),
            Holds::No => {}
        }
    }
    Ok(meant)
}

/// Whether the request makes sense whatever there is on the box.
fn is_sound(request: &KillRequest) -> Result<(), Refusal> {
    let selector = &request.selector;
    let invalid = |why: &str| Err(Refusal::Invalid(why.to_owned()));
    if selector.is_empty() {
        return invalid("nothing is selected: name pids, or say whom by an option");
    }
    if selector.pids.len() > MOST_PIDS {
        return Err(Refusal::Invalid(format!(
            "{} pids are too many: at most {MOST_PIDS}",
            selector.pids.len()
        )));
    }
    if !(1..=LONGEST_PATIENCE_MS).contains(&request.patience_ms) {
        return Err(Refusal::Invalid(format!(
            "a signal cannot be given {} ms: 1 to {LONGEST_PATIENCE_MS}",
            request.patience_ms
        )));
    }
    if request.signal == Some(KillSignal::Kill) && !request.force {
        return invalid("SIGKILL is sent with --force only");
    }
    if request.any_process && !(selector.is_pids_only() && selector.pids.len() == 1) {
        return invalid("--any-process takes one pid and nothing else");
    }
    if request.override_protected && !selector.is_pids_only() {
        return invalid("--override-protected takes pids and no other condition");
    }
    Ok(())
}

fn one_of_all(request: &KillRequest, seen: &Seen<'_>) -> Result<Meant, Refusal> {
    if !is_root_of_the_box(seen.caller) {
        return Err(Refusal::Denied {
            asked: "end a process that uses no GPU".into(),
            ask: "root".into(),
        });
    }
    let mut meant = Meant::default();
    for pid in &request.selector.pids {
        let Some(process) = seen.crowd.get(pid) else {
            return Err(Refusal::NoMatch(format!("there is no process {pid}")));
        };
        meant.keys.insert(process.kin.key);
    }
    Ok(meant)
}

/// So many pids are told of which there is nothing to end.
const MOST_TOLD: usize = 8;

/// Those of the named pids that use no device themselves, and for whose sake
/// others are meant. Pids that are joined to other conditions only exclude.
///
/// # Errors
/// Where a pid is nobody's, or there is nothing to end for its sake.
fn launchers(
    request: &KillRequest,
    seen: &Seen<'_>,
    usage: &BTreeMap<ProcessKey, Usage<'_>>,
) -> Result<BTreeSet<ProcessKey>, Refusal> {
    let selector = &request.selector;
    let pids: BTreeSet<u32> = selector.pids.iter().copied().into_set();
    let is_wide = request.scope != KillScope::Process && selector.is_pids_only();
    let kindred = is_wide.then(|| Kindred::new(seen.crowd));
    let mut launchers = BTreeSet::new();
    let mut wrong = Vec::new();
    for pid in pids {
        let Some(process) = seen.crowd.get(&pid) else {
            wrong.push(format!("there is no process {pid}"));
            continue;
        };
        let key = process.kin.key;
        if usage.contains_key(&key) {
            continue;
        }
        let reached = kindred
            .as_ref()
            .and_then(|kindred| kindred.reach(process, request.scope).ok());
        if reached.is_some_and(|keys| keys.iter().any(|key| usage.contains_key(key))) {
            launchers.insert(key);
        } else {
            let scope = if is_wide {
                request.scope
            } else {
                KillScope::Process
            };
            wrong.push(uses_none(process, seen, scope));
        }
    }
    if wrong.is_empty() {
        return Ok(launchers);
    }
    let others = match wrong.len().saturating_sub(MOST_TOLD) {
        0 => String::new(),
        others => format!("; and {others} more"),
    };
    wrong.truncate(MOST_TOLD);
    Err(Refusal::NoMatch(format!("{}{others}", wrong.join("; "))))
}

fn uses_none(process: &Candidate, seen: &Seen<'_>, scope: KillScope) -> String {
    let pid = process.kin.key.pid;
    if is_zombie(process, None) {
        let parent = process.parent;
        return format!("process {pid} has ended, and its parent {parent} has not asked how");
    }
    let unseen = seen.holders.iter().find_map(|held| held.unseen.as_deref());
    match (unseen, scope) {
        (Some(why), _) => format!("process {pid} is not known to use a GPU: {why}"),
        (None, KillScope::Process) => format!("process {pid} uses no GPU"),
        (None, KillScope::Tree | KillScope::Job | KillScope::Container) => {
            format!("process {pid} uses no GPU, nor does its {}", scope.name())
        }
    }
}
