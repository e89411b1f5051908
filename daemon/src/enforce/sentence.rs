//! Ends a job that the guard chose, by the same looks and signals as a kill that a person
//! asks for; but it is recorded first, or it is not done.

use super::act::{Word, act};
use super::slots::Slot;
use super::{Enforcer, Means, Owner, look_now};
use crate::authority::Authority;
use crate::state::Published;
use gpukill_policy::guard::sentence::{acted, objection, request};
use gpukill_policy::guard::{Process, Signals};
use gpukill_policy::kill::{Seen, plan};
use gpukill_proto::guard::{Acted, JudgedJob};
use gpukill_proto::kill::KillPlan;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long is waited for a place, and how often is looked for one: a plan is as old as
/// that when it is carried out, and each target is looked at again.
const FOR_A_PLACE: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(200);

/// A job that is to be ended.
pub(crate) struct Sentence {
    /// For which rule, in words.
    pub(crate) rule: String,
    pub(crate) job: JudgedJob,
    /// Its processes on devices.
    pub(crate) processes: BTreeSet<Process>,
}

impl Sentence {
    fn is_not_carried_out(&self, why: String) -> Acted {
        let left = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
        Acted {
            job: self.job.clone(),
            ended: 0,
            left,
            why: Some(why),
        }
    }
}

/// Who waits for a sentence.
pub(crate) trait Waits: Send + 'static {
    /// Right before the first signal. After `false` none is sent.
    fn begins(&mut self) -> bool;

    /// What came of it, and whether it had signals. Called once.
    fn settle(self, acted: Acted, signals: Signals);
}

impl Enforcer {
    /// Ends it, on threads of its own.
    pub(crate) fn carry_out_sentence(&self, sentence: Sentence, who: impl Waits) {
        let enforcer = self.clone();
        let run = move || enforcer.plan_sentence(sentence, who);
        let thread = std::thread::Builder::new()
            .name("sentence".into())
            .spawn(run);
        if let Err(error) = thread {
            // Whoever waits finds out by the job, which is there still.
            tracing::error!(%error, "no thread for what the guard ends");
        }
    }

    /// A place for it, as soon as one is free: a few jobs go at a time.
    fn place(&self, owner: Owner) -> Option<Slot> {
        let until = Instant::now() + FOR_A_PLACE;
        loop {
            let slot = self.operations.place(owner, true);
            if slot.is_some() || self.means.is_stopping() || Instant::now() >= until {
                return slot;
            }
            std::thread::sleep(STEP);
        }
    }

    fn plan_sentence(&self, sentence: Sentence, mut who: impl Waits) {
        let means = Means {
            authority: self.means.authority.of_the_guard(),
            ..self.means.clone()
        };
        let seen = look_now(&means);
        let refused = |why: String| sentence.is_not_carried_out(why);
        let plan = match planned(&sentence, &means, &seen) {
            Ok(plan) => Arc::new(plan),
            Err(None) => return who.settle(acted_by_itself(&sentence), Signals::Unsent),
            Err(Some(why)) => return who.settle(refused(why), Signals::Unsent),
        };
        let caller = Authority::the_guard();
        let owner = Owner::of(&caller);
        let Some(slot) = self.place(owner) else {
            let why = "too many kills are under way".to_owned();
            return who.settle(refused(why), Signals::Unsent);
        };
        if !who.begins() {
            let why = "it is not to be ended any more by the rules as they are now, or that cannot be written down".to_owned();
            return who.settle(refused(why), Signals::Unsent);
        }
        let carried_out = Arc::clone(&plan);
        let began = self.operations.begin(slot, owner, &plan, move |report| {
            let word = Word {
                caller: &caller,
                asked: format!("guard: {}", sentence.rule),
                must_be_recorded: true,
            };
            act(&carried_out, &word, &means, &seen, report);
            let report = report.borrow().clone();
            // What cannot be recorded is not done.
            let signals = match &report.unrecorded {
                Some(_) => Signals::Unsent,
                None => Signals::Sent,
            };
            who.settle(acted(sentence.job, &report), signals);
        });
        if let Err(error) = began {
            tracing::error!(%error, "no thread for what the guard ends");
        }
    }
}

/// None of its processes is there any more.
fn acted_by_itself(sentence: &Sentence) -> Acted {
    Acted {
        job: sentence.job.clone(),
        ended: 0,
        left: 0,
        why: Some("it had ended by itself".to_owned()),
    }
}

/// The plan for it.
///
/// # Errors
/// Why there is none; `None` where none of its processes is there any more.
fn planned(
    sentence: &Sentence,
    means: &Means,
    seen: &Published,
) -> Result<KillPlan, Option<String>> {
    means.acts().map_err(|why| Some(why.to_string()))?;
    let crowd = means.crowds.everybody(&means.authority.users);
    let crowd = crowd.map_err(|error| Some(format!("processes cannot be looked at: {error}")))?;
    let lives = |process: &&Process| {
        let (pid, start_ticks) = **process;
        crowd
            .get(&pid)
            .is_some_and(|it| it.kin.key.start_ticks == start_ticks)
    };
    let living: BTreeSet<Process> = sentence.processes.iter().filter(lives).copied().collect();
    if living.is_empty() {
        return Err(None);
    }
    let (roles, operators) = (means.authority.roles(), means.authority.operators());
    let protection = means.authority.protection();
    let caller = Authority::the_guard();
    let seen = Seen {
        caller: &caller,
        roles: &roles,
        operators: &operators,
        snapshot: &seen.snapshot,
        holders: &seen.holders,
        crowd: &crowd,
        protection: &protection,
    };
    let plan = plan(&request(&living), &seen, means.clock.now());
    let plan = plan.map_err(|why| Some(why.to_string()))?;
    match objection(&plan, &sentence.job, &living) {
        Some(why) => Err(Some(why)),
        None => Ok(plan),
    }
}
