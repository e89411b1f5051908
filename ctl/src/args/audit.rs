//! Arguments of `audit`.

use super::{Backup, Export, Prune, text_parser, whole_number_parser};
use crate::settings::Format;
use clap::{Args, Subcommand};

/// `audit`
#[derive(Debug, Args)]
pub struct Audit {
    /// The subcommand; without one, records are listed.
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
    /// Which records are selected.
    #[command(flatten)]
    pub which: RecordFilter,
    /// The time range.
    #[command(flatten)]
    pub period: Period,
    /// Show a summary: who used the GPUs, when, and how well
    #[arg(long, overrides_with = "summary", conflicts_with_all = ["weekly", "limit"])]
    pub summary: bool,
    /// Show one line for each week
    #[arg(long, overrides_with = "weekly", conflicts_with = "limit")]
    pub weekly: bool,
    /// Maximum number of records, the newest first; 0 for all [default: 1000]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(0..=u32::MAX, 100))]
    pub limit: Option<u32>,
    /// The form of the output [default: table]; --summary has table and json
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

/// Subcommands of `audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Show what was done, what was refused and what failed
    #[command(mut_arg("hours", |hours| hours.help(WEEK_HOURS_HELP)))]
    Actions(Actions),
    /// Export records to a file, newest first: csv, jsonl or parquet
    Export(Export),
    /// Copy the whole store to a file, for admins
    Backup(Backup),
    /// Tells how to restore a backup, which the daemon does not do
    #[command(hide = true)]
    Restore {
        /// The arguments as typed
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        rest: Vec<std::ffi::OsString>,
    },
    /// Delete old samples, for admins; the record of actions stays
    Prune(Prune),
}

/// Selects records. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct RecordFilter {
    /// Only processes of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = text_parser())]
    pub user: Option<String>,
    /// Only processes with a matching name
    #[arg(long, value_name = "REGEX", value_parser = text_parser())]
    pub process: Option<String>,
    /// Only these GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *
    #[arg(long, value_name = "SEL", value_parser = text_parser())]
    pub gpu: Option<String>,
    /// Only processes in this container, by name or id
    #[arg(long, value_name = "CONTAINER", value_parser = text_parser())]
    pub container: Option<String>,
    /// Only processes of this job, as `list` shows it
    #[arg(long, value_name = "JOB", value_parser = text_parser())]
    pub job: Option<String>,
}

/// The help of [`Period::hours`] for commands with a default of a week.
pub(super) const WEEK_HOURS_HELP: &str = "The last N hours [default: 168]";

/// A time range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Period {
    /// The last N hours [default: 24; of --summary 168, of --weekly eight weeks]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(1..=u32::MAX, 24), conflicts_with_all = ["since", "until"])]
    pub hours: Option<u32>,
    /// From this time: 2h (that long ago), 14:00 (of today), 2026-11-20, "2026-11-20 14:00", RFC 3339
    #[arg(long, value_name = "TIME", value_parser = text_parser())]
    pub since: Option<String>,
    /// Before this time, in the same forms [default: now]
    #[arg(long, value_name = "TIME", value_parser = text_parser())]
    pub until: Option<String>,
}

/// `audit actions`
#[derive(Debug, Args)]
pub struct Actions {
    /// Only actions that this user asked for, by name or number
    #[arg(long, value_name = "USER", value_parser = text_parser())]
    pub user: Option<String>,
    /// Only these kinds, as kill,reset: kill, reset, prune, backup, restore, rules_edit, rules,
    /// rogue_rules, settings, quarantined, fault, fault_over, xid, device, quiesced, resumed,
    /// forgotten, started, stopped, booted
    #[arg(long, value_name = "KIND", value_parser = text_parser())]
    pub kind: Option<String>,
    /// Only events of these GPUs: an index, a range, a UUID or its beginning, a PCI address, a
    /// name with *
    #[arg(long, value_name = "SEL", value_parser = text_parser())]
    pub gpu: Option<String>,
    /// The time range.
    #[command(flatten)]
    pub period: Period,
    /// Maximum number of entries, the newest first; 0 for all [default: 1000]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(0..=u32::MAX, 100))]
    pub limit: Option<u32>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

impl RecordFilter {
    /// The conditions that were typed, each as its option and its value.
    #[must_use]
    pub fn conditions(&self) -> Vec<(&'static str, &str)> {
        let conditions = [
            ("--user", &self.user),
            ("--process", &self.process),
            ("--gpu", &self.gpu),
            ("--container", &self.container),
            ("--job", &self.job),
        ];
        let typed = conditions.into_iter();
        typed
            .filter_map(|(option, value)| Some((option, value.as_deref()?)))
            .collect()
    }
}

impl Audit {
    /// The output format that was typed, for the command that prints.
    #[must_use]
    pub fn output(&self) -> Option<Format> {
        match &self.command {
            None => self.output,
            Some(AuditCommand::Actions(actions)) => actions.output,
            Some(AuditCommand::Prune(prune)) => prune.output.map(Format::from),
            Some(
                AuditCommand::Export(_) | AuditCommand::Backup(_) | AuditCommand::Restore { .. },
            ) => None,
        }
    }

    /// An option before the subcommand, where it would be ignored.
    #[must_use]
    pub fn misplaced_option(&self) -> Option<&'static str> {
        self.command.as_ref()?;
        let Period {
            hours,
            since,
            until,
        } = &self.period;
        let of_which = self.which.conditions().first().map(|(option, _)| *option);
        of_which
            .or(hours.map(|_| "--hours"))
            .or(since.as_ref().map(|_| "--since"))
            .or(until.as_ref().map(|_| "--until"))
            .or(self.summary.then_some("--summary"))
            .or(self.weekly.then_some("--weekly"))
            .or(self.limit.map(|_| "--limit"))
            .or(self.output.map(|_| "--output"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command, Deferred, command_without_examples};
    use super::*;
    use clap::Parser as _;

    fn parse(line: &str) -> Option<Audit> {
        let line = format!("gpukillctl audit {line}");
        let cli = Cli::try_parse_from(line.split_whitespace()).ok()?;
        match cli.command {
            Command::Audit(Deferred(audit)) => Some(audit),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            "--summary --weekly",
            "--summary --limit 5",
            "--weekly --limit 5",
            "--summary actions --kind=",
            "--container=",
            "--job=",
            "actions --process x",
            "actions --hours 1 --since 2h",
            "actions --hours 1 --until 2h",
            "actions --hours 4294967296",
            "actions --limit -1",
            "actions now",
            "yesterday",
        ] {
            assert!(parse(line).is_none(), "{line}");
        }
        for line in ["--summary --summary", "--weekly --since 30d -o csv", ""] {
            assert!(parse(line).is_some(), "{line}");
        }
    }

    #[test]
    fn option_before_a_subcommand_is_reported() {
        let stray = |line| parse(line).expect("it is right").misplaced_option();
        assert_eq!(stray("--user bob"), None);
        assert_eq!(stray("--color never actions --user bob -o csv"), None);
        for (line, option) in [
            ("--user bob actions", "--user"),
            ("--job 7 actions", "--job"),
            ("--hours 2 actions", "--hours"),
            ("--since 2h actions", "--since"),
            ("--until 2h actions", "--until"),
            ("--summary actions", "--summary"),
            ("--weekly actions", "--weekly"),
            ("--limit 7 actions", "--limit"),
            ("-o csv actions", "--output"),
        ] {
            assert_eq!(stray(line), Some(option), "{line}");
        }
    }

    #[test]
    fn hours_help_names_the_default_of_the_command() {
        let help = |names: &[&str]| {
            let mut command = command_without_examples();
            for name in names {
                command = command.find_subcommand(name).expect("it is there").clone();
            }
            let mut arguments = command.get_arguments();
            let hours = arguments
                .find(|it| it.get_id() == "hours")
                .expect("it is there");
            hours.get_help().map(ToString::to_string)
        };
        let week = Some("The last N hours [default: 168]".to_owned());
        assert_eq!(help(&["guard", "violations"]), week);
        assert_eq!(help(&["audit", "actions"]), week);
        let of_audit = "The last N hours [default: 24; of --summary 168, of --weekly eight weeks]";
        assert_eq!(help(&["audit"]).as_deref(), Some(of_audit));
    }

    #[test]
    fn output_is_that_of_the_printing_command() {
        let output = |line| parse(line).expect("it is right").output();
        assert_eq!(output("-o csv"), Some(Format::Csv));
        assert_eq!(output("actions -o json"), Some(Format::Json));
        assert_eq!(output("actions"), None);
        assert_eq!(output("prune --before 9d -o json"), Some(Format::Json));
    }
}
