//! The canonical TOML of rules: what was read, written back with every key in one order and
//! every value in its base unit. Equal rules have equal canonical TOML, whatever comments,
//! order of keys and spelling of values their files have; it is digested and never shown.

use super::{Behaviour, Enforcement, Limits, Members, PersonBy, Rehearsed, Rules};
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

/// The settings that decide what comes of every policy.
#[derive(Serialize)]
struct Shared<'a> {
    mode: GuardMode,
    rehearsed: Rehearsed,
    person: PersonBy,
    enforcement: &'a Enforcement,
}

/// The keys of a rule on behaviour that decide what is measured, and of which processes.
#[derive(Serialize)]
struct Measured<'a> {
    person: PersonBy,
    members: &'a Members,
    except_users: &'a [String],
    gpus: &'a [GpuSelector],
    processes: &'a [Glob],
    command: Option<&'a Pattern>,
    kind: RuleKind,
    window: Option<Duration>,
    threshold: Option<Percent>,
}

/// The rules on behaviour, without what else is said of the same people.
#[derive(Serialize)]
struct OnBehaviour<'a> {
    limits: Vec<IdleLimit<'a>>,
    rules: Vec<&'a Behaviour>,
}

/// The limit on idle jobs in a policy.
#[derive(Serialize)]
struct IdleLimit<'a> {
    table: &'static str,
    name: &'a str,
    idle: Option<Duration>,
    idle_min_memory: Option<Bytes>,
}

impl Rules {
    pub(crate) fn shared_toml(&self) -> String {
        canonical_toml(&Shared {
            mode: self.mode,
            rehearsed: self.rehearsed,
            person: self.person,
            enforcement: &self.enforcement,
        })
    }

    pub(crate) fn protect_toml(&self) -> String {
        policy_toml("protect", &self.protect)
    }

    pub(crate) fn measured_toml(&self, behaviour: &Behaviour) -> String {
        let (kind, window, threshold) = behaviour.conduct.window();
        canonical_toml(&Measured {
            person: self.person,
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

    /// The part on behaviour, whatever the mode.
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
        canonical_toml(&OnBehaviour {
            limits: all
                .filter(|it| (it.idle, it.idle_min_memory) != (None, None))
                .collect(),
            rules: rules
                .filter(|it| it.conduct.kind().is_of_behaviour())
                .collect(),
        })
    }
}
