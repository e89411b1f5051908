//! The commands, one file each but for the smallest. A command asks the daemon, evaluates the
//! answer and hands it to `output`.

pub(crate) mod audit;
mod confirm;
mod driver;
pub(crate) mod explain;
mod follow;
pub(crate) mod guard;
pub(crate) mod holders;
pub(crate) mod kill;
pub(crate) mod list;
pub(crate) mod reset;
pub(crate) mod rogue;
mod rules;
mod signals;
pub(crate) mod status;
mod web;

use crate::args::{Command, Completions, command, completions};
use crate::connect::{Daemon, RequestTimeout, WaitHooks, call, choose_socket};
use crate::exit::{Error, Exit};
use crate::output::print;
use crate::output::spinner::Spinner;
use crate::output::status::log_in_again_text;
use crate::settings::Settings;
use gpukill_proto::refusal::Refusal;
use std::time::Duration;

pub(crate) fn run(command: &Command, settings: &Settings) -> Result<Exit, Error> {
    let result = match command {
        Command::List(list) => list::run(list, settings),
        Command::Status(status) => status::run(status, settings),
        Command::Holders(holders) => holders::run(holders, settings),
        Command::Explain(explain) => explain::run(explain, settings),
        Command::Kill(wanted) => kill::run(wanted, settings),
        Command::Reset(wanted) => reset::run(wanted, settings),
        Command::Audit(audit) => audit::run(audit, settings),
        Command::Guard(wanted) => guard::run(wanted, settings),
        Command::Rogue(wanted) => rogue::run(wanted, settings),
        Command::Quiesce(wanted) => driver::quiesce(wanted, settings),
        Command::Forget(wanted) => driver::forget(wanted, settings),
        Command::Resume => driver::resume(settings),
        Command::Web(wanted) => web::run(wanted, settings),
        Command::Completions(wanted) => print_completions(wanted),
    };
    result.map_err(|failure| explain_refusal(failure, settings))
}

/// A refusal to a person who was added to a group and has not logged in again since says so, if
/// members of a group may do what was refused.
fn explain_refusal(failure: Error, settings: &Settings) -> Error {
    const IN_GROUP: &str = "in group ";
    let hint = if let Error::Refused(refusal @ Refusal::Denied { .. }) = &failure {
        refusal.hint()
    } else if let Error::NotDone {
        hint,
        exit: Exit::NotPermitted,
        ..
    } = &failure
    {
        hint.clone()
    } else {
        None
    };
    let Some(ask) = hint.filter(|hint| hint.contains(IN_GROUP)) else {
        return failure;
    };
    let timeout = settings.request_timeout();
    // The refusal is the answer, also without this hint.
    let status = connect(settings, timeout).and_then(|daemon| call!(daemon, timeout, Status {}));
    match status
        .ok()
        .and_then(|status| status.caller.log_in_again_for)
    {
        Some(group) => {
            let is_end = |c: char| [' ', ',', ';'].contains(&c);
            let mut groups = ask.split(IN_GROUP).skip(1);
            let names_it = groups.any(|rest| rest.split(is_end).next() == Some(group.as_str()));
            let again = log_in_again_text(&group);
            Error::NotDone {
                what: failure.to_string(),
                // Other groups that the person was added to are not known here.
                hint: Some(match names_it {
                    true => again,
                    false => format!("{ask}; {again}"),
                }),
                exit: Exit::NotPermitted,
            }
        }
        None => failure,
    }
}

pub(crate) fn print_completions(wanted: &Completions) -> Result<Exit, Error> {
    print(&completions(wanted.shell, &command()))?;
    Ok(Exit::Done)
}

/// Handles a command when the settings have mistakes: it ends with these mistakes. Only `status
/// --report` still prints its report, because the settings may be the subject of the report.
pub(crate) fn run_without_settings(command: &Command, without: Settings, failure: Error) -> Error {
    let Command::Status(status) = command else {
        return failure;
    };
    if !status.report {
        return failure;
    }
    match status::report_without_settings(&without, &failure) {
        Ok(()) => failure,
        Err(error) => error,
    }
}

impl Settings {
    /// The timeout of a request that starts now.
    fn request_timeout(&self) -> RequestTimeout {
        RequestTimeout::starting_now(self.timeout)
    }
}

/// Connects to the daemon that the settings name.
fn connect(settings: &Settings, timeout: RequestTimeout) -> Result<Daemon, Error> {
    let line = &mut Spinner::waiting_for_daemon(settings.messages());
    connect_with_hooks(settings, timeout, line)
}

/// Connects, with a timeout of its own.
fn open_connection(settings: &Settings) -> Result<Daemon, Error> {
    connect(settings, settings.request_timeout())
}

/// Connects with hooks for the time of waiting.
fn connect_with_hooks(
    settings: &Settings,
    timeout: RequestTimeout,
    hooks: &mut dyn WaitHooks,
) -> Result<Daemon, Error> {
    let socket = choose_socket(settings.socket.as_deref())?;
    Daemon::connect(&socket, timeout, settings.messages(), hooks)
}

/// Timeout of a call that makes the daemon scan all processes. On a host with ten thousand
/// processes, some of which answer slowly, the scan takes seconds.
const SCAN_TIMEOUT: Duration = Duration::from_secs(15);

/// The timeout of a call before which the daemon scans all processes.
fn scan_timeout(settings: &Settings) -> RequestTimeout {
    RequestTimeout::starting_now(settings.timeout.max(SCAN_TIMEOUT))
}

/// The line on the terminal for such a call.
fn scan_line(settings: &Settings) -> Option<Spinner> {
    Spinner::waiting_for("a scan of all processes", settings)
}

fn now() -> gpukill_proto::units::Timestamp {
    std::time::SystemTime::now().into()
}
