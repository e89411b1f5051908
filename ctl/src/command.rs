//! The commands, one file each: ask the daemon, judge the answer, hand it to
//! `output`.

pub(crate) mod audit;

pub(crate) mod completions;

mod confirm;

mod follow;

pub(crate) mod explain;

pub(crate) mod guard;

pub(crate) mod rogue;

mod rules;

mod signals;

pub(crate) mod holders;

pub(crate) mod kill;

pub(crate) mod reset;

pub(crate) mod list;

pub(crate) mod forget;

pub(crate) mod quiesce;

pub(crate) mod resume;

pub(crate) mod status;

use crate::args::Command;
use crate::connect::{Daemon, Meanwhile, Nothing, Patience, choose};
use crate::exit::{Exit, Failure};
use crate::output::message::Messages;
use crate::settings::Settings;
use std::time::Duration;

/// Does what the command says.
pub(crate) fn run(
    command: &Command,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    match command {
        Command::List(list) => list::run(list, settings, messages),
        Command::Status(status) => status::run(status, settings, messages),
        Command::Holders(holders) => holders::run(holders, settings, messages),
        Command::Explain(explain) => explain::run(explain, settings, messages),
        Command::Kill(wanted) => kill::run(wanted, settings, messages),
        Command::Reset(wanted) => reset::run(wanted, settings, messages),
        Command::Audit(audit) => audit::run(audit, settings, messages),
        Command::Guard(wanted) => guard::run(wanted, settings, messages),
        Command::Rogue(wanted) => rogue::run(wanted, settings, messages),
        Command::Quiesce(wanted) => quiesce::run(wanted, settings, messages),
        Command::Forget(wanted) => forget::run(wanted, settings, messages),
        Command::Resume => resume::run(settings, messages),
        Command::Completions(wanted) => completions::run(wanted),
    }
}

/// How a command ends whose settings have mistakes: with those. A report is made without
/// them, for they may be what it is about.
pub(crate) fn despite(command: &Command, without: Settings, failure: Failure) -> Failure {
    let Command::Status(status) = command else {
        return failure;
    };
    if !status.report {
        return failure;
    }
    match status::report_despite(&without, &failure) {
        Ok(()) => failure,
        Err(unmade) => unmade,
    }
}

/// A connection to the daemon of the settings.
fn connect(settings: &Settings, patience: Patience, messages: Messages) -> Result<Daemon, Failure> {
    connect_while(settings, patience, messages, &mut Nothing)
}

/// The same, with something to do while it is waited for.
fn connect_while(
    settings: &Settings,
    patience: Patience,
    messages: Messages,
    meanwhile: &mut dyn Meanwhile,
) -> Result<Daemon, Failure> {
    let socket = choose(settings.socket.as_deref())?;
    Daemon::connect(&socket, patience, messages, meanwhile)
}

/// How long a look at all processes may take: on a box of ten thousand, of which
/// some answer slowly, seconds.
const LOOKING: Duration = Duration::from_secs(15);

/// The patience for a call before which the daemon looks at all processes.
fn looking(settings: &Settings) -> Patience {
    Patience::lasting(settings.timeout.max(LOOKING))
}

/// The wall clock.
fn now() -> gpukill_proto::units::Timestamp {
    std::time::SystemTime::now().into()
}
