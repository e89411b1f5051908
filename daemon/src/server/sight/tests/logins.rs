//! Whose jobs are marked where rules mean whoever logged in.

use super::*;

#[test]
fn all_processes_of_a_job_are_marked_where_rules_mean_whoever_logged_in() {
    // Alice runs them as bob.
    let logged_in = |pid, uid, login| {
        let mut process = process(pid, uid, 1);
        process.uid = Reading::Value(uid);
        process.login_uid = Reading::Value(login);
        process.place.unit = Reading::Value(None);
        process.place.scheduler = Reading::Value(None);
        process
    };
    let mut unknown = logged_in(4, BOB, None);
    unknown.login_uid = Reading::Failed("x".into());
    let snapshot = snapshot(vec![
        logged_in(1, BOB, Some(ALICE)),
        logged_in(2, BOB, Some(ALICE)),
        logged_in(3, BOB, None),
        unknown,
        logged_in(5, ALICE, Some(ALICE)),
    ]);
    let mut many = open(Subject::Job(job(ALICE)), vec![told(1, ALICE)]);
    many.evidence.count = 3;
    let (caller, roles) = (caller(0, &[]), roles(false));
    let sight = Sight {
        caller: &caller,
        roles: &roles,
    };
    for (person, marked) in [
        (PersonBy::Login, vec![1, 2, 5]),
        (PersonBy::Owner, vec![1, 5]),
    ] {
        let rules = Rules {
            person,
            ..Rules::default()
        };
        let brief = sight.brief(
            &Rulebook::of(rules.clone()),
            &standing(vec![many.clone()]),
            &snapshot,
        );
        let pids: Vec<u32> = brief.marked.iter().map(|mark| mark.run.pid).collect();
        assert_eq!(pids, marked, "{person:?}");
        let parts = snapshot.processes.iter();
        let parts = parts.filter(|it| is_part(&many, person, it));
        assert_eq!(parts.map(|it| it.pid).collect::<Vec<_>>(), marked);
    }
}
