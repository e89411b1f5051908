//! `reset`: shows the plan, asks, carries it out, and reports the outcome of each GPU.

mod follow;

use super::follow::{carry_out, final_exit};
use super::{confirm, open_connection, scan_line, scan_timeout};
use crate::args::Reset;
use crate::connect::{Daemon, call};
use crate::exit::{Error, Exit};
use crate::output::message::question_subject;
use crate::output::print_answer;
use crate::output::reset::{closing_lines, plan_lines, question};
use crate::output::style::OutputStyle;
use crate::settings::{Format, Settings};
use follow::FollowedReset;
use gpukill_policy::reset::outcome::{ResetCompletion, completion, refused_completion};
use gpukill_proto::json::{ResetPlanDocument, ResetReportDocument};
use gpukill_proto::kill::PlanId;
use gpukill_proto::reset::{PlannedReset, ResetPlan, ResetRequest, Unblocker};

/// Signal timeout for holders; the default of `kill`.
const SIGNAL_TIMEOUT_MS: u64 = 5_000;

pub(crate) fn run(wanted: &Reset, settings: &Settings) -> Result<Exit, Error> {
    let request = ResetRequest {
        gpu: wanted.gpu.clone(),
        force: wanted.force,
        signal_timeout_ms: SIGNAL_TIMEOUT_MS,
        dry_run: wanted.dry_run,
    };
    let daemon = open_connection(settings)?;
    let line = &mut scan_line(settings);
    let planned = call!(daemon, scan_timeout(settings), line, PlanReset { request });
    let (id, plan) = planned?;
    if wanted.dry_run {
        print_plan(&plan, settings)?;
        return Ok(match refused_completion(&plan) {
            ResetCompletion::Unsupported => Exit::NotSupported,
            // A dry run asks what prevents a reset, so any result is an answer.
            ResetCompletion::All | ResetCompletion::Partial | ResetCompletion::Failed => Exit::Done,
        });
    }
    let Some(id) = id else {
        print_plan(&plan, settings)?;
        return Err(nothing_reset_error(&plan));
    };
    if !wanted.yes && !confirm::can_ask() {
        print_plan(&plan, settings)?;
        return Err(confirm::no_terminal_error("nothing was reset"));
    }
    let daemon = if wanted.yes {
        daemon
    } else {
        // The daemon hangs up on an idle connection, and a person may take time to answer. The
        // plan outlasts the connection.
        drop(daemon);
        confirm_plan(&plan, settings)?;
        open_connection(settings)?
    };
    carry_out_plan(daemon, id, &plan, settings)
}

/// Carries out a plan and prints the outcome.
fn carry_out_plan(
    daemon: Daemon,
    id: PlanId,
    plan: &ResetPlan,
    settings: &Settings,
) -> Result<Exit, Error> {
    let reset = FollowedReset::new(plan, settings);
    let report = carry_out(reset, daemon, id, settings)?;
    // Each GPU was reported to a person when it was done.
    print_answer(
        settings,
        || ResetReportDocument::from(&report),
        |style| closing_lines(&report, style),
    )?;
    Ok(final_exit(report.stage, completion(&report).into()))
}

impl From<ResetCompletion> for Exit {
    fn from(success: ResetCompletion) -> Self {
        match success {
            ResetCompletion::All => Self::Done,
            ResetCompletion::Partial => Self::PartlyDone,
            ResetCompletion::Unsupported => Self::NotSupported,
            ResetCompletion::Failed => Self::Failed,
        }
    }
}

/// Why nothing in this plan can be carried out, with a hint.
fn nothing_reset_error(plan: &ResetPlan) -> Error {
    let blocked = plan.devices.iter();
    let blocked = blocked.filter(|target| target.action == PlannedReset::Blocked);
    let mut blockers = blocked.flat_map(|target| &target.blockers);
    let is_forceable = !plan.request.force
        && blockers.any(|blocker| match blocker.remedy {
            Unblocker::Force => true,
            Unblocker::Daemon | Unblocker::Person => false,
        });
    Error::NotDone {
        what: "nothing was reset".into(),
        hint: is_forceable.then(|| "--force ends the processes that hold it first".into()),
        exit: refused_completion(plan).into(),
    }
}

/// Prints a plan to stdout.
fn print_plan(plan: &ResetPlan, settings: &Settings) -> Result<(), Error> {
    print_answer(
        settings,
        || ResetPlanDocument::from(plan),
        |style| plan_lines(plan, style),
    )
}

/// Asks. The answer no is an error, because nothing is done.
fn confirm_plan(plan: &ResetPlan, settings: &Settings) -> Result<(), Error> {
    // The person must see the plan before the question.
    let style = OutputStyle {
        color: false,
        ..OutputStyle::for_stdout(settings)
    };
    match settings.output_format {
        Format::Json => {
            for line in plan_lines(plan, &style) {
                question_subject(&line.paint(&style));
            }
        }
        Format::Table | Format::Ndjson | Format::Csv => print_plan(plan, settings)?,
    }
    confirm::agreement(&question(plan), "nothing was reset")
}
