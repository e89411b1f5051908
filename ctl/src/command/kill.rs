//! `kill`: shows the plan, asks when it must, carries it out, and reports the outcome of each
//! process.

mod follow;
mod next_step;
mod request;
mod unknown_names;

use super::follow::{carry_out, final_exit};
use super::{confirm, list, now, open_connection, scan_line, scan_timeout};
use crate::args::Kill;
use crate::connect::{Daemon, call};
use crate::exit::{Error, Exit};
use crate::output::kill::{
    KillResult, PlanDetail, dry_run_lines, outcome_lines, plan_lines, question, question_detail,
};
use crate::output::message::question_subject;
use crate::output::style::{OutputStyle, is_stdout_terminal, stderr_width};
use crate::output::{print_answer, print_lines};
use crate::settings::{Format, Settings};
use follow::FollowedKill;
use gpukill_policy::kill::consent::ConsentContext;
use gpukill_policy::kill::outcome::completion;
use gpukill_policy::select::{SnapshotFilter, compile_pattern};
use gpukill_proto::json::{KillPlanDocument, KillReportDocument};
use gpukill_proto::kill::{KillPlan, KillPlanPage, KillRequest, KillSelector, PlanId};
use gpukill_proto::refusal::Refusal;
use next_step::{NextStep, next_step};
use unknown_names::unknown_names;

pub(crate) fn run(args: &Kill, settings: &Settings) -> Result<Exit, Error> {
    let request = request::request(args, settings)?;
    let daemon = open_connection(settings)?;
    let (id, plan) = match request_plan(&daemon, &request, settings) {
        Err(failure) if selects_nothing(&failure, &request.selector) => {
            return Err(no_match_error(failure, request, &daemon, settings)?);
        }
        planned => planned?,
    };
    let can_ask = confirm::can_ask();
    let may_ask = can_ask && !args.yes && !args.dry_run;
    let name = may_ask.then(|| caller_name(&daemon, settings)).flatten();
    let consent = ConsentContext {
        batch: args.batch,
        yes: args.yes,
        can_ask,
        uid: rustix::process::getuid().as_raw(),
        name: name.as_deref(),
    };
    let (daemon, id) = match next_step(id, &plan, consent) {
        NextStep::Show(consent) => {
            print_plan(&plan, PlanDetail::All, settings)?;
            if settings.output_format != Format::Json {
                let style = OutputStyle::for_stdout(settings);
                let lines = dry_run_lines(std::env::args_os(), consent, &style);
                print_lines(&lines, &style)?;
            }
            return Ok(Exit::Done);
        }
        NextStep::Refuse(failure) => {
            if settings.output_format == Format::Json || !error_is_enough(&failure, &plan) {
                print_plan(&plan, PlanDetail::All, settings)?;
            }
            return Err(failure);
        }
        NextStep::CarryOut(id) => {
            print_introduction(&plan, PlanDetail::Heading, settings)?;
            (daemon, id)
        }
        NextStep::Ask(id) => {
            // The daemon hangs up on an idle connection, and a person may take time to answer.
            // The plan outlasts the connection.
            drop(daemon);
            print_introduction(&plan, question_detail(&plan), settings)?;
            confirm_plan(&plan, settings)?;
            (open_connection(settings)?, id)
        }
    };
    carry_out_plan(daemon, id, &plan, settings)
}

/// Plans a kill. Returns all pages of the plan, and its id when it can be carried out.
fn request_plan(
    daemon: &Daemon,
    request: &KillRequest,
    settings: &Settings,
) -> Result<(Option<PlanId>, KillPlan), Error> {
    let request = request.clone();
    let (timeout, line) = (scan_timeout(settings), &mut scan_line(settings));
    let planned = call!(daemon, timeout, line, PlanKill { request });
    let KillPlanPage { id, mut plan, next } = planned?;
    let plan_id = id.unwrap_or(PlanId::LAST);
    daemon.collect_pages("targets", next, &mut |start| {
        let page = call!(
            daemon,
            timeout,
            MoreOfKillPlan {
                plan: plan_id,
                start
            }
        )?;
        plan.targets.extend(page.plan.targets);
        Ok(page.next)
    })?;
    Ok((id, plan))
}

/// The caller's name as the daemon knows it; `None` when it does not, and the uid has to do.
fn caller_name(daemon: &Daemon, settings: &Settings) -> Option<String> {
    let status = call!(daemon, settings.request_timeout(), Status {});
    status.ok()?.caller.user.last_known().cloned()
}

/// Carries out a plan and prints the outcome.
fn carry_out_plan(
    daemon: Daemon,
    id: PlanId,
    plan: &KillPlan,
    settings: &Settings,
) -> Result<Exit, Error> {
    let kill = FollowedKill::new(plan, settings);
    let report = carry_out(kill, daemon, id, settings)?.report;
    let outcome = KillResult {
        plan,
        report: &report,
        me: rustix::process::getuid().as_raw(),
    };
    print_answer(
        settings,
        || KillReportDocument::from(&report),
        |style| outcome_lines(&outcome, style),
    )?;
    let success = completion(plan, &report);
    Ok(final_exit(report.stage, success.into()))
}

/// Prints a plan to stdout.
fn print_plan(plan: &KillPlan, detail: PlanDetail, settings: &Settings) -> Result<(), Error> {
    print_answer(
        settings,
        || KillPlanDocument::from(plan),
        |style| plan_lines(plan, detail, style),
    )
}

/// Prints a plan before it is carried out, unless the output is for programs.
fn print_introduction(
    plan: &KillPlan,
    detail: PlanDetail,
    settings: &Settings,
) -> Result<(), Error> {
    match settings.output_format {
        Format::Json => Ok(()),
        Format::Table | Format::Ndjson | Format::Csv => print_plan(plan, detail, settings),
    }
}

/// Asks. The answer no is an error, because nothing is done.
fn confirm_plan(plan: &KillPlan, settings: &Settings) -> Result<(), Error> {
    // The person must see the plan before the question.
    if settings.output_format == Format::Json || !is_stdout_terminal() {
        let style = OutputStyle::for_stdout(settings);
        let style = OutputStyle {
            color: false,
            width: style.width.or_else(stderr_width),
            ..style
        };
        for line in plan_lines(plan, question_detail(plan), &style) {
            question_subject(&line.paint(&style));
        }
    }
    confirm::agreement(question(plan), "nothing was ended")
}

/// Whether the error alone says as much as the plan, which holds for one process.
fn error_is_enough(failure: &Error, plan: &KillPlan) -> bool {
    plan.targets.len() <= 1 && failure.exit_code() != Exit::BadUsage
}

/// Whether the request failed because nothing matched. A GPU that does not exist is invalid.
fn selects_nothing(failure: &Error, selector: &KillSelector) -> bool {
    matches!(failure, Error::Refused(Refusal::NoMatch(_)))
        || selector.gpu.is_some() && matches!(failure, Error::Refused(Refusal::Invalid(_)))
}

/// The error when nothing matched. When a driver fails, the missing processes may be its own,
/// and the error states that. It names a job, a container and a user that do not exist.
fn no_match_error(
    failure: Error,
    request: KillRequest,
    daemon: &Daemon,
    settings: &Settings,
) -> Result<Error, Error> {
    let selector = &request.selector;
    let selection = SnapshotFilter {
        gpu: selector.gpu.clone(),
        vendors: selector.vendors.iter().copied().collect(),
        // The daemon has looked for them itself.
        pids: Vec::new(),
        user: selector.user.clone(),
        name: selector
            .filter
            .as_deref()
            .and_then(|it| compile_pattern(it).ok()),
    };
    let snapshot = list::newest_snapshot(daemon, settings.request_timeout());
    let processes = snapshot.as_ref().map(|it| it.processes.as_slice());
    let mut unknown = unknown_names(selector, processes.unwrap_or_default());
    let doubt = snapshot.and_then(|it| list::undecided_error(&selection, it));
    if settings.output_format == Format::Json {
        // As for `list`: programs get a document whatever the verdict.
        let plan = KillPlan {
            at: now(),
            request,
            ..KillPlan::default()
        };
        print_plan(&plan, PlanDetail::All, settings)?;
    }
    let user = selection.user.as_deref();
    let user = user.and_then(list::user_lookup::unknown_user);
    unknown.extend(user.map(|user| format!("no user is called {user}")));
    Ok(match doubt {
        Some(doubt) => Error::Vendor(format!("{failure}; {doubt}")),
        None if unknown.is_empty() => failure,
        None => Error::NoMatch(format!("{failure}: {}", unknown.join("; "))),
    })
}
