//! What is told of somebody's own end, and of their own policy.

use super::*;
use gpukill_policy::guard::rules::UserPolicy;
use gpukill_proto::guard::{Milder, Reader};

const fn reader(uid: u32, deadline: Timestamp) -> Reader {
    Reader {
        uid,
        deadline,
        snoozes_left: 1,
    }
}

#[test]
fn whoever_was_warned_is_told_of_their_own_end_and_not_of_others() {
    let first = Timestamp(100);
    let later = Timestamp(200);
    let of_both = OpenViolation {
        deadline: Some(first),
        readers: vec![reader(ALICE, later), reader(BOB, first)],
        ..open(
            Subject::Group("ml".into()),
            vec![told(1, ALICE), told(2, BOB)],
        )
    };
    let book = Rulebook::of(Rules::default());
    let seen = |hide, uid: u32| {
        let (caller, roles) = (caller(uid, &[]), roles(hide));
        let sight = Sight {
            caller: &caller,
            roles: &roles,
        };
        let of = |pid, uid| sight.open_of(&of_both, (pid, Some(uid)), &book);
        let all = [
            sight.open(&of_both, &book).expect("it is theirs too"),
            of(1, ALICE),
            of(2, BOB),
        ];
        let deadlines = all.clone().map(|open| open.deadline.map(|at| at.0));
        (deadlines, all[0].readers.len())
    };
    let (first, later) = (Some(first.0), Some(later.0));
    assert_eq!(seen(false, ALICE), ([later, later, first], 2));
    assert_eq!(seen(false, BOB), ([first, later, first], 2));
    // Whoever was not warned sees the first end.
    assert_eq!(seen(false, 0), ([first, later, first], 2));
    assert_eq!(seen(true, ALICE), ([later, later, first], 1));
}

#[test]
fn an_own_policy_that_spares_somebody_is_told_and_leaves_no_end_in_a_list() {
    let policy = |action, mode| {
        let mut user = UserPolicy {
            name: ALICE.to_string(),
            ..UserPolicy::default()
        };
        user.measures.action = action;
        user.measures.mode = mode;
        Rulebook::of(Rules {
            mode: GuardMode::Soft,
            users: vec![user],
            ..Rules::default()
        })
    };
    let (caller, roles) = (caller(BOB, &[]), roles(false));
    let sight = Sight {
        caller: &caller,
        roles: &roles,
    };
    let end = Some(Timestamp(100));
    let of_alice = OpenViolation {
        deadline: end,
        ..open(Subject::Job(job(ALICE)), vec![told(1, ALICE)])
    };
    for (book, own_policy, marked) in [
        (policy(None, None), None, end),
        (
            policy(Some(GuardAction::Warn), None),
            Some(Milder::Warned),
            None,
        ),
        (
            policy(None, Some(GuardMode::DryRun)),
            Some(Milder::Rehearsed),
            None,
        ),
    ] {
        let seen = sight.open(&of_alice, &book).expect("nobody is hidden");
        assert_eq!(seen.own_policy, own_policy);
        let brief = sight.brief(
            &book,
            &standing(vec![of_alice.clone()]),
            &snapshot(Vec::new()),
        );
        let marks: Vec<_> = brief.marked.iter().map(|mark| mark.deadline).collect();
        assert_eq!(marks, [marked]);
    }
}

#[test]
fn a_rule_that_is_no_longer_broken_neither_counts_nor_marks() {
    let mut over = open(Subject::Person(person(BOB)), vec![told(2, BOB)]);
    over.not_broken_since = Some(Timestamp(1));
    let mut warned = open(Subject::Person(person(ALICE)), vec![told(1, ALICE)]);
    (warned.mode, warned.action) = (GuardMode::Soft, GuardAction::Warn);
    warned.warned_at = Some(Timestamp(1));
    let standing = standing(vec![over, warned]);
    let (caller, roles) = (caller(ALICE, &[]), roles(false));
    let sight = Sight {
        caller: &caller,
        roles: &roles,
    };
    let brief = sight.brief(
        &Rulebook::of(Rules::default()),
        &standing,
        &snapshot(Vec::new()),
    );
    let marked: Vec<u32> = brief.marked.iter().map(|mark| mark.run.pid).collect();
    assert_eq!((brief.open, marked), (1, vec![1]));
    assert_eq!(
        (sight.count(&standing.open), standing.broken().count()),
        (1, 1)
    );
    // Who is warned of it reads so, and nobody else.
    let own: Vec<u32> = brief.own_warnings.iter().map(|it| it.pid).collect();
    assert_eq!(own, [1]);
    let caller = self::caller(BOB, &[]);
    let sight = Sight {
        caller: &caller,
        roles: &roles,
    };
    let brief = sight.brief(
        &Rulebook::of(Rules::default()),
        &standing,
        &snapshot(Vec::new()),
    );
    assert_eq!(brief.own_warnings, []);
}
