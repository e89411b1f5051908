//! Resolves a request to the processes that it selects, by its conditions alone.

use super::condition::{ConditionResult, Conditions};
use super::device_use::{ProcessDeviceUse, device_use, is_zombie};
use super::scope::ScopeIndex;
use super::{KillContext, ProcessInfo};
use crate::access::is_host_root;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{KillRequest, KillScope};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// The processes that a request selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Processes for which all conditions hold.
    pub keys: BTreeSet<ProcessKey>,
    /// Number of other processes that may be selected: a fact is unknown, and no
    /// condition excludes them.
    pub undetermined: u32,
}

/// Returns the processes that the request selects, among those that use a device or
/// have one open, or among all with [`KillRequest::any_process`]. In a scope wider than
/// process, a pid may name a process that uses no device, such as a launcher, where a
/// process in its scope uses one.
///
/// # Errors
/// [`Refusal::Invalid`] for a contradictory request or a GPU that does not exist,
/// [`Refusal::NoMatch`] where a pid does not exist or no GPU has a matching name, [`Refusal::Denied`] where it asks for any process or for
/// protected ones and the caller is not root of the host.
pub fn resolve(request: &KillRequest, context: &KillContext<'_>) -> Result<Selection, Refusal> {
    request.validate().map_err(Refusal::Invalid)?;
    if request.override_protected && !is_host_root(context.caller) {
        return Err(Refusal::Denied {
            asked: "end protected processes".into(),
            ask: "root".into(),
        });
    }
    let conditions = Conditions::new(&request.selector, context)?;
    if request.any_process {
        return resolve_any_process(request, context);
    }
    let usage = device_use(context.snapshot, context.holders);
    let mut selection = Selection {
        keys: resolve_launchers(request, context, &usage)?,
        undetermined: 0,
    };
    for (key, used) in &usage {
        let Some(process) = context.processes.get(&key.pid) else {
            continue;
        };
        // The pid belongs to another process now.
        if process.lineage.key != *key {
            continue;
        }
        match conditions.evaluate(process, used, context) {
            ConditionResult::Yes => {
                selection.keys.insert(*key);
            }
            ConditionResult::Unknown => {
                selection.undetermined = selection.undetermined.saturating_add(1)
            }
            ConditionResult::No => {}
        }
    }
    Ok(selection)
}

fn resolve_any_process(
    request: &KillRequest,
    context: &KillContext<'_>,
) -> Result<Selection, Refusal> {
    if !is_host_root(context.caller) {
        return Err(Refusal::Denied {
            asked: "end a process that uses no GPU".into(),
            ask: "root".into(),
        });
    }
    let mut selection = Selection::default();
    for pid in &request.selector.pids {
        let Some(process) = context.processes.get(pid) else {
            return Err(Refusal::NoMatch(format!("there is no process {pid}")));
        };
        selection.keys.insert(process.lineage.key);
    }
    Ok(selection)
}

/// Maximum number of pids that an error lists.
const MAX_LISTED_PIDS: usize = 8;

/// Returns the named pids that use no device and are selected for other processes in
/// their scope. Pids next to other conditions only exclude.
///
/// # Errors
/// A pid does not exist, or no process in its scope uses a device.
fn resolve_launchers(
    request: &KillRequest,
    context: &KillContext<'_>,
    usage: &BTreeMap<ProcessKey, ProcessDeviceUse<'_>>,
) -> Result<BTreeSet<ProcessKey>, Refusal> {
    let selector = &request.selector;
    let pids: BTreeSet<u32> = selector.pids.iter().copied().into_set();
    let is_wide = request.scope != KillScope::Process && selector.is_pids_only();
    let scopes = is_wide.then(|| ScopeIndex::new(context.processes));
    let mut launchers = BTreeSet::new();
    let mut wrong = Vec::new();
    for pid in pids {
        let Some(process) = context.processes.get(&pid) else {
            wrong.push(format!("there is no process {pid}"));
            continue;
        };
        let key = process.lineage.key;
        if usage.contains_key(&key) {
            continue;
        }
        let reached = scopes
            .as_ref()
            .and_then(|scopes| scopes.processes_in_scope(process, request.scope).ok());
        if reached.is_some_and(|keys| keys.iter().any(|key| usage.contains_key(key))) {
            launchers.insert(key);
        } else {
            let scope = if is_wide {
                request.scope
            } else {
                KillScope::Process
            };
            wrong.push(no_gpu_reason(process, context, scope));
        }
    }
    if wrong.is_empty() {
        return Ok(launchers);
    }
    let others = match wrong.len().saturating_sub(MAX_LISTED_PIDS) {
        0 => String::new(),
        others => format!("; and {others} more"),
    };
    wrong.truncate(MAX_LISTED_PIDS);
    Err(Refusal::NoMatch(format!("{}{others}", wrong.join("; "))))
}

fn no_gpu_reason(process: &ProcessInfo, context: &KillContext<'_>, scope: KillScope) -> String {
    let pid = process.lineage.key.pid;
    if is_zombie(process, None) {
        let parent = process.parent;
        return format!("process {pid} has ended, and its parent {parent} has not reaped it");
    }
    let unscanned = context
        .holders
        .iter()
        .find_map(|held| held.incomplete_reason.as_deref());
    match (unscanned, scope) {
        (Some(why), _) => format!("process {pid} is not known to use a GPU: {why}"),
        (None, KillScope::Process) => format!("process {pid} uses no GPU"),
        (None, KillScope::Tree | KillScope::Job | KillScope::Container) => {
            format!("process {pid} uses no GPU, nor does its {}", scope.name())
        }
    }
}
