//! What `audit` takes.

use super::{Backup, Export, Prune, text, whole};
use crate::settings::Format;
use clap::{Args, Subcommand};

/// `audit`
#[derive(Debug, Args)]
pub struct Audit {
    /// What else is done with the past.
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
    /// Which records are meant.
    #[command(flatten)]
    pub which: Which,
    /// Of what time.
    #[command(flatten)]
    pub period: Period,
    /// What it comes to: who used the GPUs, when, and how well
    #[arg(long, overrides_with = "summary", conflicts_with_all = ["weekly", "limit"])]
    pub summary: bool,
    /// One line for each week
    #[arg(long, overrides_with = "weekly", conflicts_with = "limit")]
    pub weekly: bool,
    /// At most so many records, the newest; 0 for all [default: 1000]
    #[arg(long, value_name = "N", value_parser = whole(0..=u32::MAX, 100))]
    pub limit: Option<u32>,
    /// The form of the output [default: table]; of --summary table or json
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

/// What else is done with the past.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// What was done, refused and broken
    #[command(mut_arg("hours", |hours| hours.help(OF_A_WEEK)))]
    Actions(Actions),
    /// Records to a file, newest first: csv, jsonl or parquet
    Export(Export),
    /// A copy of the whole store, for admins
    Backup(Backup),
    /// Says how a backup is restored: not through the daemon
    #[command(hide = true)]
    Restore {
        /// What was typed
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        rest: Vec<std::ffi::OsString>,
    },
    /// Delete what is old, for admins; the record of what was done stays
    Prune(Prune),
}

/// Which records are meant. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Which {
    /// Only processes of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = text())]
    pub user: Option<String>,
    /// Only processes whose name matches
    #[arg(long, value_name = "REGEX", value_parser = text())]
    pub process: Option<String>,
    /// Only these GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *
    #[arg(long, value_name = "SEL", value_parser = text())]
    pub gpu: Option<String>,
    /// Only processes in this container, by name or id
    #[arg(long, value_name = "CONTAINER", value_parser = text())]
    pub container: Option<String>,
    /// Only processes of this job, as `list` shows it
    #[arg(long, value_name = "JOB", value_parser = text())]
    pub job: Option<String>,
}

/// Said of [`Period::hours`] by what tells of a week.
pub(super) const OF_A_WEEK: &str = "The last N hours [default: 168]";

/// A stretch of time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Period {
    /// The last N hours [default: 24; of --summary 168, of --weekly eight weeks]
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX, 24), conflicts_with_all = ["since", "until"])]
    pub hours: Option<u32>,
    /// From this time: 2h (that long ago), 14:00 (of today), 2026-11-20, "2026-11-20 14:00", RFC 3339
    #[arg(long, value_name = "TIME", value_parser = text())]
    pub since: Option<String>,
    /// Before this time, in the same forms [default: now]
    #[arg(long, value_name = "TIME", value_parser = text())]
    pub until: Option<String>,
}

/// `audit actions`
#[derive(Debug, Args)]
pub struct Actions {
    /// Only what this user asked for, by name or number
    #[arg(long, value_name = "USER", value_parser = text())]
    pub user: Option<String>,
    /// Only of these kinds, as kill,reset: kill, reset, prune, backup, restore, rules_edit, rules, rogue_rules, settings, broken, fault, fault_over, xid, device, quiesced, resumed, forgotten, started, stopped, booted
    #[arg(long, value_name = "KIND", value_parser = text())]
    pub kind: Option<String>,
    /// Only what happened to these GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *
    #[arg(long, value_name = "SEL", value_parser = text())]
    pub gpu: Option<String>,
    /// Of what time.
    #[command(flatten)]
    pub period: Period,
    /// At most so many entries, the newest; 0 for all
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole(0..=u32::MAX, 100))]
    pub limit: u32,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

impl Which {
    /// The conditions that were typed, each as its option and its value.
    #[must_use]
    pub fn typed(&self) -> Vec<(&'static str, &str)> {
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
    /// The form that was typed, for whatever is printed.
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

    /// An option that stands before a command, which would not heed it.
    #[must_use]
    pub fn stray(&self) -> Option<&'static str> {
        self.command.as_ref()?;
        let Period {
            hours,
            since,
            until,
        } = &self.period;
        let of_which = self.which.typed().first().map(|(option, _)| *option);
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
    use super::super::{Cli, Command, Deferred, at_once};
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
    fn what_contradicts_is_refused() {
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
    fn an_option_before_a_command_is_noticed_but_for_those_of_every_command() {
        let stray = |line| parse(line).expect("it is right").stray();
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
    fn the_help_of_each_tells_its_own_default_of_hours() {
        let help = |names: &[&str]| {
            let mut command = at_once();
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
    fn the_form_is_that_of_whatever_is_printed() {
        let output = |line| parse(line).expect("it is right").output();
        assert_eq!(output("-o csv"), Some(Format::Csv));
        assert_eq!(output("actions -o json"), Some(Format::Json));
        assert_eq!(output("actions"), None);
        assert_eq!(output("prune --before 9d -o json"), Some(Format::Json));
    }
}
