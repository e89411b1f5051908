//! Every combination of flags and plans.

use super::*;
use crate::exit::DaemonKind;
use crate::output::fixtures;
use gpukill_proto::kill::{KillSelector, KillSignal, Reaper};

fn end() -> PlannedAction {
    PlannedAction::End(vec![KillSignal::Terminate])
}

/// A plan for this number of processes, selected by a condition or by PIDs.
fn planned(number: u32, by_pids: bool) -> KillPlan {
    let mut plan = fixtures::one_target(end());
    let one = plan.targets[0].clone();
    plan.targets = (0..number)
        .map(|at| {
            let mut target = one.clone();
            target.key.pid += at;
            target
        })
        .collect();
    if !by_pids {
        plan.request.selector = KillSelector {
            user: Some("alice".into()),
            ..KillSelector::default()
        };
    }
    plan
}

/// The flags of alice, who owns the sample's processes.
fn consent(batch: bool, yes: bool, can_ask: bool) -> ConsentContext<'static> {
    ConsentContext {
        batch,
        yes,
        can_ask,
        uid: 1000,
        name: Some("alice"),
    }
}

/// The next step, and for a refusal its exit code and message.
fn done(plan: &KillPlan, consent: ConsentContext<'_>) -> String {
    let id = Some(PlanId(7)).filter(|_| !plan.request.dry_run);
    match next_step(id, plan, consent) {
        NextStep::Show(consent) => format!("show {consent:?}"),
        NextStep::CarryOut(PlanId(7)) => "end".into(),
        NextStep::Ask(PlanId(7)) => "ask".into(),
        NextStep::Refuse(failure) => format!("{}: {failure}", failure.exit_code() as u8),
        other => panic!("{other:?}"),
    }
}

#[test]
fn several_selected_need_batch_and_consent() {
    let batch = "3: 3 processes are selected, and nothing was ended";
    let batch_refusal = batch;
    let yes = "3: 3 processes would be ended, and there is no terminal to ask on";
    // By PIDs and by a condition; each without and with --batch.
    let cases = [
        (1, false, false, ["end", "end", "end", "end"]),
        (1, false, true, ["end", "end", "ask", "ask"]),
        (1, true, false, ["end", "end", "end", "end"]),
        (1, true, true, ["end", "end", "end", "end"]),
        (3, false, false, [yes, "end", batch, "end"]),
        (3, false, true, ["ask", "ask", batch, "ask"]),
        (3, true, false, ["end", "end", batch, "end"]),
        (3, true, true, ["end", "end", batch, "end"]),
    ];
    for (number, yes, can_ask, expected) in cases {
        let variants = [(true, false), (true, true), (false, false), (false, true)];
        for ((by_pids, batch), expected) in variants.into_iter().zip(expected) {
            let consent = consent(batch, yes, can_ask);
            let mut plan = planned(number, by_pids);
            assert_eq!(
                done(&plan, consent),
                expected,
                "{number} {by_pids} {consent:?}"
            );
            // A dry run needs no consent and asks nothing; it tells what the real run needs.
            plan.request.dry_run = true;
            let needed = match expected {
                "end" => "Given",
                "ask" => "Ask",
                refused if refused == batch_refusal => "NeedsBatch",
                _ => "NeedsYes",
            };
            assert_eq!(
                done(&plan, consent),
                format!("show Some({needed})"),
                "{number} {by_pids} {consent:?}"
            );
        }
    }
}

#[test]
fn refusal_counts_the_endable_processes() {
    let mut plan = planned(3, false);
    plan.targets[1].action = PlannedAction::Denied("bob".into());
    assert_eq!(
        done(&plan, consent(false, false, false)),
        "3: 3 processes are selected, of which 2 can be ended, and none was"
    );
    assert_eq!(done(&plan, consent(true, false, false)), "end");
}

#[test]
fn scope_with_several_needs_no_batch() {
    let plan = fixtures::plan();
    let consent = |yes, can_ask| consent(false, yes, can_ask);
    assert_eq!(done(&plan, consent(false, true)), "ask");
    assert_eq!(done(&plan, consent(true, true)), "end");
    assert_eq!(
        done(&plan, consent(false, false)),
        "3: 9 processes would be ended, and there is no terminal to ask on"
    );
}

#[test]
fn refusal_states_reason_and_people_to_ask() {
    let consent = consent(true, true, true);
    let reaper = || Reaper {
        pid: 4_711,
        name: Reading::Value("launcher".into()),
    };
    let cases = [
        (
            PlannedAction::Denied("alice, or someone in group gpukill-operators".into()),
            "4: cannot end process 4182: it belongs to alice",
            Some("ask alice, or someone in group gpukill-operators"),
        ),
        (
            PlannedAction::Protected(gpukill_proto::kill::ProtectionReason::always(
                "it is gpukilld",
            )),
            "4: cannot end process 4182: it is gpukilld",
            None,
        ),
        (
            PlannedAction::Unclear("its user is not known".into()),
            "1: cannot end process 4182: its user is not known",
            None,
        ),
        (
            PlannedAction::Zombie(reaper()),
            "1: cannot end process 4182: it has ended, and goes when its parent 4711 (launcher) \
            reaps it",
            None,
        ),
    ];
    for (action, expected, hint) in cases {
        let plan = fixtures::one_target(action);
        // The daemon gives no id to a plan that ends no process.
        let NextStep::Refuse(failure) = next_step(None, &plan, consent) else {
            panic!("{plan:?}")
        };
        assert_eq!(
            format!("{}: {failure}", failure.exit_code() as u8),
            expected
        );
        assert_eq!(failure.hint(DaemonKind::Manual).as_deref(), hint);
    }
}

#[test]
fn several_are_denied_only_when_all_are() {
    let consent = consent(true, true, false);
    let mut plan = planned(2, true);
    plan.targets[0].action = PlannedAction::Denied("bob".into());
    plan.targets[1].action = PlannedAction::Protected(
        gpukill_proto::kill::ProtectionReason::always("it is process 1"),
    );
    let all = "cannot end any of these 2 processes";
    assert_eq!(done(&plan, consent), format!("4: {all}"));
    plan.targets[1].action = PlannedAction::Unclear("x".into());
    assert_eq!(done(&plan, consent), format!("1: {all}"));
    plan.targets[1].action = end();
    assert_eq!(done(&plan, consent), "end");
}

#[test]
fn several_denied_name_the_people_to_ask() {
    let hint = |asks: [&str; 2]| {
        let mut plan = planned(3, true);
        for (target, ask) in plan.targets.iter_mut().zip(asks) {
            target.action = PlannedAction::Denied(ask.into());
        }
        plan.targets[2].action = PlannedAction::Protected(
            gpukill_proto::kill::ProtectionReason::always("it is process 1"),
        );
        match next_step(None, &plan, consent(true, true, false)) {
            NextStep::Refuse(failure) => failure.hint(DaemonKind::Manual),
            other => panic!("{other:?}"),
        }
    };
    let bob = "bob, or someone in group ops";
    assert_eq!(
        hint([bob, bob]).as_deref(),
        Some("ask bob, or someone in group ops")
    );
    assert_eq!(
        hint([bob, "zoe, or someone in group ops"]).as_deref(),
        Some(
            "ask bob, or someone in group ops; the list names the people to ask for the other \
             processes"
        )
    );
}

#[test]
fn empty_plan_is_no_match_or_unknown() {
    let consent = consent(true, true, false);
    let mut plan = planned(0, false);
    for dry_run in [false, true] {
        plan.request.dry_run = dry_run;
        plan.undetermined = 0;
        assert_eq!(done(&plan, consent), "8: no process is selected");
        plan.undetermined = 1;
        assert_eq!(
            done(&plan, consent),
            "2: it is not known whether 1 process is selected"
        );
        plan.undetermined = 3;
        assert_eq!(
            done(&plan, consent),
            "2: it is not known whether 3 processes are selected"
        );
    }
}

#[test]
fn process_of_another_user_needs_consent() {
    let plan = fixtures::one_target(end());
    for (can_ask, yes, expected) in [
        (true, false, "ask"),
        (true, true, "end"),
        (false, false, "end"),
    ] {
        let bob = ConsentContext {
            uid: 1001,
            name: Some("bob"),
            ..consent(false, yes, can_ask)
        };
        assert_eq!(done(&plan, bob), expected, "{can_ask} {yes}");
    }
}
