//! Marks of simulated ends in a list.

use super::*;

fn end(uid: u32, pids: std::ops::Range<u32>) -> SimulatedEnd {
    let mut violation = open_violation(
        ViolationSubject::Job(job(uid)),
        vec![evidence_process(pids.start, uid)],
    );
    violation.ended_at = Some(Timestamp(5));
    SimulatedEnd {
        violation,
        processes: pids.map(|pid| (pid, 7)).collect(),
    }
}

#[test]
fn simulated_job_is_marked() {
    let status = GuardStatus {
        open: violations(),
        simulated: vec![end(ALICE, 21..24), end(BOB, 31..32)],
        ..GuardStatus::default()
    };
    let mut again = process(23, ALICE, 1);
    again.start_ticks = Reading::Value(8);
    let snapshot = snapshot(vec![
        process(21, ALICE, 1),
        process(22, ALICE, 1),
        // Another process of that pid, and one that joined when nobody was left.
        again,
        process(24, ALICE, 1),
        process(31, BOB, 1),
    ]);
    let cases: [(bool, Caller, u32, &[u32]); 4] = [
        (false, caller(1002, &[]), 2, &[21, 22, 31]),
        (true, caller(0, &[]), 2, &[21, 22, 31]),
        (true, caller(ALICE, &[]), 1, &[21, 22]),
        (true, caller(1002, &[]), 0, &[]),
    ];
    for (hide, caller, count, pids) in cases {
        let roles = roles(hide);
        let visibility = Visibility {
            caller: &caller,
            roles: &roles,
        };
        let brief =
            visibility.guard_summary(&CompiledRules::new(RuleSet::default()), &status, &snapshot);
        let gone = brief.marks.iter();
        let gone = gone.filter(|mark| mark.would_have_ended_at == Some(Timestamp(5)));
        let gone: Vec<u32> = gone.map(|mark| mark.run.pid).collect();
        let what = format!("{hide} {caller:?}");
        assert_eq!(
            (brief.would_have_ended, gone.as_slice()),
            (count, pids),
            "{what}"
        );
        // They are not open violations.
        assert_eq!(brief.open, visibility.count_visible(&status.open), "{what}");
    }
}

#[test]
fn violations_and_simulated_ends_share_the_room() {
    let (caller, roles) = (caller(0, &[]), roles(true));
    let visibility = Visibility {
        caller: &caller,
        roles: &roles,
    };
    let many = (1..2_000).map(|pid| {
        open_violation(
            ViolationSubject::Person(person(pid)),
            vec![evidence_process(pid, pid)],
        )
    });
    let status = GuardStatus {
        open: many.collect(),
        simulated: vec![end(BOB, 3_000..4_000)],
        ..GuardStatus::default()
    };
    let processes = (3_000..4_000).map(|pid| process(pid, BOB, 1));
    let brief = visibility.guard_summary(
        &CompiledRules::new(RuleSet::default()),
        &status,
        &snapshot(processes.collect()),
    );
    let gone = brief
        .marks
        .iter()
        .filter(|mark| mark.would_have_ended_at.is_some());
    assert_eq!(
        (brief.marks.len(), gone.count()),
        (MAX_MARKED, MAX_MARKED / 2)
    );
}
