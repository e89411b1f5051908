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

pub(crate) mod holders;

pub(crate) mod kill;

pub(crate) mod reset;

pub(crate) mod list;

pub(crate) mod forget;

pub(crate) mod quiesce;

pub(crate) mod resume;

pub(crate) mod status;

use crate::args::Command;
use crate::connect::{Daemon, Patience, choose};
use crate::exit::{Exit, Failure};
use crate::output::message::Messages;
use crate::settings::Settings;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Does what the command says.
pub(crate) fn run(
    command: &Command,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    runtime()?.block_on(async {
        match command {
            Command::List(list) => list::run(list, settings, messages).await,
            Command::Status(status) => status::run(status, settings, messages).await,
            Command::Holders(holders) => holders::run(holders, settings, messages).await,
            Command::Explain(explain) => explain::run(explain, settings, messages).await,
            Command::Kill(wanted) => kill::run(wanted, settings, messages).await,
            Command::Reset(wanted) => reset::run(wanted, settings, messages).await,
            Command::Audit(audit) => audit::run(audit, settings, messages).await,
            Command::Guard(wanted) => guard::run(wanted, settings, messages).await,
            Command::Rogue(wanted) => rogue::run(wanted, settings, messages).await,
            Command::Quiesce(wanted) => quiesce::run(wanted, settings, messages).await,
            Command::Forget(wanted) => forget::run(wanted, settings, messages).await,
            Command::Resume => resume::run(settings, messages).await,
            Command::Completions(wanted) => completions::run(wanted),
        }
    })
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
    let made = runtime().and_then(|it| it.block_on(status::report_despite(&without, &failure)));
    match made {
        Ok(()) => failure,
        Err(unmade) => unmade,
    }
}

fn runtime() -> Result<Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(Failure::System)
}

/// A connection to the daemon of the settings.
async fn connect(
    settings: &Settings,
    patience: Patience,
    messages: Messages,
) -> Result<Daemon, Failure> {
    let socket = choose(settings.socket.as_deref())?;
    Daemon::connect(&socket, patience, messages).await
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
