//! Has a plan carried out, follows it, and tells of each GPU when it is done. It
//! is the daemon's: it goes on whatever becomes of this client.

use super::super::connect;
use crate::connect::{Daemon, Patience, is_over};
use crate::exit::{Exit, Failure};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::print_lines;
use crate::output::reset::done;
use crate::settings::{Format, Settings};
use gpukill_proto::kill::{OperationId, PlanId};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::ResetReport;
use gpukill_proto::service::LONGEST_WAIT;
use std::time::Duration;

/// What to do when it cannot be followed.
const SEE: &str = "see how they stand: gpukillctl list";

/// A daemon that has nothing new to say waits before it says so; one that does
/// not is not asked faster than this.
const BETWEEN_ANSWERS: Duration = Duration::from_millis(50);

/// Carries a plan out, and follows it to its end.
pub(super) async fn carry_out(
    plan: PlanId,
    settings: &Settings,
    messages: Messages,
) -> Result<ResetReport, Failure> {
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages).await?;
    let operation = match daemon.reset(plan, patience).await {
        Err(Failure::Refused(Refusal::Expired)) => Err(Failure::NotDone {
            what: "that took too long, and nothing was reset: gpukilld keeps a plan for ten \
                   minutes"
                .into(),
            hint: Some("try again".into()),
            exit: Exit::Failed,
        }),
        began => began,
    }?;
    let mut told = 0;
    match follow(&daemon, operation, &mut told, settings).await {
        Err(failure @ (Failure::Broken(_) | Failure::TimedOut { .. })) => {
            messages.warn(&format!("{failure}; it goes on there: asking again"));
            let patience = Patience::lasting(settings.timeout);
            let daemon = connect(settings, patience, messages).await.map_err(lost)?;
            follow(&daemon, operation, &mut told, settings).await
        }
        report => report,
    }
    .map_err(lost)
}

async fn follow(
    daemon: &Daemon,
    operation: OperationId,
    told: &mut usize,
    settings: &Settings,
) -> Result<ResetReport, Failure> {
    let mut after = None;
    loop {
        // As long as the daemon may take, and as it may be late.
        let patience = Patience::lasting(LONGEST_WAIT * 2);
        let report = daemon.follow_reset(operation, after, patience).await?;
        tell(&report, told, settings)?;
        if is_over(report.stage) {
            return Ok(report);
        }
        if after == Some(report.version) {
            tokio::time::sleep(BETWEEN_ANSWERS).await;
        }
        after = Some(report.version);
    }
}

/// Tells of those that are new, to people.
fn tell(report: &ResetReport, told: &mut usize, settings: &Settings) -> Result<(), Failure> {
    let new = report.outcomes.iter().skip(*told);
    *told = report.outcomes.len();
    match settings.output_format {
        Format::Json => Ok(()),
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            let lines: Vec<_> = new.flat_map(|outcome| done(outcome, &look)).collect();
            print_lines(&lines, &look)
        }
    }
}

/// What became of it cannot be had.
fn lost(failure: Failure) -> Failure {
    let exit = match failure {
        Failure::Output(_) | Failure::ReaderGone => return failure,
        _ => failure.exit(),
    };
    Failure::NotDone {
        what: format!("{failure}: what became of the GPUs is not known"),
        hint: Some(SEE.into()),
        exit,
    }
}
