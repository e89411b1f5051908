//! Jobs that make more work for the thread than is their part.

use super::*;

/// A job that process 100 of this user has for itself.
fn job_of(person: u32, pid: u32) -> WatchedJob {
    WatchedJob {
        job: Job::Tree(key(pid)),
        share: Share::Person(person),
        processes: [key(pid)].into(),
        ..job(&[])
    }
}

/// A process with one socket open so many times.
fn copies(tree: &Tree, pid: u32, socket: u64, times: usize) {
    tree.process(pid, 2, &vec![socket; times], &line(9000, 10, socket));
}

#[test]
fn copies_of_a_socket_are_one_and_a_job_of_very_many_is_not_known_while_others_are() {
    let tree = Tree::new();
    tree.process(20, 1, &[5, 5, 5], &line(8000, 10, 5));
    copies(&tree, 100, 6, 6);
    let mut purse = budget::Budget::default()
        .open(&job_of(1001, 20), Instant::now())
        .unwrap();
    let look = look_below(&tree);
    let holder = look.holder(key(20), &mut purse).unwrap();
    assert_eq!(holder.sockets, [5]);
    // Of 30 processes below it, each has as many descriptors as a look at the job may see.
    for pid in 101..=130 {
        copies(&tree, pid, 6, 6);
        tree.parent(pid, 100);
    }
    let flood = job_of(1000, 100);
    let mut look = look_below(&tree);
    look.budget.of_job = 150;
    look.budget.of_person = 10_000;
    let network = |found: Vec<(ProcessKey, Found)>| found.last().unwrap().1.network.clone();
    let over = || failed("its job has too many files open");
    let service = used(NetworkRole::Service(vec![8000]), Some(0));
    let found = look.at(&[flood.clone(), job_of(1000, 20)]);
    assert_eq!(found[0].1.network, over());
    assert_eq!(network(found), service);
    assert_eq!(look.kept(&flood.job), 0);
    // It is not even looked at for a while; the other is.
    look.pace = members::Pace::default();
    std::fs::remove_dir_all(tree.root().join("100")).unwrap();
    assert_eq!(network(look.at(&[flood])), over());
    assert_eq!(network(look.at(&[job_of(1000, 20)])), service);
}

#[test]
fn what_one_persons_jobs_cost_together_leaves_only_theirs_unknown() {
    let tree = Tree::new();
    tree.process(20, 1, &[5], &line(8000, 10, 5));
    for pid in 100..110 {
        copies(&tree, pid, 6, 40);
    }
    let mut look = look_below(&tree);
    look.budget.of_person = 250;
    let jobs: Vec<WatchedJob> = (100..110).map(|pid| job_of(1000, pid)).collect();
    let networks = |look: &mut Look, jobs: &[WatchedJob]| -> Vec<NetworkUse> {
        look.pace = members::Pace::default();
        let found = look.at(jobs).into_iter();
        found.map(|(_, found)| found.network).collect()
    };
    let over = failed("the jobs of its user have too many files open");
    let found = networks(&mut look, &jobs);
    let known = found.iter().filter(|it| it.role.known().is_some()).count();
    assert!((1..9).contains(&known), "{found:?}");
    assert!(found[known..].iter().all(|it| *it == over), "{found:?}");
    // Those of another are known, and none of theirs for a while.
    let service = used(NetworkRole::Service(vec![8000]), Some(0));
    let now = networks(&mut look, &[job_of(1001, 20), jobs[0].clone()]);
    assert_eq!(now, [service, over]);
}

#[test]
fn the_part_of_one_person_is_counted_anew_when_each_job_is_looked_at_anew() {
    let mut budget = budget::Budget::default();
    let (flood, other) = (job_of(1000, 1), job_of(1000, 2));
    let (now, stranger) = (Instant::now(), job_of(1001, 3));
    let spend = |budget: &mut budget::Budget, job: &WatchedJob, cost: usize, at: Instant| {
        let mut purse = budget.open(job, at)?;
        let spent = purse.take(cost);
        budget.close(job, &purse, at);
        spent
    };
    let half = budget::OF_JOB;
    assert_eq!(spend(&mut budget, &flood, half, now), Ok(()));
    assert_eq!(spend(&mut budget, &other, half, now), Ok(()));
    let later = now + EVERY;
    assert_eq!(spend(&mut budget, &flood, half, later), Ok(()));
    assert_eq!(spend(&mut budget, &other, 1, later), Ok(()));
    let over = budget::Over::Person;
    assert_eq!(spend(&mut budget, &other, half, later), Err(over));
    assert_eq!(spend(&mut budget, &stranger, half, later), Ok(()));
    assert_eq!(spend(&mut budget, &flood, 1, later + EVERY), Err(over));
    let rested = later + Duration::from_secs(60);
    assert_eq!(spend(&mut budget, &flood, half, rested), Ok(()));
    // A job that is beyond its own part leaves the person's others known.
    let (over, rested) = (budget::Over::Job, rested + EVERY);
    assert_eq!(spend(&mut budget, &flood, half + 1, rested), Err(over));
    assert_eq!(spend(&mut budget, &flood, 1, rested + EVERY), Err(over));
    assert_eq!(spend(&mut budget, &other, half, rested + EVERY), Ok(()));
}

#[test]
fn one_persons_many_processes_take_neither_the_turn_nor_the_place_of_anothers() {
    let mut wanted = alone(&(1..=50).collect::<Vec<_>>());
    let mut other = alone(&[60, 61]);
    for affiliation in other.values_mut() {
        affiliation.person = Some(1001);
    }
    wanted.extend(other);
    let known = Known {
        wanted: shared_out(wanted.clone(), 10),
        ..Known::default()
    };
    let pids: Vec<u32> = known.wanted.keys().map(|key| key.pid).collect();
    assert_eq!(pids, [1, 2, 3, 4, 5, 6, 7, 8, 60, 61]);
    let due = known.due().into_iter();
    let due: Vec<u32> = due
        .flat_map(|job| job.processes)
        .map(|key| key.pid)
        .collect();
    assert_eq!(due, [1, 60, 2, 61, 3, 4, 5, 6, 7, 8]);
    // A system container's user ids are its image's: it is nobody's but its own.
    let contained = |id: &str| {
        let id = gpukill_proto::snapshot::ContainerId {
            runtime: "docker".into(),
            id: id.into(),
        };
        let job = Job::Container { id, manager: None };
        Share::of(Some(&job), Some(0))
    };
    assert_ne!(contained("a"), contained("b"));
    assert_eq!(Share::of(None, Some(0)), Share::Person(0));
}

#[test]
fn many_listeners_at_one_address_are_one_port() {
    let tree = Tree::new();
    let listeners: Vec<u64> = (1..=2_000).collect();
    let mut table: String = listeners.iter().map(|it| line(8000, 10, *it)).collect();
    for port in 0..2_000 {
        table += &to(&format!("097100CB:{port:04X}"), 8000, 1, 0);
    }
    tree.process(100, 1, &listeners, &table);
    let mut look = look_below(&tree);
    let service = used(NetworkRole::Service(vec![8000]), Some(2_000));
    assert_eq!(look_at(&mut look, &job_of(1000, 100)), service);
}
