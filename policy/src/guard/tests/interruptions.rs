//! Whatever the order of samples, edits of the rules, restarts, outcomes and snoozes, no job is
//! chosen while its last end may be under way, and a snooze holds until its time.

use super::super::enforcement::order::{Enforcement, SignalStatus, SnoozeRequest};
use super::super::evaluate;
use super::*;
use gpukill_proto::guard::{EnforcementOutcome, GuardStep, RuleKind};
use proptest::prelude::*;
use std::collections::BTreeMap;

const BOB: u32 = 1_001;

/// Rules that an admin may change to: another mode, another limit, or the limit of another person.
fn rule_sets() -> Vec<CompiledRules> {
    let mut sets = Vec::new();
    for mode in [GuardMode::Enforce, GuardMode::Soft, GuardMode::DryRun] {
        for (limit, others) in [(20, None), (15, None), (20, Some(8))] {
            let mut rules = RuleSet {
                mode,
                armed_mode: match mode {
                    GuardMode::Enforce => EnforcementMode::Enforce,
                    GuardMode::Disabled | GuardMode::DryRun | GuardMode::Soft => {
                        EnforcementMode::Soft
                    }
                },
                defaults: memory_limit(limit),
                ..dry_run_rules()
            };
            rules.enforcement.grace = Duration::from_secs(20);
            rules.enforcement.snooze = minutes(2);
            rules.enforcement.max_snoozes = 9;
            rules.enforcement.max_ended = 100;
            rules.users = others.into_iter().map(user_policy).collect();
            sets.push(CompiledRules::new(rules));
        }
    }
    sets
}

fn user_policy(limit: u64) -> UserPolicy {
    UserPolicy {
        name: "dave".into(),
        limits: memory_limit(limit),
        ..UserPolicy::default()
    }
}

/// A guard, its host, and what was promised and done.
struct InterruptedGuard {
    rules: Vec<CompiledRules>,
    in_force: usize,
    state: GuardState,
    world: TestHost,
    /// Each enforcement without an outcome, and whether it was started.
    pending: Vec<(Enforcement, bool)>,
    /// When each process was last chosen, and whether it may have been signalled since.
    chosen: BTreeMap<(u32, u64), (Timestamp, bool)>,
    /// Until when no job of bob's is ended for the default limit.
    promised: Timestamp,
}

impl InterruptedGuard {
    fn new() -> Self {
        let mut world = TestHost::new(1);
        for (pid, owner) in [(100, "bob"), (101, "alice"), (102, "bob")] {
            let process = world.start(pid, owner).uses(0, 21, 50);
            process.job(&format!("tree {pid}"));
        }
        Self {
            rules: rule_sets(),
            in_force: 0,
            state: GuardState::default(),
            world,
            pending: Vec::new(),
            chosen: BTreeMap::new(),
            promised: Timestamp(0),
        }
    }

    fn step(&mut self, choice: u8) {
        let detail = usize::from(choice / 8);
        match choice % 8 {
            0 => self.in_force = detail % self.rules.len(),
            1 => {
                let text = serde_json::to_string(&self.state).unwrap();
                let state: GuardState = serde_json::from_str(&text).unwrap();
                self.state = state.into_restarted();
                self.pending.clear();
            }
            2 => self.report_outcome(detail),
            3 => self.snooze(),
            _ => self.evaluate(detail % 2 == 0),
        }
    }

    /// The processes of an enforcement survive, or it sends no signal.
    fn report_outcome(&mut self, detail: usize) {
        if self.pending.is_empty() {
            return;
        }
        let (enforcement, is_started) = self.pending.remove(detail % self.pending.len());
        let outcome = EnforcementOutcome {
            job: enforcement.job.clone(),
            ended: 0,
            left: 1,
            why: None,
        };
        let signals = match is_started {
            true => SignalStatus::Sent,
            false => SignalStatus::Unsent,
        };
        let now = self.world.now;
        let _ = self
            .state
            .record_outcome(&enforcement, (outcome, signals), now);
    }

    fn snooze(&mut self) {
        let request = SnoozeRequest {
            requester: BOB,
            owner: BOB,
            process: (100, 1_000),
            job: Some("tree 100".into()),
        };
        let rules = &self.rules[self.in_force];
        let granted = self.state.snooze(rules, &request, self.world.now);
        for record in granted.unwrap_or_default() {
            if let GuardStep::Snoozed { until, .. } = record.step {
                assert_eq!(record.rule.kind, RuleKind::Memory);
                self.promised = self.promised.max(until);
            }
        }
    }

    fn evaluate(&mut self, starts: bool) {
        let rules = &self.rules[self.in_force];
        let sample = self.world.next_sample(SAMPLE_MS);
        let evaluation = evaluate(rules, &mut self.state, &sample);
        for enforcement in self.state.enforcements(&evaluation.records) {
            let at = enforcement.record.at;
            let is_bobs = enforcement.job.owner.uid == Some(BOB);
            assert!(
                !is_bobs || at >= self.promised,
                "{at:?} {:?}",
                self.promised
            );
            for process in &enforcement.processes {
                let last = self.chosen.insert(*process, (at, starts));
                if let Some((last, was_started)) = last {
                    let wait = if was_started { 120 } else { 60 };
                    let since = at.since(last);
                    assert!(since >= Duration::from_secs(wait), "{process:?} {since:?}");
                }
            }
            if starts {
                self.state.mark_started(&enforcement);
            }
            self.pending.push((enforcement, starts));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_job_is_chosen_twice_and_snoozes_hold(
        steps in proptest::collection::vec(any::<u8>(), 1..160),
    ) {
        let mut guard = InterruptedGuard::new();
        for choice in steps {
            guard.step(choice);
        }
    }
}
