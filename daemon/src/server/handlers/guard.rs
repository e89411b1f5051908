//! The calls about the guard: its decisions, and replays of rules.

use super::{QUEUE_TIMEOUT, Session};
use crate::evaluator::{EvaluatorError, EvaluatorRequest, run_in_child};
use crate::store::RuleSetKind;
use gpukill_policy::access::{Operation, Ruling, check};
use gpukill_policy::guard::enforcement::order::SnoozeRequest;
use gpukill_policy::select::names_user;
use gpukill_proto::guard::{
    GuardMode, GuardStep, GuardSummary, MAX_SNOOZED_RULES, OpenViolation, Person, ReplayReport,
    ReplayRequest, RuleSetSource, SnoozedRule, ViolationPage, ViolationQuery, ViolationSubject,
};
use gpukill_proto::model::{Job, Snapshot};
use gpukill_proto::refusal::Refusal;
use std::sync::Arc;

/// At most this many open violations are reported at once.
const MAX_OPEN_VIOLATIONS: usize = 1_000;

/// A replay that ends at most this many seconds ago counts as one up to now: samples are ten
/// seconds long.
const NOW_TOLERANCE_SECONDS: i64 = 60;

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
        // The queue of the guard, in which samples wait too, always has room. Privileged users wait
        // as well: a turn takes milliseconds.
        let turn = self
            .shared
            .snooze_queue
            .acquire_plain(self.caller.limit_group);
        let turn = tokio::time::timeout(QUEUE_TIMEOUT, turn).await;
        let _turn = turn.map_err(|_| Refusal::Busy)?;
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

    pub(crate) fn guard_brief(&self, snapshot: &Snapshot) -> GuardSummary {
        let (guard, roles) = (&self.shared.guard, self.shared.roles());
        let (in_force, status) = (guard.in_force(), guard.status());
        self.visibility(&roles)
            .guard_summary(&in_force.rules.compiled, &status, snapshot)
    }

    /// Reports what rules would have done.
    pub(crate) async fn replay(&self, request: ReplayRequest) -> Result<ReplayReport, Refusal> {
        self.may_read_rules(RuleSetKind::Guard)?;
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
