//! Arguments of `audit`.

use super::{Archive, Backup, Export, Prune, text_parser, whole_number_parser};
use crate::settings::Format;
use clap::{Args, Subcommand, ValueEnum};

/// `audit`
#[derive(Debug, Args)]
pub struct Audit {
    /// The subcommand; without one, runs are listed.
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
    /// Show one line for each process instead of each job
    #[arg(long, overrides_with = "processes", conflicts_with_all = ["summary", "weekly"])]
    pub processes: bool,
    /// Show the samples of GPUs and processes, newest first
    #[arg(long, overrides_with = "samples", conflicts_with_all = ["summary", "weekly", "processes"])]
    pub samples: bool,
    /// Maximum number of lines, those of the newest; 0 for all [default: 1000; all in csv and
    /// ndjson]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(0..=u32::MAX, 100))]
    pub limit: Option<u32>,
    /// The form of the output [default: table]; csv and ndjson of --summary have the users
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

/// Subcommands of `audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Show what was done, what was refused and what failed
    #[command(mut_arg("hours", |hours| hours.help(WEEK_HOURS_HELP)))]
    Actions(Actions),
    /// Show usage over time, by GPU, user or job, as a table or a chart
    #[command(mut_arg("hours", |hours| hours.help(DAY_HOURS_HELP)))]
    Series(Series),
    /// Show everything that happened to a GPU, job, process or user, oldest first
    #[command(mut_arg("hours", |hours| hours.help(DAY_HOURS_HELP)))]
    Timeline(Timeline),
    /// Show a report of the last whole week as plain text, to mail
    #[command(mut_arg("hours", |hours| hours.help(REPORT_HOURS_HELP)))]
    Report(UsageReport),
    /// Export samples of GPUs and of processes to a file, newest first: csv, jsonl or parquet
    #[command(mut_arg("hours", |hours| hours.help(DAY_HOURS_HELP)))]
    Export(Export),
    /// Write each day that is over to Parquet files, once; deletes nothing
    Archive(Archive),
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

/// Selects runs or samples. All conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct RecordFilter {
    /// Only processes of this user, by name or number; several with commas
    #[arg(long, value_name = "USER", value_parser = text_parser())]
    pub user: Vec<String>,
    /// Only processes of members of this group, as of that time; several with commas
    #[arg(long, value_name = "GROUP", value_parser = text_parser())]
    pub group: Option<String>,
    /// Only processes with a matching name, as `audit` or --summary shows it
    #[arg(long, value_name = "REGEX", value_parser = text_parser())]
    pub process: Option<String>,
    /// Only processes with a matching command line
    #[arg(long, value_name = "REGEX", value_parser = text_parser())]
    pub command: Option<String>,
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

/// The help of [`Period::hours`] for commands with a default of a day.
const DAY_HOURS_HELP: &str = "The last N hours [default: 24]";

/// The help of [`Period::hours`] for `audit report`.
const REPORT_HOURS_HELP: &str = "The last N hours instead";

/// A time range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Period {
    /// The last N hours [default: 24; of --summary 168, of --weekly eight weeks]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(1..=u32::MAX, 24), conflicts_with_all = ["since", "until"])]
    pub hours: Option<u32>,
    /// From this time: 2h or 1h30m (that long ago), 14:00 or 9am (the last), yesterday, monday,
    /// "monday 14:00", 2026-11-20, "2026-11-20 14:00", 2026-11, "Nov 20", RFC 3339
    #[arg(long, value_name = "TIME", value_parser = text_parser())]
    pub since: Option<String>,
    /// Before this time, in the same forms and now; 14:00 is always of today [default: now]
    #[arg(long, value_name = "TIME", value_parser = text_parser())]
    pub until: Option<String>,
}

/// `audit actions`
#[derive(Debug, Args)]
pub struct Actions {
    /// Only actions that this user asked for, by name or number; guard for what the guard ended
    #[arg(long, value_name = "USER", value_parser = text_parser())]
    pub user: Option<String>,
    /// Only these kinds, as kill,reset: kill, reset, prune, backup, restore, rules_edit, rules,
    /// rogue_rules, settings, quarantined, fault, fault_over, alert, alert_over, xid, device,
    /// quiesced, resumed, forgotten, started, stopped, booted
    #[arg(long, value_name = "KIND", value_parser = text_parser())]
    pub kind: Option<String>,
    /// Only events of these GPUs: an index, a range, a UUID or its beginning, a PCI address, a
    /// name with *
    #[arg(long, value_name = "SEL", value_parser = text_parser())]
    pub gpu: Option<String>,
    /// The time range.
    #[command(flatten)]
    pub period: Period,
    /// Maximum number of entries, the newest first; 0 for all [default: 1000; all in csv and
    /// ndjson]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(0..=u32::MAX, 100))]
    pub limit: Option<u32>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

/// `audit series`
#[derive(Debug, Args)]
pub struct Series {
    /// What has a line of its own
    #[arg(
        long,
        value_name = "KIND",
        default_value = "gpu",
        overrides_with = "by"
    )]
    pub by: SeriesLines,
    /// Maximum number of buckets of time, up to 2000 [default: 48]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(1..=2000_u32, 48), overrides_with = "buckets")]
    pub buckets: Option<u32>,
    /// Draw a chart instead of the table
    #[arg(long, overrides_with = "plot")]
    pub plot: bool,
    /// Which usage is selected.
    #[command(flatten)]
    pub which: RecordFilter,
    /// The time range.
    #[command(flatten)]
    pub period: Period,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

/// `audit timeline`
#[derive(Debug, Args)]
pub struct Timeline {
    /// What happened on these GPUs: an index, a range, a UUID or its beginning, a PCI address, a
    /// name with *
    #[arg(long, value_name = "SEL", value_parser = text_parser())]
    pub gpu: Option<String>,
    /// What this user did, and what happened to processes of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = text_parser())]
    pub user: Option<String>,
    /// What happened to this job, as `list` shows it
    #[arg(long, value_name = "JOB", value_parser = text_parser())]
    pub job: Option<String>,
    /// What happened to this process
    #[arg(long, value_name = "PID", value_parser = whole_number_parser(1..=u32::MAX, 51002))]
    pub pid: Option<u32>,
    /// The time range.
    #[command(flatten)]
    pub period: Period,
    /// Maximum number of entries, the oldest first; 0 for all [default: 1000; all in csv and
    /// ndjson]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(0..=u32::MAX, 100))]
    pub limit: Option<u32>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

/// `audit report`
#[derive(Debug, Args)]
pub struct UsageReport {
    /// Report the last whole week, from Monday to Sunday, which is the default
    #[arg(long, overrides_with = "weekly", conflicts_with_all = ["hours", "since", "until"])]
    pub weekly: bool,
    /// Only members of this group in the list of people and their idle times; several with commas
    #[arg(long, value_name = "GROUP", value_parser = text_parser())]
    pub group: Option<String>,
    /// The time range.
    #[command(flatten)]
    pub period: Period,
}

/// What has a line of its own in a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeriesLines {
    /// Each GPU
    Gpu,
    /// Each owner of processes
    User,
    /// Each job
    Job,
}

impl RecordFilter {
    /// The conditions that were typed, each as its option and its value.
    #[must_use]
    pub fn conditions(&self) -> Vec<(&'static str, &str)> {
        let conditions = [
            ("--group", &self.group),
            ("--process", &self.process),
            ("--command", &self.command),
            ("--gpu", &self.gpu),
            ("--container", &self.container),
            ("--job", &self.job),
        ];
        let users = self.user.iter().map(|user| ("--user", user.as_str()));
        let others = conditions.into_iter();
        let others = others.filter_map(|(option, value)| Some((option, value.as_deref()?)));
        users.chain(others).collect()
    }

    /// The typed users, separated by commas.
    #[must_use]
    pub fn users(&self) -> String {
        self.user.join(",")
    }
}

impl Audit {
    /// The output format that was typed, for the command that prints.
    #[must_use]
    pub fn output(&self) -> Option<Format> {
        match &self.command {
            None => self.output,
            Some(AuditCommand::Actions(actions)) => actions.output,
            Some(AuditCommand::Series(series)) => series.output,
            Some(AuditCommand::Timeline(timeline)) => timeline.output,
            Some(AuditCommand::Prune(prune)) => prune.output.map(Format::from),
            Some(
                AuditCommand::Report(_)
                | AuditCommand::Export(_)
                | AuditCommand::Archive(_)
                | AuditCommand::Backup(_)
                | AuditCommand::Restore { .. },
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
            .or(self.processes.then_some("--processes"))
            .or(self.samples.then_some("--samples"))
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
            "--samples --summary",
            "--samples --processes",
            "--processes --weekly",
            "--summary actions --kind=",
            "--container=",
            "--group=",
            "--job=",
            "actions --process x",
            "actions --hours 1 --since 2h",
            "actions --hours 1 --until 2h",
            "actions --hours 4294967296",
            "actions --limit -1",
            "actions now",
            "archive",
            "prune",
            "prune --before 9d --archived /srv/archive",
            "prune --archived=",
            "timeline --pid 0",
            "timeline --job=",
            "timeline --hours 1 --until 2h",
            "yesterday",
        ] {
            assert!(parse(line).is_none(), "{line}");
        }
        for line in [
            "--summary --summary",
            "--summary --user alice --user bob,1003 --group ml -o csv",
            "report --weekly --group ml",
            "--weekly --since 30d -o csv",
            "",
            "archive /srv/archive --verify --with-commands",
            "prune --archived /srv/archive",
        ] {
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
            ("--group ml actions", "--group"),
            ("--job 7 actions", "--job"),
            ("--hours 2 actions", "--hours"),
            ("--since 2h actions", "--since"),
            ("--until 2h actions", "--until"),
            ("--summary actions", "--summary"),
            ("--weekly actions", "--weekly"),
            ("--command x actions", "--command"),
            ("--processes actions", "--processes"),
            ("--samples actions", "--samples"),
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
        let day = Some("The last N hours [default: 24]".to_owned());
        for command in ["timeline", "series", "export"] {
            assert_eq!(help(&["audit", command]), day, "{command}");
        }
        let of_audit = "The last N hours [default: 24; of --summary 168, of --weekly eight weeks]";
        assert_eq!(help(&["audit"]).as_deref(), Some(of_audit));
    }

    #[test]
    fn output_is_that_of_the_printing_command() {
        let output = |line| parse(line).expect("it is right").output();
        assert_eq!(output("-o csv"), Some(Format::Csv));
        assert_eq!(output("actions -o json"), Some(Format::Json));
        assert_eq!(output("actions"), None);
        assert_eq!(output("timeline -o ndjson"), Some(Format::Ndjson));
        assert_eq!(output("prune --before 9d -o json"), Some(Format::Json));
    }
}
