//! `status --report`: what a report of a bug needs, put together from the daemon's
//! answers, or from what the client sees alone where there are none.

use crate::command::{connect, now};
use crate::connect::{Daemon, Patience, choose};
use crate::exit::{Exit, Failure};
use crate::here;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::report::lines;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::audit::ActionQuery;
use gpukill_proto::document::report::{
    ClientPart, DaemonPart, DevicePart, FailurePart, LEAVES_OUT, Printed, RecentPart,
    ReportDocument, rights,
};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::status::Status;
use gpukill_proto::transport::ConnectError;

/// So many faults of the past are told at most.
const MOST_RECENT: u32 = 50;

/// How far back they lie, in seconds.
const RECENTLY: i64 = 86_400;

/// Asks what there is to ask, and prints it. Where the daemon does not answer, that is
/// told, and is how it ends.
pub(super) fn run(settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    let mut report = by_the_client(settings);
    let asked = answered(settings, messages, &mut report);
    show(settings, &report)?;
    asked.map(|()| Exit::Done)
}

/// The same without the settings of the file and the environment, which have mistakes.
pub(in crate::command) fn despite(without: &Settings, mistakes: &Failure) -> Result<(), Failure> {
    let mut report = by_the_client(without);
    // A file that cannot be read is one.
    report.client.settings_mistakes = 1;
    if let Failure::Settings { mistakes, .. } = mistakes {
        report.client.settings_mistakes = mistakes.len() as u64;
    }
    // It says itself why there is no answer; how all ends, the mistakes say.
    let _ = answered(without, Messages::default(), &mut report);
    show(without, &report)
}

/// Adds what the daemon tells, or why it tells nothing.
fn answered(
    settings: &Settings,
    messages: Messages,
    report: &mut ReportDocument,
) -> Result<(), Failure> {
    let asked = ask(settings, messages, report);
    if let Err(failure) = &asked {
        report.failure = Some(part(failure));
    }
    asked
}

fn show(settings: &Settings, report: &ReportDocument) -> Result<(), Failure> {
    match settings.output_format {
        Format::Json => print(&json::pretty(report)?),
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&lines(report, &look), &look)
        }
    }
}

/// All that is known without the daemon.
fn by_the_client(settings: &Settings) -> ReportDocument {
    let socket = choose(settings.socket.as_deref()).ok();
    ReportDocument {
        schema: ReportDocument::SCHEMA,
        ts: Printed(now()),
        leaves_out: LEAVES_OUT,
        client: ClientPart {
            version: env!("CARGO_PKG_VERSION"),
            protocol: Printed(PROTOCOL_VERSION),
            settings: settings.changed(),
            settings_mistakes: 0,
            rights: Vec::new(),
            log_in_again: false,
        },
        host: here::host(),
        socket: here::socket(settings.socket.as_deref(), socket.as_deref()),
        unit: here::unit(),
        failure: None,
        daemon: None,
        devices: None,
        processes: None,
        recent_faults: None,
    }
}

/// Adds what the daemon tells. What of it cannot be had, but for its status, is left
/// out.
fn ask(
    settings: &Settings,
    messages: Messages,
    report: &mut ReportDocument,
) -> Result<(), Failure> {
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    let status = daemon.status(patience)?;
    report.client.rights = rights(&status.caller.rights);
    report.client.log_in_again = status.caller.log_in_again_for.is_some();
    report.daemon = Some(DaemonPart::from(&status));
    match daemon.snapshot(None, patience) {
        Ok(sight) => {
            let devices = sight.snapshot.devices.iter().map(DevicePart::from);
            report.devices = Some(devices.collect());
            report.processes = Some(sight.snapshot.processes.len() as u64);
        }
        Err(failure) => messages.debug(|| format!("no list: {failure}")),
    }
    match recent(&daemon, &status, patience) {
        Ok(faults) => report.recent_faults = Some(faults),
        Err(failure) => messages.debug(|| format!("no record of faults: {failure}")),
    }
    Ok(())
}

/// The faults that the record has of the last day.
fn recent(
    daemon: &Daemon,
    status: &Status,
    patience: Patience,
) -> Result<Vec<RecentPart>, Failure> {
    let query = ActionQuery {
        since: status.now.plus_seconds(-RECENTLY),
        until: status.now.plus_seconds(1),
        user: None,
        kind: Some("fault,fault_over".into()),
        gpu: None,
        before: None,
        limit: MOST_RECENT,
    };
    let page = daemon.audit_actions(&query, patience)?;
    Ok(page.records.iter().map(RecentPart::from).collect())
}

/// Why there is no answer, in words that name nobody.
fn part(failure: &Failure) -> FailurePart {
    let (mut error, mut protocol) = (None, None);
    let what = match failure {
        Failure::NoDaemon(_) | Failure::Connect(_, ConnectError::NoDaemon) => "nothing listens",
        Failure::Connect(_, ConnectError::NotPermitted) => "the socket may not be opened",
        Failure::Connect(_, ConnectError::Busy) | Failure::Refused(Refusal::Busy) => "it is busy",
        Failure::Connect(_, ConnectError::Version(version)) | Failure::OlderDaemon(version) => {
            protocol = Some(Printed(*version));
            "it speaks another protocol"
        }
        Failure::Connect(_, ConnectError::TurnedAway(_)) => "it turns this client away",
        Failure::Connect(_, ConnectError::NotGpukilld) => "what answers is no gpukilld",
        Failure::Connect(_, ConnectError::Io(why)) => {
            error = Some(Printed(why.kind()));
            "the connection fails"
        }
        Failure::UnsafeSocket(..) => {
            "nothing listens, and others could have put a socket where one's own would be"
        }
        Failure::TimedOut { .. } => "it did not answer in time",
        Failure::Broken(_) => "the connection broke",
        Failure::Refused(_) => "it refused to answer",
        Failure::Usage(_)
        | Failure::Settings { .. }
        | Failure::SettingsFile(..)
        | Failure::NothingPolled
        | Failure::NoSuchDevice(_)
        | Failure::NoSuchProcess(_)
        | Failure::NoMatch(_)
        | Failure::Vendor(_)
        | Failure::NotDone { .. }
        | Failure::System(_)
        | Failure::Output(_)
        | Failure::ReaderGone => "the client failed",
    };
    FailurePart {
        what,
        error,
        protocol,
        see: see(failure),
        exit: failure.exit() as u8,
    }
}

/// What tells why nothing listens: the service may have failed, as for mistakes in its
/// settings.
fn see(failure: &Failure) -> Option<&'static str> {
    let is_nobody_there = matches!(
        failure,
        Failure::NoDaemon(_)
            | Failure::Connect(_, ConnectError::NoDaemon)
            | Failure::UnsafeSocket(..)
    );
    is_nobody_there.then_some("systemctl status gpukilld")
}
