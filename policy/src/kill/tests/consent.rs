//! Tests of the consent that a plan needs.

use super::super::consent::{Consent, ConsentContext, required_consent};
use super::fixture::*;
use gpukill_proto::kill::{
    KillPlan, KillScope, KillSelector, KillSignal, KillTarget, PlannedAction, TargetMemory,
};
use gpukill_proto::model::{DeviceId, ProcessKey};
use gpukill_proto::reading::Reading;
use proptest::prelude::*;

const ME: u32 = 1000;

fn target(pid: u32, named: bool, action: PlannedAction) -> KillTarget {
    KillTarget {
        key: ProcessKey {
            pid,
            start_ticks: 1,
        },
        name: "python".into(),
        command: Reading::Unsupported,
        uid: Reading::Value(ME),
        owner: Reading::Value("alice".into()),
        holds: vec![TargetMemory {
            device: DeviceId("GPU-0".into()),
            index: 0,
            memory: Reading::Unsupported,
        }],
        named,
        job: Reading::Unsupported,
        action,
        overridden: None,
    }
}

/// A plan that ends `named` named and `reached` reached processes, and may not end
/// `denied` named ones.
fn plan(selector: &KillSelector, named: u32, reached: u32, denied: u32) -> KillPlan {
    let end = || PlannedAction::End(vec![KillSignal::Terminate]);
    let named_ones = (0..named).map(|pid| target(pid, true, end()));
    let reached = (0..reached).map(|pid| target(100 + pid, false, end()));
    let denied =
        (0..denied).map(|pid| target(200 + pid, true, PlannedAction::Denied("bob".into())));
    KillPlan {
        request: request(selector.clone(), KillScope::Job),
        targets: named_ones.chain(reached).chain(denied).collect(),
        ..KillPlan::default()
    }
}

#[test]
fn several_matches_need_batch() {
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
    let context = |typed: &str, can_ask| ConsentContext {
        batch: typed.contains("batch"),
        yes: typed.contains("yes"),
        can_ask,
        uid: ME,
        name: Some("alice"),
    };
    // The flags, the answer on a terminal, and the answer off a terminal.
    let cases = [
        ("one pid", plan(&by_pid, 1, 0, 0), "", Given, Given),
        ("two pids", plan(&by_pid, 2, 0, 0), "", Ask, NeedsYes),
        ("two pids", plan(&by_pid, 2, 0, 0), "yes", Given, Given),
        ("two pids", plan(&by_pid, 2, 0, 0), "batch", Ask, Given),
        ("a job of a pid", plan(&by_pid, 1, 8, 0), "", Ask, NeedsYes),
        ("one by user", plan(&by_user, 1, 0, 0), "", Ask, Given),
        ("one by user", plan(&by_user, 1, 0, 0), "yes", Given, Given),
        ("a pid of a user", plan(&both, 1, 0, 0), "", Given, Given),
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
        ("one of two", plan(&by_user, 1, 0, 1), "batch", Ask, Given),
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
    beside_xorg.targets[1].action =
        PlannedAction::Protected(gpukill_proto::kill::ProtectionReason::always("x"));
    assert_eq!(required_consent(&beside_xorg, context("", false)), Given);
    for (what, plan, typed, on_terminal, off) in cases {
        assert_eq!(
            required_consent(&plan, context(typed, true)),
            on_terminal,
            "{what}: {typed}"
        );
        assert_eq!(
            required_consent(&plan, context(typed, false)),
            off,
            "{what}: {typed}, no terminal"
        );
    }
}

/// The consent for a plan of one pid after this change, on a terminal and off it.
fn consent_for_one(change: impl FnOnce(&mut KillTarget), name: Option<&str>) -> [Consent; 2] {
    let mut plan = plan(&pids(&[1]), 1, 0, 0);
    change(&mut plan.targets[0]);
    [true, false].map(|can_ask| {
        let context = ConsentContext {
            batch: false,
            yes: false,
            can_ask,
            uid: ME,
            name,
        };
        required_consent(&plan, context)
    })
}

#[test]
fn surprising_single_process_is_asked_about() {
    let given = [Consent::Given; 2];
    let asked = [Consent::Ask, Consent::Given];
    let of = |owner: Reading<String>, uid: Reading<u32>, name| {
        let change = |target: &mut KillTarget| (target.owner, target.uid) = (owner, uid);
        consent_for_one(change, name)
    };
    let called = |name: &str| Reading::Value(name.to_owned());
    let (mine, bobs) = (Reading::Value(ME), Reading::Value(1001));
    let unknown = || Reading::Unsupported;
    let alice = Some("alice");
    assert_eq!(of(called("alice"), mine.clone(), alice), given);
    assert_eq!(of(called("bob"), bobs.clone(), alice), asked);
    // In their own container a process runs as an unknown uid, and in another person's
    // container as their uid.
    assert_eq!(of(called("alice"), Reading::Value(100_999), alice), given);
    assert_eq!(of(called("container train"), mine.clone(), alice), asked);
    // Where one name is missing the uid decides; where both are missing, ownership is
    // unknown.
    assert_eq!(of(unknown(), mine.clone(), alice), given);
    assert_eq!(of(called("alice"), mine, None), given);
    assert_eq!(of(called("bob"), bobs, None), asked);
    assert_eq!(of(unknown(), Reading::Unsupported, alice), asked);
    assert_eq!(consent_for_one(|target| target.holds.clear(), alice), asked);
}

fn targets() -> impl Strategy<Value = Vec<KillTarget>> {
    let one = (any::<bool>(), 0..3u8, any::<bool>(), any::<bool>());
    let made = |(named, action, own, holds): (bool, u8, bool, bool)| {
        let action = match action {
            0 => PlannedAction::End(vec![KillSignal::Terminate]),
            1 => PlannedAction::Protected(gpukill_proto::kill::ProtectionReason::always("x")),
            _ => PlannedAction::Denied("bob".into()),
        };
        let mut target = target(1, named, action);
        if !own {
            target.owner = Reading::Value("bob".into());
        }
        if !holds {
            target.holds.clear();
        }
        target
    };
    prop::collection::vec(one.prop_map(made), 0..4)
}

proptest! {
    /// On a terminal, only a single process of the caller's own on a GPU, named by its
    /// pid, is ended without a question. `--yes` is never asked, and off a terminal no question is
    /// asked.
    #[test]
    fn nothing_surprising_ends_without_a_question(
        targets in targets(),
        by_pid in any::<bool>(),
        [batch, yes, can_ask] in any::<[bool; 3]>(),
    ) {
        let selector = match by_pid {
            true => pids(&[1]),
            false => KillSelector { user: Some("alice".into()), ..KillSelector::default() },
        };
        let mut plan = plan(&selector, 0, 0, 0);
        plan.targets = targets;
        let context = ConsentContext { batch, yes, can_ask, uid: ME, name: Some("alice") };
        let ended: Vec<&KillTarget> = plan
            .targets
            .iter()
            .filter(|it| matches!(it.action, PlannedAction::End(_)))
            .collect();
        let is_plain = ended.iter().all(|it| {
            it.owner == Reading::Value("alice".into()) && !it.holds.is_empty()
        });
        match required_consent(&plan, context) {
            Consent::Given if can_ask => {
                prop_assert!(yes || ended.is_empty() || (by_pid && is_plain && ended.len() == 1));
            }
            Consent::Given => prop_assert!(yes || batch || ended.len() <= 1),
            Consent::Ask => prop_assert!(can_ask && !yes && !ended.is_empty()),
            Consent::NeedsBatch => prop_assert!(!batch && !by_pid),
            Consent::NeedsYes => prop_assert!(!can_ask && !yes && !batch && ended.len() > 1),
        }
    }
}
