//! Arguments of `rogue`.

use super::guard::{
    ASKING_YES_HELP, CheckRules, EditOptions, ExportRules, ImportRules, UNASKED_YES_HELP,
};
use super::{StatusFormat, text_parser, whole_number_parser};
use clap::{Args, Subcommand, ValueEnum};
use gpukill_proto::rogue::AllowKind;
use gpukill_proto::service::MAX_SCAN_HOURS;

/// `rogue`
#[derive(Debug, Args)]
pub struct Rogue {
    /// The subcommand.
    #[command(subcommand)]
    pub command: RogueCommand,
}

impl Rogue {
    /// The output format that was typed, for the command that prints.
    #[must_use]
    pub fn output(&self) -> Option<StatusFormat> {
        match &self.command {
            RogueCommand::Scan(wanted) => wanted.output,
            RogueCommand::Config
            | RogueCommand::Reference
            | RogueCommand::Check(_)
            | RogueCommand::Set(_)
            | RogueCommand::Allow(_)
            | RogueCommand::Disallow(_)
            | RogueCommand::Export(_)
            | RogueCommand::Import(_) => None,
        }
    }
}

/// Subcommands of `rogue`.
#[derive(Debug, Subcommand)]
pub enum RogueCommand {
    /// List suspicious processes with the indicators and the recommended action
    Scan(Scan),
    /// Print the rules as written
    Config,
    /// Print every key of the rules with its default, as a file to start from
    Reference,
    /// Report every mistake in a file of rules, and rules that are probably unintended
    Check(CheckRules),
    /// Set one key: detection.max_memory_usage_gb 20; an empty value removes it, for admins
    #[command(mut_arg("yes", |yes| yes.help(UNASKED_YES_HELP)))]
    Set(SetRogueKey),
    /// Exempt a process, a user, an executable or a container's image from detection, for
    /// admins
    #[command(mut_arg("yes", |yes| yes.help(UNASKED_YES_HELP)))]
    Allow(ExemptionArgs),
    /// Remove such an exemption, for admins
    #[command(mut_arg("yes", |yes| yes.help(UNASKED_YES_HELP)))]
    Disallow(ExemptionArgs),
    /// Write the rules to a file, or to standard output
    #[command(mut_arg("format", |format| format.short('o').visible_alias("output")))]
    Export(ExportRules),
    /// Replace all rules by those of a file, for admins
    #[command(mut_arg("yes", |yes| yes.help(ASKING_YES_HELP)))]
    Import(ImportRules),
}

/// `rogue scan`
#[derive(Debug, Args)]
pub struct Scan {
    /// Include processes that used a GPU in the last H hours
    #[arg(long, value_name = "H", default_value_t = 24, value_parser = whole_number_parser(1..=MAX_SCAN_HOURS, 24))]
    pub hours: u32,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `rogue set`
#[derive(Debug, Args)]
pub struct SetRogueKey {
    /// The key: detection.max_memory_usage_gb, patterns.pool_ports,
    /// scoring.threat_weights.crypto_miner
    #[arg(value_parser = text_parser())]
    pub key: String,
    /// The value: 20, 0.7, 3333,4444, --donate-level
    #[arg(allow_hyphen_values = true)]
    pub value: String,
    /// Options of the edit.
    #[command(flatten)]
    pub edit: EditOptions,
}

/// `rogue allow`, `rogue disallow`
#[derive(Debug, Args)]
pub struct ExemptionArgs {
    /// What is exempted
    pub by: ExemptionKind,
    /// The whole name; except for users also NAME@USER, to exempt it for one user only
    #[arg(value_parser = text_parser())]
    pub name: String,
    /// Options of the edit.
    #[command(flatten)]
    pub edit: EditOptions,
}

/// What an exemption is keyed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExemptionKind {
    /// The kernel's name of the process, which the process chooses itself: indicators of
    /// family A are still reported
    Process,
    /// The user who runs it
    User,
    /// The path of its program
    Executable,
    /// The image of its container
    Image,
}

impl From<ExemptionKind> for AllowKind {
    fn from(choice: ExemptionKind) -> Self {
        match choice {
            ExemptionKind::Process => Self::Process,
            ExemptionKind::User => Self::User,
            ExemptionKind::Executable => Self::Executable,
            ExemptionKind::Image => Self::Image,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, Deferred, RulesFormat};
    use clap::Parser as _;

    fn parse(line: &str) -> Result<RogueCommand, clap::Error> {
        let line = format!("gpukillctl rogue {line}");
        let cli = Cli::try_parse_from(line.split(' '))?;
        let Command::Rogue(Deferred(rogue)) = cli.command else {
            panic!("{line} is another command");
        };
        Ok(rogue.command)
    }

    #[test]
    fn value_may_look_like_an_option() {
        for (line, value, is_dry_run) in [
            (
                "set patterns.crypto_miner_patterns --donate-level",
                "--donate-level",
                false,
            ),
            (
                "set patterns.crypto_miner_patterns --wallet,-x --dry-run",
                "--wallet,-x",
                true,
            ),
            ("set --dry-run detection.max_sent_gb 5", "5", true),
            ("set detection.max_sent_gb -1", "-1", false),
            ("set detection.max_sent_gb ", "", false),
        ] {
            let Ok(RogueCommand::Set(set)) = parse(line) else {
                panic!("{line} is not right");
            };
            assert_eq!((set.value.as_str(), set.edit.dry_run), (value, is_dry_run));
        }
    }

    #[test]
    fn exemption_has_a_kind() {
        for (kind, by) in [
            ("process", AllowKind::Process),
            ("user", AllowKind::User),
            ("executable", AllowKind::Executable),
            ("image", AllowKind::Image),
        ] {
            let Ok(RogueCommand::Allow(allow)) = parse(&format!("allow {kind} x@y")) else {
                panic!("{kind} is not right");
            };
            assert_eq!(
                (AllowKind::from(allow.by), allow.name.as_str()),
                (by, "x@y")
            );
        }
        assert!(parse("allow hashcat").is_err());
        assert!(parse("disallow process ").is_err());
    }

    #[test]
    fn export_takes_format_or_output() {
        for line in [
            "export -o json",
            "export --output json x",
            "export --format json",
        ] {
            let Ok(RogueCommand::Export(export)) = parse(line) else {
                panic!("{line} is not right");
            };
            assert_eq!(export.format, Some(RulesFormat::Json), "{line}");
        }
    }
}
