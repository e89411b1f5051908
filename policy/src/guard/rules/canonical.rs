//! The canonical TOML of rules: every key in a fixed order, every value in its base unit. Rules
//! that differ only in comments, order of keys or spelling of values have the same canonical
//! TOML. It is the input of digests and is never shown.

use super::{BehaviourRule, EnforcementMode, EnforcementSettings, Limits, Members, RuleSet};
use super::{Glob, GpuSelector, Pattern};
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::guard::{GuardMode, RuleKind};
use gpukill_proto::units::{Bytes, Percent};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

fn canonical_toml(part: &impl Serialize) -> String {
    toml::to_string(part).expect("rules have no absent value in a list and no number beyond i64")
}

/// The canonical TOML of one policy, below the name of its table.
pub(crate) fn policy_toml(table: &str, policy: &impl Serialize) -> String {
    canonical_toml(&BTreeMap::from([(table, policy)]))
}

/// The settings that decide the response to a violation of any policy.
#[derive(Serialize)]
struct SharedSettings<'a> {
    mode: GuardMode,
    armed_mode: EnforcementMode,
    enforcement: &'a EnforcementSettings,
}

/// The keys of a behaviour rule that decide what is measured, and on which processes.
#[derive(Serialize)]
struct MeasuredKeys<'a> {
    members: &'a Members,
    except_users: &'a [String],
    gpus: &'a [GpuSelector],
    processes: &'a [Glob],
    command: Option<&'a Pattern>,
    kind: RuleKind,
    window: Option<Duration>,
    threshold: Option<Percent>,
}

/// The behaviour rules and idle limits, without other rules for the same people.
#[derive(Serialize)]
struct BehaviourRules<'a> {
    limits: Vec<IdleLimit<'a>>,
    rules: Vec<&'a BehaviourRule>,
}

/// The idle limit of a policy.
#[derive(Serialize)]
struct IdleLimit<'a> {
    table: &'static str,
    name: &'a str,
    idle: Option<Duration>,
    idle_min_memory: Option<Bytes>,
}

impl RuleSet {
    pub(crate) fn shared_toml(&self) -> String {
        canonical_toml(&SharedSettings {
            mode: self.mode,
            armed_mode: self.armed_mode,
            enforcement: &self.enforcement,
        })
    }

    pub(crate) fn measured_toml(&self, behaviour: &BehaviourRule) -> String {
        let (kind, window, threshold) = behaviour.behaviour.measurement_key();
        canonical_toml(&MeasuredKeys {
            members: &behaviour.members,
            except_users: &behaviour.except_users,
            gpus: &behaviour.gpus,
            processes: &behaviour.processes,
            command: behaviour.command.as_ref(),
            kind,
            window,
            threshold,
        })
    }

    /// The behaviour rules, independent of the mode.
    pub(crate) fn behaviour_toml(&self) -> String {
        fn limit<'a>(table: &'static str, name: &'a str, limits: &Limits) -> IdleLimit<'a> {
            IdleLimit {
                table,
                name,
                idle: limits.idle,
                idle_min_memory: limits.idle_min_memory,
            }
        }
        let [user, group, time] =
            [PolicyKind::User, PolicyKind::Group, PolicyKind::Time].map(PolicyKind::table);
        let users = self.users.iter();
        let groups = self.groups.iter();
        let times = self.times.iter();
        let all = std::iter::once(limit("global", "", &self.defaults))
            .chain(users.map(|it| limit(user, &it.name, &it.limits)))
            .chain(groups.map(|it| limit(group, &it.name, &it.limits)))
            .chain(times.map(|it| limit(time, &it.name, &it.limits)));
        let rules = self.behaviours.iter();
        canonical_toml(&BehaviourRules {
            limits: all
                .filter(|it| (it.idle, it.idle_min_memory) != (None, None))
                .collect(),
            rules: rules
                .filter(|it| it.behaviour.kind().is_behaviour())
                .collect(),
        })
    }
}
