//! The command line as typed. Module `settings` decides what it means together with the
//! environment and the settings file.

mod audit;
mod audit_copies;
mod deferred;
mod examples;
mod fish;
mod guard;
mod kill;
mod number;
mod reset;
mod rogue;
mod visible;

use crate::settings::{Colors, Format, LogLevel, SortKey, bounds};
pub use audit::{
    Actions, Audit, AuditCommand, Period, RecordFilter, Series, SeriesLines, Timeline, UsageReport,
};
pub use audit_copies::{Archive, Backup, Export, ExportFormat, Prune};
use clap::builder::{BoolishValueParser, NonEmptyStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
pub use deferred::Deferred;
pub use examples::{Example, examples};
use gpukill_proto::model::Vendor;
pub use guard::{
    CheckRules, EditOptions, ExportRules, Guard, GuardCommand, GuardStatus, ImportRules, Policy,
    PolicyCommand, ReplayRules, RulesFormat, Snooze, TestRules, Violations,
};
pub use kill::{Kill, ScopeChoice, SignalChoice};
use number::{parse_pid, whole_number_parser};
pub use reset::Reset;
pub use rogue::{ExemptionArgs, ExemptionKind, Rogue, RogueCommand, Scan, SetRogueKey};
use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use visible::without_hidden;

/// Shown below the list of commands.
const EXAMPLES_HINT: &str = "\
Each command has examples: gpukillctl kill --help
By default, members of the group gpukill-operators may end all users' processes and reset GPUs, \
and members of gpukill-admin may edit the rules: usermod -aG gpukill-operators carol, as root
To report a bug, give the output of gpukillctl status --report to the admin of this host";

/// Show who uses the GPUs of this host.
#[derive(Debug, Parser)]
#[command(name = "gpukillctl", version, max_term_width = 100, after_help = EXAMPLES_HINT)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub globals: Globals,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command takes, before or after its name. When an option is typed twice,
/// the last value counts, because the first may come from an alias. An option that selects what
/// is shown can be typed once only, because two values would be meant together; `--vendor`
/// and `--pid` take several.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Globals {
    /// The daemon's socket
    #[arg(long, global = true, overrides_with = "socket", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Read these settings instead of ~/.config/gpukill/config.toml
    #[arg(long, global = true, overrides_with = "config", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How much to say on stderr: debug shows each step, error leaves out hints
    #[arg(
        long,
        global = true,
        overrides_with = "log_level",
        value_name = "LEVEL"
    )]
    pub log_level: Option<LogLevel>,
    /// Colour the output: auto is on a terminal only
    #[arg(long, global = true, overrides_with = "color", value_name = "WHEN")]
    pub color: Option<Colors>,
    /// The width of tables, in columns [default: the terminal's]
    #[arg(long, global = true, overrides_with = "width", value_name = "N", value_parser = whole_number_parser(bounds::WIDTH, 100))]
    pub width: Option<u64>,
    /// How long to wait for the daemon, in seconds [default: 5]
    #[arg(long, global = true, overrides_with = "request_timeout", value_name = "SECS", value_parser = whole_number_parser(bounds::REQUEST_TIMEOUT, 30))]
    pub request_timeout: Option<u64>,
}

/// A command of the client.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a run has one")]
pub enum Command {
    /// List the GPUs and the processes that use them
    List(Deferred<List>),
    /// Show the state of the daemon and its parts, and what you may do
    Status(Deferred<Status>),
    /// Show which processes have GPUs open, and explain unattributed memory
    Holders(Deferred<Holders>),
    /// Show everything known about one process, and who may end it
    Explain(Deferred<Explain>),
    /// End processes that use GPUs, and report the memory that they release
    Kill(Deferred<Kill>),
    /// Reset GPUs that are stuck, one after the other, for operators
    Reset(Deferred<Reset>),
    /// Show past usage, its summary, and the recorded actions
    Audit(Deferred<Audit>),
    /// Show violations of the admin's rules, and manage these rules
    Guard(Deferred<Guard>),
    /// Detect suspicious processes, and manage the rules for that
    Rogue(Deferred<Rogue>),
    /// Release the NVIDIA driver, so that it can be unloaded, updated or reset, or MIG can be
    /// changed by hand; resumes by itself
    Quiesce(Deferred<Quiesce>),
    /// Read the NVIDIA driver again before a quiesce ends
    Resume,
    /// Remove GPUs that are gone for good from the list, for admins
    Forget(Deferred<Forget>),
    /// Serve your own HTTP API, which acts with your rights, on this host
    Web(Deferred<Web>),
    /// Print the completions for a shell to standard output
    Completions(Deferred<Completions>),
}

/// The whole command line with help and examples. Every command has its arguments, while the
/// definition from [`Cli`] has only the arguments of the command that is parsed.
#[must_use]
pub fn command() -> clap::Command {
    hide_globals(examples::with_examples(command_without_examples(), &[]))
}

/// Hides the global options in the help of each command, because the help of the program lists
/// them. clap copies a global option only into commands that do not have it.
fn hide_globals(whole: clap::Command) -> clap::Command {
    let globals = whole.get_arguments().filter(|it| it.is_global_set());
    let hidden: Vec<clap::Arg> = globals.map(|it| it.clone().hide(true)).collect();
    whole.mut_subcommands(|command| command.args(&hidden))
}

/// The whole command line without examples.
pub(crate) fn command_without_examples() -> clap::Command {
    let mut all = Command::augment_subcommands_for_update(clap::Command::new("gpukillctl"));
    let mut whole = Cli::command();
    for command in all.get_subcommands_mut() {
        let name = command.get_name().to_owned();
        whole = whole.mut_subcommand(name, |_| std::mem::take(command));
    }
    whole
}

/// The completions of a program for a shell, from what its help shows.
#[must_use]
pub fn completions(shell: Shell, program: &clap::Command) -> String {
    let mut shown = without_hidden(program);
    if shell == Shell::Fish {
        return fish::script(&shown);
    }
    let (name, mut script) = (program.get_name(), Vec::new());
    clap_complete::generate(shell, &mut shown, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Parses the command line. Also returns the names of the command: `["guard", "soft"]`.
///
/// # Errors
/// clap's message: a mistake, or the requested help.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(Cli, Vec<String>), clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match parse_with(single_command(&arguments), &arguments) {
        // The message is built from the whole command line.
        Err(error) if error.kind() != ErrorKind::DisplayVersion => {
            parse_with(command(), &arguments)
        }
        parsed => parsed,
    }
}

/// A command line with one command only: the first command that an argument names. clap copies
/// every global option into every command, so one command costs less than all.
///
/// The whole command line parses the same input to the same result, because nothing but a
/// command may stand where a command is named. When the value of an option is taken for a
/// command here, parsing fails and the whole command line is tried.
fn single_command(arguments: &[OsString]) -> clap::Command {
    let globals = Globals::augment_args(clap::Command::new("gpukillctl"));
    let globals = globals.version(env!("CARGO_PKG_VERSION"));
    let mut all = Command::augment_subcommands(clap::Command::new("gpukillctl"));
    for argument in arguments.iter().skip(1) {
        if let Some(command) = all.find_subcommand_mut(argument) {
            return globals.subcommand(std::mem::take(command));
        }
    }
    globals
}

fn parse_with(
    command: clap::Command,
    arguments: &[OsString],
) -> Result<(Cli, Vec<String>), clap::Error> {
    // It is not freed: a program parses its command line once, and freeing the definition would
    // take 3 % of the instructions of `list`.
    let mut command = ManuallyDrop::new(command);
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    let mut path = Vec::new();
    let mut below = matches.subcommand();
    while let Some((name, matches)) = below {
        path.push(name.to_owned());
        below = matches.subcommand();
    }
    let cli = Cli::from_arg_matches_mut(&mut matches);
    let cli = cli.map_err(|error| error.format(&mut command))?;
    Ok((cli, path))
}

/// Maximum length of a text argument, in bytes. It is longer than any name, and short enough
/// that all texts of one command fit into one request.
const MAX_TEXT_BYTES: usize = 4096;

/// Parses a text that is not empty and not too long. An empty text comes from an unset variable
/// in a script and would select everything or nothing. The daemon hangs up on a text that is
/// too long.
fn text_parser() -> impl TypedValueParser<Value = String> {
    NonEmptyStringValueParser::new().try_map(|text| match text.len() {
        0..=MAX_TEXT_BYTES => Ok(text),
        length => Err(format!(
            "{length} bytes are too many: at most {MAX_TEXT_BYTES}"
        )),
    })
}

/// `list`
#[derive(Debug, Args)]
pub struct List {
    /// One row for each process instead of each GPU
    #[arg(short, long, overrides_with_all = ["details", "no_details"])]
    pub details: bool,
    /// One row for each GPU, whatever the settings say
    #[arg(long, overrides_with_all = ["details", "no_details"])]
    pub no_details: bool,
    /// Redraw at each poll, at most every SECS seconds [default: 2]
    #[arg(short, long, value_name = "SECS", num_args = 0..=1, value_parser = whole_number_parser(bounds::WATCH, 5))]
    pub watch: Option<Option<u64>>,
    /// Show containers, however narrow the table
    #[arg(long)]
    pub containers: bool,
    /// Only GPUs of this vendor; of several: amd,intel
    #[arg(long, ignore_case = true, value_delimiter = ',')]
    pub vendor: Vec<VendorChoice>,
    /// Only these GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *
    #[arg(long, value_name = "SEL", value_parser = text_parser())]
    pub gpu: Option<String>,
    /// Only processes of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = text_parser())]
    pub user: Option<String>,
    /// Only these processes, by their PIDs; several: 48213,48214
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = parse_pid)]
    pub pid: Vec<u32>,
    /// Only your own processes; --mine=false overrides the settings
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(), conflicts_with = "user", overrides_with = "mine")]
    pub mine: Option<bool>,
    /// Only processes with a matching name
    #[arg(long, value_name = "REGEX", value_parser = text_parser())]
    pub filter: Option<String>,
    /// Order GPUs or processes by this value, the greatest first
    #[arg(long, value_name = "KEY", overrides_with = "sort")]
    pub sort: Option<SortKey>,
    /// These columns of the table: gpu,name,fan; or added to the usual ones: +fan,pstate
    #[arg(long, value_name = "LIST", overrides_with = "columns", value_parser = text_parser())]
    pub columns: Option<String>,
    /// Maximum number of processes for each GPU in a table; marked processes are always shown;
    /// 0 shows all [default: 10]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(bounds::PROCESSES, 20))]
    pub max_processes: Option<u64>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

/// `status`
#[derive(Debug, Args)]
pub struct Status {
    /// Print the facts for a bug report to the admin of this host, without names, paths and
    /// addresses
    #[arg(long)]
    pub report: bool,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `holders`
#[derive(Debug, Args)]
pub struct Holders {
    /// Only these GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *
    #[arg(long, value_name = "SEL", value_parser = text_parser())]
    pub gpu: Option<String>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// The process.
    #[command(flatten)]
    pub process: ProcessArgument,
    /// Show the score and the indicators of a process that is not suspicious too
    #[arg(short, long, overrides_with = "details")]
    pub details: bool,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// One process, as an argument or an option.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ProcessArgument {
    /// The process, by its PID
    #[arg(value_parser = parse_pid)]
    pid: Option<u32>,
    /// The same as PID
    #[arg(long = "pid", value_name = "PID", value_parser = parse_pid)]
    pid_option: Option<u32>,
}

impl ProcessArgument {
    /// The PID. clap requires one, and no process has the number 0.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.or(self.pid_option).unwrap_or_default()
    }
}

/// `quiesce`
#[derive(Debug, Args)]
pub struct Quiesce {
    /// Number of minutes, at most a day
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole_number_parser(bounds::QUIESCE_MINUTES, 30))]
    pub minutes: u64,
}

/// `forget`
#[derive(Debug, Args)]
pub struct Forget {
    /// These GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *
    #[arg(long, value_name = "SEL", value_parser = text_parser())]
    pub gpu: String,
}

/// `web`
#[derive(Debug, Args)]
pub struct Web {
    /// The port on the loopback interface [default: a free one]
    #[arg(long, value_name = "PORT", overrides_with = "port", value_parser = whole_number_parser(bounds::PORT, 9840))]
    pub port: Option<u64>,
    /// Open the address in a browser
    #[arg(long, overrides_with = "open")]
    pub open: bool,
}

/// `completions`
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// The output formats of `status`, `holders`, `explain` and `kill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusFormat {
    /// For people
    Table,
    /// One document
    Json,
}

/// The vendors that can be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the help would repeat the names")]
pub enum VendorChoice {
    Nvidia,
    Amd,
    Intel,
    Apple,
    Other,
    All,
}

impl VendorChoice {
    /// The selected vendors; empty selects all.
    #[must_use]
    pub fn vendors(choices: &[Self]) -> Vec<Vendor> {
        let vendors: Option<Vec<Vendor>> = choices.iter().map(|it| it.vendor()).collect();
        vendors.unwrap_or_default()
    }

    /// The selected vendor; `None` selects all.
    #[must_use]
    pub const fn vendor(self) -> Option<Vendor> {
        match self {
            Self::Nvidia => Some(Vendor::Nvidia),
            Self::Amd => Some(Vendor::Amd),
            Self::Intel => Some(Vendor::Intel),
            Self::Apple => Some(Vendor::Apple),
            Self::Other => Some(Vendor::Other),
            Self::All => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
        command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in [
            "gpukillctl --width 80 --color never list",
            "gpukillctl list --width 80 --color never",
        ] {
            let cli = parse(line).expect("it is right");
            assert_eq!(cli.globals.width, Some(80));
            assert_eq!(cli.globals.color, Some(Colors::Never));
        }
    }

    #[test]
    fn only_the_top_help_lists_global_options() {
        // Otherwise clap wraps at the width that the variable COLUMNS names.
        let help = |command: clap::Command| command.term_width(100).render_long_help().to_string();
        assert!(help(command()).contains("--log-level <LEVEL>"));
        let mut whole = command();
        whole.build();
        for (path, command) in commands(&whole, "").into_iter().skip(1) {
            // clap's own.
            if path.split(' ').any(|name| name == "help") || command.is_hide_set() {
                continue;
            }
            let help = help(command);
            assert!(!help.contains("--log-level"), "{path}: {help}");
            let hint = "\n\nOptions of every command: gpukillctl --help";
            assert!(help.trim_end().ends_with(hint), "{path}: {help}");
            assert!(
                help.matches("\n  gpukillctl ").count() >= 2,
                "{path}: {help}"
            );
        }
    }

    #[test]
    fn short_help_fits_a_screen() {
        let mut whole = command();
        whole.build();
        for (path, command) in commands(&whole, "") {
            let mut command = command.term_width(100);
            let short = command.render_help().to_string();
            assert!(short.lines().count() <= 55, "{path}: {short}");
            let rare = command.get_arguments().filter(|it| !it.is_hide_set());
            let rare = rare.filter(|it| it.is_hide_short_help_set());
            let rare: Vec<String> = rare
                .filter_map(|it| Some(format!("--{} ", it.get_long()?)))
                .collect();
            let is_short = ["guard rule set", "guard group set"]
                .iter()
                .any(|it| path == format!("gpukillctl {it}"));
            assert_eq!(is_short, !rare.is_empty(), "{path}: {rare:?}");
            let hint = format!("\nAll options of this command: {path} --help");
            assert_eq!(short.trim_end().ends_with(&hint), is_short, "{short}");
            let long = command.render_long_help().to_string();
            for option in rare {
                assert!(!short.contains(&option), "{option}: {short}");
                assert!(long.contains(&option), "{option}: {long}");
            }
        }
    }

    #[test]
    fn hidden_global_options_are_accepted_and_completed() {
        for line in [
            "gpukillctl guard user remove bob --width 80",
            "gpukillctl guard --width 80 user remove bob",
            "gpukillctl --width 80 guard user remove bob",
            "gpukillctl resume --width 80",
        ] {
            let matches = command().try_get_matches_from(line.split_whitespace());
            let matches = matches.expect("it is right");
            assert_eq!(matches.get_one::<u64>("width"), Some(&80), "{line}");
        }
        for shell in Shell::value_variants() {
            let script = completions(*shell, &command());
            let count = script.matches("log-level").count();
            assert!(count > 50, "{shell}: {count}");
        }
    }

    #[test]
    fn last_option_counts_and_selectors_are_given_once() {
        let line = "gpukillctl --color never --width 80 list --color auto --width 90 \
                    --width 100 -o csv -o json -d --no-details -d -d --socket /a --socket /b";
        let cli = parse(line).expect("it is right");
        assert_eq!(cli.globals.color, Some(Colors::Auto));
        assert_eq!(cli.globals.width, Some(100));
        assert_eq!(cli.globals.socket, Some("/b".into()));
        match cli.command {
            Command::List(list) => {
                assert_eq!(list.output, Some(Format::Json));
                assert_eq!((list.details, list.no_details), (true, false));
            }
            other => panic!("{other:?}"),
        }
        for line in [
            "gpukillctl list --user root --user bob",
            "gpukillctl list --gpu 0 --gpu 1",
            "gpukillctl audit --process a --process b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn vendors_ignore_case_and_can_be_combined() {
        use VendorChoice::{All, Amd, Intel};
        let vendors = |line| match parse(line).expect("it is right").command {
            Command::List(Deferred(list)) => list.vendor,
            Command::Kill(Deferred(kill)) => kill.vendor,
            other => panic!("{other:?}"),
        };
        assert_eq!(vendors("gpukillctl list"), []);
        assert_eq!(vendors("gpukillctl list --vendor AMD"), [Amd]);
        assert_eq!(vendors("gpukillctl list --vendor amd,Intel"), [Amd, Intel]);
        let twice = "gpukillctl list --vendor intel --vendor all";
        assert_eq!(vendors(twice), [Intel, All]);
        let kill = "gpukillctl kill --vendor AMD,intel 7 --vendor intel";
        assert_eq!(vendors(kill), [Amd, Intel, Intel]);
    }

    #[test]
    fn pid_is_an_argument_or_an_option() {
        let pids = |line: &str| match parse(line).expect("it is right").command {
            Command::List(Deferred(list)) => list.pid,
            Command::Explain(Deferred(explain)) => vec![explain.process.pid()],
            Command::Guard(Deferred(guard)) => match guard.command {
                GuardCommand::Snooze(snooze) => vec![snooze.process.pid()],
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(pids("gpukillctl list"), [0; 0]);
        assert_eq!(pids("gpukillctl list --pid 7,8 --pid 9"), [7, 8, 9]);
        for line in ["explain 7", "explain --pid 7", "guard snooze 7"] {
            assert_eq!(pids(&format!("gpukillctl {line}")), [7], "{line}");
        }
        assert_eq!(pids("gpukillctl guard snooze --pid 7 --dry-run"), [7]);
    }

    #[test]
    fn watch_takes_optional_seconds() {
        let watch = |line| match parse(line).expect("it is right").command {
            Command::List(list) => list.watch,
            other => panic!("{other:?}"),
        };
        assert_eq!(watch("gpukillctl list"), None);
        assert_eq!(watch("gpukillctl list --watch"), Some(None));
        assert_eq!(watch("gpukillctl list -w -d"), Some(None));
        assert_eq!(watch("gpukillctl list -w 5"), Some(Some(5)));
    }

    #[test]
    fn booleans_are_spelled_as_in_the_settings() {
        let mine = |value: &str| {
            let line = format!("gpukillctl list --mine{value}");
            match parse(&line).map(|cli| cli.command) {
                Ok(Command::List(list)) => list.mine,
                other => panic!("{other:?}"),
            }
        };
        for (value, expected) in [
            ("", true),
            ("=true", true),
            ("=yes", true),
            ("=on", true),
            ("=1", true),
            ("=false", false),
            ("=no", false),
            ("=off", false),
            ("=0", false),
        ] {
            assert_eq!(mine(value), Some(expected), "{value}");
        }
        assert!(parse("gpukillctl list --mine=perhaps").is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            "gpukillctl",
            "gpukillctl list -w 0",
            "gpukillctl list --vendor matrox",
            "gpukillctl list --vendor=",
            "gpukillctl list --vendor amd,",
            "gpukillctl list --max-processes -1",
            "gpukillctl list --pid=",
            "gpukillctl list --pid 7,",
            "gpukillctl list --pid python",
            "gpukillctl list --width 3",
            "gpukillctl list --gpu=",
            "gpukillctl list --user=",
            "gpukillctl list --filter=",
            "gpukillctl holders --gpu=",
            "gpukillctl audit --gpu=",
            "gpukillctl audit --user=",
            "gpukillctl audit --process=",
            "gpukillctl audit --since=",
            "gpukillctl status -o csv",
            "gpukillctl holders -o csv",
            "gpukillctl holders 6",
            "gpukillctl explain",
            "gpukillctl explain python",
            "gpukillctl explain -1",
            "gpukillctl explain 7 --pid 7",
            "gpukillctl explain --pid 7,8",
            "gpukillctl guard snooze",
            "gpukillctl explain 4294967296",
            "gpukillctl audit --hours 0",
            "gpukillctl audit --hours 4294967296",
            "gpukillctl audit --hours 1 --since 2026-11-20",
            "gpukillctl audit --hours 1 --until 2026-11-20",
            "gpukillctl rogue",
            "gpukillctl rogue scan --hours 0",
            "gpukillctl rogue scan --hours 745",
            "gpukillctl rogue scan -o csv",
            "gpukillctl rogue scan 6",
            "gpukillctl quiesce --minutes 0",
            "gpukillctl quiesce --minutes 1441",
            "gpukillctl resume now",
            "gpukillctl web --port 80",
            "gpukillctl web --port 65536",
            "gpukillctl completions tcsh",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn text_too_long_for_a_request_is_refused() {
        for option in [
            "--user",
            "--gpu",
            "--job",
            "--container",
            "--process",
            "--since",
        ] {
            let taken = |length| {
                let line = format!("gpukillctl audit {option} {}", "x".repeat(length));
                parse(&line).is_ok()
            };
            assert_eq!((taken(4096), taken(4097)), (true, false), "{option}");
        }
    }

    #[test]
    fn kill_timeout_is_not_the_request_timeout() {
        let cli = parse("gpukillctl kill --timeout-secs 7 --request-timeout 30 4182");
        let cli = cli.expect("it is right");
        assert_eq!(cli.globals.request_timeout, Some(30));
        match cli.command {
            Command::Kill(Deferred(kill)) => {
                assert_eq!((kill.timeout_secs, kill.pids), (Some(7), vec![4182]))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Every command with its full name.
    fn commands(command: &clap::Command, before: &str) -> Vec<(String, clap::Command)> {
        let path = format!("{before}{}", command.get_name());
        let below = command.get_subcommands();
        let below = below.flat_map(|it| commands(it, &format!("{path} ")));
        let own = (path.clone(), command.clone());
        std::iter::once(own).chain(below).collect()
    }

    #[test]
    fn every_dry_run_command_takes_yes() {
        let has = |command: &clap::Command, long: &str| {
            let mut options = command.get_arguments();
            options.any(|it| it.get_long() == Some(long))
        };
        let all = commands(&command_without_examples(), "");
        let changing: Vec<_> = all.iter().filter(|(_, it)| has(it, "dry-run")).collect();
        assert!(changing.len() > 25, "{}", changing.len());
        for (path, command) in changing {
            let mut options = command.get_arguments();
            let yes = options.find(|it| it.get_long() == Some("yes"));
            let yes = yes.unwrap_or_else(|| panic!("{path} has no --yes"));
            assert_eq!(yes.get_short(), Some('y'), "{path}");
            let help = yes.get_help().expect("it has a help").to_string();
            let asks = ["kill", "reset", "prune", "import"];
            // Edits of the guard's rules ask where jobs would be ended.
            let edits_guard = path.starts_with("gpukillctl guard ") && !path.ends_with(" snooze");
            let is_asking = asks.contains(&command.get_name()) || edits_guard;
            assert_eq!(help.starts_with("Do not ask"), is_asking, "{path}: {help}");
        }
        for line in [
            "guard user set bob --memory-limit 8 -y",
            "guard soft --yes --yes",
        ] {
            let line = format!("gpukillctl {line}");
            assert!(parse(&line).is_ok(), "{line}");
        }
    }

    #[test]
    fn longest_hours_are_accepted() {
        assert!(parse("gpukillctl audit --hours 4294967295").is_ok());
        assert!(parse("gpukillctl rogue scan --hours 744").is_ok());
    }
}
