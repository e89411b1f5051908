//! Who would have been ended in a dry run, in a list.

use super::*;

fn end(uid: u32, pids: std::ops::Range<u32>) -> SimulatedEnd {
    let mut violation = open(Subject::Job(job(uid)), vec![told(pids.start, uid)]);
    violation.ended_at = Some(Timestamp(5));
    SimulatedEnd {
        violation,
        processes: pids.map(|pid| (pid, 7)).collect(),
    }
}

#[test]
fn all_processes_of_a_job_that_would_have_been_ended_are_marked_for_who_may_see_them() {
    let standing = Standing {
        open: violations(),
        simulated: vec![end(ALICE, 21..24), end(BOB, 31..32)],
        ..Standing::default()
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
        let sight = Sight {
            caller: &caller,
            roles: &roles,
        };
        let brief = sight.brief(&Rulebook::of(Rules::default()), &standing, &snapshot);
        let gone = brief.marked.iter();
        let gone = gone.filter(|mark| mark.would_have_ended_at == Some(Timestamp(5)));
        let gone: Vec<u32> = gone.map(|mark| mark.run.pid).collect();
        let what = format!("{hide} {caller:?}");
        assert_eq!(
            (brief.would_have_ended, gone.as_slice()),
            (count, pids),
            "{what}"
        );
        // They are no violations that go on.
        assert_eq!(brief.open, sight.count(&standing.open), "{what}");
    }
}

#[test]
fn neither_violations_nor_who_would_be_gone_keep_the_other_out_of_a_list() {
    let (caller, roles) = (caller(0, &[]), roles(true));
    let sight = Sight {
        caller: &caller,
        roles: &roles,
    };
    let many = (1..2_000).map(|pid| open(Subject::Person(person(pid)), vec![told(pid, pid)]));
    let standing = Standing {
        open: many.collect(),
        simulated: vec![end(BOB, 3_000..4_000)],
        ..Standing::default()
    };
    let processes = (3_000..4_000).map(|pid| process(pid, BOB, 1));
    let brief = sight.brief(
        &Rulebook::of(Rules::default()),
        &standing,
        &snapshot(processes.collect()),
    );
    let gone = brief
        .marked
        .iter()
        .filter(|mark| mark.would_have_ended_at.is_some());
    assert_eq!(
        (brief.marked.len(), gone.count()),
        (MOST_MARKED, MOST_MARKED / 2)
    );
}
