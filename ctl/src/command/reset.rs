//! `reset`: shows what would be done and what stands in the way, asks, has it
//! done, and tells what became of each GPU.

mod follow;

use super::follow::carry_out;
use super::{confirm, connect, looking};
use crate::args::Reset;
use crate::connect::{Daemon, Patience};
use crate::exit::{Exit, Failure};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::reset::{closing, planned, question};
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use follow::Followed;
use gpukill_policy::reset::success::{Success, refused, success};
use gpukill_proto::document::{ResetPlanDocument, ResetReportDocument};
use gpukill_proto::kill::{PlanId, Stage};
use gpukill_proto::reset::{ResetFate, ResetPlan, ResetReport, ResetRequest, Unblock};

/// How long each signal to a holder may take, as `kill` gives it by default.
const PATIENCE_MS: u64 = 5_000;

/// Does it, or says why not.
pub(crate) fn run(
    wanted: &Reset,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let request = ResetRequest {
        gpu: wanted.gpu.clone(),
        force: wanted.force,
        patience_ms: PATIENCE_MS,
        dry_run: wanted.dry_run,
    };
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    let (id, plan) = daemon.plan_reset(&request, looking(settings))?;
    if wanted.dry_run {
        show(&plan, settings)?;
        return Ok(match refused(&plan) {
            Success::Unsupported => Exit::NotSupported,
            // What stands in the way is what was asked for.
            Success::All | Success::Part | Success::Failed => Exit::Done,
        });
    }
    let Some(id) = id else {
        show(&plan, settings)?;
        return Err(nothing(&plan));
    };
    if !wanted.yes && !confirm::can_ask() {
        show(&plan, settings)?;
        return Err(Failure::NotDone {
            what: "nothing was reset: nobody can be asked here".into(),
            hint: Some("--yes does it without asking".into()),
            exit: Exit::BadUsage,
        });
    }
    let daemon = if wanted.yes {
        daemon
    } else {
        // The daemon hangs up on who is silent, and a person may take their time;
        // the plan outlasts the connection.
        drop(daemon);
        ask(&plan, settings, messages)?;
        connect(settings, Patience::lasting(settings.timeout), messages)?
    };
    end(daemon, id, settings, messages)
}

/// Carries a plan out, and prints what became of it.
fn end(
    daemon: Daemon,
    id: PlanId,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let report = carry_out(Followed::new(settings), daemon, id, settings, messages)?;
    match settings.output_format {
        Format::Json => print(&json::pretty(&ResetReportDocument::from(&report))?)?,
        // Only the settings can ask for forms that this command does not have. Each
        // GPU was told of when it was done.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&closing(&report, &look), &look)?;
        }
    }
    Ok(exit(&report))
}

/// How a reset ends the run.
fn exit(report: &ResetReport) -> Exit {
    match (report.stage, Exit::from(success(report))) {
        // Those that are not settled are missing.
        (Stage::Interrupted, Exit::Done | Exit::PartlyDone) => Exit::PartlyDone,
        (Stage::Interrupted, _) => Exit::Failed,
        (Stage::Done | Stage::Ending | Stage::Releasing, exit) => exit,
    }
}

impl From<Success> for Exit {
    fn from(success: Success) -> Self {
        match success {
            Success::All => Self::Done,
            Success::Part => Self::PartlyDone,
            Success::Unsupported => Self::NotSupported,
            Success::Failed => Self::Failed,
        }
    }
}

/// Why nothing of this plan can be carried out, and what helps.
fn nothing(plan: &ResetPlan) -> Failure {
    let blocked = plan.devices.iter();
    let blocked = blocked.filter(|target| target.fate == ResetFate::Blocked);
    let mut blockers = blocked.flat_map(|target| &target.blockers);
    let is_forceable = !plan.request.force
        && blockers.any(|blocker| match blocker.remedy {
            Unblock::Force => true,
            Unblock::Daemon | Unblock::Person => false,
        });
    Failure::NotDone {
        what: "nothing was reset".into(),
        hint: is_forceable.then(|| "--force ends the processes that hold it first".into()),
        exit: refused(plan).into(),
    }
}

/// Prints a plan to stdout.
fn show(plan: &ResetPlan, settings: &Settings) -> Result<(), Failure> {
    match settings.output_format {
        Format::Json => print(&json::pretty(&ResetPlanDocument::from(plan))?),
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&planned(plan, &look), &look)
        }
    }
}

/// Asks; a no is a failure, for what was wanted is not done.
fn ask(plan: &ResetPlan, settings: &Settings, messages: Messages) -> Result<(), Failure> {
    // Whoever answers must have seen what about.
    let look = Look {
        color: false,
        ..Look::of_stdout(settings)
    };
    match settings.output_format {
        Format::Json => {
            for line in planned(plan, &look) {
                messages.of_a_question(&line.paint(&look));
            }
        }
        Format::Table | Format::Ndjson | Format::Csv => show(plan, settings)?,
    }
    if confirm::agreed(&question(plan)) {
        return Ok(());
    }
    Err(Failure::NotDone {
        what: "nothing was reset".into(),
        hint: None,
        exit: Exit::Failed,
    })
}
