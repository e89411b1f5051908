//! The guard as a whole: what it finds and decides for a simulated host.

mod bounds;
mod breaker;
mod clock_steps;
mod consistency;
mod cooldown;
mod days;
mod device_losses;
mod ended_load;
mod gaps;
mod hours;
mod idleness;
mod interruptions;
mod job_changes;
mod kill_plan_check;
mod labels;
mod late_arrivals;
mod limits;
mod names;
mod orders;
mod outcomes;
mod presets;
mod preview;
mod properties;
mod readings;
pub(super) mod record_text;
mod rule_doubt;
mod self_reported;
mod services;
mod shared_containers;
mod simulated;
mod snoozes;
mod stale_readings;
mod state;
mod timelines;
mod unobserved;
mod victim_selection;
mod violation_lifecycle;
mod violations;
mod warnings;

use super::evaluate::CompiledRules;
use super::rules::*;
use super::state::GuardState;
use super::testing::*;
use gpukill_proto::guard::{GuardAction, GuardMode};
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::time::Duration;

pub(super) const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

pub(super) const fn gib(gib: u64) -> Option<Bytes> {
    Some(Bytes(gib * GIB))
}

pub(super) fn gpus(typed: &str) -> Vec<GpuSelector> {
    vec![GpuSelector(typed.to_owned())]
}

pub(super) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) fn globs(typed: &[&str]) -> Vec<Glob> {
    typed
        .iter()
        .map(|typed| Glob::parse(typed).expect("it is short"))
        .collect()
}

pub(super) fn pattern(typed: &str) -> Option<Pattern> {
    Some(Pattern {
        typed: typed.to_owned(),
        regex: crate::select::compile_pattern(typed).expect("it is one"),
    })
}

/// A memory limit and no other limit.
fn memory_limit(gib: u64) -> Limits {
    Limits {
        memory: Some(Bytes(gib * GIB)),
        ..Limits::default()
    }
}

/// Rules in enforce mode.
fn enforce_rules() -> RuleSet {
    RuleSet {
        mode: GuardMode::Enforce,
        ..dry_run_rules()
    }
}

/// A dry run of soft mode: a job that is warned now is ended in five minutes.
pub(super) fn dry_run_rules() -> RuleSet {
    RuleSet {
        mode: GuardMode::DryRun,
        ..RuleSet::default()
    }
}

pub(super) fn behaviour_rule(name: &str, behaviour: ForbiddenBehaviour) -> BehaviourRule {
    BehaviourRule {
        name: name.to_owned(),
        members: Members::default(),
        except_users: Vec::new(),
        gpus: Vec::new(),
        processes: Vec::new(),
        command: None,
        behaviour,
        measures: Measures::default(),
        ends_services: false,
    }
}
