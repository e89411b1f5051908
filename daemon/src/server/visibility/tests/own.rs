//! The caller's own deadline and own policy.

use super::*;
use gpukill_policy::guard::rules::UserPolicy;
use gpukill_proto::guard::{MilderPolicy, WarnedOwner};

const fn warned_user(uid: u32, deadline: Timestamp) -> WarnedOwner {
    WarnedOwner {
        uid,
        deadline,
        snoozes_left: 1,
    }
}

#[test]
fn warned_user_sees_only_their_own_deadline() {
    let first = Timestamp(100);
    let later = Timestamp(200);
    let of_both = OpenViolation {
        deadline: Some(first),
        readers: vec![warned_user(ALICE, later), warned_user(BOB, first)],
        ..open_violation(
            ViolationSubject::Group("ml".into()),
            vec![evidence_process(1, ALICE), evidence_process(2, BOB)],
        )
    };
    let compiled = CompiledRules::new(RuleSet::default());
    let shown_to = |hide, uid: u32| {
        let (caller, roles) = (caller(uid, &[]), roles(hide));
        let visibility = Visibility {
            caller: &caller,
            roles: &roles,
        };
        let of = |pid, uid| visibility.redact_for_process(&of_both, (pid, Some(uid)), &compiled);
        let all = [
            visibility
                .redact_violation(&of_both, &compiled)
                .expect("it is theirs too"),
            of(1, ALICE),
            of(2, BOB),
        ];
        let deadlines = all.clone().map(|open| open.deadline.map(|at| at.0));
        (deadlines, all[0].readers.len())
    };
    let (first, later) = (Some(first.0), Some(later.0));
    assert_eq!(shown_to(false, ALICE), ([later, later, first], 2));
    assert_eq!(shown_to(false, BOB), ([first, later, first], 2));
    // A user who was not warned sees the first deadline.
    assert_eq!(shown_to(false, 0), ([first, later, first], 2));
    assert_eq!(shown_to(true, ALICE), ([later, later, first], 1));
}

#[test]
fn milder_own_policy_hides_the_end() {
    let policy = |action, mode| {
        let mut user = UserPolicy {
            name: ALICE.to_string(),
            ..UserPolicy::default()
        };
        user.measures.action = action;
        user.measures.mode = mode;
        CompiledRules::new(RuleSet {
            mode: GuardMode::Soft,
            users: vec![user],
            ..RuleSet::default()
        })
    };
    let (caller, roles) = (caller(BOB, &[]), roles(false));
    let visibility = Visibility {
        caller: &caller,
        roles: &roles,
    };
    let end = Some(Timestamp(100));
    let of_alice = OpenViolation {
        deadline: end,
        ..open_violation(
            ViolationSubject::Job(job(ALICE)),
            vec![evidence_process(1, ALICE)],
        )
    };
    for (compiled, own_policy, marked) in [
        (policy(None, None), None, end),
        (
            policy(Some(GuardAction::Warn), None),
            Some(MilderPolicy::Warned),
            None,
        ),
        (
            policy(None, Some(GuardMode::DryRun)),
            Some(MilderPolicy::DryRun),
            None,
        ),
    ] {
        let redacted = visibility
            .redact_violation(&of_alice, &compiled)
            .expect("nobody is hidden");
        assert_eq!(redacted.own_policy, own_policy);
        let brief = visibility.guard_summary(
            &compiled,
            &guard_status(vec![of_alice.clone()]),
            &snapshot(Vec::new()),
        );
        let marks: Vec<_> = brief.marks.iter().map(|mark| mark.deadline).collect();
        assert_eq!(marks, [marked]);
    }
}

#[test]
fn rule_no_longer_broken_is_not_counted() {
    let mut over = open_violation(
        ViolationSubject::Person(person(BOB)),
        vec![evidence_process(2, BOB)],
    );
    over.not_broken_since = Some(Timestamp(1));
    let mut warned = open_violation(
        ViolationSubject::Person(person(ALICE)),
        vec![evidence_process(1, ALICE)],
    );
    (warned.mode, warned.action) = (GuardMode::Soft, GuardAction::Warn);
    warned.warned_at = Some(Timestamp(1));
    let status = guard_status(vec![over, warned]);
    let (caller, roles) = (caller(ALICE, &[]), roles(false));
    let visibility = Visibility {
        caller: &caller,
        roles: &roles,
    };
    let brief = visibility.guard_summary(
        &CompiledRules::new(RuleSet::default()),
        &status,
        &snapshot(Vec::new()),
    );
    let marked: Vec<u32> = brief.marks.iter().map(|mark| mark.run.pid).collect();
    assert_eq!((brief.open, marked), (1, vec![1]));
    assert_eq!(
        (
            visibility.count_visible(&status.open),
            status.broken().count()
        ),
        (1, 1)
    );
    // Only users who were warned of it see so.
    let own: Vec<u32> = brief.own_warnings.iter().map(|it| it.pid).collect();
    assert_eq!(own, [1]);
    let caller = self::caller(BOB, &[]);
    let visibility = Visibility {
        caller: &caller,
        roles: &roles,
    };
    let brief = visibility.guard_summary(
        &CompiledRules::new(RuleSet::default()),
        &status,
        &snapshot(Vec::new()),
    );
    assert_eq!(brief.own_warnings, []);
}
