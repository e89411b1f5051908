//! The calls about the guard: what it decided, its rules, and rules tried on the
//! past.

use super::super::sight::Sight;
use super::Session;
use crate::audit::{Act, ActKind, RulesOf};
use crate::evaluator::{Failed, Request, evaluate};
use crate::guard::Asked;
use gpukill_policy::access::{Operation, Roles, Ruling, check};
use gpukill_policy::guard::about::person_of;
use gpukill_policy::select::is_user;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EditReport, GuardBrief, GuardMode, GuardStep, MOST_SNOOZED, OpenViolation, Person,
    ReplayReport, ReplayRequest, RulesFrom, RulesRevision, RulesText, Snoozed, Subject,
    ViolationPage, ViolationQuery,
};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{LONGEST_PART, LONGEST_RULES};
use gpukill_proto::snapshot::{Job, Snapshot};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many violations that go on are told at once.
const MOST_OPEN: usize = 1_000;

/// A replay up to a moment so many seconds ago is one up to now: samples are ten seconds
/// each.
const NOW: i64 = 60;

/// The rules that a connection offers. They go with it.
#[derive(Clone, Default)]
pub(super) struct Offered(Arc<Mutex<Option<Vec<u8>>>>);

impl Offered {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        // Nothing panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a part; one at 0 begins anew.
    pub(super) fn take(&self, offset: u64, part: &[u8]) -> Result<(), Refusal> {
        let mut taken = self.lock();
        let taken = taken.get_or_insert_default();
        if offset == 0 {
            taken.clear();
        }
        let invalid = |what: String| Err(Refusal::Invalid(what));
        if offset != taken.len() as u64 {
            return invalid(format!(
                "a part at {offset} does not follow what was taken: {} bytes",
                taken.len()
            ));
        }
        if part.len() > LONGEST_PART || taken.len() + part.len() > LONGEST_RULES {
            return invalid(format!("rules have at most {LONGEST_RULES} bytes"));
        }
        taken.extend_from_slice(part);
        Ok(())
    }

    /// As text.
    pub(super) fn text(&self) -> Result<String, Refusal> {
        let taken = self.lock().clone();
        let taken = taken.ok_or_else(|| Refusal::Invalid("no rules were offered".into()))?;
        String::from_utf8(taken).map_err(|_| Refusal::Invalid("the rules are no text".into()))
    }
}

impl Session {
    /// Gives more time before this process's job is ended.
    pub(super) async fn more_time(
        &self,
        pid: u32,
        is_dry_run: bool,
    ) -> Result<Vec<Snoozed>, Refusal> {
        let snapshot = Arc::clone(&self.shared.state.borrow().snapshot);
        let person = self.shared.guard.in_force().rules().person;
        let process = snapshot.processes.iter().find(|it| it.pid == pid);
        let known = process.and_then(|it| Some((it, it.key()?)));
        let (process, key) = known
            .ok_or_else(|| Refusal::NoMatch(format!("process {pid} is not known to use a GPU")))?;
        let owner = person_of(process, person);
        let uid = owner.as_ref().and_then(|owner| owner.uid);
        let roles = self.shared.roles();
        let snooze = Operation::Snooze { owner: uid };
        if let Ruling::Deny(_) = check(&self.caller, snooze, &roles) {
            let whose = owner.map_or_else(
                || "it is not known whose it is".to_owned(),
                |owner| format!("it belongs to {}", owner.name),
            );
            return Err(Refusal::Denied {
                asked: format!("give process {pid} more time: {whose}"),
                ask: format!(
                    "its owner, or someone in group {}",
                    self.shared.authority.operators()
                ),
            });
        }
        let Some(owner) = uid else {
            let why = format!("nobody was warned of process {pid}: whose it is, is no user");
            return Err(Refusal::NoMatch(why));
        };
        let asked = |is_dry_run| Asked {
            by: self.caller.uid,
            owner,
            process: (key.pid, key.start_ticks),
            job: process.job.last_known().map(Job::id),
            is_dry_run,
        };
        // Where nobody is ended there is nothing to put off: what may be needed once
        // somebody is stays theirs.
        let planned = self.shared.guard.snooze(asked(true)).await?;
        let ends_somebody = planned.iter().any(|it| it.mode > GuardMode::DryRun);
        let granted = match ends_somebody && !is_dry_run {
            true => self.shared.guard.snooze(asked(false)).await?,
            false => planned,
        };
        let snoozed = granted.into_iter().filter_map(|record| match record.step {
            GuardStep::Snoozed { until, left, .. } => Some(Snoozed {
                rule: record.rule,
                mode: record.mode,
                until,
                left,
            }),
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Ended(_)
            | GuardStep::Spared(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Acted(_)
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => None,
        });
        Ok(snoozed.take(MOST_SNOOZED).collect())
    }

    /// One page of what the guard decided.
    pub(super) async fn violations_page(
        &self,
        query: ViolationQuery,
    ) -> Result<ViolationPage, Refusal> {
        let (open, would_have_ended) = if query.before.is_none() {
            let standing = self.shared.guard.standing();
            let simulated = standing.simulated.iter().map(|end| &end.violation);
            let user = query.user.as_deref();
            (
                self.seen(standing.open.iter(), user),
                self.seen(simulated, user),
            )
        } else {
            (Vec::new(), Vec::new())
        };
        let _turn = self.turn().await;
        let (records, next) = self.shared.store.verdicts(query).await?;
        let roles = self.shared.roles();
        let sight = self.sight(&roles);
        let seen = records.into_iter();
        let seen = seen.filter_map(|(id, record)| Some((id, sight.record(record)?)));
        Ok(ViolationPage {
            open,
            would_have_ended,
            records: seen.collect(),
            next,
        })
    }

    /// Those of the violations that the caller may see, and that are this person's.
    fn seen<'v>(
        &self,
        violations: impl Iterator<Item = &'v OpenViolation>,
        user: Option<&str>,
    ) -> Vec<OpenViolation> {
        let roles = self.shared.roles();
        let sight = self.sight(&roles);
        let in_force = self.shared.guard.in_force();
        let seen = violations.filter_map(|open| sight.open(open, &in_force.rules.book));
        // Of what they see: else whoever asks by name learns who else is in it.
        let asked = seen.filter(|open| user.is_none_or(|user| is_about(open, user)));
        asked.take(MOST_OPEN).collect()
    }

    /// What a list of this snapshot shows of the guard.
    pub(super) fn brief(&self, snapshot: &Snapshot) -> GuardBrief {
        let (guard, roles) = (&self.shared.guard, self.shared.roles());
        let (in_force, standing) = (guard.in_force(), guard.standing());
        self.sight(&roles)
            .brief(&in_force.rules.book, &standing, snapshot)
    }

    /// What this caller may see of others' doings.
    pub(super) fn sight<'a>(&'a self, roles: &'a Roles) -> Sight<'a> {
        Sight {
            caller: &self.caller,
            roles,
        }
    }

    /// A part of the rules: for whoever may change them as they are written, for all
    /// others as they are in force.
    pub(super) async fn part_of_rules(&self, offset: u64) -> Result<RulesText, Refusal> {
        self.may_read_rules()?;
        let guard = self.shared.guard.clone();
        // What lies where the rules are to be written may be no rules at all.
        if self.may_edit_rules().is_err() {
            return Ok(guard.text_in_force(offset));
        }
        let text = tokio::task::spawn_blocking(move || guard.text(offset)).await;
        text.map_err(|_| Refusal::Internal)?
    }

    /// Changes the rules, or says what that would change.
    pub(super) async fn change_rules(
        &self,
        edit: Option<GuardEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        self.may_edit_rules().inspect_err(|refusal| {
            self.refuse_edit(RulesOf::Guard, edit.as_ref(), refusal);
        })?;
        let edit = match edit {
            Some(edit) => edit,
            None => GuardEdit::Replace(self.offered.text()?),
        };
        let (guard, uid) = (self.shared.guard.clone(), self.caller.uid);
        let edited = tokio::task::spawn_blocking(move || {
            guard.edit(uid, &edit, expected.as_ref(), is_dry_run)
        });
        edited.await.map_err(|_| Refusal::Internal)?
    }

    /// What rules would have done.
    pub(super) async fn replay(&self, request: ReplayRequest) -> Result<ReplayReport, Refusal> {
        self.may_read_rules()?;
        let text = match request.rules {
            RulesFrom::Force => self.shared.guard.in_force().text.to_string(),
            RulesFrom::Offered => self.offered.text()?,
        };
        let directory = self.shared.store.directory().to_owned();
        let snoozes = self.shared.guard.standing().snoozes.clone();
        let snapshot = Arc::clone(&self.shared.state.borrow().snapshot);
        let guard = self.shared.guard.clone();
        self.look_back(move |is_wanted| {
            let is_of_now = request.until.plus_seconds(NOW) >= snapshot.taken_at;
            let request = Request::Replay {
                directory,
                text,
                snoozes,
                since: request.since,
                until: request.until,
                present: is_of_now.then(|| guard.present(&snapshot)),
            };
            match evaluate(&request, is_wanted) {
                Ok(answer) => answer,
                Err(Failed::Ended(why)) => Err(Refusal::Invalid(why)),
                Err(Failed::Unwanted) => Err(Refusal::Expired),
            }
        })
        .await
    }

    /// Records that somebody may not make this edit; `None` is one of all rules.
    pub(super) fn refuse_edit<E: fmt::Display>(
        &self,
        of: RulesOf,
        edit: Option<&E>,
        refusal: &Refusal,
    ) {
        let edit = edit.map_or_else(|| "replace all".to_owned(), E::to_string);
        let act = Act {
            kind: ActKind::EditRules,
            uid: self.caller.uid,
            asked: format!("{}{edit}", of.prefix()),
            plan: "{}".into(),
        };
        let by = self.caller.limit_group;
        self.shared.store.refuse(act, by, refusal.to_string());
    }

    pub(super) fn may_edit_rules(&self) -> Result<(), Refusal> {
        let admins = self.shared.authority.admins();
        self.may(Operation::EditRules, "change the guard's rules", &admins)
    }

    fn may_read_rules(&self) -> Result<(), Refusal> {
        self.may_read_those("read the guard's rules: hide_other_users is set")
    }

    /// Rules name people: where others' doings are hidden, so are these.
    pub(super) fn may_read_those(&self, asked: &str) -> Result<(), Refusal> {
        let by_nobody = Operation::ReadAct { by: None };
        match check(&self.caller, by_nobody, &self.shared.roles()) {
            Ruling::Allow => Ok(()),
            Ruling::Deny(_) => Err(Refusal::Denied {
                asked: asked.to_owned(),
                ask: format!("someone in group {}", self.shared.authority.operators()),
            }),
        }
    }
}

/// Whether a violation is this person's, as typed: they broke the rule, or a process
/// of theirs is told of.
fn is_about(open: &OpenViolation, user: &str) -> bool {
    let is = |person: &Person| is_user(user, person.uid, Some(&person.name));
    let is_subject = match &open.subject {
        Subject::Person(person) | Subject::PersonOn(person, _) => is(person),
        Subject::Job(job) => is(&job.owner),
        Subject::Group(_) | Subject::GroupOn(..) | Subject::Device(_) | Subject::Run(_) => false,
    };
    let mut told = open.evidence.runs.iter();
    is_subject || told.any(|told| told.owner.as_ref().is_some_and(is))
}
