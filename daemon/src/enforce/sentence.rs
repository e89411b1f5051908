//! Ends a job that the guard chose, by the same looks and signals as a kill that a person
//! asks for; but it is recorded first, or it is not done.

use super::act::{Word, act};
use super::guard_places::GuardPlace;
use super::{Enforcer, Means, Owner, look_now};
use crate::authority::Authority;
use crate::state::Published;
use gpukill_policy::guard::sentence::{
    Judged, Objection, acted, objection, objection_alone, on_devices, person_judged, request,
    signals,
};
use gpukill_policy::guard::{PersonKey, Process, Rulebook, Signals};
use gpukill_policy::kill::shared::{People, narrow};
use gpukill_policy::kill::{Seen, plan};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{Acted, JudgedJob};
use gpukill_proto::kill::{KillPlan, KillScope};
use gpukill_proto::snapshot::{DeviceId, ProcessKey};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long is waited for a place, and how often is looked for one. No more are chosen than
/// have one: it is given back a moment after the guard was told what came of the last.
const FOR_A_PLACE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(200);

/// A job that is to be ended.
pub(crate) struct Sentence {
    /// For which rule, in words.
    pub(crate) rule: String,
    pub(crate) job: JudgedJob,
    /// Its processes on devices.
    pub(crate) processes: BTreeSet<Process>,
    /// The devices that it was judged on.
    pub(crate) devices: BTreeSet<DeviceId>,
    /// By which rules.
    pub(crate) rules: Arc<Rulebook>,
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
        let who = Settled::new(&sentence, who);
        let settled = who.clone();
        let run = move || enforcer.plan_sentence(sentence, who);
        let thread = std::thread::Builder::new()
            .name("sentence".into())
            .spawn(run);
        if let Err(error) = thread {
            settled.is_not_carried_out(format!("no thread for it: {error}"));
        }
    }

    /// A place for it, as soon as one is free: a few jobs go at a time.
    fn guard_place(&self, person: &PersonKey) -> Option<GuardPlace> {
        let until = Instant::now() + FOR_A_PLACE;
        loop {
            let place = self.operations.guard_place(person);
            if place.is_some() || self.means.is_stopping() || Instant::now() >= until {
                return place;
            }
            std::thread::sleep(STEP);
        }
    }

    fn plan_sentence(&self, sentence: Sentence, who: Settled<impl Waits>) {
        // First of all: whoever has none takes no time, and no memory.
        let Some(place) = self.guard_place(&PersonKey::from(&sentence.job.owner)) else {
            return who.is_postponed();
        };
        let means = Means {
            authority: self.means.authority.of_the_guard(),
            ..self.means.clone()
        };
        let seen = look_now(&means);
        let Planned { plan, users, rest } = match planned(&sentence, &means, &seen) {
            Ok(planned) => planned,
            Err(None) => return who.has_ended_by_itself(),
            Err(Some(why)) => return who.is_not_carried_out(why),
        };
        let caller = Authority::the_guard();
        let owner = Owner::of(&caller);
        if !who.begins() {
            let why = "it is not to be ended any more by the rules as they are now, or that cannot be written down";
            return who.is_not_carried_out(why.to_owned());
        }
        let plan = Arc::new(plan);
        let carried_out = Arc::clone(&plan);
        let settled = who.clone();
        let person = person_judged(sentence.rules.rules(), &sentence.job);
        let began = self.operations.begin(place, owner, &plan, move |report| {
            let word = Word {
                caller: &caller,
                asked: format!("guard: {}", sentence.rule),
                must_be_recorded: true,
                users,
                person,
            };
            act(&carried_out, &word, &means, &seen, report);
            let report = report.borrow().clone();
            let mut acted = acted(sentence.job, &report);
            let rest = rest.map(|why| format!("the rest of its job is left alone: {why}"));
            acted.why = match (acted.why, rest) {
                (Some(why), Some(rest)) => Some(format!("{why}; {rest}")),
                (why, rest) => why.or(rest),
            };
            who.settle(acted, signals(&report));
        });
        if let Err(error) = began {
            settled.is_not_carried_out(format!("no thread for it: {error}"));
        }
    }
}

/// Who waits for a sentence, told once by whichever of its threads ends it.
struct Settled<W> {
    /// What is told where nothing was done.
    nothing: Acted,
    who: Arc<Mutex<Option<W>>>,
}

impl<W> Clone for Settled<W> {
    fn clone(&self) -> Self {
        Self {
            nothing: self.nothing.clone(),
            who: Arc::clone(&self.who),
        }
    }
}

impl<W: Waits> Settled<W> {
    fn new(sentence: &Sentence, who: W) -> Self {
        let left = u32::try_from(sentence.processes.len()).unwrap_or(u32::MAX);
        Self {
            nothing: Acted {
                job: sentence.job.clone(),
                ended: 0,
                left,
                why: None,
            },
            who: Arc::new(Mutex::new(Some(who))),
        }
    }

    fn begins(&self) -> bool {
        let mut who = self.who.lock().unwrap_or_else(PoisonError::into_inner);
        who.as_mut().is_some_and(Waits::begins)
    }

    fn settle(&self, acted: Acted, signals: Signals) {
        let who = self
            .who
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(who) = who {
            who.settle(acted, signals);
        }
    }

    fn is_not_carried_out(&self, why: String) {
        self.is_left(why, Signals::Unsent);
    }

    /// Too many others are being ended.
    fn is_postponed(&self) {
        self.is_left(
            "too many kills are under way".to_owned(),
            Signals::Postponed,
        );
    }

    fn is_left(&self, why: String, signals: Signals) {
        let acted = Acted {
            why: Some(why),
            ..self.nothing.clone()
        };
        self.settle(acted, signals);
    }

    /// None of its processes is there any more.
    fn has_ended_by_itself(&self) {
        let acted = Acted {
            left: 0,
            why: Some("it had ended by itself".to_owned()),
            ..self.nothing.clone()
        };
        self.settle(acted, Signals::Unsent);
    }
}

/// What is to be done for a sentence.
struct Planned {
    plan: KillPlan,
    /// Whose processes alone may join what is ended.
    users: Option<People>,
    /// Why the rest of the job is left alone.
    rest: Option<String>,
}

/// The plan for it.
///
/// # Errors
/// Why there is none; `None` where none of its processes is there any more.
fn planned(
    sentence: &Sentence,
    means: &Means,
    seen: &Published,
) -> Result<Planned, Option<String>> {
    means.acts().map_err(|why| Some(why.to_string()))?;
    let crowd = means.crowds.everybody(&means.authority.users);
    let crowd = crowd.map_err(|error| Some(format!("processes cannot be looked at: {error}")))?;
    let lives = |process: &&Process| {
        let (pid, start_ticks) = **process;
        crowd
            .get(&pid)
            .is_some_and(|it| it.kin.key.start_ticks == start_ticks)
    };
    let living: BTreeSet<Process> = sentence.processes.iter().filter(lives).copied().into_set();
    if living.is_empty() {
        return Err(None);
    }
    // Who has let go of the devices is ended with the job, and keeps nobody from that.
    let living = on_devices(&seen.snapshot, &living, &sentence.devices).map_err(Some)?;
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
    let planned = |scope| {
        let plan = plan(&request(&living, scope), &seen, means.clock.now());
        plan.map_err(|why| Some(why.to_string()))
    };
    let judged = Judged {
        job: &sentence.job,
        processes: &living,
        rules: sentence.rules.rules(),
        crowd: &crowd,
        uid_min: protection.uid_min,
    };
    let keys = living.iter().map(|(pid, start_ticks)| ProcessKey {
        pid: *pid,
        start_ticks: *start_ticks,
    });
    let whole = narrow(planned(KillScope::Job)?, &keys.collect(), &crowd).map_err(Some)?;
    let rest = match objection(&whole.plan, judged) {
        None => {
            let is_shared = whole.users.is_some();
            return Ok(Planned {
                plan: whole.plan,
                users: whole.users,
                rest: is_shared.then(|| "other users run processes in its container".to_owned()),
            });
        }
        Some(Objection::ToAll(why)) => return Err(Some(why)),
        Some(Objection::ToTheRest(why)) => why,
    };
    let alone = planned(KillScope::Process)?;
    match objection_alone(&alone, judged) {
        Some(why) => Err(Some(why.to_string())),
        None => Ok(Planned {
            plan: alone,
            users: None,
            rest: Some(rest),
        }),
    }
}
