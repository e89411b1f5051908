//! The guard: judges each sample by the admin's rules, on a thread of its own.
//!
//! What a sample says to rules, [`bucket`] tells; the rules in force and the file
//! they come from, [`rules`] keeps; [`judging`] is the thread, and what it remembers
//! survives a restart in [`remembered`]; whoever breaks rules hears of it by [`telling`].
//! What is decided is `policy::guard`'s.

pub(crate) mod bucket;

mod rules;

mod remembered;

mod today;

mod telling;

mod judging;

mod standing;

mod acting;

pub(crate) mod replay;

use crate::audit::{DeviceProcess, Sample, Store};
use crate::civil::civil;
use crate::enforce::Enforcer;
use crate::faults::FaultCause;
use crate::rules_file::Edited;
pub(crate) use acting::Asked;
use acting::{Armed, SnoozeOrder, Snoozing};
use chrono::Local;
use gpukill_policy::guard::losses::{Losses, Present};
use gpukill_policy::guard::rules::Rehearsed;
use gpukill_policy::guard::schedule::Civil;
use gpukill_policy::guard::{NotSnoozed, simulated_jobs};
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EditReport, GuardMode, GuardRecord, GuardReport, RulesDoubt, RulesRevision, RulesText,
};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{FaultCode, Snapshot};
use gpukill_proto::units::Timestamp;
use judging::{Judging, Order};
use rules::Keeper;
pub(crate) use rules::{InForce, check_rules, read_rules};
pub(crate) use standing::Standing;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
#[cfg(test)]
pub(crate) use today::Today;
pub(crate) use today::{Counted, Tally};
use tokio::sync::{Semaphore, oneshot, watch};

/// So many samples may wait to be judged before new ones are dropped: they are ten
/// seconds each, and each takes milliseconds.
const QUEUE: usize = 16;

/// How long the end of the thread is waited for: it has little to do, but the disk may
/// be slow.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// So long whoever asks how it stands waits for the disk.
const LOOK: Duration = Duration::from_millis(500);

/// So long whoever asks for more time waits for the guard.
const SNOOZE_PATIENCE: Duration = Duration::from_secs(5);

/// A moment as rules have it: as the box's people count time.
pub(crate) fn civil_of(moment: Timestamp) -> Civil {
    civil(&Local, moment)
}

/// How many people rules on behaviour concern, in words.
fn concern(doubt: &RulesDoubt) -> String {
    let RulesDoubt { people, of, .. } = doubt;
    format!("idle, waste, runaway and growth rules concerned {people} of {of} people within a day")
}

/// Which processes live, by pid and start in ticks.
pub(crate) trait Living: Send + Sync {
    /// Whether this one does.
    fn has(&self, pid: u32, start_ticks: u64) -> bool;

    /// All that do.
    fn all(&self) -> BTreeSet<(u32, u64)>;
}

/// The guard's near side. Clones share it.
#[derive(Clone)]
pub(crate) struct Guard {
    orders: SyncSender<Order>,
    keeper: Arc<Keeper>,
    in_force: watch::Receiver<InForce>,
    standing: watch::Receiver<Arc<Standing>>,
    dropped: Arc<AtomicU64>,
    /// Tells nothing but that the thread has ended.
    ended: Arc<Mutex<Receiver<()>>>,
    /// Who looks whether the file has changed: one at a time.
    look: Arc<Semaphore>,
    /// Who asks for more time now: each user once, and few at a time.
    snoozing: Snoozing,
    living: Arc<dyn Living>,
}

impl Guard {
    /// Starts it by the rules and the terminals of these settings, with what it remembered in `directory` when
    /// it last ran in this boot of the box. With it, when processes were first seen on
    /// their devices, as it remembers.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(
        settings: crate::config::Guard,
        directory: PathBuf,
        boot: String,
        living: Arc<dyn Living>,
        store: Store,
    ) -> std::io::Result<(Self, BTreeMap<DeviceProcess, Timestamp>)> {
        let (remembered, before) = remembered::load(&directory, &boot);
        let first = remembered.seen.by_process();
        let keeper = Arc::new(Keeper::start(settings.rules, before, store.clone()));
        let in_force = keeper.subscribe();
        let (standing, told) = watch::channel(Arc::default());
        let (orders, received) = sync_channel(QUEUE);
        let (ending, ended) = sync_channel(1);
        let judging = Judging {
            directory,
            boot,
            living: Arc::clone(&living),
            remembered,
            in_force: in_force.clone(),
            standing,
            store,
            saved_at: Timestamp::default(),
            is_save_broken: false,
            beyond: 0,
            terminals: settings.terminals,
            armed: None,
        };
        std::thread::Builder::new()
            .name("guard".into())
            .spawn(move || {
                let _told_at_the_end = ending;
                judging.run(&received);
            })?;
        let guard = Self {
            orders,
            keeper,
            in_force,
            standing: told,
            dropped: Arc::default(),
            ended: Arc::new(Mutex::new(ended)),
            look: Arc::new(Semaphore::new(1)),
            snoozing: Snoozing::default(),
            living,
        };
        Ok((guard, first))
    }

    /// Judges a sample, or only looks at it where nobody is judged, unless too many wait already.
    pub(crate) fn sample(&self, sample: &Sample) {
        match self
            .orders
            .try_send(Order::Sample(Box::new(sample.clone())))
        {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Has jobs ended by this from now on.
    pub(crate) fn arm(&self, enforcer: Enforcer) {
        let armed = Armed {
            enforcer,
            orders: self.orders.clone(),
        };
        // A thread that has ended ends nobody.
        let _ = self.orders.send(Order::Arm(Box::new(armed)));
    }

    /// Gives more time for a process of `owner`, or says what that would come to.
    ///
    /// # Errors
    /// Why nobody gets any: [`Refusal::Denied`] where they had all that the rule gives;
    /// [`Refusal::Busy`] where the guard does not answer.
    pub(crate) async fn snooze(&self, asked: Asked) -> Result<Vec<GuardRecord>, Refusal> {
        let (pid, _) = asked.process;
        let (answer, answered) = oneshot::channel();
        // One user's questions never fill the queue that samples wait in.
        let _turn = self.snoozing.acquire(asked.by).ok_or(Refusal::Busy)?;
        let order = SnoozeOrder { asked, answer };
        self.orders
            .try_send(Order::Snooze(order))
            .map_err(|_| Refusal::Busy)?;
        let answered = tokio::time::timeout(SNOOZE_PATIENCE, answered).await;
        let Ok(Ok(granted)) = answered else {
            return Err(Refusal::Busy);
        };
        granted.map_err(|why| match why {
            NotSnoozed::NoneLeft => Refusal::Denied {
                asked: format!("give process {pid} more time: {why}"),
                ask: "an admin, who can change the rule".to_owned(),
            },
            NotSnoozed::NothingEnds
            | NotSnoozed::NotWarned
            | NotSnoozed::NotBroken
            | NotSnoozed::TooLate => Refusal::NoMatch(why.to_string()),
        })
    }

    /// Reads the rules again.
    pub(crate) fn reload(&self) {
        self.keeper.reload();
        self.wake();
    }

    /// Changes the rules, or says what that would change. Waits for the disk.
    ///
    /// # Errors
    /// As [`Keeper::edit`].
    pub(crate) fn edit(
        &self,
        uid: u32,
        edit: &GuardEdit,
        expected: Option<&RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        let open = &self.standing().open;
        let keeper = &self.keeper;
        let Edited { mut report, rules } = keeper.edit(uid, edit, expected, is_dry_run, open)?;
        let mode = rules.book.rules().mode;
        let is_of_mode = matches!(edit, GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun);
        let acts = is_of_mode && mode > GuardMode::DryRun;
        let standing = self.standing();
        if acts && let Some(doubt) = standing.doubt {
            let are = if is_dry_run { "would be" } else { "are" };
            let confirms = format!(
                "rules on behaviour {are} confirmed, though {}",
                concern(&doubt)
            );
            report.warnings.insert(0, confirms);
        }
        if acts && standing.tripped_at.is_some() {
            let ends = match is_dry_run {
                true => "it would end jobs again: it has stopped",
                false => "it ends jobs again, after it had stopped",
            };
            let see = format!("{ends}: see gpukillctl guard violations");
            report.warnings.insert(0, see);
        }
        let is_stopped = standing.tripped_at.is_some() || standing.doubt.is_some();
        if acts && is_stopped && !is_dry_run {
            // A thread that has ended ends nobody.
            let _ = self.orders.send(Order::GoOn(uid));
        }
        self.wake();
        Ok(report)
    }

    /// A part of the text of the rules as it is written now. Waits for the disk.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn text(&self, offset: u64) -> Result<RulesText, Refusal> {
        self.keeper.text(offset)
    }

    /// A part of the text of the rules in force.
    pub(crate) fn text_in_force(&self, offset: u64) -> RulesText {
        self.keeper.text_in_force(offset)
    }

    /// Whether the file says something else than when it was last read; `None` where
    /// the disk does not say in time.
    pub(crate) async fn is_file_changed(&self) -> Option<bool> {
        let looked = async {
            let turn = Arc::clone(&self.look).acquire_owned().await.ok()?;
            let keeper = Arc::clone(&self.keeper);
            let look = move || {
                // Until it has ended: a disk that hangs keeps one thread, and no more.
                let _turn = turn;
                keeper.is_changed()
            };
            tokio::task::spawn_blocking(look).await.ok()
        };
        tokio::time::timeout(LOOK, looked).await.ok().flatten()
    }

    /// The rules in force.
    pub(crate) fn in_force(&self) -> InForce {
        self.in_force.borrow().clone()
    }

    /// What the guard knows of now besides its samples. Reads every process.
    pub(crate) fn present(&self, snapshot: &Snapshot) -> Present {
        Present {
            losses: Losses::of(snapshot),
            living: self.living.all(),
        }
    }

    /// The violations that go on, by the rules in force.
    pub(crate) fn standing(&self) -> Arc<Standing> {
        let standing = Arc::clone(&self.standing.borrow());
        match standing.under(&self.in_force().rules.book) {
            Some(now) => Arc::new(now),
            None => standing,
        }
    }

    /// What is wrong with it, in words for faults.
    pub(crate) fn faults(&self) -> Vec<FaultCause> {
        let is_rehearsed = self.in_force.borrow().rules().mode <= GuardMode::DryRun;
        let tripped_at = self.standing().tripped_at.filter(|_| !is_rehearsed);
        let stopped = tripped_at.map(|_| {
            FaultCause::new(
                FaultCode::CircuitBreakerOpen,
                "it ends nobody any more: too many jobs were, or would be, ended in ten minutes; \
                 see gpukillctl guard status",
            )
        });
        let unkept = self.standing().is_unkept.then(|| {
            FaultCause::new(
                FaultCode::GuardStateUnwritten,
                "what it remembers cannot be written down: it ends nobody, and a restart begins \
                 anew",
            )
        });
        let wrong = self.keeper.fault().into_iter();
        let wrong = wrong.map(|what| FaultCause::new(FaultCode::RulesMistaken, what));
        let doubt = self.standing().doubt.filter(|_| !is_rehearsed);
        let doubted = doubt.map(|doubt| {
            let then = match doubt.only_warn {
                true => "they only warn until an admin confirms them",
                false => "if they do fit, confirm them",
            };
            // A fault is known by its text: no number that changes is in it.
            let what = format!(
                "the idle, waste, runaway and growth rules concern many people, and may not fit \
                 this box: see gpukillctl guard status; {then} with gpukillctl guard soft or \
                 guard enforce"
            );
            FaultCause::new(FaultCode::RulesUnconfirmed, what)
        });
        wrong.chain(stopped).chain(doubted).chain(unkept).collect()
    }

    /// How it stands, but for what only the disk knows.
    pub(crate) fn report(&self) -> GuardReport {
        let (in_force, standing) = (self.in_force(), self.standing());
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (done, simulated) = (standing.today.done().all, standing.today.simulated().all);
        GuardReport {
            mode: in_force.rules().mode,
            rehearses: match in_force.rules().rehearsed {
                Rehearsed::Soft => GuardMode::Soft,
                Rehearsed::Enforce => GuardMode::Enforce,
            },
            rules: in_force.rules().counts(),
            file: self.keeper.path().display().to_string(),
            revision: in_force.revision,
            mistakes: in_force.mistakes.iter().map(ToString::to_string).collect(),
            is_file_changed: None,
            judged_at: standing.judged_at,
            dropped: self.dropped.load(Ordering::Relaxed),
            beyond: standing.beyond,
            tripped_at: standing.tripped_at,
            doubt: standing.doubt,
            open: count(standing.broken().count()),
            would_have_ended: count(simulated_jobs(&standing.simulated)),
            warned_today: done.warned,
            ended_today: done.ended,
            simulated_warned_today: simulated.warned,
            simulated_ended_today: simulated.ended,
            is_trip_simulated: standing.is_trip_simulated,
            idle_services: Vec::new(),
        }
    }

    /// Ends the thread after what waits to be judged, and keeps what it remembers. Waits
    /// for that: what is decided in the end goes to the store too.
    pub(crate) fn stop(&self) {
        // One that has ended already needs no telling.
        let is_told = self.orders.try_send(Order::Stop).is_ok();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_told || ended.recv_timeout(STOP_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the guard did not end in time: it may begin anew");
        }
    }

    fn wake(&self) {
        // A full queue wakes it as well.
        let _ = self.orders.try_send(Order::Rules);
    }
}
