//! The calls about the guard: its decisions, its rules, and replays of rules.

use super::Session;
use crate::evaluator::{EvaluatorError, EvaluatorRequest, run_in_child};
use crate::store::{Action, ActionKind, RuleSetKind};
use gpukill_policy::access::{Operation, Ruling, check};
use gpukill_policy::guard::enforcement::order::SnoozeRequest;
use gpukill_policy::select::names_user;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EditReport, GuardMode, GuardStep, GuardSummary, MAX_SNOOZED_RULES, OpenViolation, Person,
    ReplayReport, ReplayRequest, RuleSetSource, RulesRevision, RulesText, SnoozedRule,
    ViolationPage, ViolationQuery, ViolationSubject,
};
use gpukill_proto::model::{Job, Snapshot};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{MAX_PART_BYTES, MAX_RULES_BYTES};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// At most this many open violations are reported at once.
const MAX_OPEN_VIOLATIONS: usize = 1_000;

/// A replay that ends at most this many seconds ago counts as one up to now: samples are ten
/// seconds long.
const NOW_TOLERANCE_SECONDS: i64 = 60;

/// The rules that a client offers on this connection. They are dropped with it.
#[derive(Clone, Default)]
pub(crate) struct OfferedRules(Arc<Mutex<Option<Vec<u8>>>>);

impl OfferedRules {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        // Nothing panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a part; a part at offset 0 starts again.
    pub(crate) fn append(&self, offset: u64, part: &[u8]) -> Result<(), Refusal> {
        let mut taken = self.lock();
        let taken = taken.get_or_insert_default();
        if offset == 0 {
            taken.clear();
        }
        let invalid = |what: String| Err(Refusal::Invalid(what));
        if offset != taken.len() as u64 {
            return invalid(format!(
                "a part at offset {offset} does not follow the {} bytes received",
                taken.len()
            ));
        }
        if part.len() > MAX_PART_BYTES || taken.len() + part.len() > MAX_RULES_BYTES {
            return invalid(format!("rules may have at most {MAX_RULES_BYTES} bytes"));
        }
        taken.extend_from_slice(part);
        Ok(())
    }

    /// The offered rules as text.
    pub(super) fn text(&self) -> Result<String, Refusal> {
        let taken = self.lock().clone();
        let taken = taken.ok_or_else(|| Refusal::Invalid("no rules were offered".into()))?;
        String::from_utf8(taken)
            .map_err(|_| Refusal::Invalid("the rules are not valid UTF-8".into()))
    }
}

impl Session {
    /// Postpones the end of the job of this process.
    pub(crate) async fn snooze_process(
        &self,
        pid: u32,
        is_dry_run: bool,
    ) -> Result<Vec<SnoozedRule>, Refusal> {
        let snapshot = Arc::clone(&self.shared.state.borrow().snapshot);
        let process = snapshot.processes.iter().find(|it| it.pid == pid);
        let known = process.and_then(|it| Some((it, it.key()?)));
        let (process, key) = known
            .ok_or_else(|| Refusal::NoMatch(format!("process {pid} is not known to use a GPU")))?;
        let owner = process.owner.last_known();
        let uid = owner.and_then(|owner| owner.uid);
        let roles = self.shared.roles();
        let snooze = Operation::Snooze { owner: uid };
        if let Ruling::Deny(_) = check(&self.caller, snooze, &roles) {
            let owner_text = owner.map_or_else(
                || "its owner is unknown".to_owned(),
                |owner| format!("it belongs to {}", owner.name),
            );
            return Err(Refusal::Denied {
                asked: format!("snooze process {pid}: {owner_text}"),
                ask: format!(
                    "its owner, or someone in group {}",
                    self.shared.authority.operator_group_name()
                ),
            });
        }
        let Some(owner) = uid else {
            let why = format!("process {pid} was not warned about: its owner is not a user");
            return Err(Refusal::NoMatch(why));
        };
        let request = SnoozeRequest {
            requester: self.caller.uid,
            owner,
            process: (key.pid, key.start_ticks),
            job: process.job.last_known().map(Job::id),
        };
        // If nothing would be ended, nothing can be postponed: the snooze stays available for
        // later.
        let planned = self.shared.guard.snooze(request.clone(), true).await?;
        let ends_somebody = planned.iter().any(|it| it.mode > GuardMode::DryRun);
        let granted = match ends_somebody && !is_dry_run {
            true => self.shared.guard.snooze(request, false).await?,
            false => planned,
        };
        let snoozed = granted.into_iter().filter_map(|record| match record.step {
            GuardStep::Snoozed { until, left, .. } => Some(SnoozedRule {
                rule: record.rule,
                mode: record.mode,
                until,
                left,
            }),
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Ended(_)
            | GuardStep::Exempt(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Outcome(_)
            | GuardStep::SnoozeVoided { .. }
            | GuardStep::Doubted(_)
            | GuardStep::Tripped { .. } => None,
        });
        Ok(snoozed.take(MAX_SNOOZED_RULES).collect())
    }

    /// Returns one page of the decisions of the guard.
    pub(crate) async fn violations_page(
        &self,
        query: ViolationQuery,
    ) -> Result<ViolationPage, Refusal> {
        let (open, would_have_ended) = if query.before.is_none() {
            let status = self.shared.guard.status();
            let simulated = status.simulated.iter().map(|end| &end.violation);
            let user = query.user.as_deref();
            (
                self.visible_violations(status.open.iter(), user),
                self.visible_violations(simulated, user),
            )
        } else {
            (Vec::new(), Vec::new())
        };
        let _permit = self.acquire_query_permit().await;
        let (records, next) = self.shared.store.verdict_page(query).await?;
        let roles = self.shared.roles();
        let visibility = self.visibility(&roles);
        let visible = records.into_iter();
        let visible =
            visible.filter_map(|(id, record)| Some((id, visibility.redact_record(record)?)));
        Ok(ViolationPage {
            open,
            would_have_ended,
            records: visible.collect(),
            next,
        })
    }

    /// The violations that the caller may see and that concern this user.
    fn visible_violations<'v>(
        &self,
        violations: impl Iterator<Item = &'v OpenViolation>,
        user: Option<&str>,
    ) -> Vec<OpenViolation> {
        let roles = self.shared.roles();
        let visibility = self.visibility(&roles);
        let in_force = self.shared.guard.in_force();
        let rules = &in_force.rules.compiled;
        let visible = violations.filter_map(|open| visibility.redact_violation(open, rules));
        // Filtered after the redaction: otherwise a caller could learn by name who else is part of
        // a violation.
        let asked = visible.filter(|open| user.is_none_or(|user| involves_user(open, user)));
        asked.take(MAX_OPEN_VIOLATIONS).collect()
    }

    /// The summary of the guard for a list of this snapshot.
    pub(crate) fn guard_brief(&self, snapshot: &Snapshot) -> GuardSummary {
        let (guard, roles) = (&self.shared.guard, self.shared.roles());
        let (in_force, status) = (guard.in_force(), guard.status());
        self.visibility(&roles)
            .guard_summary(&in_force.rules.compiled, &status, snapshot)
    }

    /// Returns a part of the rules: as written for callers who may edit them, as in force for all
    /// others.
    pub(crate) async fn rules_part(&self, offset: u64) -> Result<RulesText, Refusal> {
        self.may_read_rules()?;
        let guard = self.shared.guard.clone();
        // The file of the rules may contain something that is not rules.
        if self.may_edit_rules().is_err() {
            return Ok(guard.text_in_force(offset));
        }
        let text = tokio::task::spawn_blocking(move || guard.text(offset)).await;
        text.map_err(|_| Refusal::Internal)?
    }

    /// Changes the rules, or only reports what that would change.
    pub(crate) async fn change_rules(
        &self,
        edit: Option<GuardEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        self.may_edit_rules().inspect_err(|refusal| {
            self.record_refused_edit(RuleSetKind::Guard, edit.as_ref(), refusal);
        })?;
        let edit = match edit {
            Some(edit) => edit,
            None => GuardEdit::Replace(self.offered_rules.text()?),
        };
        let (guard, uid) = (self.shared.guard.clone(), self.caller.uid);
        let edited = tokio::task::spawn_blocking(move || {
            guard.edit(uid, &edit, expected.as_ref(), is_dry_run)
        });
        edited.await.map_err(|_| Refusal::Internal)?
    }

    /// Reports what rules would have done.
    pub(crate) async fn replay(&self, request: ReplayRequest) -> Result<ReplayReport, Refusal> {
        self.may_read_rules()?;
        let text = match request.rules {
            RuleSetSource::InForce => self.shared.guard.in_force().text.to_string(),
            RuleSetSource::Offered => self.offered_rules.text()?,
        };
        let directory = self.shared.store.directory().to_owned();
        let snoozes = self.shared.guard.status().snoozes.clone();
        let snapshot = Arc::clone(&self.shared.state.borrow().snapshot);
        let guard = self.shared.guard.clone();
        self.run_lookback(move |is_wanted| {
            let is_of_now = request.until.plus_seconds(NOW_TOLERANCE_SECONDS) >= snapshot.taken_at;
            let request = EvaluatorRequest::Replay {
                directory,
                text,
                snoozes,
                since: request.since,
                until: request.until,
                present: is_of_now.then(|| guard.present_facts(&snapshot)),
            };
            match run_in_child(&request, is_wanted) {
                Ok(answer) => answer,
                Err(EvaluatorError::Ended(why)) => Err(Refusal::Invalid(why)),
                Err(EvaluatorError::Cancelled) => Err(Refusal::Expired),
            }
        })
        .await
    }

    /// Records that the caller may not make this edit; `None` is a replacement of all rules.
    pub(super) fn record_refused_edit<E: fmt::Display>(
        &self,
        of: RuleSetKind,
        edit: Option<&E>,
        refusal: &Refusal,
    ) {
        let edit = edit.map_or_else(|| "replace all".to_owned(), E::to_string);
        let action = Action {
            kind: ActionKind::EditRules,
            uid: self.caller.uid,
            request: format!("{}{edit}", of.record_prefix()),
            plan: "{}".into(),
        };
        let by = self.caller.limit_group;
        self.shared
            .store
            .record_refusal(action, by, refusal.to_string());
    }

    pub(super) fn may_edit_rules(&self) -> Result<(), Refusal> {
        let admins = self.shared.authority.admin_group_name();
        self.require_right(Operation::EditRules, "change the guard's rules", &admins)
    }

    fn may_read_rules(&self) -> Result<(), Refusal> {
        self.check_rules_access("read the guard's rules: hide_other_users is set")
    }

    /// Rules name people: if other users are hidden, so are the rules.
    pub(super) fn check_rules_access(&self, asked: &str) -> Result<(), Refusal> {
        let by_nobody = Operation::ReadAction { requester: None };
        match check(&self.caller, by_nobody, &self.shared.roles()) {
            Ruling::Allow => Ok(()),
            Ruling::Deny(_) => Err(Refusal::Denied {
                asked: asked.to_owned(),
                ask: format!(
                    "someone in group {}",
                    self.shared.authority.operator_group_name()
                ),
            }),
        }
    }
}

/// Whether a violation concerns this user, as typed: the user broke the rule, or a process of the
/// user is part of the evidence.
fn involves_user(open: &OpenViolation, user: &str) -> bool {
    let is = |person: &Person| names_user(user, person.uid, Some(&person.name));
    let is_subject = match &open.subject {
        ViolationSubject::Person(person) | ViolationSubject::PersonOn(person, _) => is(person),
        ViolationSubject::Job(job) => is(&job.owner),
        ViolationSubject::Group(_)
        | ViolationSubject::GroupOn(..)
        | ViolationSubject::Device(_)
        | ViolationSubject::Run(_) => false,
    };
    let mut processes = open.evidence.runs.iter();
    is_subject || processes.any(|process| process.owner.as_ref().is_some_and(is))
}
