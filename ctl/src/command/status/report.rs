//! `status --report`: builds a bug report from the daemon's answers. Without an answer the report
//! has only the facts that the client knows.

use crate::command::{connect, now};
use crate::connect::{Daemon, RequestTimeout, call, choose_socket};
use crate::exit::{Error, Exit};
use crate::host_facts;
use crate::output::print_answer;
use crate::output::status::report::lines;
use crate::settings::Settings;
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::audit::ActionQuery;
use gpukill_proto::json::report::{
    ClientPart, DaemonPart, DevicePart, FailurePart, LEAVES_OUT, Printed, RecentPart,
    ReportDocument, rights,
};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::status::DaemonStatus;
use gpukill_proto::transport::ConnectError;

/// Maximum number of recent faults. More would make a report hard to read.
const MAX_RECENT_FAULTS: u32 = 50;

/// The age of recent faults, in seconds: one day.
const RECENT_FAULTS_SECONDS: i64 = 86_400;

/// Prints a report. If the daemon does not answer, the report states why, and the client ends with
/// that error.
pub(super) fn run(settings: &Settings) -> Result<Exit, Error> {
    let mut report = client_report(settings);
    let result = add_answers_or_failure(settings, &mut report);
    print_report(settings, &report)?;
    result.map(|()| Exit::Done)
}

/// Prints a report without the settings of the file and the environment, which have mistakes.
pub(in crate::command) fn run_without_settings(
    without: &Settings,
    mistakes: &Error,
) -> Result<(), Error> {
    let mut report = client_report(without);
    // A file that cannot be read counts as one mistake.
    report.client.settings_mistakes = 1;
    if let Error::Settings { mistakes, .. } = mistakes {
        report.client.settings_mistakes = mistakes.len() as u64;
    }
    // The report itself states why the daemon does not answer. The mistakes decide on the exit code.
    let _ = add_answers_or_failure(without, &mut report);
    print_report(without, &report)
}

/// Adds the daemon's answers, or the reason why it does not answer.
fn add_answers_or_failure(settings: &Settings, report: &mut ReportDocument) -> Result<(), Error> {
    let result = add_answers(settings, report);
    if let Err(failure) = &result {
        report.failure = Some(failure_part(failure));
    }
    result
}

fn print_report(settings: &Settings, report: &ReportDocument) -> Result<(), Error> {
    print_answer(settings, || report, |style| lines(report, style))
}

/// A report with the facts that the client knows without the daemon.
fn client_report(settings: &Settings) -> ReportDocument {
    let socket = choose_socket(settings.socket.as_deref()).ok();
    ReportDocument {
        schema: ReportDocument::SCHEMA,
        ts: Printed(now()),
        leaves_out: LEAVES_OUT,
        client: ClientPart {
            version: env!("CARGO_PKG_VERSION"),
            protocol: Printed(PROTOCOL_VERSION),
            settings: settings.non_defaults(),
            settings_mistakes: 0,
            rights: Vec::new(),
            log_in_again: false,
        },
        host: host_facts::host(),
        socket: host_facts::socket(settings.socket.as_deref(), socket.as_deref()),
        unit: host_facts::unit(),
        failure: None,
        daemon: None,
        devices: None,
        processes: None,
        recent_faults: None,
    }
}

/// Adds the daemon's answers. Only the status is required; other answers that fail are left out.
fn add_answers(settings: &Settings, report: &mut ReportDocument) -> Result<(), Error> {
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    let messages = settings.messages();
    let status = call!(daemon, timeout, Status {})?;
    report.client.rights = rights(&status.caller.rights);
    report.client.log_in_again = status.caller.log_in_again_for.is_some();
    report.daemon = Some(DaemonPart::from(&status));
    match daemon.snapshot(None, timeout) {
        Ok(annotated) => {
            let devices = annotated.snapshot.devices.iter().map(DevicePart::from);
            report.devices = Some(devices.collect());
            report.processes = Some(annotated.snapshot.processes.len() as u64);
        }
        Err(failure) => messages.debug(|| format!("no list: {failure}")),
    }
    match recent_faults(&daemon, &status, timeout) {
        Ok(faults) => report.recent_faults = Some(faults),
        Err(failure) => messages.debug(|| format!("no record of faults: {failure}")),
    }
    Ok(())
}

/// Recorded faults of the last day.
fn recent_faults(
    daemon: &Daemon,
    status: &DaemonStatus,
    timeout: RequestTimeout,
) -> Result<Vec<RecentPart>, Error> {
    let query = ActionQuery {
        since: status.now.plus_seconds(-RECENT_FAULTS_SECONDS),
        until: status.now.plus_seconds(1),
        kind: Some("fault,fault_over".into()),
        limit: MAX_RECENT_FAULTS,
        ..ActionQuery::default()
    };
    let page = call!(daemon, timeout, AuditActions { query })?;
    Ok(page.records.iter().map(RecentPart::from).collect())
}

/// Why the daemon does not answer, in a text without names.
fn failure_part(failure: &Error) -> FailurePart {
    let (mut error, mut protocol) = (None, None);
    let what = match failure {
        Error::NoDaemon(_) | Error::Connect(_, ConnectError::NoDaemon) => "nothing listens",
        Error::Connect(_, ConnectError::NotPermitted) => "the socket may not be opened",
        Error::Connect(_, ConnectError::Busy) | Error::Refused(Refusal::Busy) => "it is busy",
        Error::Connect(_, ConnectError::Version(version)) | Error::OlderDaemon(version) => {
            protocol = Some(Printed(*version));
            "it speaks another protocol"
        }
        Error::Connect(_, ConnectError::Refused(_)) => "it turns this client away",
        Error::Connect(_, ConnectError::NotGpukilld) => "the program at the socket is not gpukilld",
        Error::Connect(_, ConnectError::Io(why)) => {
            error = Some(Printed(why.kind()));
            "the connection fails"
        }
        Error::UnsafeSocket(..) => {
            "nothing listens, and others could have put a socket where one's own would be"
        }
        Error::TimedOut { .. } => "it did not answer in time",
        Error::ConnectionLost(_) => "the connection broke",
        Error::Refused(_) => "it refused to answer",
        Error::Usage(_)
        | Error::Settings { .. }
        | Error::SettingsFile(..)
        | Error::NothingPolled
        | Error::NoSuchDevice(_)
        | Error::NoSuchProcess(_)
        | Error::NoMatch(_)
        | Error::Vendor(_)
        | Error::NotDone { .. }
        | Error::System(_)
        | Error::Output(_)
        | Error::ReaderGone => "the client failed",
    };
    FailurePart {
        what,
        error,
        protocol,
        see: hint_command(failure),
        exit: failure.exit_code() as u8,
    }
}

/// A command that shows why nothing listens: the service may have failed, for example because of
/// mistakes in its settings.
fn hint_command(failure: &Error) -> Option<&'static str> {
    let nothing_listens = matches!(
        failure,
        Error::NoDaemon(_) | Error::Connect(_, ConnectError::NoDaemon) | Error::UnsafeSocket(..)
    );
    nothing_listens.then_some("systemctl status gpukilld")
}
