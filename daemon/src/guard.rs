//! The guard: evaluates each sample by the rules of the admin, on a thread of its own.
//!
//! [`sample`] turns a sample into what rules see; [`rules`] holds the rules in force and their
//! file; [`worker`] is the thread, with state that survives a restart in [`saved_state`];
//! [`notify`] informs the users who break rules. The decisions are made in `policy::guard`.

mod daily_counts;
mod enforcement;
mod notify;
mod preview;
pub(crate) mod replay;
pub(crate) mod rules;
pub(crate) mod sample;
mod saved_state;
mod status;
mod worker;

use crate::fault::FaultCause;
use crate::kill::KillService;
use crate::local_time::to_civil_time;
use crate::rules_file::EditResult;
use crate::store::{DeviceProcess, Sample, Store};
use chrono::Local;
#[cfg(test)]
pub(crate) use daily_counts::DailyCounts;
pub(crate) use daily_counts::{ActionCounts, CountsByUser};
use enforcement::{GuardEnforcer, GuardObserver, SnoozeCommand};
use gpukill_policy::guard::SnoozeError;
use gpukill_policy::guard::device_losses::{DeviceLosses, PresentFacts};
use gpukill_policy::guard::enforcement::ended_jobs::simulated_jobs;
use gpukill_policy::guard::enforcement::order::SnoozeRequest;
use gpukill_policy::guard::rules::EnforcementMode;
use gpukill_policy::guard::schedule::LocalTime;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EditReport, GuardMode, GuardRecord, GuardReport, RulesDoubt, RulesRevision,
};
use gpukill_proto::model::{FaultCode, Snapshot};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Timestamp;
use rules::GuardRuleStore;
pub(crate) use rules::GuardRulesInForce;
use saved_state::SavedFile;
pub(crate) use status::GuardStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};
use worker::{GuardCommand, GuardWorker};

/// At most this many samples wait to be evaluated before new ones are dropped: they are ten seconds
/// each, and each takes milliseconds.
const QUEUE_CAPACITY: usize = 16;

/// How long a stop waits for the thread: it has little to do, but the disk may be slow.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a status request waits for the disk.
const FILE_CHECK_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a snooze request, or a preview of rules, waits for the guard.
const SNOOZE_TIMEOUT: Duration = Duration::from_secs(5);

/// A moment in the local time of the host, as rules use it.
pub(crate) fn local_time_of(moment: Timestamp) -> LocalTime {
    to_civil_time(&Local, moment)
}

/// Describes how many people are affected by the rules on behaviour.
fn describe_doubt(doubt: &RulesDoubt) -> String {
    let RulesDoubt { people, of, .. } = doubt;
    format!("idle, waste, runaway and growth rules affected {people} of {of} users within a day")
}

/// Tells which processes are alive, by pid and start in ticks.
pub(crate) trait ProcessLiveness: Send + Sync {
    /// Whether this process is alive.
    fn is_alive(&self, pid: u32, start_ticks: u64) -> bool;

    /// All processes that are alive.
    fn live_processes(&self) -> BTreeSet<(u32, u64)>;
}

/// The handle of the guard. Clones share the guard.
#[derive(Clone)]
pub(crate) struct Guard {
    commands: SyncSender<GuardCommand>,
    pub(crate) store: Arc<GuardRuleStore>,
    in_force: watch::Receiver<GuardRulesInForce>,
    status: watch::Receiver<Arc<GuardStatus>>,
    dropped: Arc<AtomicU64>,
    /// Disconnected when the thread has ended.
    ended: Arc<Mutex<Receiver<()>>>,
    /// Held while the file is checked for changes: one check at a time.
    file_check: Arc<Semaphore>,
    liveness: Arc<dyn ProcessLiveness>,
}

impl Guard {
    /// Starts the guard with the rules and terminals of these settings, and the state that was
    /// saved in `directory` during this boot of the host. Also returns when each process was first
    /// observed on its devices, from that state.
    pub(crate) fn start(
        settings: crate::config::GuardSettings,
        directory: PathBuf,
        boot: String,
        living: Arc<dyn ProcessLiveness>,
        store: Store,
    ) -> std::io::Result<(Self, BTreeMap<DeviceProcess, Timestamp>)> {
        let (remembered, before) = saved_state::load(&directory, &boot);
        let first = remembered.history.first_seen_by_process();
        let rules = Arc::new(GuardRuleStore::start(settings.rules, before, store.clone()));
        let in_force = rules.subscribe();
        let (status_sender, status) = watch::channel(Arc::default());
        let (commands, received) = sync_channel(QUEUE_CAPACITY);
        let (ending, ended) = sync_channel(1);
        let worker = GuardWorker {
            directory,
            boot,
            liveness: Arc::clone(&living),
            state: remembered,
            in_force: in_force.clone(),
            status: status_sender,
            store,
            saved_at: Timestamp::default(),
            has_save_failed: false,
            saved_file: SavedFile::NONE,
            overflow: 0,
            terminals: settings.terminals,
            enforcer: None,
            recent: Vec::new(),
        };
        std::thread::Builder::new()
            .name("guard".into())
            .spawn(move || {
                let _closed_at_the_end = ending;
                worker.run(&received);
            })?;
        let guard = Self {
            commands,
            store: rules,
            in_force,
            status,
            dropped: Arc::default(),
            ended: Arc::new(Mutex::new(ended)),
            file_check: Arc::new(Semaphore::new(1)),
            liveness: living,
        };
        Ok((guard, first))
    }

    /// Queues a sample for evaluation, or drops it if the queue is full. If the mode is disabled,
    /// only the process history is updated.
    pub(crate) fn add_sample(&self, sample: &Sample) {
        match self
            .commands
            .try_send(GuardCommand::Sample(Box::new(sample.clone())))
        {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// From now on jobs are ended through this service.
    pub(crate) fn set_kill_service(&self, enforcer: KillService) {
        let armed = GuardEnforcer {
            enforcer,
            observer: GuardObserver {
                commands: self.commands.clone(),
                in_force: self.in_force.clone(),
            },
        };
        // A thread that has ended ends no job.
        let _ = self
            .commands
            .send(GuardCommand::SetEnforcer(Box::new(armed)));
    }

    /// Postpones the end of jobs of a process, or only reports what that would change. Callers
    /// leave room in the queue, which samples wait in too.
    ///
    /// # Errors
    /// Why nothing is postponed: [`Refusal::Denied`] if all snoozes of the rule are used;
    /// [`Refusal::Busy`] if the guard does not answer.
    pub(crate) async fn snooze(
        &self,
        request: SnoozeRequest,
        is_dry_run: bool,
    ) -> Result<Vec<GuardRecord>, Refusal> {
        let (pid, _) = request.process;
        let (answer, answered) = oneshot::channel();
        let command = SnoozeCommand {
            request,
            is_dry_run,
            answer,
        };
        self.commands
            .try_send(GuardCommand::Snooze(command))
            .map_err(|_| Refusal::Busy)?;
        let answered = tokio::time::timeout(SNOOZE_TIMEOUT, answered).await;
        let Ok(Ok(granted)) = answered else {
            return Err(Refusal::Busy);
        };
        granted.map_err(|why| match why {
            SnoozeError::NoneLeft => Refusal::Denied {
                asked: format!("snooze process {pid}: {why}"),
                ask: "an admin, who can change the rule".to_owned(),
            },
            SnoozeError::NothingEnds
            | SnoozeError::NotWarned
            | SnoozeError::NotBroken
            | SnoozeError::TooLate => Refusal::NoMatch(why.to_string()),
        })
    }

    /// Reloads the rules.
    pub(crate) fn reload(&self) {
        self.store.reload();
        self.wake();
    }

    /// Changes the rules, or only reports what that would change. Waits for the disk.
    ///
    /// # Errors
    /// As [`GuardRuleStore::edit`].
    pub(crate) fn edit(
        &self,
        uid: u32,
        edit: &GuardEdit,
        expected: Option<&RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        let open = &self.status().open;
        let EditResult { mut report, rules } =
            self.store.edit(uid, edit, expected, is_dry_run, open)?;
        let mode = rules.compiled.rules().mode;
        let is_of_mode = matches!(edit, GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun);
        let acts = is_of_mode && mode > GuardMode::DryRun;
        if is_dry_run {
            report.affected = self.affected_violations(&rules, acts);
        }
        let status = self.status();
        if acts && let Some(doubt) = status.doubt {
            let are = if is_dry_run { "would be" } else { "are" };
            let confirms = format!(
                "rules on behaviour {are} confirmed, although {}",
                describe_doubt(&doubt)
            );
            report.warnings.insert(0, confirms);
        }
        if acts && status.tripped_at.is_some() {
            let ends = match is_dry_run {
                true => "it would end jobs again: it is stopped",
                false => "it ends jobs again: it was stopped",
            };
            let see = format!("{ends}: see gpukillctl guard violations");
            report.warnings.insert(0, see);
        }
        let has_tripped = status.tripped_at.is_some() || status.has_tripped_for_others;
        let is_stopped = has_tripped || status.doubt.is_some();
        if acts && is_stopped && !is_dry_run {
            // A thread that has ended ends no job.
            let _ = self.commands.send(GuardCommand::Resume(uid));
        }
        self.wake();
        Ok(report)
    }

    /// Whether the file has changed since it was last read; `None` if the disk does not answer in
    /// time.
    pub(crate) async fn is_file_changed(&self) -> Option<bool> {
        let check = async {
            let permit = Arc::clone(&self.file_check).acquire_owned().await.ok()?;
            let rules = Arc::clone(&self.store);
            let read_file = move || {
                // Held until the check has ended: a disk that hangs blocks one thread at most.
                let _permit = permit;
                rules.is_changed()
            };
            tokio::task::spawn_blocking(read_file).await.ok()
        };
        tokio::time::timeout(FILE_CHECK_TIMEOUT, check)
            .await
            .ok()
            .flatten()
    }

    /// The rules in force.
    pub(crate) fn in_force(&self) -> GuardRulesInForce {
        self.in_force.borrow().clone()
    }

    /// The facts about now that no sample contains. Reads every process.
    pub(crate) fn present_facts(&self, snapshot: &Snapshot) -> PresentFacts {
        PresentFacts {
            losses: DeviceLosses::from_snapshot(snapshot),
            living: self.liveness.live_processes(),
        }
    }

    /// The status, with violations by the rules in force.
    pub(crate) fn status(&self) -> Arc<GuardStatus> {
        let status = Arc::clone(&self.status.borrow());
        match status.under_rules(&self.in_force().rules.compiled) {
            Some(now) => Arc::new(now),
            None => status,
        }
    }

    /// The faults of the guard, as text.
    pub(crate) fn faults(&self) -> Vec<FaultCause> {
        let is_dry_run = self.in_force.borrow().rules().mode <= GuardMode::DryRun;
        // None of these depends on the rules that came into force since.
        let status = Arc::clone(&self.status.borrow());
        let tripped_at = status.tripped_at.filter(|_| !is_dry_run);
        let stopped = tripped_at.map(|_| {
            FaultCause::new(
                FaultCode::CircuitBreakerOpen,
                "it stopped ending jobs: too many jobs were, or would be, ended in ten minutes; see \
                 gpukillctl guard status",
            )
        });
        let has_tripped_for_others = status.has_tripped_for_others && !is_dry_run;
        let stopped_for_others = has_tripped_for_others.then(|| {
            FaultCause::new(
                FaultCode::CircuitBreakerOpen,
                "it stopped ending jobs of containers: too many were, or would be, ended in ten \
                 minutes; set the mode again to resume",
            )
        });
        let unsaved = status.is_unsaved.then(|| {
            FaultCause::new(
                FaultCode::GuardStateUnwritten,
                "its state cannot be saved: it ends no job, and a restart begins with an empty \
                 state",
            )
        });
        let saved_in_part = status.is_saved_in_part.then(|| {
            FaultCause::new(
                FaultCode::ViolationsUntracked,
                "its state is too large to be saved as a whole: a restart forgets measurements, \
                 and warnings and grace periods of the people with the most violations; write \
                 fewer rules, or restart gpukilld when fewer jobs run",
            )
        });
        // The number changes all the time: `guard status` reports it.
        let untracked = (status.overflow > 0).then(|| {
            FaultCause::new(
                FaultCode::ViolationsUntracked,
                "it has no room for all violations: people with very many are not warned of some, \
                 and no job is ended for these; write fewer rules, or have these people start \
                 fewer jobs: see gpukillctl guard status",
            )
        });
        let wrong = self.store.fault().into_iter();
        let wrong = wrong.map(|what| FaultCause::new(FaultCode::RulesMistaken, what));
        let doubt = status.doubt.filter(|_| !is_dry_run);
        let doubted = doubt.map(|doubt| {
            let then = match doubt.only_warn {
                true => "they only warn until an admin confirms them",
                false => "if they fit, confirm them",
            };
            // A fault is identified by its text, so the text contains no changing number.
            let what = format!(
                "the idle, waste, runaway and growth rules affect many users, and may not fit this \
                 host: see gpukillctl guard status; {then} with gpukillctl guard soft or guard \
                 enforce"
            );
            FaultCause::new(FaultCode::RulesUnconfirmed, what)
        });
        let refused = self.status().refused_files.clone().into_iter();
        let refused = refused.map(|what| FaultCause::new(FaultCode::StateRefused, what));
        wrong
            .chain(refused)
            .chain(stopped)
            .chain(stopped_for_others)
            .chain(doubted)
            .chain(unsaved)
            .chain(untracked)
            .chain(saved_in_part)
            .collect()
    }

    /// The status report, without what only the disk knows.
    pub(crate) fn report(&self) -> GuardReport {
        let (in_force, status) = (self.in_force(), self.status());
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (done, simulated) = (status.counts.done().all, status.counts.simulated().all);
        GuardReport {
            mode: in_force.rules().mode,
            armed_mode: match in_force.rules().armed_mode {
                EnforcementMode::Soft => GuardMode::Soft,
                EnforcementMode::Enforce => GuardMode::Enforce,
            },
            rules: in_force.rules().counts_by_source(),
            file: self.store.path().display().to_string(),
            revision: in_force.revision,
            mistakes: in_force.mistakes.iter().map(ToString::to_string).collect(),
            is_file_changed: None,
            evaluated_at: status.evaluated_at,
            dropped: self.dropped.load(Ordering::Relaxed),
            overflow: status.overflow,
            tripped_at: status.tripped_at,
            doubt: status.doubt,
            open: count(status.broken().count()),
            would_have_ended: count(simulated_jobs(&status.simulated)),
            warned_today: done.warned,
            ended_today: done.ended,
            simulated_warned_today: simulated.warned,
            simulated_ended_today: simulated.ended,
            is_trip_simulated: status.is_trip_simulated,
            idle_services: Vec::new(),
        }
    }

    /// Ends the thread after all waiting samples, and saves the state. Waits for that: the last
    /// decisions go to the store too.
    pub(crate) fn stop(&self) {
        // A thread that has ended already needs no command.
        let is_sent = self.commands.try_send(GuardCommand::Stop).is_ok();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_sent || ended.recv_timeout(STOP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the guard did not end in time: its state may be lost");
        }
    }

    fn wake(&self) {
        // A full queue wakes it as well.
        let _ = self.commands.try_send(GuardCommand::RulesChanged);
    }
}
