//! Every combination of what is said and what is planned.

use super::*;
use crate::exit::Runs;
use crate::output::sample;
use gpukill_proto::kill::{KillSelector, KillSignal, Reaper};

fn end() -> Fate {
    Fate::End(vec![KillSignal::Terminate])
}

/// So many processes, named by a selector or by their pids.
fn planned(number: u32, by_pids: bool) -> KillPlan {
    let mut plan = sample::one_target(end());
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

/// What alice says, whose the sample's processes are.
fn said(batch: bool, yes: bool, can_ask: bool) -> Said<'static> {
    Said {
        batch,
        yes,
        can_ask,
        uid: 1000,
        name: Some("alice"),
    }
}

/// What is done, and how that ends where nothing is.
fn done(plan: &KillPlan, said: Said<'_>) -> String {
    let id = Some(PlanId(7)).filter(|_| !plan.request.dry_run);
    match step(id, plan, said) {
        Step::Show => "show".into(),
        Step::CarryOut(PlanId(7)) => "end".into(),
        Step::Ask(PlanId(7)) => "ask".into(),
        Step::Refuse(failure) => format!("{}: {failure}", failure.exit() as u8),
        other => panic!("{other:?}"),
    }
}

#[test]
fn several_that_a_selector_means_need_batch_and_a_yes_from_somebody() {
    let batch = "3: 3 processes are meant, and nothing was ended";
    let yes = "3: 3 processes would be ended, and nobody is here to be asked";
    // Of pids, and of a selector; each without and with --batch.
    let cases = [
        (1, false, false, ["end", "end", "end", "end"]),
        (1, false, true, ["end", "end", "end", "end"]),
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
            let said = said(batch, yes, can_ask);
            let mut plan = planned(number, by_pids);
            assert_eq!(done(&plan, said), expected, "{number} {by_pids} {said:?}");
            // A dry run needs nothing and asks nothing.
            plan.request.dry_run = true;
            assert_eq!(done(&plan, said), "show", "{number} {by_pids} {said:?}");
        }
    }
}

#[test]
fn of_several_that_are_meant_it_is_said_how_many_can_be_ended() {
    let mut plan = planned(3, false);
    plan.targets[1].fate = Fate::Denied("bob".into());
    assert_eq!(
        done(&plan, said(false, false, false)),
        "3: 3 processes are meant, of which 2 can be ended, and none was"
    );
    assert_eq!(done(&plan, said(true, false, false)), "end");
}

#[test]
fn a_scope_that_reaches_several_is_asked_about_and_needs_no_batch() {
    let plan = sample::plan();
    let said = |yes, can_ask| said(false, yes, can_ask);
    assert_eq!(done(&plan, said(false, true)), "ask");
    assert_eq!(done(&plan, said(true, true)), "end");
    assert_eq!(
        done(&plan, said(false, false)),
        "3: 9 processes would be ended, and nobody is here to be asked"
    );
}

#[test]
fn whoever_is_not_ended_is_said_with_why_and_whom_to_ask() {
    let said = said(true, true, true);
    let reaper = || Reaper {
        pid: 4_711,
        name: Reading::Value("launcher".into()),
    };
    let cases = [
        (
            Fate::Denied("alice, or someone in group gpukill-operators".into()),
            "4: cannot end process 4182: it belongs to alice",
            Some("ask alice, or someone in group gpukill-operators"),
        ),
        (
            Fate::Protected(gpukill_proto::kill::Protected::always("it is gpukilld")),
            "4: cannot end process 4182: it is gpukilld",
            None,
        ),
        (
            Fate::Unclear("whose it is is not known".into()),
            "1: cannot end process 4182: whose it is is not known",
            None,
        ),
        (
            Fate::Zombie(reaper()),
            "1: cannot end process 4182: it has ended, and goes when its parent 4711 (launcher) \
             asks how",
            None,
        ),
    ];
    for (fate, expected, hint) in cases {
        let plan = sample::one_target(fate);
        // The daemon gives no name to a plan that ends nobody.
        let Step::Refuse(failure) = step(None, &plan, said) else {
            panic!("{plan:?}")
        };
        assert_eq!(format!("{}: {failure}", failure.exit() as u8), expected);
        assert_eq!(failure.hint(Runs::ByHand).as_deref(), hint);
    }
}

#[test]
fn several_that_cannot_be_ended_count_as_denied_only_when_all_are() {
    let said = said(true, true, false);
    let mut plan = planned(2, true);
    plan.targets[0].fate = Fate::Denied("bob".into());
    plan.targets[1].fate =
        Fate::Protected(gpukill_proto::kill::Protected::always("it is process 1"));
    let all = "cannot end any of these 2 processes";
    assert_eq!(done(&plan, said), format!("4: {all}"));
    plan.targets[1].fate = Fate::Unclear("x".into());
    assert_eq!(done(&plan, said), format!("1: {all}"));
    plan.targets[1].fate = end();
    assert_eq!(done(&plan, said), "end");
}

#[test]
fn nobody_is_meant_or_that_is_not_known() {
    let said = said(true, true, false);
    let mut plan = planned(0, false);
    for dry_run in [false, true] {
        plan.request.dry_run = dry_run;
        plan.unjudged = 0;
        assert_eq!(done(&plan, said), "8: no process is meant");
        plan.unjudged = 1;
        assert_eq!(
            done(&plan, said),
            "2: whether 1 process is meant is not known"
        );
        plan.unjudged = 3;
        assert_eq!(
            done(&plan, said),
            "2: whether 3 processes are meant is not known"
        );
    }
}

#[test]
fn one_of_somebody_else_is_asked_about_where_somebody_is() {
    let plan = sample::one_target(end());
    for (can_ask, yes, expected) in [
        (true, false, "ask"),
        (true, true, "end"),
        (false, false, "end"),
    ] {
        let bob = Said {
            uid: 1001,
            name: Some("bob"),
            ..said(false, yes, can_ask)
        };
        assert_eq!(done(&plan, bob), expected, "{can_ask} {yes}");
    }
}
