//! The guard as a whole: what it finds and decides for a simulated host.

pub(super) mod record_text;

mod orders;

mod violations;

mod violation_lifecycle;

mod victim_selection;

mod ended_load;

mod simulated;

mod unobserved;

mod gaps;

mod clock_steps;

mod hours;

mod self_reported;

mod logins;

mod job_changes;

mod names;

mod labels;

mod properties;

mod limits;

mod state;

mod bounds;

mod outcomes;

mod timelines;

mod days;

mod warnings;

mod snoozes;

mod rule_doubt;

mod consistency;

mod readings;

mod breaker;

mod cooldown;

mod kill_plan_check;

mod shared_containers;

mod services;

mod presets;

mod idleness;

mod stale_readings;

mod late_arrivals;

mod device_losses;

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

pub(super) fn behaviour_rule(name: &str, conduct: ForbiddenBehaviour) -> BehaviourRule {
    BehaviourRule {
        name: name.to_owned(),
        members: Members::default(),
        except_users: Vec::new(),
        gpus: Vec::new(),
        processes: Vec::new(),
        command: None,
        behaviour: conduct,
        measures: Measures::default(),
        ends_services: false,
    }
}
