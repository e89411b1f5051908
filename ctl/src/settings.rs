//! The settings of a run: flags over environment over file over defaults.
//!
//! [`resolve`] decides and has no side effects; `load` reads the file and the variables.

mod load;
mod non_defaults;

pub(crate) use load::load;

use crate::args::{Cli, Command, StatusFormat};
use crate::output::list::columns::{NamedColumn, parse_columns};
use crate::output::list::gpus::columns::GpuColumn;
use crate::output::list::processes::columns::ProcessColumn;
use clap::ValueEnum;
use gpukill_proto::setting_keys;
use gpukill_proto::settings::{SettingMistake, apply_environment, apply_file, value};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The log level on stderr.
    pub log_level: LogLevel,
    /// The output format, for commands that have it.
    pub output_format: Format,
    /// When to use colours.
    pub colors: Colors,
    /// The width of tables; `None` for the terminal's.
    pub table_width: Option<usize>,
    /// How long `kill` waits after each signal.
    pub signal_timeout: Duration,
    /// How long a command waits for the daemon.
    pub timeout: Duration,
    /// Maximum number of processes for each GPU in a table; 0 for all.
    pub max_processes: usize,
    /// The shortest time between two frames.
    pub watch_interval: Duration,
    /// Whether `list` shows processes instead of GPUs.
    pub show_details: bool,
    /// Whether `list` shows the caller's processes only.
    pub only_mine: bool,
    /// The order of `list`; `None` for the order of the devices.
    pub list_sort: Option<SortKey>,
    /// The columns of `list`, as for [`parse_columns`]; `None` for the default ones.
    pub list_columns: Option<String>,
    /// The columns of `list --details`, likewise.
    pub details_columns: Option<String>,
    /// The daemon's socket; `None` for the usual paths.
    pub socket: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            log_level: LogLevel::Info,
            output_format: Format::Table,
            colors: Colors::Auto,
            table_width: None,
            signal_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            max_processes: 10,
            watch_interval: Duration::from_secs(2),
            show_details: false,
            only_mine: false,
            list_sort: None,
            list_columns: None,
            details_columns: None,
            socket: None,
        }
    }
}

/// The log level on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Errors only
    Error,
    /// Also hints and warnings
    Warn,
    /// Also the reason for a long wait, on a terminal
    Info,
    /// Also each step
    Debug,
    /// As debug
    Trace,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// One document
    Json,
    /// One object on each line
    Ndjson,
    /// Comma-separated, with a header
    Csv,
}

/// The order of the rows of `list`. Rows without the value come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// Memory in use
    Memory,
    /// Utilization
    Util,
    /// Temperature of a GPU
    Temp,
    /// Power draw of a GPU
    Power,
    /// Number of processes of a GPU
    Procs,
    /// Name of a GPU, or of a process, in alphabetical order
    Name,
    /// User of a process, in alphabetical order
    User,
    /// PID, the lowest first
    Pid,
    /// Time of a process on its GPU
    Time,
    /// Time since a process used its GPU
    Idle,
    /// Processor time of a process
    Cpu,
}

impl From<StatusFormat> for Format {
    fn from(format: StatusFormat) -> Self {
        match format {
            StatusFormat::Table => Self::Table,
            StatusFormat::Json => Self::Json,
        }
    }
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colors {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Allowed values of flags and settings.
pub(crate) mod bounds {
    use super::RangeInclusive;
    use gpukill_proto::kill::MAX_SIGNAL_TIMEOUT_MS;
    use gpukill_proto::service::MAX_QUIESCE;

    /// Fewer than 20 columns do not fit a name and a number.
    pub(crate) const WIDTH: RangeInclusive<u64> = 20..=1000;
    /// The daemon waits no longer after a signal.
    pub(crate) const SIGNAL_TIMEOUT: RangeInclusive<u64> = 1..=MAX_SIGNAL_TIMEOUT_MS / 1000;
    /// No boot takes longer than an hour.
    pub(crate) const REQUEST_TIMEOUT: RangeInclusive<u64> = 1..=3600;
    /// Frames a day apart are as good as none.
    pub(crate) const WATCH: RangeInclusive<u64> = 1..=86_400;
    /// A day is the longest that the daemon accepts.
    pub(crate) const QUIESCE_MINUTES: RangeInclusive<u64> = 1..=MAX_QUIESCE.as_secs() / 60;
    /// More than the default number of pids of a kernel (4194304).
    pub(crate) const PROCESSES: RangeInclusive<u64> = 0..=10_000_000;
    /// Those that need no rights.
    pub(crate) const PORT: RangeInclusive<u64> = 1_024..=65_535;
}

fn parse_seconds(value: &toml::Value, bounds: RangeInclusive<u64>) -> Result<Duration, String> {
    value::number(value, *bounds.start(), *bounds.end()).map(Duration::from_secs)
}

fn parse_count(value: &toml::Value, bounds: RangeInclusive<u64>) -> Result<usize, String> {
    value::number(value, *bounds.start(), *bounds.end()).map(usize_or_max)
}

/// On a machine with shorter pointers the greatest size will do.
fn usize_or_max(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn parse_choice<T: ValueEnum>(value: &toml::Value) -> Result<T, String> {
    let text = value::text(value)?;
    T::from_str(&text, false).map_err(|_| {
        let names: Vec<String> = T::value_variants()
            .iter()
            .filter_map(|variant| Some(variant.to_possible_value()?.get_name().to_owned()))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        value::choice_error(value, &names)
    })
}

/// The names of columns, checked.
fn columns_text<C: NamedColumn>(value: &toml::Value) -> Result<String, String> {
    let text = value::text(value)?;
    parse_columns::<C>(&text).map(|_| text)
}

setting_keys! {
    /// Every key of the file and its environment variable.
    pub(crate) const KEYS: Settings;

    [""]
    log_level GPUKILL_LOG_LEVEL = "\"info\"",
        "How much to say on stderr: error, warn, info, debug, trace.",
        |s, v| parse_choice(v).map(|level| s.log_level = level);
    output_format GPUKILL_OUTPUT_FORMAT = "\"table\"",
        "table, json, ndjson or csv; a command that lacks it prints a table.",
        |s, v| parse_choice(v).map(|format| s.output_format = format);
    use_colors GPUKILL_USE_COLORS = "true",
        "true: colour on a terminal, unless NO_COLOR is set; false: never.",
        |s, v| {
            let wanted = value::boolean(v)?;
            s.colors = if wanted { Colors::Auto } else { Colors::Never };
            Ok(())
        };
    table_width GPUKILL_TABLE_WIDTH = "",
        "The width of tables, in columns; without it the terminal's.",
        |s, v| parse_count(v, bounds::WIDTH).map(|width| s.table_width = Some(width));
    default_timeout_secs GPUKILL_DEFAULT_TIMEOUT = "5",
        "How long kill waits after each signal, in seconds.",
        |s, v| parse_seconds(v, bounds::SIGNAL_TIMEOUT).map(|time| s.signal_timeout = time);
    request_timeout_secs GPUKILL_REQUEST_TIMEOUT = "5",
        "How long to wait for the daemon, in seconds.",
        |s, v| parse_seconds(v, bounds::REQUEST_TIMEOUT).map(|time| s.timeout = time);
    max_processes_summary GPUKILL_MAX_PROCESSES = "10",
        "Processes for each GPU in a table; 0 shows all.",
        |s, v| parse_count(v, bounds::PROCESSES).map(|n| s.max_processes = n);
    watch_interval_secs GPUKILL_WATCH_INTERVAL = "2",
        "The shortest time between two frames of list --watch, in seconds.",
        |s, v| parse_seconds(v, bounds::WATCH).map(|time| s.watch_interval = time);
    show_details GPUKILL_SHOW_DETAILS = "false",
        "Let list show processes instead of GPUs.",
        |s, v| value::boolean(v).map(|wanted| s.show_details = wanted);
    only_mine GPUKILL_ONLY_MINE = "false",
        "Let list show your own processes only.",
        |s, v| value::boolean(v).map(|wanted| s.only_mine = wanted);
    list_sort GPUKILL_LIST_SORT = "",
        "The order of list: memory, util, user and others; without it by GPU.",
        |s, v| parse_choice(v).map(|key| s.list_sort = Some(key));
    list_columns GPUKILL_LIST_COLUMNS = "",
        "The columns of list: \"gpu,name,fan\", or \"+fan\" to add to the usual ones.",
        |s, v| columns_text::<GpuColumn>(v).map(|text| s.list_columns = Some(text));
    details_columns GPUKILL_DETAILS_COLUMNS = "",
        "The columns of list --details, likewise.",
        |s, v| columns_text::<ProcessColumn>(v).map(|text| s.details_columns = Some(text));
    socket GPUKILL_SOCKET = "",
        "The daemon's socket; by default that of the host, then your own.",
        |s, v| value::text(v).map(|path| s.socket = Some(path.into()));
}

/// The description of a setting for the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingDoc {
    /// The environment variable.
    pub variable: &'static str,
    /// The key in the file.
    pub key: &'static str,
    /// The default in TOML; empty if there is none to write.
    pub default: &'static str,
    /// The help text.
    pub help: &'static str,
}

/// Every setting, in the order of the table.
pub fn setting_docs() -> impl Iterator<Item = SettingDoc> {
    KEYS.iter().map(|key| SettingDoc {
        variable: key.variable,
        key: key.name,
        default: key.default,
        help: key.help,
    })
}

/// Resolves the settings of this run, or returns every mistake in the file and the environment.
pub(crate) fn resolve(
    cli: &Cli,
    environment: impl IntoIterator<Item = (String, String)>,
    file: Option<&str>,
) -> Result<Settings, Vec<SettingMistake>> {
    let mut settings = Settings::default();
    let mut mistakes = file.map_or_else(Vec::new, |text| apply_file(KEYS, text, &mut settings));
    mistakes.extend(apply_environment(KEYS, None, environment, &mut settings));
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    settings.apply_flags(cli);
    Ok(settings)
}

impl From<&Cli> for Settings {
    /// The settings from flags alone, over the defaults.
    fn from(cli: &Cli) -> Self {
        let mut settings = Self::default();
        settings.apply_flags(cli);
        settings
    }
}

impl Settings {
    fn apply_flags(&mut self, cli: &Cli) {
        let globals = &cli.globals;
        replace(&mut self.log_level, globals.log_level);
        replace(&mut self.colors, globals.color);
        let width = globals.width.map(usize_or_max);
        replace(&mut self.table_width, width.map(Some));
        replace(&mut self.timeout, seconds(globals.request_timeout));
        replace(&mut self.socket, globals.socket.clone().map(Some));
        let output_format = match &cli.command {
            Command::List(list) => {
                let max_processes = list.max_processes.map(usize_or_max);
                replace(&mut self.max_processes, max_processes);
                replace(&mut self.watch_interval, seconds(list.watch.flatten()));
                self.show_details = list.details || (self.show_details && !list.no_details);
                let only_mine = list.mine.or(list.user.as_ref().map(|_| false));
                replace(&mut self.only_mine, only_mine);
                replace(&mut self.list_sort, list.sort.map(Some));
                replace(&mut self.list_columns, list.columns.clone().map(Some));
                replace(&mut self.details_columns, list.columns.clone().map(Some));
                list.output
            }
            Command::Status(status) => status.output.map(Format::from),
            Command::Holders(holders) => holders.output.map(Format::from),
            Command::Kill(kill) => {
                replace(&mut self.signal_timeout, seconds(kill.timeout_secs));
                kill.output.map(Format::from)
            }
            Command::Reset(reset) => reset.output.map(Format::from),
            Command::Explain(explain) => explain.output.map(Format::from),
            Command::Audit(audit) => audit.output(),
            Command::Guard(guard) => guard.output().map(Format::from),
            Command::Rogue(rogue) => rogue.output().map(Format::from),
            Command::Quiesce(_)
            | Command::Resume
            | Command::Forget(_)
            | Command::Web(_)
            | Command::Completions(_) => None,
        };
        replace(&mut self.output_format, output_format);
    }
}

/// Replaces a setting by a flag, if it was typed.
fn replace<T>(setting: &mut T, flag: Option<T>) {
    if let Some(flag) = flag {
        *setting = flag;
    }
}

fn seconds(typed: Option<u64>) -> Option<Duration> {
    typed.map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
