//! What `guard user`, `group`, `gpu`, `time` and `rule` take: one list of options, of
//! which each kind of policy has some.

use super::{Edit, text};
use clap::{Args, Subcommand};
use gpukill_proto::guard::edit::PolicyKind;

/// `guard user`, `group`, `gpu`, `time` and `rule`
#[derive(Debug, Args)]
pub struct Policy {
    /// What is done with it.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// What is done with a policy.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Set keys of it, and make it where there is none
    Set(Box<SetPolicy>),
    /// Remove it
    Remove(RemovePolicy),
}

/// `guard user set`
#[derive(Debug, Args)]
pub struct SetPolicy {
    /// Which: a user, group, GPU or name
    #[arg(value_parser = text())]
    pub name: String,
    /// Device memory, in GiB; of a group all together, of a GPU each process
    #[arg(long, value_name = "GB")]
    pub memory_limit: Option<String>,
    /// Utilisation of a GPU, in percent
    #[arg(long, value_name = "PCT")]
    pub utilization_limit: Option<String>,
    /// How long a process may hold a GPU
    #[arg(long, value_name = "HOURS")]
    pub duration_limit: Option<String>,
    /// How many processes at once
    #[arg(long, value_name = "N")]
    pub process_limit: Option<String>,
    /// How long a process may do nothing
    #[arg(long, value_name = "MIN")]
    pub idle_limit: Option<String>,
    /// Only a process that holds so much is idle
    #[arg(long, value_name = "GB")]
    pub idle_min_memory: Option<String>,
    /// Who is ended first: the lowest
    #[arg(long, value_name = "N")]
    pub priority: Option<String>,
    /// The only GPUs: 0,1
    #[arg(long, value_name = "GPUS")]
    pub allowed_gpus: Option<String>,
    /// Not these GPUs
    #[arg(long, value_name = "GPUS")]
    pub blocked_gpus: Option<String>,
    /// Who belongs to the group: alice,bob
    #[arg(long, value_name = "USERS")]
    pub members: Option<String>,
    /// The only users
    #[arg(long, value_name = "USERS")]
    pub allowed_users: Option<String>,
    /// Not these users
    #[arg(long, value_name = "USERS")]
    pub blocked_users: Option<String>,
    /// What of a GPU stays free, in GiB
    #[arg(long, value_name = "GB")]
    pub reserved_memory: Option<String>,
    /// When it begins
    #[arg(long, value_name = "HH:MM")]
    pub from: Option<String>,
    /// When it ends; before --from: on the next day
    #[arg(long, value_name = "HH:MM")]
    pub to: Option<String>,
    /// On which days: mon-fri
    #[arg(long, value_name = "DAYS")]
    pub days: Option<String>,
    /// What comes of a violation: warn or terminate
    #[arg(long, value_name = "ACTION")]
    pub action: Option<String>,
    /// How far the guard goes for it, at most
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// From the first warning to the end: 10m
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// Your own words to whoever breaks it
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Any key of the policy, as `guard reference` has it: message="ask first"; an empty
    /// value removes it
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub others: Vec<String>,
    /// How it is changed.
    #[command(flatten)]
    pub edit: Edit,
}

/// `guard user remove`
#[derive(Debug, Args)]
pub struct RemovePolicy {
    /// Which
    #[arg(value_parser = text())]
    pub name: String,
    /// How it is changed.
    #[command(flatten)]
    pub edit: Edit,
}

impl SetPolicy {
    /// The keys that are set, and their values.
    ///
    /// # Errors
    /// An option that this kind of policy does not have.
    pub fn fields(&self, kind: PolicyKind) -> Result<Vec<(String, String)>, String> {
        let mut fields = Vec::new();
        for (option, typed) in self.options() {
            let Some(value) = typed else { continue };
            let Some(key) = key(kind, option) else {
                let kind_name = kind.name();
                let its: Vec<&str> = options_of(kind).collect();
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
            return Err("nothing is set: name what is to hold, such as --memory-limit 8".into());
        }
        Ok(fields)
    }

    fn options(&self) -> [(&'static str, &Option<String>); OPTIONS.len()] {
        [
            ("--memory-limit", &self.memory_limit),
            ("--utilization-limit", &self.utilization_limit),
            ("--duration-limit", &self.duration_limit),
            ("--process-limit", &self.process_limit),
            ("--idle-limit", &self.idle_limit),
            ("--idle-min-memory", &self.idle_min_memory),
            ("--priority", &self.priority),
            ("--allowed-gpus", &self.allowed_gpus),
            ("--blocked-gpus", &self.blocked_gpus),
            ("--members", &self.members),
            ("--allowed-users", &self.allowed_users),
            ("--blocked-users", &self.blocked_users),
            ("--reserved-memory", &self.reserved_memory),
            ("--from", &self.from),
            ("--to", &self.to),
            ("--days", &self.days),
            ("--action", &self.action),
            ("--mode", &self.mode),
            ("--grace", &self.grace),
            ("--message", &self.message),
        ]
    }
}

/// The options that set a key.
const OPTIONS: [&str; 20] = [
    "--memory-limit",
    "--utilization-limit",
    "--duration-limit",
    "--process-limit",
    "--idle-limit",
    "--idle-min-memory",
    "--priority",
    "--allowed-gpus",
    "--blocked-gpus",
    "--members",
    "--allowed-users",
    "--blocked-users",
    "--reserved-memory",
    "--from",
    "--to",
    "--days",
    "--action",
    "--mode",
    "--grace",
    "--message",
];

/// Those that a policy of this kind has.
fn options_of(kind: PolicyKind) -> impl Iterator<Item = &'static str> {
    let options = OPTIONS.into_iter();
    options.filter(move |option| key(kind, option).is_some())
}

/// Lets the help of `set` show only what a policy of this kind has. What else is typed
/// is refused with words of our own.
pub(super) fn only(kind: PolicyKind, set: clap::Command) -> clap::Command {
    let (name, memory) = match kind {
        PolicyKind::User => (
            "The user, by name or number",
            "Memory on all GPUs together, in GiB",
        ),
        PolicyKind::Group => (
            "What it is called",
            "Memory of all members together, in GiB",
        ),
        PolicyKind::Gpu => (
            "The GPU: an index, UUID, PCI address, or a name with * in it",
            "Memory of each process on it, in GiB",
        ),
        PolicyKind::Time => (
            "What it is called",
            "Memory of each person on all GPUs together, in GiB",
        ),
        // It has no limit of memory.
        PolicyKind::Rule => ("What it is called", ""),
    };
    // In place: what is changed one by one goes to the end.
    set.mut_args(|option| {
        let named = option.get_long().map(|long| format!("--{long}"));
        let is_key = named.as_deref().filter(|named| OPTIONS.contains(named));
        match (option.get_id().as_str(), is_key) {
            (_, Some(named)) if key(kind, named).is_none() => option.hide(true),
            ("memory_limit", _) => option.help(memory),
            ("name", _) => option.help(name),
            _ => option,
        }
    })
}

/// The key that an option sets in a policy of this kind.
fn key(kind: PolicyKind, option: &str) -> Option<&'static str> {
    use PolicyKind::{Gpu, Group, Rule, Time, User};
    Some(match (option, kind) {
        ("--memory-limit", User | Time) => "memory_limit_gb",
        ("--memory-limit", Group) => "total_memory_limit_gb",
        ("--memory-limit", Gpu) => "max_memory_gb",
        ("--utilization-limit", User | Time) => "utilization_limit_pct",
        ("--utilization-limit", Group) => "total_utilization_limit_pct",
        ("--utilization-limit", Gpu) => "max_utilization_pct",
        ("--duration-limit", User | Group | Time | Rule) => "duration_limit_hours",
        ("--process-limit", User | Group | Time) => "max_concurrent_processes",
        ("--idle-limit", User | Group | Time | Rule) => "idle_limit_minutes",
        ("--idle-min-memory", User | Group | Time | Rule) => "idle_min_memory_gb",
        ("--priority", User | Group) => "priority",
        ("--allowed-gpus", User | Group) => "allowed_gpus",
        ("--blocked-gpus", User | Group) => "blocked_gpus",
        ("--members", Group) => "members",
        ("--allowed-users", Gpu | Time) => "allowed_users",
        ("--blocked-users", Gpu | Time) => "blocked_users",
        ("--reserved-memory", Gpu) => "reserved_memory_gb",
        ("--from", Time) => "start_time",
        ("--to", Time) => "end_time",
        ("--days", Time) => "days_of_week",
        ("--action", _) => "action",
        ("--mode", _) => "mode",
        ("--grace", _) => "grace",
        ("--message", _) => "message",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, GuardCommand};
    use clap::{CommandFactory as _, Parser as _};

    fn set(line: &str) -> (PolicyKind, Box<SetPolicy>) {
        let Command::Guard(guard) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
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
    fn an_option_of_other_policies_is_refused_with_those_that_there_are() {
        let (kind, wanted) = set("gpukillctl guard gpu set 0 --members a --memory-limit 8");
        assert_eq!(
            wanted.fields(kind).unwrap_err(),
            "a GPU policy has no --members: it has --memory-limit, --utilization-limit, \
             --allowed-users, --blocked-users, --reserved-memory, --action, --mode, --grace, \
             --message"
        );
        let (kind, wanted) = set("gpukillctl guard gpu set 0 --memory-limit 8 --set gpus=0,1");
        let fields = [("max_memory_gb", "8"), ("gpus", "0,1")];
        let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(wanted.fields(kind).unwrap(), fields);
    }

    #[test]
    fn every_option_of_a_policy_is_one_that_sets_a_key() {
        let (_, wanted) = set("gpukillctl guard user set a --priority 1");
        assert_eq!(wanted.options().map(|(name, _)| name), OPTIONS);
        for kind in PolicyKind::ALL {
            assert!(options_of(kind).count() >= 5, "{kind:?}");
        }
    }

    #[test]
    fn the_help_of_a_policy_shows_its_options_alone() {
        let shown = |kind: &str| {
            let mut command = Cli::command();
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
            let expected: Vec<&str> = options_of(kind).chain(["--set", "--dry-run"]).collect();
            assert_eq!(shown(name), expected, "{name}");
        }
    }
}
