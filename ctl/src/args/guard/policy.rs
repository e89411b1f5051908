//! Arguments of `guard user`, `group`, `gpu`, `time` and `rule`: one list of options, of which
//! each kind of policy has some.

mod key;

use super::{EditOptions, text_parser};
use clap::{Args, Subcommand};
use gpukill_proto::guard::edit::PolicyKind;
use key::key_of_option;

/// `guard user`, `group`, `gpu`, `time` and `rule`
#[derive(Debug, Args)]
pub struct Policy {
    /// The subcommand.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// Subcommands for a policy.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Set keys of a policy, and create it if it does not exist
    Set(Box<SetPolicy>),
    /// Remove a policy
    Remove(RemovePolicy),
}

const ACTION_HELP: &str = "The action for a violation:
warn       only warn the user
terminate  end the job; for utilization only if it is set here";

const MODE_HELP: &str = "The mode for this policy, never stricter than that of the guard:
dry-run  only record what would be done
soft     warn, and end the job when the grace period is over
enforce  end without a warning, but for idleness and waste after one";

const ROGUE_RISK_HELP: &str = "Threats of this risk or more: low, medium, high or critical";

/// `guard user set`
#[derive(Debug, Args)]
pub struct SetPolicy {
    /// The policy: a user, group, GPU or name
    #[arg(value_parser = text_parser())]
    pub name: String,
    /// Device memory, in GiB: of a group in total, of a GPU for each process
    #[arg(long, value_name = "GB")]
    pub memory_limit: Option<String>,
    /// Memory of each member on all GPUs together, in GiB
    #[arg(long, value_name = "GB")]
    pub memory_limit_each: Option<String>,
    /// Utilization of a GPU, in percent
    #[arg(long, value_name = "PCT")]
    pub utilization_limit: Option<String>,
    /// Utilization of a GPU by each member, in percent
    #[arg(long, value_name = "PCT")]
    pub utilization_limit_each: Option<String>,
    /// Maximum time that a process may hold a GPU
    #[arg(long, value_name = "HOURS")]
    pub duration_limit: Option<String>,
    /// Maximum number of processes at the same time
    #[arg(long, value_name = "N")]
    pub process_limit: Option<String>,
    /// Maximum number of processes of each member at the same time
    #[arg(long, value_name = "N")]
    pub process_limit_each: Option<String>,
    /// Maximum time that a job may be idle, in minutes
    #[arg(long, value_name = "MIN")]
    pub idle_limit: Option<String>,
    /// Only a job that holds at least this much counts as idle
    #[arg(long, value_name = "GB")]
    pub idle_min_memory: Option<String>,
    /// true: a job with connected clients counts as idle too
    #[arg(long, value_name = "BOOL")]
    pub idle_with_connections: Option<String>,
    /// Only a process that uses less of a CPU core than this counts as idle: 1, 2, 5, 10, 20,
    /// 50 or 100
    #[arg(long, value_name = "PCT")]
    pub idle_cpu_below: Option<String>,
    /// warn or end: the action for idle or wasteful services
    #[arg(long, value_name = "ACTION")]
    pub services: Option<String>,
    /// A mean utilization below this wastes the GPU, in percent
    #[arg(long, value_name = "PCT")]
    pub waste_below: Option<String>,
    /// Only a job that holds at least this much counts as wasteful
    #[arg(long, value_name = "GB")]
    pub waste_min_memory: Option<String>,
    /// Length of the measured time [default: 1]
    #[arg(long, value_name = "HOURS")]
    pub waste_hours: Option<String>,
    /// A process with a utilization that stays above this has run away, in percent
    #[arg(long, value_name = "PCT")]
    pub runaway_above: Option<String>,
    /// Length of the measured time [default: 5]
    #[arg(long, value_name = "MIN")]
    pub runaway_minutes: Option<String>,
    /// true: only a process with an ended parent
    #[arg(long, value_name = "BOOL")]
    pub runaway_orphaned: Option<String>,
    /// Memory that grows by this much is a leak
    #[arg(long, value_name = "GB")]
    pub growth: Option<String>,
    /// Length of the time in which the memory grows [default: 1]
    #[arg(long, value_name = "HOURS")]
    pub growth_hours: Option<String>,
    /// The lowest risk of a threat that violates the rule
    #[arg(long, value_name = "RISK", help = ROGUE_RISK_HELP)]
    pub rogue_risk: Option<String>,
    /// Only these threats [default: crypto_miner,suspicious_process]
    #[arg(long, value_name = "THREATS")]
    pub rogue_threats: Option<String>,
    /// Jobs with the lowest priority are ended first
    #[arg(long, value_name = "N")]
    pub priority: Option<String>,
    /// The only GPUs that may be used: 0,1
    #[arg(long, value_name = "GPUS")]
    pub allowed_gpus: Option<String>,
    /// GPUs that must not be used
    #[arg(long, value_name = "GPUS")]
    pub blocked_gpus: Option<String>,
    /// The members of the group: alice,bob
    #[arg(long, value_name = "USERS")]
    pub members: Option<String>,
    /// The rule applies to the jobs of these users: alice,bob; without users, groups, accounts,
    /// namespaces and images it applies to all
    #[arg(long, value_name = "USERS")]
    pub users: Option<String>,
    /// The rule does not apply to the jobs of these users
    #[arg(long, value_name = "USERS")]
    pub except_users: Option<String>,
    /// Unix groups of this host: their users belong to this group
    #[arg(long, value_name = "GROUPS")]
    pub unix_groups: Option<String>,
    /// Slurm accounts with jobs that belong to it
    #[arg(long, value_name = "ACCOUNTS")]
    pub slurm_accounts: Option<String>,
    /// Kubernetes namespaces with pods that belong to it
    #[arg(long, value_name = "NAMESPACES")]
    pub kubernetes_namespaces: Option<String>,
    /// Images of containers that belong to it: */pytorch:*
    #[arg(long, value_name = "IMAGES")]
    pub images: Option<String>,
    /// The GPUs to which it applies: 0,2-3
    #[arg(long, value_name = "GPUS")]
    pub gpus: Option<String>,
    /// Only processes with these whole names, with * and ?
    #[arg(long, value_name = "NAMES")]
    pub processes: Option<String>,
    /// Only processes with a matching command line
    #[arg(long, value_name = "REGEX")]
    pub command: Option<String>,
    /// The only users who may use it
    #[arg(long, value_name = "USERS")]
    pub allowed_users: Option<String>,
    /// Users who must not use it
    #[arg(long, value_name = "USERS")]
    pub blocked_users: Option<String>,
    /// The only processes that may use it, by their whole names, with * and ?
    #[arg(long, value_name = "NAMES")]
    pub allowed_processes: Option<String>,
    /// Processes that must not use it, by their whole names, with * and ?
    #[arg(long, value_name = "NAMES")]
    pub blocked_processes: Option<String>,
    /// Memory of a GPU that must stay free, in GiB
    #[arg(long, value_name = "GB")]
    pub reserved_memory: Option<String>,
    /// Start time
    #[arg(long, value_name = "HH:MM")]
    pub from: Option<String>,
    /// End time; earlier than --from means on the next day
    #[arg(long, value_name = "HH:MM")]
    pub to: Option<String>,
    /// Days of the week: mon-fri
    #[arg(long, value_name = "DAYS")]
    pub days: Option<String>,
    /// The action for a violation
    #[arg(long, value_name = "ACTION", help = ACTION_HELP)]
    pub action: Option<String>,
    /// The strictest mode for this policy
    #[arg(long, value_name = "MODE", help = MODE_HELP)]
    pub mode: Option<String>,
    /// Time from the first warning to the end: 10m
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// How often a warned user may snooze
    #[arg(long, value_name = "N")]
    pub max_snoozes: Option<String>,
    /// A message of your own to users who break the rule
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Set any key of the policy, as in `guard reference`: message="ask first"; an empty value
    /// removes the key
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub others: Vec<String>,
    /// Options of the edit.
    #[command(flatten)]
    pub edit: EditOptions,
}

/// `guard user remove`
#[derive(Debug, Args)]
pub struct RemovePolicy {
    /// The policy
    #[arg(value_parser = text_parser())]
    pub name: String,
    /// Options of the edit.
    #[command(flatten)]
    pub edit: EditOptions,
}

impl SetPolicy {
    /// The keys to set and their values.
    ///
    /// # Errors
    /// An option that this kind of policy does not have, or nothing to set.
    pub fn key_values(&self, kind: PolicyKind) -> Result<Vec<(String, String)>, String> {
        let mut fields = Vec::new();
        for (option, typed) in self.options() {
            let Some(value) = typed else { continue };
            let Some(key) = key_of_option(kind, option) else {
                let kind_name = kind.name();
                let its: Vec<&str> = options_for(kind).collect();
                let its = its.join(", ");
                return Err(format!("a {kind_name} has no {option}: it has {its}"));
            };
            fields.push((key.to_owned(), value.clone()));
        }
        for other in &self.others {
            let Some((key, value)) = other.split_once('=') else {
                return Err(format!("--set takes KEY=VALUE, and not {other:?}"));
            };
            fields.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        if fields.is_empty() {
            return Err("nothing is set: add an option such as --memory-limit 8".into());
        }
        Ok(fields)
    }
}

/// The options that set a key, each with the field of [`SetPolicy`] that holds its value.
macro_rules! options {
    ($($option:literal $field:ident,)*) => {
        const OPTIONS: &[&str] = &[$($option,)*];

        impl SetPolicy {
            fn options(&self) -> impl Iterator<Item = (&'static str, &Option<String>)> {
                [$(($option, &self.$field),)*].into_iter()
            }
        }
    };
}

options! {
    "--memory-limit" memory_limit,
    "--memory-limit-each" memory_limit_each,
    "--utilization-limit" utilization_limit,
    "--utilization-limit-each" utilization_limit_each,
    "--duration-limit" duration_limit,
    "--process-limit" process_limit,
    "--process-limit-each" process_limit_each,
    "--idle-limit" idle_limit,
    "--idle-min-memory" idle_min_memory,
    "--idle-with-connections" idle_with_connections,
    "--idle-cpu-below" idle_cpu_below,
    "--services" services,
    "--waste-below" waste_below,
    "--waste-min-memory" waste_min_memory,
    "--waste-hours" waste_hours,
    "--runaway-above" runaway_above,
    "--runaway-minutes" runaway_minutes,
    "--runaway-orphaned" runaway_orphaned,
    "--growth" growth,
    "--growth-hours" growth_hours,
    "--rogue-risk" rogue_risk,
    "--rogue-threats" rogue_threats,
    "--priority" priority,
    "--allowed-gpus" allowed_gpus,
    "--blocked-gpus" blocked_gpus,
    "--members" members,
    "--users" users,
    "--except-users" except_users,
    "--unix-groups" unix_groups,
    "--slurm-accounts" slurm_accounts,
    "--kubernetes-namespaces" kubernetes_namespaces,
    "--images" images,
    "--gpus" gpus,
    "--processes" processes,
    "--command" command,
    "--allowed-users" allowed_users,
    "--blocked-users" blocked_users,
    "--allowed-processes" allowed_processes,
    "--blocked-processes" blocked_processes,
    "--reserved-memory" reserved_memory,
    "--from" from,
    "--to" to,
    "--days" days,
    "--action" action,
    "--mode" mode,
    "--grace" grace,
    "--max-snoozes" max_snoozes,
    "--message" message,
}

/// The options of a kind of policy.
fn options_for(kind: PolicyKind) -> impl Iterator<Item = &'static str> {
    let options = OPTIONS.iter().copied();
    options.filter(move |option| key_of_option(kind, option).is_some())
}

/// Limits the help of `set` to the options of one kind of policy. The other options are refused
/// with our own message.
pub(super) fn show_only_options_for(kind: PolicyKind, set: clap::Command) -> clap::Command {
    let (name, memory) = match kind {
        PolicyKind::User => (
            "The user, by name or number",
            "Memory on all GPUs together, in GiB",
        ),
        PolicyKind::Group => ("The name", "Memory of all members together, in GiB"),
        PolicyKind::Gpu => (
            "The GPU: an index, UUID, PCI address, or a name with * in it",
            "Memory of each process on it, in GiB",
        ),
        PolicyKind::Time => (
            "The name",
            "Memory of each person on all GPUs together, in GiB",
        ),
        // This kind has no memory limit.
        PolicyKind::Rule => ("The name", ""),
    };
    let about = format!(
        "Set keys of a {}, and create it if it does not exist",
        kind.name()
    );
    // `mut_args` keeps the order; changing arguments one by one moves them to the end.
    set.about(about).mut_args(|option| {
        let named = option.get_long().map(|long| format!("--{long}"));
        let is_key = named.as_deref().filter(|named| OPTIONS.contains(named));
        match (option.get_id().as_str(), is_key) {
            (_, Some(named)) if key_of_option(kind, named).is_none() => option.hide(true),
            ("memory_limit", _) => option.help(memory),
            ("name", _) => option.help(name),
            _ => option,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, Deferred, GuardCommand, command_without_examples};
    use clap::Parser as _;
    use std::collections::BTreeSet;

    fn set(line: &str) -> (PolicyKind, Box<SetPolicy>) {
        let Command::Guard(Deferred(guard)) = Cli::try_parse_from(line.split(' ')).unwrap().command
        else {
            panic!("{line}");
        };
        let (kind, policy) = match guard.command {
            GuardCommand::User(policy) => (PolicyKind::User, policy),
            GuardCommand::Gpu(policy) => (PolicyKind::Gpu, policy),
            GuardCommand::Rule(policy) => (PolicyKind::Rule, policy),
            other => panic!("{other:?}"),
        };
        match policy.command {
            PolicyCommand::Set(set) => (kind, set),
            PolicyCommand::Remove(_) => panic!("{line}"),
        }
    }

    #[test]
    fn foreign_option_is_refused_with_the_valid_ones() {
        let (kind, wanted) = set("gpukillctl guard gpu set 0 --members a --memory-limit 8");
        assert_eq!(
            wanted.key_values(kind).unwrap_err(),
            "a GPU policy has no --members: it has --memory-limit, --utilization-limit, --gpus, \
             --allowed-users, --blocked-users, --allowed-processes, --blocked-processes, \
             --reserved-memory, --action, --mode, --grace, --max-snoozes, --message"
        );
        let (kind, wanted) = set("gpukillctl guard gpu set 0 --memory-limit 8 --set gpus=0,1");
        let fields = [("max_memory_gb", "8"), ("gpus", "0,1")];
        let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(wanted.key_values(kind).unwrap(), fields);
    }

    #[test]
    fn every_option_sets_a_key() {
        let (_, wanted) = set("gpukillctl guard user set a --priority 1");
        let names: Vec<&str> = wanted.options().map(|(name, _)| name).collect();
        assert_eq!(names, OPTIONS);
        let fields = OPTIONS.iter().map(|it| it.trim_start_matches('-'));
        let command = SetPolicy::augment_args(clap::Command::new("set"));
        let typed = command.get_arguments().filter_map(clap::Arg::get_long);
        let typed: Vec<&str> = typed
            .filter(|it| !["set", "dry-run", "diff", "yes"].contains(it))
            .collect();
        assert_eq!(fields.collect::<Vec<_>>(), typed);
        for kind in PolicyKind::ALL {
            assert!(options_for(kind).count() >= 5, "{kind:?}");
        }
    }

    /// The keys of each kind of policy, from the reference of the rules.
    fn keys() -> Vec<(PolicyKind, String)> {
        let reference = gpukill_policy::guard::rules::parse::print_reference();
        let mut kind = None;
        let mut keys = Vec::new();
        for line in reference.lines() {
            let line = line.trim_start_matches(['#', ' ']);
            if let Some(table) = line.strip_prefix('[') {
                let table = table.trim_start_matches('[');
                let of = PolicyKind::ALL.into_iter();
                kind = of.clone().find(|kind| table.starts_with(kind.table()));
                continue;
            }
            let is_key = |key: &&str| key.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
            let key = line.split_once(" = ").map(|(key, _)| key).filter(is_key);
            if let (Some(kind), Some(key)) = (kind, key) {
                keys.push((kind, key.to_owned()));
            }
        }
        keys
    }

    #[test]
    fn every_key_has_an_option() {
        let keys = keys();
        assert!(keys.len() > 80, "{keys:?}");
        let has_none: BTreeSet<String> = keys
            .into_iter()
            .filter(|(kind, wanted)| {
                let mut options = OPTIONS.iter();
                !options.any(|option| key_of_option(*kind, option) == Some(wanted))
            })
            .map(|(kind, key)| format!("{}.{key}", kind.table()))
            .collect();
        let expected = [
            "gpu_policies.gpu_index",
            "gpu_policies.maintenance_window",
            "group_policies.group_name",
            "rules.name",
            "time_policies.name",
            "user_policies.time_overrides",
            "user_policies.username",
        ];
        assert_eq!(
            has_none.iter().map(String::as_str).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn help_lists_modes_and_actions() {
        let mut command = command_without_examples();
        for name in ["guard", "user", "set"] {
            command = command.find_subcommand(name).unwrap().clone();
        }
        // No wrapping, whatever the width of the terminal.
        let help = command.term_width(0).render_help().to_string();
        for line in [
            "dry-run  only record what would be done",
            "soft     warn, and end the job when the grace period is over",
            "enforce  end without a warning, but for idleness and waste after one",
            "warn       only warn the user",
        ] {
            assert!(help.lines().any(|it| it.trim() == line), "{help}");
        }
    }

    #[test]
    fn help_shows_only_the_options_of_the_policy() {
        let shown = |kind: &str| {
            let mut command = command_without_examples();
            for name in ["guard", kind, "set"] {
                command = command.find_subcommand(name).unwrap().clone();
            }
            let shown = command.get_arguments().filter(|it| !it.is_hide_set());
            let shown = shown.filter_map(|it| it.get_long().map(|long| format!("--{long}")));
            shown.collect::<Vec<_>>()
        };
        for (name, kind) in [
            ("user", PolicyKind::User),
            ("group", PolicyKind::Group),
            ("gpu", PolicyKind::Gpu),
            ("time", PolicyKind::Time),
            ("rule", PolicyKind::Rule),
        ] {
            let expected: Vec<&str> = options_for(kind)
                .chain(["--set", "--dry-run", "--diff", "--yes"])
                .collect();
            assert_eq!(shown(name), expected, "{name}");
        }
    }
}
