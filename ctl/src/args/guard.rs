//! What `guard` takes.

mod policy;

use super::audit::OF_A_WEEK;
use super::number::pid;
use super::{Period, StatusFormat, text, whole};
use clap::{Args, Subcommand, ValueEnum};
use gpukill_proto::guard::edit::PolicyKind;
use policy::only;
pub use policy::{Policy, PolicyCommand};
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
            GuardCommand::Snooze(_)
            | GuardCommand::Check(_)
            | GuardCommand::Config
            | GuardCommand::Reference
            | GuardCommand::Enable(_)
            | GuardCommand::Disable(_)
            | GuardCommand::DryRun(_)
            | GuardCommand::Soft(_)
            | GuardCommand::Enforce(_)
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
    /// The guard's mode, its rules, and what it did today
    Status(GuardStatus),
    /// Who breaks rules now, and what was decided
    #[command(mut_arg("hours", |hours| hours.help(OF_A_WEEK)))]
    Violations(Violations),
    /// More time before a job is ended of which you were warned
    Snooze(Snooze),
    /// Who would be warned and ended now by rules
    Test(TestRules),
    /// What rules would have done in the past
    Replay(ReplayRules),
    /// Every mistake in a file of rules, and what of it can never hold
    Check(CheckRules),
    /// The rules as they are written
    Config,
    /// Every key that rules have, with its default or an example, as a file to begin with
    Reference,
    /// Judge by the rules again, in the mode that is set, for admins
    Enable(Edit),
    /// Judge nothing, for admins
    Disable(Edit),
    /// Warn and end nobody: only record what would be done, for admins
    DryRun(Edit),
    /// Warn whoever breaks a rule, and end jobs when the grace is over, for admins
    Soft(Edit),
    /// End jobs without a warning, and for idleness and waste after one, for admins
    Enforce(Edit),
    /// From a dry run to what it rehearses and back, for admins
    ToggleDryRun(Edit),
    /// Set one key: enforcement.max_warnings 5; an empty value removes it, for admins
    Set(SetKey),
    /// What one person may use, for admins
    #[command(mut_subcommand("set", |set| only(PolicyKind::User, set)))]
    User(Policy),
    /// What several persons or a project may use, for admins
    #[command(mut_subcommand("set", |set| only(PolicyKind::Group, set)))]
    Group(Policy),
    /// Who may use a GPU, and how much of it, for admins
    #[command(mut_subcommand("set", |set| only(PolicyKind::Gpu, set)))]
    Gpu(Policy),
    /// What holds at some hours, for admins
    #[command(mut_subcommand("set", |set| only(PolicyKind::Time, set)))]
    Time(Policy),
    /// What processes must not do, for admins
    #[command(mut_subcommand("set", |set| only(PolicyKind::Rule, set)))]
    Rule(Policy),
    /// The rules to a file, or to standard output
    Export(ExportRules),
    /// The rules from a file, in place of all, for admins
    #[command(mut_arg("yes", |yes| yes.help(DO_NOT_ASK)))]
    Import(ImportRules),
}

/// Of an import, which asks.
pub(super) const DO_NOT_ASK: &str = "Do not ask";

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

/// `guard snooze`
#[derive(Debug, Args)]
pub struct Snooze {
    /// A process of the job
    #[arg(value_name = "PID", value_parser = pid)]
    pub pid: u32,
    /// Only show until when
    #[arg(long, overrides_with = "dry_run")]
    pub dry_run: bool,
    /// Whether not to ask.
    #[command(flatten)]
    pub unasked: Unasked,
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
    /// From this time: 7d (that long ago), 14:00 (of today), 2026-11-20, "2026-11-20 14:00", RFC 3339
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
    /// The file: TOML, JSON or YAML; - for standard input [default: the rules of this box]
    pub file: Option<PathBuf>,
    /// Its form [default: by the name of the file, else by its first line: { begins JSON,
    /// KEY: is YAML, all else TOML]
    #[arg(long, value_name = "FORMAT", requires = "file")]
    pub format: Option<RulesFormat>,
}

/// What every change of the rules takes.
#[derive(Debug, Clone, Args)]
pub struct Edit {
    /// Only show what would change
    #[arg(long, overrides_with = "dry_run")]
    pub dry_run: bool,
    /// Whether not to ask.
    #[command(flatten)]
    pub unasked: Unasked,
}

/// What is typed so that nothing is asked. Whatever changes something takes it, so that
/// nobody has to know which commands ask.
#[derive(Debug, Clone, Args)]
pub struct Unasked {
    /// Do not ask: this never does
    #[arg(short, long, overrides_with = "yes")]
    pub yes: bool,
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

/// `guard export`
#[derive(Debug, Args)]
pub struct ExportRules {
    /// The file; - for standard output, as without it
    pub file: Option<PathBuf>,
    /// Its form [default: by the name of the file, else toml]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RulesFormat>,
    /// Replace the file where there is one
    #[arg(long, overrides_with = "force")]
    pub force: bool,
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
    /// Its form [default: by the name of the file, else by its first line: { begins JSON,
    /// KEY: is YAML, all else TOML]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RulesFormat>,
    /// How it is changed.
    #[command(flatten)]
    pub edit: Edit,
}
