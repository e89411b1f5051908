//! What can be typed. What it means, together with the environment and the
//! settings file, is decided in `settings`.

mod audit;

mod audit_copies;

mod deferred;

mod guard;

mod kill;

mod reset;

mod rogue;

mod number;

mod examples;

mod visible;

mod fish;

use crate::settings::{Colors, Format, LogLevel, bounds};
pub use audit::{Actions, Audit, AuditCommand, Period, Which};
pub use audit_copies::{Backup, Export, ExportFormat, Prune};
use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
pub use deferred::Deferred;
pub use examples::{Example, examples};
use gpukill_proto::snapshot::Vendor;
pub use guard::{
    CheckRules, Edit, ExportRules, Guard, GuardCommand, GuardStatus, ImportRules, Policy,
    PolicyCommand, ReplayRules, RulesFormat, Snooze, TestRules, Violations,
};
pub use kill::{Kill, ScopeChoice, SignalChoice};
use number::{pid, whole};
pub use reset::Reset;
pub use rogue::{AllowChoice, Allowing, Rogue, RogueCommand, Scan, SetRogueKey};
use std::ffi::OsString;
use std::path::PathBuf;
use visible::visible;

/// Below the commands.
const MORE: &str = "Each command has examples: gpukillctl kill --help";

/// Who uses the GPUs of this box.
#[derive(Debug, Parser)]
#[command(name = "gpukillctl", version, max_term_width = 100, after_help = MORE)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub globals: Globals,
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command takes, before or after its name. Of one that is
/// typed twice the last counts: the first may be an alias's. One that chooses what
/// is shown can be typed once, for two would be meant together; vendors are.
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
    #[arg(long, global = true, overrides_with = "width", value_name = "N", value_parser = whole(bounds::WIDTH, 100))]
    pub width: Option<u64>,
    /// How long to wait for the daemon, in seconds [default: 5]
    #[arg(long, global = true, overrides_with = "request_timeout", value_name = "SECS", value_parser = whole(bounds::TIMEOUT, 30))]
    pub request_timeout: Option<u64>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// GPUs, and who uses them
    List(Deferred<List>),
    /// How the daemon and its parts stand, and what you may do
    Status(Deferred<Status>),
    /// Who has GPUs open, and whose the memory is that no process explains
    Holders(Deferred<Holders>),
    /// All that is known of one process, and who may end it
    Explain(Deferred<Explain>),
    /// End processes that use GPUs, and see their memory come back
    Kill(Deferred<Kill>),
    /// Reset GPUs that are stuck, one after the other
    Reset(Deferred<Reset>),
    /// What the samples say of the past, what it comes to, and what was done
    Audit(Deferred<Audit>),
    /// Who breaks the admin's rules, and the rules themselves
    Guard(Deferred<Guard>),
    /// Who may be up to no good, and the rules for that
    Rogue(Deferred<Rogue>),
    /// Let go of the NVIDIA driver, so that it can be unloaded, updated or reset,
    /// or MIG changed by hand; resumes by itself
    Quiesce(Deferred<Quiesce>),
    /// Read the NVIDIA driver again, before a quiesce is over
    Resume,
    /// Drop GPUs from the list that are gone and stay away
    Forget(Deferred<Forget>),
    /// Completions for a shell, to standard output
    Completions(Deferred<Completions>),
}

/// The command line: what can be typed, with its help and examples. Each command has its
/// arguments, where that of [`Cli`] has only those of the command that is parsed.
#[must_use]
pub fn command() -> clap::Command {
    examples::with_examples(at_once(), &[])
}

/// The same without examples.
pub(crate) fn at_once() -> clap::Command {
    let mut all = Command::augment_subcommands_for_update(clap::Command::new("gpukillctl"));
    let mut whole = Cli::command();
    for command in all.get_subcommands_mut() {
        let name = command.get_name().to_owned();
        whole = whole.mut_subcommand(name, |_| std::mem::take(command));
    }
    whole
}

/// The completions of a program for a shell, of what its help shows.
#[must_use]
pub fn completions(shell: Shell, program: &clap::Command) -> String {
    if shell == Shell::Fish {
        return fish::script(program);
    }
    let (name, mut script) = (program.get_name(), Vec::new());
    clap_complete::generate(shell, &mut visible(program), name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// What was typed, and the names of the command that it was: `["guard", "soft"]`.
///
/// # Errors
/// What clap has to say: a mistake, or the help that was asked for.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(Cli, Vec<String>), clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match parse_by(one_command(&arguments), &arguments) {
        // What is printed then is made of the whole command line.
        Err(error) if error.kind() != ErrorKind::DisplayVersion => parse_by(command(), &arguments),
        parsed => parsed,
    }
}

/// The command line with one command: the first that an argument names. clap gives each
/// command a copy of each global option, so that one costs less than all of them.
///
/// What this parses, the whole parses alike: nothing but a command may stand where one is
/// named. An argument that is the value of an option may be taken for a command here; then
/// this fails, and the whole is to be asked.
fn one_command(arguments: &[OsString]) -> clap::Command {
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

fn parse_by(
    mut command: clap::Command,
    arguments: &[OsString],
) -> Result<(Cli, Vec<String>), clap::Error> {
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

/// The longest text that is taken, in bytes: longer than any name, and all that one
/// command takes fit in one request.
const LONGEST_TEXT: usize = 4096;

/// A text that is not empty: a variable of a script that is not set would choose
/// everything, or nothing. Nor is it so long that the daemon would hang up.
fn text() -> impl TypedValueParser<Value = String> {
    NonEmptyStringValueParser::new().try_map(|text| match text.len() {
        0..=LONGEST_TEXT => Ok(text),
        length => Err(format!(
            "{length} bytes are too many: at most {LONGEST_TEXT}"
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
    #[arg(short, long, value_name = "SECS", num_args = 0..=1, value_parser = whole(bounds::WATCH, 5))]
    pub watch: Option<Option<u64>>,
    /// Show containers, however narrow the table
    #[arg(long)]
    pub containers: bool,
    /// Only GPUs of this vendor; of several: amd,intel
    #[arg(long, ignore_case = true, value_delimiter = ',')]
    pub vendor: Vec<VendorChoice>,
    /// Only these GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *
    #[arg(long, value_name = "SEL", value_parser = text())]
    pub gpu: Option<String>,
    /// Only processes of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = text())]
    pub user: Option<String>,
    /// Only processes whose name matches
    #[arg(long, value_name = "REGEX", value_parser = text())]
    pub filter: Option<String>,
    /// At most so many processes for each GPU in a table, and all that are marked; 0 for all
    /// [default: 10]
    #[arg(long, value_name = "N", value_parser = whole(bounds::PROCESSES, 20))]
    pub max_processes: Option<u64>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<Format>,
}

/// `status`
#[derive(Debug, Args)]
pub struct Status {
    /// Print what a report of a bug needs, without names, paths and addresses
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
    #[arg(long, value_name = "SEL", value_parser = text())]
    pub gpu: Option<String>,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// The process, by its PID
    #[arg(value_parser = pid)]
    pub pid: u32,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

/// `quiesce`
#[derive(Debug, Args)]
pub struct Quiesce {
    /// For so many minutes, at most a day
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole(bounds::QUIESCE_MINUTES, 30))]
    pub minutes: u64,
}

/// `forget`
#[derive(Debug, Args)]
pub struct Forget {
    /// These GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *
    #[arg(long, value_name = "SEL", value_parser = text())]
    pub gpu: String,
}

/// `completions`
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// The forms that `status`, `holders`, `explain` and `kill` have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusFormat {
    /// For people
    Table,
    /// One document
    Json,
}

/// The vendors that can be asked for.
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
    /// The vendors that are meant together: none where all are.
    #[must_use]
    pub fn vendors(choices: &[Self]) -> Vec<Vendor> {
        let vendors: Option<Vec<Vendor>> = choices.iter().map(|it| it.vendor()).collect();
        vendors.unwrap_or_default()
    }

    /// The one vendor; `None` for all.
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
    fn the_definition_has_no_contradictions() {
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
    fn the_last_of_an_option_counts_but_of_one_that_chooses_there_is_one() {
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
    fn vendors_are_taken_in_any_case_and_several_together() {
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
    fn watch_takes_seconds_or_none() {
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
    fn what_contradicts_or_makes_no_sense_is_refused() {
        for line in [
            "gpukillctl",
            "gpukillctl list -w 0",
            "gpukillctl list --vendor matrox",
            "gpukillctl list --vendor=",
            "gpukillctl list --vendor amd,",
            "gpukillctl list --max-processes -1",
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
            "gpukillctl completions tcsh",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_text_that_no_request_could_carry_is_refused() {
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
    fn the_timeout_of_kill_is_not_the_wait_for_the_daemon() {
        let cli = parse("gpukillctl kill --timeout-secs 7 --request-timeout 30 4182");
        let cli = cli.expect("it is right");
        assert_eq!(cli.globals.request_timeout, Some(30));
        match cli.command {
            Command::Kill(Deferred(kill)) => {
                assert_eq!((kill.timeout_secs, kill.pids), (7, vec![4182]))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Every command, with the names before it.
    fn commands(command: &clap::Command, before: &str) -> Vec<(String, clap::Command)> {
        let path = format!("{before}{}", command.get_name());
        let below = command.get_subcommands();
        let below = below.flat_map(|it| commands(it, &format!("{path} ")));
        let own = (path.clone(), command.clone());
        std::iter::once(own).chain(below).collect()
    }

    #[test]
    fn whatever_can_be_rehearsed_can_be_done_unasked() {
        let has = |command: &clap::Command, long: &str| {
            let mut options = command.get_arguments();
            options.any(|it| it.get_long() == Some(long))
        };
        let all = commands(&at_once(), "");
        let changing: Vec<_> = all.iter().filter(|(_, it)| has(it, "dry-run")).collect();
        assert!(changing.len() > 25, "{}", changing.len());
        for (path, command) in changing {
            let mut options = command.get_arguments();
            let yes = options.find(|it| it.get_long() == Some("yes"));
            let yes = yes.unwrap_or_else(|| panic!("{path} has no --yes"));
            assert_eq!(yes.get_short(), Some('y'), "{path}");
            let help = yes.get_help().expect("it has a help").to_string();
            let asks = ["kill", "reset", "prune", "import"];
            let is_asking = asks.contains(&command.get_name());
            assert_eq!(help == "Do not ask", is_asking, "{path}: {help}");
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
    fn the_longest_time_that_fits_is_taken() {
        assert!(parse("gpukillctl audit --hours 4294967295").is_ok());
        assert!(parse("gpukillctl rogue scan --hours 744").is_ok());
    }
}
