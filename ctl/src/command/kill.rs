//! `kill`: shows who is meant, asks where it must, has it done, and tells what
//! became of each.

mod request;

mod step;

mod follow;

use super::follow::carry_out;
use super::{confirm, connect, list, looking, now};
use crate::args::Kill;
use crate::connect::{Daemon, Patience};
use crate::exit::{Exit, Failure};
use crate::output::kill::{Detail, Outcome, asked, carried_out, planned, question};
use crate::output::look::{Look, is_terminal};
use crate::output::message::Messages;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use follow::Followed;
use gpukill_policy::kill::consent::Said;
use gpukill_policy::kill::success::success;
use gpukill_policy::select::{Selection, pattern};
use gpukill_proto::document::{KillPlanDocument, KillReportDocument};
use gpukill_proto::kill::{KillPlan, KillReport, KillRequest, PlanId, Stage};
use gpukill_proto::refusal::Refusal;
use step::{Step, step};

/// Does it, or says why not.
pub(crate) fn run(wanted: &Kill, settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    let request = request::request(wanted)?;
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    let (id, plan) = match daemon.plan_kill(&request, looking(settings)) {
        Err(failure @ Failure::Refused(Refusal::NoMatch(_))) => {
            return Err(nobody_meant(failure, request, &daemon, settings)?);
        }
        planned => planned?,
    };
    let can_ask = confirm::can_ask();
    let name = match can_ask && !wanted.yes && !wanted.dry_run {
        true => called(&daemon, settings),
        false => None,
    };
    let said = Said {
        batch: wanted.batch,
        yes: wanted.yes,
        can_ask,
        uid: rustix::process::getuid().as_raw(),
        name: name.as_deref(),
    };
    let (daemon, id) = match step(id, &plan, said) {
        Step::Show => {
            show(&plan, Detail::All, settings)?;
            return Ok(Exit::Done);
        }
        Step::Refuse(failure) => {
            if settings.output_format == Format::Json || !says_all(&failure, &plan) {
                show(&plan, Detail::All, settings)?;
            }
            return Err(failure);
        }
        Step::CarryOut(id) => {
            introduce(&plan, Detail::Heading, settings)?;
            (daemon, id)
        }
        Step::Ask(id) => {
            // The daemon hangs up on who is silent, and a person may take their
            // time; the plan outlasts the connection.
            drop(daemon);
            introduce(&plan, asked(&plan), settings)?;
            ask(&plan, settings, messages)?;
            let patience = Patience::lasting(settings.timeout);
            (connect(settings, patience, messages)?, id)
        }
    };
    end(daemon, id, &plan, settings, messages)
}

/// What the daemon calls whoever asks. Where it does not say, their number has to do.
fn called(daemon: &Daemon, settings: &Settings) -> Option<String> {
    let status = daemon.status(Patience::lasting(settings.timeout));
    status.ok()?.caller.user.last_known().cloned()
}

/// Carries a plan out, and prints what became of it.
fn end(
    daemon: Daemon,
    id: PlanId,
    plan: &KillPlan,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let kill = Followed::new(plan, settings);
    let report = carry_out(kill, daemon, id, settings, messages)?.report;
    match settings.output_format {
        Format::Json => print(&json::pretty(&KillReportDocument::from(&report))?)?,
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            let outcome = Outcome {
                plan,
                report: &report,
                me: rustix::process::getuid().as_raw(),
            };
            print_lines(&carried_out(&outcome, &look), &look)?;
        }
    }
    Ok(exit(plan, &report))
}

/// How a kill ends the run.
fn exit(plan: &KillPlan, report: &KillReport) -> Exit {
    let success = Exit::from(success(plan, report));
    match (report.stage, success) {
        // Those that are not settled are missing.
        (Stage::Interrupted, Exit::Done | Exit::PartlyDone) => Exit::PartlyDone,
        (Stage::Interrupted, _) => Exit::Failed,
        (Stage::Done | Stage::Ending | Stage::Releasing, success) => success,
    }
}

/// Prints a plan to stdout.
fn show(plan: &KillPlan, detail: Detail, settings: &Settings) -> Result<(), Failure> {
    match settings.output_format {
        Format::Json => print(&json::pretty(&KillPlanDocument::from(plan))?),
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            print_lines(&planned(plan, detail, &look), &look)
        }
    }
}

/// Says who is meant, where people read what is printed.
fn introduce(plan: &KillPlan, detail: Detail, settings: &Settings) -> Result<(), Failure> {
    match settings.output_format {
        Format::Json => Ok(()),
        Format::Table | Format::Ndjson | Format::Csv => show(plan, detail, settings),
    }
}

/// Asks; a no is a failure, for what was wanted is not done.
fn ask(plan: &KillPlan, settings: &Settings, messages: Messages) -> Result<(), Failure> {
    // Whoever answers must have seen what about.
    if settings.output_format == Format::Json || !is_terminal() {
        let look = Look {
            color: false,
            ..Look::of_stdout(settings)
        };
        for line in planned(plan, asked(plan), &look) {
            messages.of_a_question(&line.paint(&look));
        }
    }
    if confirm::agreed(question(plan)) {
        return Ok(());
    }
    Err(Failure::NotDone {
        what: "nothing was ended".into(),
        hint: None,
        exit: Exit::Failed,
    })
}

/// Whether a failure alone says all of a plan, as it does of one process.
fn says_all(failure: &Failure, plan: &KillPlan) -> bool {
    plan.targets.len() <= 1 && failure.exit() != Exit::BadUsage
}

/// Nothing matched, unless that cannot be known: a driver that fails may have
/// what is missing.
fn nobody_meant(
    failure: Failure,
    request: KillRequest,
    daemon: &Daemon,
    settings: &Settings,
) -> Result<Failure, Failure> {
    let selector = &request.selector;
    let selection = Selection {
        gpu: selector.gpu.clone(),
        vendors: selector.vendors.iter().copied().collect(),
        user: selector.user.clone(),
        name: selector.filter.as_deref().and_then(|it| pattern(it).ok()),
    };
    let doubt = list::doubt(&selection, daemon, Patience::lasting(settings.timeout));
    if settings.output_format == Format::Json {
        // As `list`: programs get a document whatever the verdict.
        let plan = KillPlan {
            at: now(),
            request,
            ..KillPlan::default()
        };
        show(&plan, Detail::All, settings)?;
    }
    Ok(match doubt {
        Some(doubt) => Failure::Vendor(format!("{failure}; {doubt}")),
        None => failure,
    })
}
