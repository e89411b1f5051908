//! Arguments of `kill`: the selector, the scope, and how processes are ended.

use super::number::{parse_pid, whole_number_parser};
use super::{StatusFormat, VendorChoice, text_parser};
use crate::settings::bounds;
use clap::{Args, ValueEnum};
use gpukill_proto::kill::{KillScope, KillSignal};
use gpukill_proto::units::Bytes;

/// `kill`
#[derive(Debug, Args)]
pub struct Kill {
    /// These processes, by their PIDs
    #[arg(value_name = "PID", value_parser = parse_killable_pid, allow_negative_numbers = true)]
    pub pids: Vec<u32>,
    /// The same as PID; several: 48213,48214
    #[arg(long, value_name = "PID", value_parser = parse_killable_pid, value_delimiter = ',', allow_negative_numbers = true, help_heading = SELECTION_HEADING)]
    pub pid: Vec<u32>,
    /// Processes with a matching name
    #[arg(long, value_name = "REGEX", value_parser = text_parser(), help_heading = SELECTION_HEADING)]
    pub filter: Option<String>,
    /// Processes with a matching command line
    #[arg(long, value_name = "REGEX", value_parser = text_parser(), help_heading = SELECTION_HEADING)]
    pub command: Option<String>,
    /// Processes on these GPUs: an index, a range, a UUID or its beginning, a PCI address, a
    /// name with *
    #[arg(long, value_name = "SEL", value_parser = text_parser(), help_heading = SELECTION_HEADING)]
    pub gpu: Option<String>,
    /// Processes of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = text_parser(), help_heading = SELECTION_HEADING)]
    pub user: Option<String>,
    /// Your own processes
    #[arg(long, conflicts_with = "user", overrides_with = "mine", help_heading = SELECTION_HEADING)]
    pub mine: bool,
    /// Processes in this container, by name or the beginning of its id
    #[arg(long, value_name = "C", value_parser = text_parser(), help_heading = SELECTION_HEADING)]
    pub container: Option<String>,
    /// Processes in containers of this image, with * and ?
    #[arg(long, value_name = "GLOB", value_parser = text_parser(), help_heading = SELECTION_HEADING)]
    pub image: Option<String>,
    /// Processes of this job, as list and explain show it: "slurm 1234.0", 1234, train.service
    #[arg(long, value_name = "JOB", value_parser = text_parser(), help_heading = SELECTION_HEADING)]
    pub job: Option<String>,
    /// Only processes that hold at least this much of one GPU, with its unit: 4G or 512M, the
    /// same as 4GiB and 512MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = SELECTION_HEADING)]
    pub min_memory: Option<Bytes>,
    /// Only processes on GPUs of this vendor; several: amd,intel
    #[arg(long, ignore_case = true, value_delimiter = ',', help_heading = SELECTION_HEADING)]
    pub vendor: Vec<VendorChoice>,
    /// How much is ended with each selected process
    #[arg(long, default_value = "process", overrides_with = "scope")]
    pub scope: ScopeChoice,
    /// Allow a selector to match several processes; otherwise they are only listed
    #[arg(long, overrides_with = "batch")]
    pub batch: bool,
    /// Seconds to wait after each signal [default: 5]
    #[arg(long, value_name = "SECS", value_parser = whole_number_parser(bounds::SIGNAL_TIMEOUT, 30), overrides_with = "timeout_secs")]
    pub timeout_secs: Option<u64>,
    /// Send SIGKILL to processes that survive
    #[arg(long, overrides_with = "force")]
    pub force: bool,
    /// The signal to start with [default: TERM; on AMD INT, then TERM]; KILL needs --force
    #[arg(long, ignore_case = true, overrides_with = "signal")]
    pub signal: Option<SignalChoice>,
    /// End a process that uses no GPU too: for root, with one PID
    #[arg(long, overrides_with = "any_process")]
    pub any_process: bool,
    /// End named processes that are protected as login services, displays, driver daemons or by
    /// [protect]: for root, with PIDs
    #[arg(long, overrides_with = "override_protected")]
    pub override_protected: bool,
    /// Show which processes would be ended, and end none
    #[arg(long, overrides_with = "dry_run")]
    pub dry_run: bool,
    /// Do not ask; on a terminal, kill asks unless it ends one process of yours that you name by
    /// its PID
    #[arg(short, long, overrides_with = "yes")]
    pub yes: bool,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

const SELECTION_HEADING: &str = "Selected processes (all conditions must hold)";

/// How much is ended with a selected process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeChoice {
    /// The process alone
    Process,
    /// The process and all its descendants
    Tree,
    /// The whole job of the process, as list and explain show it
    Job,
    /// All processes in its container
    Container,
}

impl From<ScopeChoice> for KillScope {
    fn from(scope: ScopeChoice) -> Self {
        match scope {
            ScopeChoice::Process => Self::Process,
            ScopeChoice::Tree => Self::Tree,
            ScopeChoice::Job => Self::Job,
            ScopeChoice::Container => Self::Container,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the help would repeat the names")]
pub enum SignalChoice {
    #[value(name = "INT", alias = "SIGINT")]
    Interrupt,
    #[value(name = "TERM", alias = "SIGTERM")]
    Terminate,
    #[value(name = "KILL", alias = "SIGKILL")]
    Kill,
}

impl From<SignalChoice> for KillSignal {
    fn from(signal: SignalChoice) -> Self {
        match signal {
            SignalChoice::Interrupt => Self::Interrupt,
            SignalChoice::Terminate => Self::Terminate,
            SignalChoice::Kill => Self::Kill,
        }
    }
}

/// Parses a PID that can be ended.
fn parse_killable_pid(typed: &str) -> Result<u32, String> {
    if typed.starts_with('-') {
        // kill(1) takes a signal like this: -9, -15.
        return Err("expected the number of a process; a signal is named by --signal TERM".into());
    }
    match parse_pid(typed) {
        Ok(0) => Err("there is no process 0".into()),
        number => number,
    }
}

/// Parses a size. The unit is required: a bare number means MiB to one person and GiB to
/// another, and a wrong guess ends the wrong processes.
fn parse_size(typed: &str) -> Result<Bytes, String> {
    const DIGITS: usize = 12;
    let expected = || "expected a size with its unit, like 4G or 512M".to_owned();
    let at = typed.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = at.map(|at| typed.split_at(at)).ok_or_else(expected)?;
    let shift: u32 = match unit.to_ascii_lowercase().as_str() {
        "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(expected()),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| {
        let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        (1..=DIGITS).contains(&text.len()) && all_digits
    };
    if !is_number(whole) || !is_number(part) {
        return Err(expected());
    }
    // A number of twelve digits fits into u128, and so does its shift by forty.
    let of = |text: &str| text.parse::<u128>().unwrap_or(0) << shift;
    let fraction = of(part) / 10_u128.pow(u32::try_from(part.len()).unwrap_or(0));
    match u64::try_from(of(whole) + fraction) {
        Ok(0) => Err("a size of 0 selects every process: use a size like 4G or 512M".into()),
        Ok(bytes) => Ok(Bytes(bytes)),
        Err(_) => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command, Deferred};
    use super::*;
    use clap::Parser as _;

    fn parse(line: &str) -> Result<Kill, String> {
        let line = format!("gpukillctl kill {line}");
        match Cli::try_parse_from(line.split_whitespace()) {
            Ok(Cli {
                command: Command::Kill(Deferred(kill)),
                ..
            }) => Ok(kill),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn signal_names_ignore_case_and_prefix() {
        for (typed, expected) in [
            ("INT", SignalChoice::Interrupt),
            ("sigint", SignalChoice::Interrupt),
            ("term", SignalChoice::Terminate),
            ("SigTerm", SignalChoice::Terminate),
            ("KILL", SignalChoice::Kill),
            ("SIGKILL", SignalChoice::Kill),
        ] {
            let kill = parse(&format!("7 --signal {typed}")).expect("it is right");
            assert_eq!(kill.signal, Some(expected), "{typed}");
        }
        for typed in ["9", "HUP", "SIG", ""] {
            assert!(parse(&format!("7 --signal={typed}")).is_err(), "{typed}");
        }
    }

    #[test]
    fn size_has_a_unit_and_is_not_zero() {
        for (typed, expected) in [
            ("4G", 4 << 30),
            ("4GiB", 4 << 30),
            ("4gb", 4 << 30),
            ("1.5G", 3 << 29),
            ("512M", 512 << 20),
            ("512MiB", 512 << 20),
            ("1T", 1 << 40),
            ("4294967296B", 1 << 32),
        ] {
            assert_eq!(parse_size(typed), Ok(Bytes(expected)), "{typed}");
        }
        for typed in [
            "",
            "4096",
            "G",
            "-4G",
            "+4G",
            "4 G",
            "4g5",
            "1e3M",
            ".5G",
            "5.G",
            "4X",
            "0x4G",
            "9999999999999G",
            "999999999999T",
            "٤G",
        ] {
            let expected = "expected a size with its unit, like 4G or 512M";
            assert_eq!(parse_size(typed), Err(expected.to_owned()), "{typed}");
        }
        for typed in ["0G", "0.0M"] {
            assert!(parse_size(typed).is_err(), "{typed}");
        }
    }

    #[test]
    fn invalid_pid_is_reported_with_the_value() {
        for typed in ["0", "-1", "-9", "python", "4294967296", "1.5", "7,8"] {
            let message = parse(&format!("7 {typed}")).expect_err("it is wrong");
            assert!(message.contains(&format!("'{typed}'")), "{message}");
        }
        assert_eq!(parse("7 8 7").map(|kill| kill.pids), Ok(vec![7, 8, 7]));
        for typed in ["0", "-9", "python", ""] {
            let message = parse(&format!("--pid 7,{typed}")).expect_err("it is wrong");
            assert!(message.contains(&format!("'{typed}'")), "{message}");
        }
        let pid = parse("--pid 7,8 --pid 7").map(|kill| kill.pid);
        assert_eq!(pid, Ok(vec![7, 8, 7]));
    }

    #[test]
    fn last_option_counts_and_conditions_are_given_once() {
        let kill =
            parse("7 --scope job --yes --yes --timeout-secs 9 --scope tree --timeout-secs 600");
        let kill = kill.expect("it is right");
        let expected = (ScopeChoice::Tree, Some(600));
        assert_eq!((kill.scope, kill.timeout_secs), expected);
        for line in [
            "--user a --user b",
            "--gpu 0 --gpu 1",
            "--job a --job b",
            "--filter=",
            "--command=",
            "--user=",
            "--gpu=",
            "--container=",
            "--image=",
            "--job=",
            "7 --timeout-secs 0",
            "7 --timeout-secs 601",
            "7 --scope box",
            "7 -o csv",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
