//! What `guard` takes.

use super::{Period, StatusFormat, text, whole};
use clap::{Args, Subcommand, ValueEnum};
use gpukill_proto::guard::edit::PolicyKind;
use std::path::PathBuf;

/// `guard`
#[derive(Debug, Args)]
pub struct Guard {
    /// What is asked of the guard.
    #[command(subcommand)]
    pub command: GuardCommand,
}

impl Guard {
    /// The form that was typed, for whatever is printed.
    #[must_use]
    pub fn output(&self) -> Option<StatusFormat> {
        match &self.command {
            GuardCommand::Status(wanted) => wanted.output,
            GuardCommand::Violations(wanted) => wanted.output,
            GuardCommand::Test(wanted) => wanted.output,
            GuardCommand::Replay(wanted) => wanted.output,
            GuardCommand::Check(_)
            | GuardCommand::Config
            | GuardCommand::Enable(_)
            | GuardCommand::Disable(_)
            | GuardCommand::DryRun(_)
            | GuardCommand::ToggleDryRun(_)
            | GuardCommand::Set(_)
            | GuardCommand::User(_)
            | GuardCommand::Group(_)
            | GuardCommand::Gpu(_)
            | GuardCommand::Time(_)
            | GuardCommand::Rule(_)
            | GuardCommand::Export(_)
            | GuardCommand::Import(_) => None,
        }
    }
}

/// What is asked of the guard.
#[derive(Debug, Subcommand)]
pub enum GuardCommand {
    /// How the guard stands
    Status(GuardStatus),
    /// Who breaks rules now, and what was decided
    Violations(Violations),
    /// Who would be warned and ended now by rules
    Test(TestRules),
    /// What rules would have done in the past
    Replay(ReplayRules),
    /// Every mistake in a file of rules, and what of it can never hold
    Check(CheckRules),
    /// The rules as they are written
    Config,
    /// Judge by the rules, for admins
    Enable(Edit),
    /// Judge nothing, for admins
    Disable(Edit),
    /// Only record what would be done, for admins
    DryRun(Edit),
    /// From a dry run to what it rehearses and back, for admins
    ToggleDryRun(Edit),
    /// Set one key: enforcement.max_warnings 5; an empty value removes it, for admins
    Set(SetKey),
    /// What one person may use, for admins
    User(Policy),
    /// What several persons or a project may use, for admins
    Group(Policy),
    /// Who may use a GPU, and how much of it, for admins
    Gpu(Policy),
    /// What holds at some hours, for admins
    Time(Policy),
    /// What processes must not do, for admins
    Rule(Policy),
    /// The rules to a file, or to standard output
    Export(ExportRules),
    /// The rules from a file, in place of all, for admins
    Import(ImportRules),
}

/// `guard status`
#[derive(Debug, Args)]
pub struct GuardStatus {
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `guard violations`
#[derive(Debug, Args)]
pub struct Violations {
    /// Only of this person, by name or number
    #[arg(long, value_name = "USER", value_parser = text())]
    pub user: Option<String>,
    /// Of what time.
    #[command(flatten)]
    pub period: Period,
    /// At most so many records, the newest; 0 for all
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole(0..=u32::MAX, 100))]
    pub limit: u32,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `guard test`
#[derive(Debug, Args)]
pub struct TestRules {
    /// By the rules of this file instead of those in force: TOML, JSON or YAML
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `guard replay`
#[derive(Debug, Args)]
pub struct ReplayRules {
    /// The rules of this file instead of those in force: TOML, JSON or YAML
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// From this time: 7d (that long ago), 2026-11-20, "2026-11-20 14:00", RFC 3339
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = text())]
    pub since: String,
    /// Before this time, in the same forms [default: now]
    #[arg(long, value_name = "TIME", value_parser = text())]
    pub until: Option<String>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `guard check`
#[derive(Debug, Args)]
pub struct CheckRules {
    /// The file: TOML, JSON or YAML; - for standard input
    pub file: PathBuf,
}

/// What every change of the rules takes.
#[derive(Debug, Clone, Args)]
pub struct Edit {
    /// Only show what would change
    #[arg(long)]
    pub dry_run: bool,
}

/// `guard set`
#[derive(Debug, Args)]
pub struct SetKey {
    /// Which: global.default_memory_limit_gb, enforcement.grace_period_seconds, protect.users
    #[arg(value_parser = text())]
    pub key: String,
    /// Its value: 8, 90m, alice,bob
    pub value: String,
    /// How it is changed.
    #[command(flatten)]
    pub edit: Edit,
}

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
    /// Any key of the policy: command=jupyter; an empty value removes it
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

/// `guard export`
#[derive(Debug, Args)]
pub struct ExportRules {
    /// The file; without it standard output
    pub file: Option<PathBuf>,
    /// Its form [default: by the name of the file, else toml]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RulesFormat>,
}

/// The forms of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the help would repeat the names")]
pub enum RulesFormat {
    Toml,
    Json,
    Yaml,
}

/// `guard import`
#[derive(Debug, Args)]
pub struct ImportRules {
    /// The file: TOML, JSON (gpu-kill's own too) or YAML; - for standard input
    pub file: PathBuf,
    /// Do it without asking
    #[arg(long)]
    pub yes: bool,
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
                return Err(format!("a {} has no {option}", kind.name()));
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

    fn options(&self) -> [(&'static str, &Option<String>); 20] {
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
