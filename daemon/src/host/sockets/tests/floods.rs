//! Tests of jobs that exceed their budget.

use super::*;

/// A job that consists of process 100 of this user.
fn job_of(person: u32, pid: u32) -> WatchedJob {
    WatchedJob {
        owner: BudgetOwner::Person(person),
        ..tree_of(key(pid))
    }
}

/// A process that has the same socket open this many times.
fn copies(tree: &FakeSocketTree, pid: u32, socket: u64, times: usize) {
    tree.process(pid, 2, &vec![socket; times], &line(9000, 10, socket));
}

#[test]
fn copies_count_once_huge_job_is_unknown() {
    let tree = FakeSocketTree::new();
    tree.process(20, 1, &[5, 5, 5], &line(8000, 10, 5));
    copies(&tree, 100, 6, 6);
    let mut allowance = budget::ScanBudget::default()
        .allow(&job_of(1001, 20), Instant::now())
        .unwrap();
    let scanner = scanner_below(&tree);
    let holder = scanner.open_sockets(key(20), &mut allowance).unwrap();
    assert_eq!(holder.sockets, [5]);
    // Each of the 30 processes below it has as many descriptors as a scan of the job may read.
    for pid in 101..=130 {
        copies(&tree, pid, 6, 6);
        tree.parent(pid, 100);
    }
    let flood = job_of(1000, 100);
    let mut scanner = scanner_below(&tree);
    scanner.budget.per_job = 150;
    scanner.budget.per_person = 10_000;
    let network =
        |found: Vec<(ProcessKey, SocketFindings)>| found.last().unwrap().1.network.clone();
    let over = || failed("its job has too many files open");
    let service = used(NetworkRole::Service(vec![8000]), Some(0));
    let found = scanner.scan_jobs(&[flood.clone(), job_of(1000, 20)]);
    assert_eq!(found[0].1.network, over());
    assert_eq!(network(found), service);
    assert_eq!(scanner.remembered_sockets(&flood.job), 0);
    // The job is not even scanned for a while; the other is.
    scanner.survey_pace = job_processes::SurveyPace::default();
    std::fs::remove_dir_all(tree.root().join("100")).unwrap();
    assert_eq!(network(scanner.scan_jobs(&[flood])), over());
    assert_eq!(network(scanner.scan_jobs(&[job_of(1000, 20)])), service);
}

#[test]
fn person_over_budget_affects_no_other() {
    let tree = FakeSocketTree::new();
    tree.process(20, 1, &[5], &line(8000, 10, 5));
    for pid in 100..110 {
        copies(&tree, pid, 6, 40);
    }
    let mut scanner = scanner_below(&tree);
    scanner.budget.per_person = 250;
    let jobs: Vec<WatchedJob> = (100..110).map(|pid| job_of(1000, pid)).collect();
    let networks = |scanner: &mut SocketScanner, jobs: &[WatchedJob]| -> Vec<NetworkUse> {
        scanner.survey_pace = job_processes::SurveyPace::default();
        let found = scanner.scan_jobs(jobs).into_iter();
        found.map(|(_, found)| found.network).collect()
    };
    let over = failed("the jobs of its user have too many files open");
    let found = networks(&mut scanner, &jobs);
    let known = found.iter().filter(|it| it.role.known().is_some()).count();
    assert!((1..9).contains(&known), "{found:?}");
    assert!(found[known..].iter().all(|it| *it == over), "{found:?}");
    // Jobs of another person are known, and none of this person for a while.
    let service = used(NetworkRole::Service(vec![8000]), Some(0));
    let now = networks(&mut scanner, &[job_of(1001, 20), jobs[0].clone()]);
    assert_eq!(now, [service, over]);
}

#[test]
fn budget_is_renewed_with_each_scan() {
    let mut budget = budget::ScanBudget::default();
    let (flood, other) = (job_of(1000, 1), job_of(1000, 2));
    let (now, stranger) = (Instant::now(), job_of(1001, 3));
    let spend = |budget: &mut budget::ScanBudget, job: &WatchedJob, cost: usize, at: Instant| {
        let mut allowance = budget.allow(job, at)?;
        let spent = allowance.spend(cost);
        budget.record(job, &allowance, at);
        spent
    };
    let half = budget::JOB_BUDGET;
    assert_eq!(spend(&mut budget, &flood, half, now), Ok(()));
    assert_eq!(spend(&mut budget, &other, half, now), Ok(()));
    let later = now + REFRESH_INTERVAL;
    assert_eq!(spend(&mut budget, &flood, half, later), Ok(()));
    assert_eq!(spend(&mut budget, &other, 1, later), Ok(()));
    let over = budget::BudgetExceeded::Person;
    assert_eq!(spend(&mut budget, &other, half, later), Err(over));
    assert_eq!(spend(&mut budget, &stranger, half, later), Ok(()));
    assert_eq!(
        spend(&mut budget, &flood, 1, later + REFRESH_INTERVAL),
        Err(over)
    );
    let rested = later + Duration::from_secs(60);
    assert_eq!(spend(&mut budget, &flood, half, rested), Ok(()));
    // A job over its own limit leaves the other jobs of the person known.
    let (over, rested) = (budget::BudgetExceeded::Job, rested + REFRESH_INTERVAL);
    assert_eq!(spend(&mut budget, &flood, half + 1, rested), Err(over));
    assert_eq!(
        spend(&mut budget, &flood, 1, rested + REFRESH_INTERVAL),
        Err(over)
    );
    assert_eq!(
        spend(&mut budget, &other, half, rested + REFRESH_INTERVAL),
        Ok(())
    );
}

#[test]
fn many_processes_displace_no_other_person() {
    let mut wanted = alone(&(1..=50).collect::<Vec<_>>());
    let mut other = alone(&[60, 61]);
    for attribution in other.values_mut() {
        attribution.person = Some(1001);
    }
    wanted.extend(other);
    let known = WatcherState {
        watched: limit_processes(wanted.clone(), 10),
        ..WatcherState::default()
    };
    let pids: Vec<u32> = known.watched.keys().map(|key| key.pid).collect();
    assert_eq!(pids, [1, 2, 3, 4, 5, 6, 7, 8, 60, 61]);
    let due = known.due_jobs().into_iter();
    let due: Vec<u32> = due
        .flat_map(|job| job.processes)
        .map(|key| key.pid)
        .collect();
    assert_eq!(due, [1, 60, 2, 61, 3, 4, 5, 6, 7, 8]);
    // The uids of a system container are chosen by its image: it is its own owner.
    let contained = |id: &str| {
        let id = gpukill_proto::model::ContainerId {
            runtime: "docker".into(),
            id: id.into(),
        };
        let job = Job::Container { id, manager: None };
        BudgetOwner::new(Some(&job), Some(0))
    };
    assert_ne!(contained("a"), contained("b"));
    assert_eq!(BudgetOwner::new(None, Some(0)), BudgetOwner::Person(0));
}

#[test]
fn listeners_at_one_address_are_one_port() {
    let tree = FakeSocketTree::new();
    let listeners: Vec<u64> = (1..=2_000).collect();
    let mut table: String = listeners.iter().map(|it| line(8000, 10, *it)).collect();
    for port in 0..2_000 {
        table += &to(&format!("097100CB:{port:04X}"), 8000, 1, 0);
    }
    tree.process(100, 1, &listeners, &table);
    let mut scanner = scanner_below(&tree);
    let service = used(NetworkRole::Service(vec![8000]), Some(2_000));
    assert_eq!(scan_job(&mut scanner, &job_of(1000, 100)), service);
}
