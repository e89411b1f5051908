//! What `rogue` takes.

use super::guard::{CheckRules, DO_NOT_ASK, Edit, ExportRules, ImportRules};
use super::{StatusFormat, text, whole};
use clap::{Args, Subcommand, ValueEnum};
use gpukill_proto::rogue::AllowBy;
use gpukill_proto::service::LONGEST_SCAN;

/// `rogue`
#[derive(Debug, Args)]
pub struct Rogue {
    /// What is asked.
    #[command(subcommand)]
    pub command: RogueCommand,
}

impl Rogue {
    /// The form that was typed, for whatever is printed.
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

/// What is asked about rogues.
#[derive(Debug, Subcommand)]
pub enum RogueCommand {
    /// Who may be up to no good, by which signs, and what to do about it
    Scan(Scan),
    /// The rules as they are written
    Config,
    /// Every key that rules have, with its default, as a file to begin with
    Reference,
    /// Every mistake in a file of rules, and what of it is hardly meant
    Check(CheckRules),
    /// Set one key: detection.max_memory_usage_gb 20; an empty value removes it, for admins
    Set(SetRogueKey),
    /// Look no more for these: a process, a user, an executable, a container's image, for admins
    Allow(Allowing),
    /// Look for them again, for admins
    Disallow(Allowing),
    /// The rules to a file, or to standard output
    #[command(mut_arg("format", |format| format.short('o').visible_alias("output")))]
    Export(ExportRules),
    /// The rules from a file, in place of all, for admins
    #[command(mut_arg("yes", |yes| yes.help(DO_NOT_ASK)))]
    Import(ImportRules),
}

/// `rogue scan`
#[derive(Debug, Args)]
pub struct Scan {
    /// Of those too that used a GPU in the last so many hours
    #[arg(long, value_name = "H", default_value_t = 24, value_parser = whole(1..=LONGEST_SCAN, 24))]
    pub hours: u32,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `rogue set`
#[derive(Debug, Args)]
pub struct SetRogueKey {
    /// Which: detection.max_memory_usage_gb, patterns.pool_ports, scoring.threat_weights.crypto_miner
    #[arg(value_parser = text())]
    pub key: String,
    /// Its value: 20, 0.7, 3333,4444, --donate-level
    #[arg(allow_hyphen_values = true)]
    pub value: String,
    /// How it is changed.
    #[command(flatten)]
    pub edit: Edit,
}

/// `rogue allow`, `rogue disallow`
#[derive(Debug, Args)]
pub struct Allowing {
    /// What it is known by
    pub by: AllowChoice,
    /// Its whole name; of all but users NAME@USER too, for one user's alone
    #[arg(value_parser = text())]
    pub name: String,
    /// How it is changed.
    #[command(flatten)]
    pub edit: Edit,
}

/// By what somebody is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AllowChoice {
    /// The kernel's name for it, which it chooses itself: what is nearly a proof is told still
    Process,
    /// Whoever runs it
    User,
    /// The path of its program
    Executable,
    /// The image of its container
    Image,
}

impl From<AllowChoice> for AllowBy {
    fn from(choice: AllowChoice) -> Self {
        match choice {
            AllowChoice::Process => Self::Process,
            AllowChoice::User => Self::User,
            AllowChoice::Executable => Self::Executable,
            AllowChoice::Image => Self::Image,
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
    fn a_value_may_begin_as_an_option_and_options_stand_around_it() {
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
    fn what_is_allowed_is_of_a_kind() {
        for (kind, by) in [
            ("process", AllowBy::Process),
            ("user", AllowBy::User),
            ("executable", AllowBy::Executable),
            ("image", AllowBy::Image),
        ] {
            let Ok(RogueCommand::Allow(allow)) = parse(&format!("allow {kind} x@y")) else {
                panic!("{kind} is not right");
            };
            assert_eq!((AllowBy::from(allow.by), allow.name.as_str()), (by, "x@y"));
        }
        assert!(parse("allow hashcat").is_err());
        assert!(parse("disallow process ").is_err());
    }

    #[test]
    fn rules_go_out_in_the_form_of_either_option() {
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
