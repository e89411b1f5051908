//! What a person has to agree to.

use super::super::consent::{Consent, Said, consent};
use super::scene::*;
use gpukill_proto::kill::{Fate, KillPlan, KillScope, KillSelector, KillSignal, KillTarget};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::units::Timestamp;

fn target(pid: u32, named: bool, fate: Fate) -> KillTarget {
    KillTarget {
        key: ProcessKey {
            pid,
            start_ticks: 1,
        },
        name: "python".into(),
        command: Reading::Unsupported,
        uid: Reading::Unsupported,
        owner: Reading::Unsupported,
        holds: Vec::new(),
        named,
        job: Reading::Unsupported,
        fate,
    }
}

/// A plan that ends so many that are named, so many that are reached, and spares
/// so many that are named.
fn plan(selector: &KillSelector, named: u32, reached: u32, denied: u32) -> KillPlan {
    let end = || Fate::End(vec![KillSignal::Terminate]);
    let named_ones = (0..named).map(|pid| target(pid, true, end()));
    let reached = (0..reached).map(|pid| target(100 + pid, false, end()));
    let denied = (0..denied).map(|pid| target(200 + pid, true, Fate::Denied("bob".into())));
    KillPlan {
        at: Timestamp(0),
        request: request(selector.clone(), KillScope::Job),
        targets: named_ones.chain(reached).chain(denied).collect(),
        unjudged: 0,
        rest: Vec::new(),
    }
}

#[test]
fn several_that_were_not_named_by_pid_need_batch_and_more_than_one_is_asked_about() {
    use Consent::{Ask, Given, NeedsBatch, NeedsYes};
    let by_pid = pids(&[1, 2]);
    let by_user = KillSelector {
        user: Some("alice".into()),
        ..KillSelector::default()
    };
    let both = KillSelector {
        pids: vec![1, 2],
        ..by_user.clone()
    };
    let said = |typed: &str, can_ask| Said {
        batch: typed.contains("batch"),
        yes: typed.contains("yes"),
        can_ask,
    };
    // What is said, on a terminal, and off one.
    let cases = [
        ("one pid", plan(&by_pid, 1, 0, 0), "", Given, Given),
        ("two pids", plan(&by_pid, 2, 0, 0), "", Ask, NeedsYes),
        ("two pids", plan(&by_pid, 2, 0, 0), "yes", Given, Given),
        ("two pids", plan(&by_pid, 2, 0, 0), "batch", Ask, Given),
        ("a job of a pid", plan(&by_pid, 1, 8, 0), "", Ask, NeedsYes),
        ("one by user", plan(&by_user, 1, 0, 0), "", Given, Given),
        ("a job by user", plan(&by_user, 1, 8, 0), "", Ask, NeedsYes),
        (
            "two by user",
            plan(&by_user, 2, 0, 0),
            "",
            NeedsBatch,
            NeedsBatch,
        ),
        (
            "two by user",
            plan(&by_user, 2, 0, 0),
            "yes",
            NeedsBatch,
            NeedsBatch,
        ),
        ("two by user", plan(&by_user, 2, 0, 0), "batch", Ask, Given),
        (
            "two by user",
            plan(&by_user, 2, 0, 0),
            "batch yes",
            Given,
            Given,
        ),
        (
            "one of two",
            plan(&by_user, 1, 0, 1),
            "",
            NeedsBatch,
            NeedsBatch,
        ),
        ("one of two", plan(&by_user, 1, 0, 1), "batch", Given, Given),
        ("one of two pids", plan(&by_pid, 1, 0, 1), "", Given, Given),
        (
            "pids of a user",
            plan(&both, 2, 0, 0),
            "yes",
            NeedsBatch,
            NeedsBatch,
        ),
        ("nobody", plan(&by_pid, 0, 0, 1), "", Given, Given),
    ];
    let mut beside_xorg = plan(&by_user, 1, 0, 1);
    beside_xorg.targets[1].fate = Fate::Protected("x".into());
    assert_eq!(consent(&beside_xorg, said("", false)), Given);
    for (what, plan, typed, on_terminal, off) in cases {
        assert_eq!(
            consent(&plan, said(typed, true)),
            on_terminal,
            "{what}: {typed}"
        );
        assert_eq!(
            consent(&plan, said(typed, false)),
            off,
            "{what}: {typed}, no terminal"
        );
    }
}
