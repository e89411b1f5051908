//! Hours on a shared box, told as they go.

use super::super::schedule::{Day, Hours};
use super::words::line;
use super::*;
use crate::golden::compare;

/// A box, its guard, and what has been told of them.
struct Hour {
    world: World,
    guard: Guard,
    told: String,
}

impl Hour {
    fn new(about: &str, devices: usize, rules: Rules) -> Self {
        Self {
            world: World::new(devices),
            guard: Guard::new(rules),
            told: format!("{about}\n\n"),
        }
    }

    /// What happens at a time, before the guard looks.
    fn at(&mut self, hour: i64, minute: i64, what: &str, does: impl FnOnce(&mut World)) {
        self.until(hour, minute);
        self.told
            .push_str(&format!("{hour:02}:{minute:02}:00 -- {what}\n"));
        does(&mut self.world);
    }

    /// The guard looks every ten seconds up to a time.
    fn until(&mut self, hour: i64, minute: i64) {
        let until = (hour * 60 + minute) * 60_000;
        while self.world.now.0 < until {
            let judgement = self.guard.looks(&mut self.world);
            for record in &judgement.records {
                self.told.push_str(&format!("{}\n", line(record)));
            }
        }
    }

    fn compare(mut self, name: &str, hour: i64, minute: i64) {
        self.until(hour, minute);
        self.told
            .push_str(&format!("{hour:02}:{minute:02}:00 -- the end\n"));
        compare(&format!("guard/{name}"), &self.told);
    }
}

fn idle_after(limit: u64) -> Limits {
    Limits {
        idle: Some(minutes(limit)),
        idle_min_memory: gib(1),
        ..Limits::default()
    }
}

#[test]
fn a_notebook_that_was_forgotten_beside_a_training_that_goes_on() {
    let rules = Rules {
        defaults: idle_after(30),
        ..rules()
    };
    let about = "Whoever holds 1 GiB and does nothing for 30 minutes is told. A dry run.";
    let mut hour = Hour::new(about, 2, rules);
    hour.at(0, 0, "alice trains on GPU 0, bob plots on GPU 1", |it| {
        it.start(100, "alice").uses(0, 60, 95).job("tree 100");
        it.start(200, "bob")
            .uses(1, 40, 30)
            .job("container jupyter");
    });
    hour.at(0, 10, "bob goes for lunch", |it| {
        _ = it.process(200).uses(1, 40, 0)
    });
    hour.at(0, 30, "alice's data loader stalls for five minutes", |it| {
        it.process(100).uses(0, 60, 0);
    });
    hour.at(0, 35, "and goes on", |it| {
        _ = it.process(100).uses(0, 60, 95)
    });
    hour.at(0, 42, "bob runs one cell", |it| {
        _ = it.process(200).uses(1, 40, 50)
    });
    hour.at(0, 43, "bob goes home", |it| {
        _ = it.process(200).uses(1, 40, 0)
    });
    hour.compare("notebook", 1, 30);
}

#[test]
fn a_person_with_three_jobs_that_are_worth_different_things() {
    let project = |name: &str, image: &str, priority| GroupPolicy {
        name: name.into(),
        members: Members {
            images: globs(&[image]),
            ..Members::default()
        },
        priority: Some(priority),
        ..GroupPolicy::default()
    };
    let rules = Rules {
        mode: GuardMode::Enforce,
        defaults: Limits {
            memory: gib(60),
            ..Limits::default()
        },
        groups: vec![
            project("production", "prod/*", 9),
            project("trials", "trial/*", 2),
        ],
        ..rules()
    };
    let about = "60 GiB for each person, enforced. Trials go first, production last.";
    let mut hour = Hour::new(about, 1, rules);
    hour.at(0, 0, "carol's production takes 30 GiB", |it| {
        let process = it.start(100, "carol").uses(0, 30, 90).job("container prod");
        process.about.image = Some(Some("prod/serve".into()));
    });
    hour.at(0, 1, "her training takes 30 GiB", |it| {
        it.start(200, "carol").uses(0, 30, 90).job("tree 200");
    });
    hour.at(0, 2, "her trial takes 4 GiB", |it| {
        let process = it.start(300, "carol").uses(0, 4, 90).job("container trial");
        process.about.image = Some(Some("trial/new".into()));
    });
    hour.at(0, 3, "the trial is gone; training grows to 31 GiB", |it| {
        it.processes.remove(&300);
        it.process(200).uses(0, 31, 90);
    });
    hour.at(0, 4, "training is gone", |it| _ = it.processes.remove(&200));
    hour.compare("priorities", 0, 10);
}

#[test]
fn a_device_of_which_some_memory_is_kept() {
    let rules = Rules {
        mode: GuardMode::Soft,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            reserved_memory: gib(8),
            measures: Measures {
                message: Some("GPU 0 is for demos too".into()),
                ..Measures::default()
            },
            ..GpuPolicy::default()
        }],
        ..rules()
    };
    let about = "8 GiB of GPU 0 stay free. Who takes them is warned, and ended after 5 minutes.";
    let mut hour = Hour::new(about, 1, rules);
    hour.at(0, 0, "alice holds 40 GiB", |it| {
        it.start(100, "alice").uses(0, 40, 90).job("tree 100");
    });
    hour.at(0, 5, "bob takes 36 GiB, which leaves 4", |it| {
        it.start(200, "bob").uses(0, 36, 90).job("tree 200");
    });
    hour.at(0, 8, "what bob holds is not known for a minute", |it| {
        it.devices[0].used = None;
    });
    hour.at(0, 9, "and is again", |it| it.devices[0].used = Some(0));
    hour.at(0, 11, "bob is gone", |it| _ = it.processes.remove(&200));
    hour.compare("reserved", 0, 20);
}

#[test]
fn a_maintenance_across_midnight() {
    let rules = Rules {
        mode: GuardMode::Soft,
        gpus: vec![GpuPolicy {
            name: "1".into(),
            gpus: gpus("1"),
            maintenance: Some(Hours {
                from: 23 * 60 + 30,
                to: 30,
                days: vec![Day::Friday],
            }),
            measures: Measures {
                grace: Some(minutes(10)),
                ..Measures::default()
            },
            ..GpuPolicy::default()
        }],
        ..rules()
    };
    let about = "Nobody uses GPU 1 on Fridays from 23:30 to 00:30. It is Friday.";
    let mut hour = Hour::new(about, 2, rules);
    hour.world.midnight = Day::Friday;
    hour.world.now = Timestamp(23 * 3_600_000);
    hour.at(23, 0, "alice works on both", |it| {
        it.start(100, "alice").uses(0, 10, 90).job("tree 100");
        it.start(101, "alice").uses(1, 10, 90).job("tree 101");
    });
    hour.at(
        23,
        45,
        "she has not seen it: the job is ended, and begun again",
        |it| {
            it.processes.remove(&101);
            it.start(102, "alice").uses(1, 10, 90).job("tree 102");
        },
    );
    hour.at(23, 50, "she sees it, and stops", |it| {
        _ = it.processes.remove(&102)
    });
    hour.at(24, 20, "bob begins; ten minutes later nobody minds", |it| {
        it.start(200, "bob").uses(1, 10, 90).job("tree 200");
    });
    hour.compare("maintenance", 25, 0);
}

#[test]
fn a_process_that_leaks() {
    let leak = Conduct::Growth {
        by: Bytes(8 * GIB),
        within: minutes(120),
    };
    let rules = Rules {
        behaviours: vec![behaviour("leak", leak)],
        ..rules()
    };
    let about = "Who grows by 8 GiB in 2 hours, and in each half an hour, is told. A dry run.";
    let mut hour = Hour::new(about, 1, rules);
    hour.at(
        0,
        0,
        "dave's service leaks 1 GiB in 12 minutes; alice fills a cache",
        |it| {
            it.start(100, "dave")
                .uses(0, 10, 20)
                .job("unit infer.service");
            it.start(200, "alice").uses(0, 1, 90).job("tree 200");
        },
    );
    for step in 1..=12 {
        hour.until(0, step * 12);
        let gib = u64::try_from(step).expect("it is positive");
        hour.world.process(100).uses(0, 10 + gib, 20);
        hour.world.process(200).uses(0, (1 + 4 * gib).min(21), 90);
    }
    hour.at(2, 30, "dave's service no longer grows", |_| ());
    hour.compare("leak", 3, 0);
}

#[test]
fn an_intruder_on_a_device_of_others() {
    let rules = Rules {
        mode: GuardMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_users: names(&["alice"]),
            ..GpuPolicy::default()
        }],
        protect: Protect {
            processes: globs(&["Xorg"]),
            ..Protect::default()
        },
        ..rules()
    };
    let about = "GPU 0 is alice's, enforced. Xorg is protected.";
    let mut hour = Hour::new(about, 2, rules);
    hour.at(0, 0, "alice and Xorg use GPU 0", |it| {
        it.start(10, "root").uses(0, 1, 2).named("Xorg");
        it.start(100, "alice").uses(0, 20, 90).job("tree 100");
    });
    hour.at(0, 2, "bob uses both", |it| {
        it.start(200, "bob")
            .uses(0, 5, 90)
            .uses(1, 5, 90)
            .job("tree 200");
    });
    hour.at(0, 3, "he is gone; Slurm puts eve there", |it| {
        it.processes.remove(&200);
        let process = it.start(300, "eve").uses(0, 5, 90).job("slurm 77.0");
        let job = (gpukill_proto::snapshot::Scheduler::Slurm, "77".to_owned());
        process.about.scheduler = Some(Some(job));
    });
    hour.at(
        0,
        5,
        "she is gone; somebody comes of whom nothing is known",
        |it| {
            it.processes.remove(&300);
            let process = it.start(400, "eve").uses(0, 5, 90);
            process.about = super::super::bucket::About::default();
        },
    );
    hour.compare("intruder", 0, 10);
}

#[test]
fn a_server_that_waits_for_requests() {
    let rules = Rules {
        defaults: idle_after(30),
        behaviours: vec![Behaviour {
            processes: globs(&["vllm*"]),
            ..behaviour(
                "loaded-servers",
                Conduct::Idle {
                    limit: minutes(90),
                    min_memory: Bytes(20 * GIB),
                    with_connections: true,
                    cpu_below: None,
                },
            )
        }],
        ..rules()
    };
    let about = "Idle after 30 minutes; a vLLM server with clients after 90. A dry run.";
    let mut hour = Hour::new(about, 2, rules);
    hour.at(0, 0, "alice and bob serve", |it| {
        for (pid, owner, gpu) in [(100, "alice", 0), (200, "bob", 1)] {
            it.start(pid, owner)
                .uses(gpu, 70, 40)
                .job(&format!("container vllm-{owner}"))
                .connections(Told::Known(3))
                .named("vllm");
        }
    });
    hour.at(0, 5, "nobody asks anything; clients stay connected", |it| {
        it.process(100).uses(0, 70, 0);
        it.process(200).uses(1, 70, 0);
    });
    hour.at(0, 50, "alice's clients go", |it| {
        it.process(100).connections(Told::Known(0));
    });
    hour.compare("server", 2, 0);
}
