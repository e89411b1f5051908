//! Arguments of `guard user`, `group`, `gpu`, `time` and `rule`: one list of options, of which
//! each kind of policy has some.

mod key;

use super::{EditOptions, text_parser};
use clap::{Arg, ArgMatches, Args, FromArgMatches, Subcommand};
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

/// `guard user set`
#[derive(Debug, Args)]
pub struct SetPolicy {
    /// The policy: a user, group, GPU or name
    #[arg(value_parser = text_parser())]
    pub name: String,
    /// The options that set a key.
    #[command(flatten)]
    keys: KeyOptions,
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
        for (option, value) in &self.keys.0 {
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

/// Each option that sets a key, its value, and its help.
fn key_options() -> impl Iterator<Item = [&'static str; 3]> {
    OPTIONS.lines().filter_map(|line| {
        let (option, line) = line.split_once(' ')?;
        let (value, help) = line.split_once(' ')?;
        Some([option, value, help])
    })
}

/// It is one text, because the loader would relocate the texts of a table at each start.
const OPTIONS: &str = "\
--memory-limit GB Device memory, in GiB: of a group in total, of a GPU for each process
--memory-limit-each GB Memory of each member on all GPUs together, in GiB
--utilization-limit PCT Utilization of a GPU, in percent
--utilization-limit-each PCT Utilization of a GPU by each member, in percent
--duration-limit HOURS Maximum time that a process may hold a GPU
--process-limit N Maximum number of processes at the same time
--process-limit-each N Maximum number of processes of each member at the same time
--idle-limit MIN Maximum time that a job may be idle, in minutes
--idle-min-memory GB Only a job that holds at least this much counts as idle
--idle-with-connections BOOL true: a job with connected clients counts as idle too
--idle-cpu-below PCT Only a process that uses less of a CPU core than this counts as idle: 1, \
    2, 5, 10, 20, 50 or 100
--services ACTION warn or end: the action for idle or wasteful services
--waste-below PCT A mean utilization below this wastes the GPU, in percent
--waste-min-memory GB Only a job that holds at least this much counts as wasteful
--waste-hours HOURS Length of the measured time [default: 1]
--runaway-above PCT A process with a utilization that stays above this has run away, in percent
--runaway-minutes MIN Length of the measured time [default: 5]
--runaway-orphaned BOOL true: only a process with an ended parent
--growth GB Memory that grows by this much is a leak
--growth-hours HOURS Length of the time in which the memory grows [default: 1]
--rogue-risk RISK Threats of this risk or more: low, medium, high or critical
--rogue-threats THREATS Only these threats [default: crypto_miner,suspicious_process]
--priority N Jobs with the lowest priority are ended first
--allowed-gpus GPUS The only GPUs that may be used: 0,1
--blocked-gpus GPUS GPUs that must not be used
--members USERS The members of the group: alice,bob
--users USERS The rule applies to the jobs of these users: alice,bob; without users, groups, \
    accounts, namespaces and images it applies to all
--except-users USERS The rule does not apply to the jobs of these users
--unix-groups GROUPS Unix groups of this host: their users belong to this group
--slurm-accounts ACCOUNTS Slurm accounts with jobs that belong to it
--kubernetes-namespaces NAMESPACES Kubernetes namespaces with pods that belong to it
--images IMAGES Images of containers that belong to it: */pytorch:*
--gpus GPUS The GPUs to which it applies: 0,2-3
--processes NAMES Only processes with these whole names, with * and ?
--command REGEX Only processes with a matching command line
--allowed-users USERS The only users who may use it
--blocked-users USERS Users who must not use it
--allowed-processes NAMES The only processes that may use it, by their whole names, with * and ?
--blocked-processes NAMES Processes that must not use it, by their whole names, with * and ?
--reserved-memory GB Memory of a GPU that must stay free, in GiB
--from HH:MM Start time
--to HH:MM End time; earlier than --from means on the next day
--days DAYS Days of the week: mon-fri
--action ACTION The action for a violation
--mode MODE The strictest mode for this policy
--grace TIME Time from the first warning to the end: 10m
--max-snoozes N How often a warned user may snooze
--message TEXT A message of your own to users who break the rule
";

/// Options that few need: `--help` lists them, and `-h` leaves them out to fit a screen.
const RARE_OPTIONS: &str = "--idle-with-connections --idle-cpu-below --waste-min-memory \
    --waste-hours --runaway-minutes --runaway-orphaned --growth-hours --rogue-threats \
    --except-users --slurm-accounts --kubernetes-namespaces --images";

/// The typed options that set a key, each with its value.
#[derive(Debug)]
struct KeyOptions(Vec<(&'static str, String)>);

impl Args for KeyOptions {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(key_options().map(|[option, value, help]| {
            let name = option.trim_start_matches('-');
            let help = match name {
                "action" => ACTION_HELP,
                "mode" => MODE_HELP,
                _ => help,
            };
            let is_rare = RARE_OPTIONS.split(' ').any(|rare| rare == option);
            let shown = Arg::new(name).long(name).value_name(value).help(help);
            shown.hide_short_help(is_rare)
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KeyOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = key_options().filter_map(|[option, ..]| {
            let value = matches.get_one::<String>(option.trim_start_matches('-'))?;
            Some((option, value.clone()))
        });
        Ok(Self(typed.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The options of a kind of policy.
fn options_for(kind: PolicyKind) -> impl Iterator<Item = &'static str> {
    let options = key_options().map(|[option, ..]| option);
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
        let is_key = |named: &&str| key_options().any(|[option, ..]| option == *named);
        let is_key = named.as_deref().filter(is_key);
        match (option.get_id().as_str(), is_key) {
            (_, Some(named)) if key_of_option(kind, named).is_none() => option.hide(true),
            ("memory-limit", _) => option.help(memory),
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

    fn key_values(line: &str) -> Result<Vec<(String, String)>, String> {
        let Command::Guard(Deferred(guard)) = Cli::try_parse_from(line.split(' ')).unwrap().command
        else {
            panic!("{line}");
        };
        match guard.command {
            GuardCommand::Gpu(Policy {
                command: PolicyCommand::Set(set),
            }) => set.key_values(PolicyKind::Gpu),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn foreign_option_is_refused_with_the_valid_ones() {
        assert_eq!(
            key_values("gpukillctl guard gpu set 0 --members a --memory-limit 8").unwrap_err(),
            "a GPU policy has no --members: it has --memory-limit, --utilization-limit, --gpus, \
             --allowed-users, --blocked-users, --allowed-processes, --blocked-processes, \
             --reserved-memory, --action, --mode, --grace, --max-snoozes, --message"
        );
        let typed = key_values("gpukillctl guard gpu set 0 --memory-limit 8 --set gpus=0,1");
        let fields = [("max_memory_gb", "8"), ("gpus", "0,1")];
        let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(typed.unwrap(), fields);
    }

    #[test]
    fn every_option_sets_a_key() {
        assert_eq!(key_options().count(), OPTIONS.lines().count());
        for [option, ..] in key_options() {
            let mut kinds = PolicyKind::ALL.into_iter();
            assert!(
                kinds.any(|kind| key_of_option(kind, option).is_some()),
                "{option}"
            );
        }
        for kind in PolicyKind::ALL {
            assert!(options_for(kind).count() >= 5, "{kind:?}");
        }
        for rare in RARE_OPTIONS.split(' ') {
            assert!(key_options().any(|[option, ..]| option == rare), "{rare}");
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
                !key_options().any(|[option, ..]| key_of_option(*kind, option) == Some(wanted))
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
