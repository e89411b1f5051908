//! What the guard judges, and what it does not.

pub(super) mod words;

mod endings;

mod fires;

mod clocks;

mod spares;

mod rid;

mod simulated;

mod sight;

mod stops;

mod turns;

mod hours;

mod claims;

mod logins;

mod moves;

mod names;

mod labels;

mod laws;

mod limits;

mod memory;

mod bounds;

mod outcomes;

mod plans;

mod days;

mod warned;

mod snoozes;

mod fit;

mod agree;

mod readings;

mod breaker;

mod cooldown;

mod sentences;

mod shared;

mod services;

mod duty;

mod idleness;

mod fresh;

mod newcomers;

mod losses;

use super::judge::Rulebook;
use super::memory::Memory;
use super::rules::*;
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
        regex: crate::select::pattern(typed).expect("it is one"),
    })
}

/// So much memory and nothing else.
fn memory(gib: u64) -> Limits {
    Limits {
        memory: Some(Bytes(gib * GIB)),
        ..Limits::default()
    }
}

/// Rules that are carried out at once.
fn enforcing() -> Rules {
    Rules {
        mode: GuardMode::Enforce,
        ..rules()
    }
}

/// A dry run of soft: what is warned of now is ended in five minutes.
pub(super) fn rules() -> Rules {
    Rules {
        mode: GuardMode::DryRun,
        ..Rules::default()
    }
}

pub(super) fn behaviour(name: &str, conduct: Conduct) -> Behaviour {
    Behaviour {
        name: name.to_owned(),
        members: Members::default(),
        except_users: Vec::new(),
        gpus: Vec::new(),
        processes: Vec::new(),
        command: None,
        conduct,
        measures: Measures::default(),
        ends_services: false,
    }
}
