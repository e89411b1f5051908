//! Marks of jobs if rules go by the login user.

use super::*;

#[test]
fn job_is_marked_by_login_user() {
    // Alice runs them as bob.
    let logged_in = |pid, uid, login| {
        let mut process = process(pid, uid, 1);
        process.uid = Reading::Value(uid);
        process.login_uid = Reading::Value(login);
        process.location.unit = Reading::Value(None);
        process.location.scheduler = Reading::Value(None);
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
    let mut many = open_violation(
        ViolationSubject::Job(job(ALICE)),
        vec![evidence_process(1, ALICE)],
    );
    many.evidence.count = 3;
    let (caller, roles) = (caller(0, &[]), roles(false));
    let visibility = Visibility {
        caller: &caller,
        roles: &roles,
    };
    for (person, marked) in [
        (PersonAttribution::Login, vec![1, 2, 5]),
        (PersonAttribution::Owner, vec![1, 5]),
    ] {
        let rules = RuleSet {
            person,
            ..RuleSet::default()
        };
        let brief = visibility.brief(
            &CompiledRules::new(rules.clone()),
            &guard_status(vec![many.clone()]),
            &snapshot,
        );
        let pids: Vec<u32> = brief.marks.iter().map(|mark| mark.run.pid).collect();
        assert_eq!(pids, marked, "{person:?}");
        let parts = snapshot.processes.iter();
        let parts = parts.filter(|it| is_process_of_violation(&many, person, it));
        assert_eq!(parts.map(|it| it.pid).collect::<Vec<_>>(), marked);
    }
}
