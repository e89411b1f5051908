//! Arguments of `guard`.

mod policy;

use super::audit::WEEK_HOURS_HELP;
use super::{Period, ProcessArgument, StatusFormat, text_parser, whole_number_parser};
use clap::{Args, Subcommand, ValueEnum};
use gpukill_proto::guard::edit::PolicyKind;
use policy::show_only_options_for;
pub use policy::{Policy, PolicyCommand};
use std::path::PathBuf;

/// `guard`
#[derive(Debug, Args)]
pub struct Guard {
    /// The subcommand.
    #[command(subcommand)]
    pub command: GuardCommand,
}

impl Guard {
    /// The output format that was typed, for the command that prints.
    #[must_use]
    pub fn output(&self) -> Option<StatusFormat> {
        match &self.command {
            GuardCommand::Status(args) => args.output,
            GuardCommand::Violations(args) => args.output,
            GuardCommand::Test(args) => args.output,
            GuardCommand::Replay(args) => args.output,
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

/// Subcommands of `guard`.
#[derive(Debug, Subcommand)]
pub enum GuardCommand {
    /// Show the guard's mode, its rules, and what it did today
    Status(GuardStatus),
    /// Show current violations, and what the guard decided
    #[command(mut_arg("hours", |hours| hours.help(WEEK_HOURS_HELP)))]
    Violations(Violations),
    /// Postpone the end of a job you were warned about, by default by 30 minutes and once
    Snooze(Snooze),
    /// Show which jobs break rules now, and when each would be ended
    Test(TestRules),
    /// Show what rules would have done in the past
    Replay(ReplayRules),
    /// Report every mistake in a file of rules, and rules that can never apply
    Check(CheckRules),
    /// Print the rules as written
    Config,
    /// Print every key of the rules, with its default or an example, as a file to start from
    Reference,
    /// Evaluate the rules again, in the configured mode, for admins
    Enable(EditOptions),
    /// Stop evaluating the rules, for admins
    Disable(EditOptions),
    /// Only record what would be done: nobody is warned, nothing is ended, for admins
    DryRun(EditOptions),
    /// Warn about a violation, and end the job when the grace period is over, for admins
    Soft(EditOptions),
    /// End jobs at once; idle and wasteful jobs are warned first, for admins
    Enforce(EditOptions),
    /// Switch between a dry run and the mode that it simulates, for admins
    ToggleDryRun(EditOptions),
    /// Set one key: enforcement.max_warnings 5; an empty value removes it, for admins
    Set(SetKey),
    /// Manage the limits of one user, for admins
    #[command(mut_subcommand("set", |set| show_only_options_for(PolicyKind::User, set)))]
    User(Policy),
    /// Manage the limits of several users or of a project, for admins
    #[command(mut_subcommand("set", |set| show_only_options_for(PolicyKind::Group, set)))]
    Group(Policy),
    /// Manage who may use a GPU and how much of it, for admins
    #[command(mut_subcommand("set", |set| show_only_options_for(PolicyKind::Gpu, set)))]
    Gpu(Policy),
    /// Manage limits for certain hours, for admins
    #[command(mut_subcommand("set", |set| show_only_options_for(PolicyKind::Time, set)))]
    Time(Policy),
    /// Manage rules on behaviour (idle, waste, runaway, growth, rogue), for admins
    #[command(mut_subcommand("set", |set| show_only_options_for(PolicyKind::Rule, set)))]
    Rule(Policy),
    /// Write the rules to a file, or to standard output
    Export(ExportRules),
    /// Replace all rules by those of a file, for admins
    #[command(mut_arg("yes", |yes| yes.help(ASKING_YES_HELP)))]
    Import(ImportRules),
}

/// The help of `--yes` for an import, which always asks.
pub(super) const ASKING_YES_HELP: &str = "Do not ask";

/// The help of `--yes` for a command that never asks. Every command that changes something takes
/// the flag, so that nobody has to know which commands ask.
pub(super) const UNASKED_YES_HELP: &str = "Accepted for scripts: this command never asks";

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
    /// Only violations of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = text_parser())]
    pub user: Option<String>,
    /// The time range.
    #[command(flatten)]
    pub period: Period,
    /// Maximum number of records, the newest first; 0 for all [default: 100]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(0..=u32::MAX, 100))]
    pub limit: Option<u32>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `guard snooze`
#[derive(Debug, Args)]
pub struct Snooze {
    /// A process of the job.
    #[command(flatten)]
    pub process: ProcessArgument,
    /// Only show until when the end would be postponed
    #[arg(long, overrides_with = "dry_run")]
    pub dry_run: bool,
    /// Accepted for scripts: this command never asks
    #[arg(short, long, overrides_with = "yes")]
    pub yes: bool,
}

/// `guard test`
#[derive(Debug, Args)]
pub struct TestRules {
    /// Use the rules of this file instead of those in force: TOML, JSON or YAML
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `guard replay`
#[derive(Debug, Args)]
pub struct ReplayRules {
    /// Use the rules of this file instead of those in force: TOML, JSON or YAML
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// From this time: 7d (that long ago), 14:00 (the last), yesterday, "yesterday 14:00",
    /// 2026-11-20, "2026-11-20 14:00", RFC 3339
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = text_parser())]
    pub since: String,
    /// Before this time, in the same forms, 14:00 always of today [default: now]
    #[arg(long, value_name = "TIME", value_parser = text_parser())]
    pub until: Option<String>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `guard check`
#[derive(Debug, Args)]
pub struct CheckRules {
    /// The file: TOML, JSON or YAML; - for standard input [default: the rules of this host]
    pub file: Option<PathBuf>,
    /// The format [default: from the file's extension, else from its first line: { begins JSON,
    /// KEY: is YAML, all else TOML]
    #[arg(long, value_name = "FORMAT", requires = "file")]
    pub format: Option<RulesFormat>,
}

/// Options of every command that changes the rules.
#[derive(Debug, Clone, Args)]
pub struct EditOptions {
    /// Only show what would change
    #[arg(long, overrides_with = "dry_run")]
    pub dry_run: bool,
    /// Also show the changed lines of the file
    #[arg(long, overrides_with = "diff")]
    pub diff: bool,
    /// Do not ask before jobs are ended; without a terminal such an edit needs it
    #[arg(short, long, overrides_with = "yes")]
    pub yes: bool,
}

/// `guard set`
#[derive(Debug, Args)]
pub struct SetKey {
    /// The key: global.default_memory_limit_gb, enforcement.grace_period_seconds, protect.users
    #[arg(value_parser = text_parser())]
    pub key: String,
    /// The value: 8, 90m, alice,bob
    pub value: String,
    /// Options of the edit.
    #[command(flatten)]
    pub edit: EditOptions,
}

/// `guard export`
#[derive(Debug, Args)]
pub struct ExportRules {
    /// The file; - or none for standard output
    pub file: Option<PathBuf>,
    /// The format [default: from the file's extension, else toml]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RulesFormat>,
    /// Replace the file if it exists
    #[arg(long, overrides_with = "force")]
    pub force: bool,
}

/// The formats of rules.
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
    /// The file: TOML, JSON (also gpu-kill's own) or YAML; - for standard input
    pub file: PathBuf,
    /// The format [default: from the file's extension, else from its first line: { begins JSON,
    /// KEY: is YAML, all else TOML]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RulesFormat>,
    /// Options of the edit.
    #[command(flatten)]
    pub edit: EditOptions,
}
