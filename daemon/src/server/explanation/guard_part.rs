//! The facts that the guard knows of one process: the rules that it breaks, and the limits of its
//! owner.

use super::ExplanationContext;
use crate::server::visibility::{Visibility, is_process_of_simulated_end, is_process_of_violation};
use crate::store::{JobAccounts, process_facts};
use gpukill_policy::guard::CompiledRules;
use gpukill_policy::guard::enforcement::ended_jobs::SimulatedEnd;
use gpukill_policy::guard::facts::ProcessFacts;
use gpukill_policy::guard::limits::{
    EffectiveLimit, effective_limits, protection_reason, replaced_limits,
};
use gpukill_policy::guard::schedule::LocalTime;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::{
    AppliedLimit, GuardMode, MAX_GUARD_ENTRIES, OpenViolation, ProcessGuardStatus,
};
use gpukill_proto::model::{GpuProcess, Snapshot};
use gpukill_proto::reading::Reading;
use std::collections::BTreeMap;

/// The current state of the guard.
#[derive(Clone, Copy)]
pub(in crate::server) struct GuardContext<'a> {
    pub(in crate::server) rules: &'a CompiledRules,
    /// Whether the circuit breaker has stopped enforcement.
    pub(in crate::server) is_stopped: bool,
    pub(in crate::server) open: &'a [OpenViolation],
    /// The jobs that a dry run counts as ended and that still run.
    pub(in crate::server) simulated: &'a [SimulatedEnd],
    /// The current local time.
    pub(in crate::server) local_time: LocalTime,
    /// The names of the groups of a user, if known.
    pub(in crate::server) groups: &'a dyn Fn(u32) -> Option<Vec<String>>,
    /// The accounts that processes name.
    pub(in crate::server) accounts: &'a JobAccounts,
}

/// What the guard reports of this process to the caller.
pub(super) fn guard_part(
    snapshot: &Snapshot,
    pid: u32,
    context: &ExplanationContext<'_>,
) -> Reading<ProcessGuardStatus> {
    let mut processes = snapshot.processes.iter();
    // A pid without a process is not evaluated.
    let process = processes.find(|process| process.pid == pid && process.key().is_some());
    let Some(process) = process else {
        return Reading::Unsupported;
    };
    let visibility = Visibility {
        caller: context.caller,
        roles: context.roles,
    };
    if !visibility.sees_process(process) {
        return Reading::Withheld;
    }
    let GuardContext {
        rules: compiled,
        is_stopped,
        open,
        simulated,
        ..
    } = context.guard;
    let mode = compiled.rules().mode;
    if mode == GuardMode::Disabled {
        return Reading::Value(ProcessGuardStatus {
            mode,
            ..ProcessGuardStatus::default()
        });
    }
    let simulated_ends: Vec<&OpenViolation> = simulated
        .iter()
        .filter(|end| is_process_of_simulated_end(end, process))
        .map(|end| &end.violation)
        .take(MAX_GUARD_ENTRIES)
        .collect();
    let is_simulated =
        |open: &OpenViolation| simulated_ends.iter().any(|end| end.rule == open.rule);
    let violations = open
        .iter()
        .filter(|open| is_process_of_violation(open, process))
        .filter(|open| !is_simulated(open))
        .take(MAX_GUARD_ENTRIES);
    let owner = owner_uid(process);
    let facts = current_facts(&context.guard, process);
    let protected = protection_reason(compiled, &facts);
    let redact = |open| visibility.redact_for_process(open, (pid, owner), compiled);
    Reading::Value(ProcessGuardStatus {
        mode,
        is_stopped: is_stopped && mode > GuardMode::DryRun,
        violations: violations.map(redact).collect(),
        would_have_ended: simulated_ends.iter().copied().map(redact).collect(),
        limits: match protected {
            Some(_) => Vec::new(),
            None => limits(&context.guard, &facts),
        },
        protected,
    })
}

/// The facts of a process that rules may use.
fn current_facts(guard: &GuardContext<'_>, process: &GpuProcess) -> ProcessFacts {
    let groups = owner_uid(process).and_then(|uid| Some((uid, (guard.groups)(uid)?)));
    let groups: BTreeMap<u32, Vec<String>> = groups.into_iter().into_map();
    process_facts(process, &groups, guard.accounts)
}

fn owner_uid(process: &GpuProcess) -> Option<u32> {
    process.owner.last_known().and_then(|owner| owner.uid)
}

/// The limits of the owner now, and the policies that they replace.
fn limits(guard: &GuardContext<'_>, facts: &ProcessFacts) -> Vec<AppliedLimit> {
    let mut others = replaced_limits(guard.rules, facts, guard.local_time);
    let limits = effective_limits(guard.rules, facts, guard.local_time).into_iter();
    let limits = limits
        .take(MAX_GUARD_ENTRIES)
        .map(|EffectiveLimit { rule, limit }| {
            // The first limit of its kind replaces the others; a limit for a time of day or on the
            // total of a group applies in addition.
            let its = others.extract_if(.., |other| other.rule.kind == rule.kind);
            let its = its.filter_map(|other| Some((other.rule, other.limit?)));
            let mut replaces: Vec<_> = its.collect();
            replaces.truncate(MAX_GUARD_ENTRIES);
            AppliedLimit {
                rule,
                limit,
                replaces,
            }
        });
    limits.collect()
}
