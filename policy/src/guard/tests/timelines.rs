//! Hours on a shared host as a log of events and records.

use super::super::schedule::{Hours, Weekday};
use super::record_text::record_line;
use super::*;
use crate::golden::compare;

/// A host, its guard, and the log.
struct Timeline {
    world: TestHost,
    guard: TestGuard,
    log: String,
}

impl Timeline {
    fn new(title: &str, devices: usize, rules: RuleSet) -> Self {
        Self {
            world: TestHost::new(devices),
            guard: TestGuard::new(rules),
            log: format!("{title}\n\n"),
        }
    }

    /// An event at a time, before the guard evaluates the next sample.
    fn event(&mut self, hour: i64, minute: i64, what: &str, does: impl FnOnce(&mut TestHost)) {
        self.run_until(hour, minute);
        self.log
            .push_str(&format!("{hour:02}:{minute:02}:00 -- {what}\n"));
        does(&mut self.world);
    }

    /// Evaluates a sample every ten seconds up to a time.
    fn run_until(&mut self, hour: i64, minute: i64) {
        let until = (hour * 60 + minute) * 60_000;
        while self.world.now.0 < until {
            let evaluation = self.guard.evaluate_next(&mut self.world);
            for record in &evaluation.records {
                self.log.push_str(&format!("{}\n", record_line(record)));
            }
        }
    }

    fn compare(mut self, name: &str, hour: i64, minute: i64) {
        self.run_until(hour, minute);
        self.log
            .push_str(&format!("{hour:02}:{minute:02}:00 -- the end\n"));
        compare(&format!("guard/{name}"), &self.log);
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
fn forgotten_notebook_beside_training() {
    let rules = RuleSet {
        defaults: idle_after(30),
        ..dry_run_rules()
    };
    let title = "A job that holds 1 GiB and is idle for 30 minutes is reported. A dry run.";
    let mut hour = Timeline::new(title, 2, rules);
    hour.event(0, 0, "alice trains on GPU 0, bob plots on GPU 1", |it| {
        it.start(100, "alice").uses(0, 60, 95).job("tree 100");
        it.start(200, "bob")
            .uses(1, 40, 30)
            .job("container jupyter");
    });
    hour.event(0, 10, "bob goes for lunch", |it| {
        _ = it.process(200).uses(1, 40, 0)
    });
    hour.event(0, 30, "alice's data loader stalls for five minutes", |it| {
        it.process(100).uses(0, 60, 0);
    });
    hour.event(0, 35, "and goes on", |it| {
        _ = it.process(100).uses(0, 60, 95)
    });
    hour.event(0, 42, "bob runs one cell", |it| {
        _ = it.process(200).uses(1, 40, 50)
    });
    hour.event(0, 43, "bob goes home", |it| {
        _ = it.process(200).uses(1, 40, 0)
    });
    hour.compare("notebook", 1, 30);
}

#[test]
fn three_jobs_of_different_priority() {
    let project = |name: &str, image: &str, priority| GroupPolicy {
        name: name.into(),
        members: Members {
            images: globs(&[image]),
            ..Members::default()
        },
        priority: Some(priority),
        ..GroupPolicy::default()
    };
    let rules = RuleSet {
        mode: GuardMode::Enforce,
        defaults: Limits {
            memory: gib(60),
            ..Limits::default()
        },
        groups: vec![
            project("production", "prod/*", 9),
            project("trials", "trial/*", 2),
        ],
        ..dry_run_rules()
    };
    let title = "60 GiB for each person, enforced. Trials go first, production last.";
    let mut hour = Timeline::new(title, 1, rules);
    hour.event(0, 0, "carol's production takes 30 GiB", |it| {
        let process = it.start(100, "carol").uses(0, 30, 90).job("container prod");
        process.facts.image = Some(Some("prod/serve".into()));
    });
    hour.event(0, 1, "her training takes 30 GiB", |it| {
        it.start(200, "carol").uses(0, 30, 90).job("tree 200");
    });
    hour.event(0, 2, "her trial takes 4 GiB", |it| {
        let process = it.start(300, "carol").uses(0, 4, 90).job("container trial");
        process.facts.image = Some(Some("trial/new".into()));
    });
    hour.event(0, 3, "the trial is gone; training grows to 31 GiB", |it| {
        it.processes.remove(&300);
        it.process(200).uses(0, 31, 90);
    });
    hour.event(0, 4, "training is gone", |it| _ = it.processes.remove(&200));
    hour.compare("priorities", 0, 10);
}

#[test]
fn reserved_memory_of_a_device() {
    let rules = RuleSet {
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
        ..dry_run_rules()
    };
    let title =
        "8 GiB of GPU 0 stay free. A job that takes them is warned, and ended after 5 minutes.";
    let mut hour = Timeline::new(title, 1, rules);
    hour.event(0, 0, "alice holds 40 GiB", |it| {
        it.start(100, "alice").uses(0, 40, 90).job("tree 100");
    });
    hour.event(0, 5, "bob takes 36 GiB, which leaves 4", |it| {
        it.start(200, "bob").uses(0, 36, 90).job("tree 200");
    });
    hour.event(0, 8, "what bob holds is not known for a minute", |it| {
        it.devices[0].used = None;
    });
    hour.event(0, 9, "and is again", |it| it.devices[0].used = Some(0));
    hour.event(0, 11, "bob is gone", |it| _ = it.processes.remove(&200));
    hour.compare("reserved", 0, 20);
}

#[test]
fn maintenance_across_midnight() {
    let rules = RuleSet {
        mode: GuardMode::Soft,
        gpus: vec![GpuPolicy {
            name: "1".into(),
            gpus: gpus("1"),
            maintenance: Some(Hours {
                from: 23 * 60 + 30,
                to: 30,
                days: vec![Weekday::Friday],
            }),
            measures: Measures {
                grace: Some(minutes(10)),
                ..Measures::default()
            },
            ..GpuPolicy::default()
        }],
        ..dry_run_rules()
    };
    let title = "Nobody uses GPU 1 on Fridays from 23:30 to 00:30. It is Friday.";
    let mut hour = Timeline::new(title, 2, rules);
    hour.world.midnight = Weekday::Friday;
    hour.world.now = Timestamp(23 * 3_600_000);
    hour.event(23, 0, "alice works on both", |it| {
        it.start(100, "alice").uses(0, 10, 90).job("tree 100");
        it.start(101, "alice").uses(1, 10, 90).job("tree 101");
    });
    hour.event(
        23,
        45,
        "she has not seen it: the job is ended, and begun again",
        |it| {
            it.processes.remove(&101);
            it.start(102, "alice").uses(1, 10, 90).job("tree 102");
        },
    );
    hour.event(23, 50, "she sees it, and stops", |it| {
        _ = it.processes.remove(&102)
    });
    hour.event(24, 20, "bob begins; ten minutes later nobody minds", |it| {
        it.start(200, "bob").uses(1, 10, 90).job("tree 200");
    });
    hour.compare("maintenance", 25, 0);
}

#[test]
fn leaking_process() {
    let leak = ForbiddenBehaviour::Growth(GrowthParams {
        by: Bytes(8 * GIB),
        within: minutes(120),
    });
    let rules = RuleSet {
        behaviours: vec![behaviour_rule("leak", leak)],
        ..dry_run_rules()
    };
    let title =
        "A job that grows by 8 GiB in 2 hours, and in each half hour, is reported. A dry run.";
    let mut hour = Timeline::new(title, 1, rules);
    hour.event(
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
        hour.run_until(0, step * 12);
        let gib = u64::try_from(step).expect("it is positive");
        hour.world.process(100).uses(0, 10 + gib, 20);
        hour.world.process(200).uses(0, (1 + 4 * gib).min(21), 90);
    }
    hour.event(2, 30, "dave's service no longer grows", |_| ());
    hour.compare("leak", 3, 0);
}

#[test]
fn intruder_on_a_device() {
    let rules = RuleSet {
        mode: GuardMode::Enforce,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_users: names(&["alice"]),
            ..GpuPolicy::default()
        }],
        protect: ProtectRules {
            processes: globs(&["Xorg"]),
            ..ProtectRules::default()
        },
        ..dry_run_rules()
    };
    let title = "GPU 0 is alice's, enforced. Xorg is protected.";
    let mut hour = Timeline::new(title, 2, rules);
    hour.event(0, 0, "alice and Xorg use GPU 0", |it| {
        it.start(10, "root").uses(0, 1, 2).named("Xorg");
        it.start(100, "alice").uses(0, 20, 90).job("tree 100");
    });
    hour.event(0, 2, "bob uses both", |it| {
        it.start(200, "bob")
            .uses(0, 5, 90)
            .uses(1, 5, 90)
            .job("tree 200");
    });
    hour.event(0, 3, "he is gone; Slurm puts eve there", |it| {
        it.processes.remove(&200);
        let process = it.start(300, "eve").uses(0, 5, 90).job("slurm 77.0");
        let job = (gpukill_proto::model::Scheduler::Slurm, "77".to_owned());
        process.facts.scheduler = Some(Some(job));
    });
    hour.event(
        0,
        5,
        "she is gone; an unknown user starts a process",
        |it| {
            it.processes.remove(&300);
            let process = it.start(400, "eve").uses(0, 5, 90);
            process.facts = super::super::sample::ProcessFacts::default();
        },
    );
    hour.compare("intruder", 0, 10);
}

#[test]
fn server_waiting_for_requests() {
    let rules = RuleSet {
        defaults: idle_after(30),
        behaviours: vec![BehaviourRule {
            processes: globs(&["vllm*"]),
            ..behaviour_rule(
                "loaded-servers",
                ForbiddenBehaviour::Idle(IdleParams {
                    limit: minutes(90),
                    min_memory: Bytes(20 * GIB),
                    with_connections: true,
                    cpu_below: None,
                }),
            )
        }],
        ..dry_run_rules()
    };
    let title = "Idle after 30 minutes; a vLLM server with clients after 90. A dry run.";
    let mut hour = Timeline::new(title, 2, rules);
    hour.event(0, 0, "alice and bob serve", |it| {
        for (pid, owner, gpu) in [(100, "alice", 0), (200, "bob", 1)] {
            it.start(pid, owner)
                .uses(gpu, 70, 40)
                .job(&format!("container vllm-{owner}"))
                .connections(TestReading::Known(3))
                .named("vllm");
        }
    });
    hour.event(0, 5, "nobody asks anything; clients stay connected", |it| {
        it.process(100).uses(0, 70, 0);
        it.process(200).uses(1, 70, 0);
    });
    hour.event(0, 50, "alice's clients go", |it| {
        it.process(100).connections(TestReading::Known(0));
    });
    hour.compare("server", 2, 0);
}
