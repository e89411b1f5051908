//! The screens of `kill`.

use super::*;
use crate::output::fixtures::{interrupted, one_target, plan, report};
use crate::output::kill::{
    KillResult, PlanDetail, outcome_lines, plan_lines, question, question_detail,
};
use gpukill_proto::json::{KillPlanDocument, KillReportDocument};
use gpukill_proto::kill::{KillPlan, KillReport, KillSignal, Outcome, PlannedAction, Stage};

fn of_plan(plan: &KillPlan, detail: PlanDetail, style: &OutputStyle) -> String {
    text(&plan_lines(plan, detail, style), style)
}

fn of_report((plan, report): &(KillPlan, KillReport), style: &OutputStyle) -> String {
    let outcome = KillResult {
        plan,
        report,
        me: 1000,
    };
    text(&outcome_lines(&outcome, style), style)
}

fn is_command(line: &str) -> bool {
    line.contains("gpukillctl ") || line.contains("systemctl ")
}

#[test]
fn heading_states_owner_count_gpus_and_memory() {
    let style = style(None);
    let heading = |plan: &KillPlan| of_plan(plan, PlanDetail::Heading, &style);
    assert_eq!(
        heading(&plan()),
        "alice's job slurm 1234.0: 9 processes on GPUs 0-3, 252.4 GiB\n"
    );
    let term = || PlannedAction::End(vec![KillSignal::Terminate]);
    assert_eq!(
        heading(&one_target(term())),
        "alice's process 4182 on GPU 0, 15.8 GiB: python train.py --model llama-70b\n"
    );
    let (several, _) = report();
    assert_eq!(
        heading(&several),
        "7 processes of 1000 and alice on GPUs 0-4, at least 130.2 GiB; 4 others are left \
         alone\n"
    );
    let mut part = plan();
    part.remaining_jobs = one_target(term()).remaining_jobs;
    assert_eq!(
        heading(&part),
        "9 processes of alice's job slurm 1234.0 on GPUs 0-3, 252.4 GiB\n"
    );
    let mut unknown = plan();
    for target in &mut unknown.targets {
        target.job = Reading::Failed("x".into());
        for hold in &mut target.holds {
            hold.memory = Reading::Unsupported;
        }
    }
    assert_eq!(
        heading(&unknown),
        "9 processes of alice on GPUs 0-3, how much memory is not known\n"
    );
    unknown.targets.retain(|target| target.holds.is_empty());
    assert_eq!(heading(&unknown), "5 processes of alice\n");
    assert_eq!(question(&unknown), "End them?");
    assert_eq!(question(&one_target(term())), "End it?");
    let mut nobodys = one_target(term());
    nobodys.targets[0].owner = Reading::Unsupported;
    nobodys.targets[0].uid = Reading::Failed("x".into());
    assert_eq!(
        heading(&nobodys),
        "process 4182 on GPU 0, 15.8 GiB: python train.py --model llama-70b\n"
    );
    assert_eq!(
        heading(&one_target(PlannedAction::Denied("x".into()))),
        "nobody would be ended\n"
    );
}

#[test]
fn question_shows_processes_that_were_not_typed() {
    assert_eq!(question_detail(&plan()), PlanDetail::Heading);
    let (by_gpu, _) = report();
    assert_eq!(question_detail(&by_gpu), PlanDetail::Ended);
    let mut of_many_jobs = plan();
    of_many_jobs.targets[0].job = Reading::Unsupported;
    assert_eq!(question_detail(&of_many_jobs), PlanDetail::Ended);
    for target in &mut of_many_jobs.targets {
        target.named = true;
    }
    assert_eq!(question_detail(&of_many_jobs), PlanDetail::Heading);
}

#[test]
fn plan_shows_ended_and_the_reasons_for_others() {
    let (several, _) = report();
    let signals = vec![KillSignal::Interrupt, KillSignal::Terminate];
    let plans = [plan(), several, one_target(PlannedAction::End(signals))];
    check_widths("kill-plan", &[120, 80, 40], is_command, |style| {
        let each = plans.iter();
        let each = each.map(|plan| of_plan(plan, PlanDetail::All, style));
        each.collect::<Vec<_>>().join("\n")
    });
}

#[test]
fn report_shows_outcomes_and_next_steps() {
    check_widths("kill", &[120, 80, 40], is_command, |style| {
        [report(), interrupted()]
            .map(|it| of_report(&it, style))
            .join("\n")
    });
    let shown = of_report(&report(), &ascii(None));
    assert!(shown.is_ascii(), "{shown}");
    check("kill-ascii.txt", &shown);
    check("kill-colored.txt", &of_report(&report(), &colored(100)));
}

#[test]
fn clean_kill_is_two_lines() {
    let plan = one_target(PlannedAction::End(vec![KillSignal::Terminate]));
    let (_, mut report) = report();
    report.outcomes.truncate(1);
    report.outcomes[0].key = plan.targets[0].key;
    report.memory.truncate(1);
    report.respawned.clear();
    report.unchecked = None;
    report.unrecorded = None;
    let style = style(Some(100));
    let mut it = (plan, report);
    it.0.remaining_jobs.clear();
    assert_eq!(
        of_report(&it, &style),
        "  ended  4182  python train.py --model llama-70b  SIGTERM, 0.8 s\n\
         memory: GPU 0 gave back 63.1 of 63.1 GiB in 1.2 s\n"
    );
    // With --force there is nothing more to advise.
    it.0.request.force = true;
    it.1.memory.clear();
    it.1.outcomes[0].outcome = Outcome::Survived(KillSignal::Kill, 10_000);
    assert_eq!(
        of_report(&it, &style),
        "  survived  4182  python train.py --model llama-70b  still there after SIGKILL and 10.0 s\n\
         memory: GPU 0 still holds 15.8 GiB (4182)\n"
    );
}

#[test]
fn kill_texts_cannot_control_the_terminal() {
    let text_of = || HOSTILE.to_owned();
    let (mut plan, mut report) = report();
    plan.request.selector.user = Some(text_of());
    for target in &mut plan.targets {
        target.name = text_of();
        target.command = Reading::Value(text_of());
        target.owner = Reading::Value(text_of());
        target.job = Reading::Value(hostile_job(HOSTILE));
        match &mut target.action {
            PlannedAction::End(_) => {}
            PlannedAction::Protected(protected) => protected.why = text_of(),
            PlannedAction::Denied(why) | PlannedAction::Unclear(why) => *why = text_of(),
            PlannedAction::Zombie(parent) => parent.name = Reading::Value(text_of()),
        }
    }
    for rest in &mut plan.remaining_jobs {
        rest.job = hostile_job(HOSTILE);
    }
    for outcome in &mut report.outcomes {
        outcome.name = text_of();
        outcome.command = Reading::Value(text_of());
        match &mut outcome.outcome {
            Outcome::Ended(..) | Outcome::Survived(..) | Outcome::Gone => {}
            Outcome::Changed(why)
            | Outcome::Protected(why)
            | Outcome::Denied(why)
            | Outcome::Unclear(why)
            | Outcome::Failed(why) => *why = text_of(),
            Outcome::Uninterruptible(stuck) => {
                stuck.waits_on = Some(text_of());
                if let Some(mount) = &mut stuck.fuse {
                    mount.path = text_of();
                    for server in &mut mount.servers {
                        server.owner = Reading::Value(text_of());
                    }
                }
            }
            Outcome::Zombie(parent) => parent.name = Reading::Value(text_of()),
        }
    }
    for respawn in &mut report.respawned {
        respawn.name = text_of();
        if let Some(unit) = &mut respawn.unit {
            unit.name = text_of();
        }
        if let Some(parent) = &mut respawn.parent {
            parent.name = Reading::Value(text_of());
        }
    }
    report.unchecked = Some(text_of());
    report.unrecorded = Some(text_of());
    report.stage = Stage::Interrupted;
    let style = style(None);
    let documents = [
        json::pretty(&KillPlanDocument::from(&plan)),
        json::pretty(&KillReportDocument::from(&report)),
    ];
    let mut printed = documents.map(|document| document.expect("texts")).to_vec();
    printed.push(of_plan(&plan, PlanDetail::All, &style));
    printed.push(of_report(&(plan, report), &style));
    assert_steer_nothing(printed);
}

fn hostile_job(name: &str) -> Job {
    Job::Unit {
        unit: Unit {
            name: name.into(),
            manager: None,
        },
        uid: 1000,
    }
}
