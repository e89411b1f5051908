//! Advances the violation states by one sample. A finding confirms, warns and ends; a
//! condition that does not hold settles; a subject that is gone closes its violation.

mod lifecycle;
mod room;

use super::super::enforcement::breaker::{CircuitBreaker, EndKind};
use super::super::enforcement::ended_jobs::{ContainerUser, PidStart, SimulatedEnd};
use super::super::enforcement::victims::{
    ChosenVictim, EndedJobs, SelectionContext, VictimChoice, pid_start, select_victim,
};
use super::super::person_key::PersonKey;
use super::super::rule_doubt::DoubtTracker;
use super::super::snoozes::{SnoozeGrant, SnoozeList};
use super::super::state::device_reporting::DeviceReporting;
use super::super::state::evidence::LazyEvidence;
use super::super::state::{GuardState, JobKey, JobState};
use super::super::violation_state::{ConfirmedViolation, DueOwners, ViolationState};
use super::compiled_rules::{PolicyIndex, RuleResponse};
use super::context::{EvaluatedRun, EvaluationContext};
use super::findings::{Excess, Finding, Findings, SubjectIndex, ViolationDetails};
use super::overflow::{EvaluationBounds, Overflow};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{
    GuardAction, GuardMode, GuardRecord, GuardStep, RuleName, ViolationSubject,
};
use lifecycle::{close_outdated, create_states, ends_with_processes, over_record};
use room::make_room;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why no job of an owner who is no user is ended after too many ends.
const OTHERS_STOPPED: &str = "too many jobs of containers were, or would be, ended: none is until \
                              an admin sets the mode again";

/// Takes one step for every violation state, existing or new.
pub(crate) fn apply(
    context: &EvaluationContext<'_>,
    state: &mut GuardState,
    findings: &Findings,
    (is_seen, follows): (bool, bool),
    bounds: &EvaluationBounds,
    overflow: &mut Overflow,
) -> Vec<GuardRecord> {
    let mut records = Vec::new();
    let mut violations = std::mem::take(&mut state.violations);
    close_outdated(context, &mut violations, &mut records);
    records.extend(
        state
            .snoozes
            .prune(context.compiled_rules, context.sample.until),
    );
    let mut snoozes = std::mem::take(&mut state.snoozes);
    let mut doubt_tracker = std::mem::take(&mut state.doubt_tracker);
    for (policy, kind) in findings.by_rule.keys() {
        let of_rule = violations
            .entry(context.compiled_rules.rule_name(*policy, *kind))
            .or_default();
        of_rule.digest = context.compiled_rules.policy_digest(*policy);
    }
    let refused = make_room(
        context,
        &mut violations,
        findings,
        bounds.violations,
        (&mut records, overflow),
    );
    let mut ended = EndedJobs::take_from(state, context);
    let device_reporting = std::mem::take(&mut state.device_reporting);
    let jobs = std::mem::take(&mut state.jobs);
    let mut breaker = std::mem::take(&mut state.breaker);
    breaker.prune(context.sample.until);
    for (rule, of_rule) in &mut violations {
        let Some(policy) = context.compiled_rules.find(&rule.source) else {
            continue;
        };
        let Some(response) = context.compiled_rules.response(policy, rule.kind) else {
            continue;
        };
        let nothing = BTreeMap::new();
        let found = findings
            .by_rule
            .get(&(policy, rule.kind))
            .unwrap_or(&nothing);
        let mut evaluation = RuleEvaluation {
            context,
            device_reporting: &device_reporting,
            jobs: &jobs,
            rule,
            rule_response: (policy, &response),
            response: Cow::Borrowed(&response),
            records: &mut records,
            findings,
            is_conclusive: is_seen || rule.kind.is_access(),
            is_contiguous: follows,
            breaker: &mut breaker,
            snoozes: &mut snoozes,
            doubt_tracker: &doubt_tracker,
        };
        let is_refused = |subject: SubjectIndex| refused.contains(&(policy, rule.kind, subject));
        let mut subjects = create_states(context, &mut of_rule.of, found, is_refused).into_iter();
        of_rule.of.retain_entries(|subject, violation| {
            let index = subjects.next().flatten();
            match index.and_then(|index| found.get(&index)) {
                Some(Finding::Holds(held)) => {
                    evaluation.handle_violated(subject, violation, held, &mut ended)
                }
                Some(Finding::Unknown(_) | Finding::Stale) => {
                    violation.record_unknown();
                    true
                }
                None => evaluation.handle_not_violated(subject, violation, index),
            }
        });
    }
    violations.retain_entries(|_, of_rule| !of_rule.of.is_empty());
    if let Some((rule, subject, violation, step)) = doubt_tracker.update(context, &violations) {
        let opened = violation.opened.as_ref();
        records.extend(opened.map(|opened| GuardRecord {
            at: context.sample.until,
            rule: rule.clone(),
            subject: subject.clone(),
            mode: opened.mode,
            step,
            evidence: opened.evidence.to_evidence(),
            message: opened.message.clone(),
        }));
    }
    state.snoozes = snoozes;
    state.doubt_tracker = doubt_tracker;
    state.violations = violations;
    state.device_reporting = device_reporting;
    state.jobs = jobs;
    state.breaker = breaker;
    ended.store_in(state);
    records
}

/// The step of one rule.
struct RuleEvaluation<'l, 'a> {
    context: &'l EvaluationContext<'a>,
    device_reporting: &'l DeviceReporting,
    jobs: &'l BTreeMap<Arc<JobKey>, JobState>,
    rule: &'l RuleName,
    /// The response, unless a user's own policy is milder.
    rule_response: (PolicyIndex, &'l RuleResponse),
    /// The response for the current subject.
    response: Cow<'l, RuleResponse>,
    records: &'l mut Vec<GuardRecord>,
    findings: &'l Findings,
    /// Whether the sample shows if a condition holds.
    is_conclusive: bool,
    /// Whether the sample begins where the last one ended, by clocks that agree. After a
    /// gap, or while the clocks disagree, no job is ended.
    is_contiguous: bool,
    breaker: &'l mut CircuitBreaker,
    snoozes: &'l mut SnoozeList,
    doubt_tracker: &'l DoubtTracker,
}

impl<'l> RuleEvaluation<'l, '_> {
    /// Handles a condition that holds. Returns whether the state stays.
    fn handle_violated(
        &mut self,
        subject: &ViolationSubject,
        violation: &mut ViolationState,
        held: &ViolationDetails,
        ended: &mut EndedJobs,
    ) -> bool {
        if self.is_succeeded(subject, violation) {
            self.snoozes.reset_requests(self.rule, subject);
            let over = over_record(self.context.sample, self.rule, subject, violation);
            self.records.extend(over);
            *violation = ViolationState::new(held.since.unwrap_or(self.context.sample.from));
        }
        if let Some(since) = held.since {
            violation.set_since(self.rule.kind, since);
        }
        self.response = self.response_for(subject, held);
        let is_service_only_warned = self.response.action == GuardAction::Terminate
            && self.rule.kind.only_warns_services()
            && !self
                .context
                .compiled_rules
                .ends_services(self.rule_response.0)
            && self.is_service(held);
        let is_doubted =
            !self.is_dry_run() && self.doubt_tracker.only_warns(self.rule.kind, subject);
        if is_service_only_warned || is_doubted {
            self.response.to_mut().action = GuardAction::Warn;
        }
        let at = self.context.sample.until;
        let since = violation.since;
        let proof = || LazyEvidence {
            is_service_only_warned,
            ..held.evidence(self.context, since)
        };
        let processes = || {
            held.runs
                .iter()
                .map(|run| pid_start(self.context, *run))
                .into_set()
        };
        let snoozes = self.snoozes.active_for(self.rule, subject, at, processes);
        let transition =
            violation.record_violated(self.rule.kind, &self.response, (at, &snoozes), proof);
        for step in transition.steps {
            self.record(subject, step, violation);
        }
        if transition.due != DueOwners::Nobody && self.is_contiguous {
            self.end_job(subject, violation, held, (&transition.due, &snoozes), ended);
        }
        self.update_simulated(subject, violation);
        true
    }

    /// Whether a violation is over and another one of the same subject holds: all processes of
    /// its evidence ended in a time without samples that is long enough to settle it.
    fn is_succeeded(&self, subject: &ViolationSubject, violation: &ViolationState) -> bool {
        let (_, response) = self.rule_response;
        let Some(opened) = &violation.opened else {
            return false;
        };
        // The runs are in the order of their processes.
        let is_present = |pid: u32, start_ticks: u64| {
            let process = |run: &EvaluatedRun<'_>| (run.key.pid, run.key.start_ticks);
            let runs = &self.context.runs;
            let found = runs.binary_search_by(|run| process(run).cmp(&(pid, start_ticks)));
            found.is_ok()
        };
        let mut evidence = opened.evidence.runs.iter().map(|observed| &observed.run);
        violation.may_be_settled(response.settled_ms)
            // A job that a dry run counts as ended goes on.
            && opened.simulated.is_empty()
            && self.is_fully_reported(subject, violation)
            && !evidence.any(|run| is_present(run.pid, run.start_ticks))
    }

    /// Whether a service is involved: the whole job counts.
    fn is_service(&self, held: &ViolationDetails) -> bool {
        let jobs = held
            .runs
            .iter()
            .filter_map(|run| self.context.runs[*run].job);
        // Each job once: it may have hundreds of these runs.
        let jobs: BTreeSet<usize> = jobs.into_set();
        let mut runs = jobs.iter().map(|job| &self.context.jobs[*job].runs);
        runs.any(|runs| self.context.is_service(runs) == Some(true))
    }

    /// The response for a subject. If that is a single person, the person's own policy may
    /// be milder than the rule.
    fn response_for(
        &self,
        subject: &ViolationSubject,
        held: &ViolationDetails,
    ) -> Cow<'l, RuleResponse> {
        let (policy, response) = self.rule_response;
        let users = held.runs.iter().flat_map(|run| {
            let (profile, _) = &self.context.profiles[self.context.runs[*run].profile];
            profile.users()
        });
        match subject {
            ViolationSubject::Person(_)
            | ViolationSubject::PersonOn(..)
            | ViolationSubject::Job(_)
            | ViolationSubject::Run(_) => self
                .context
                .compiled_rules
                .milder_response(response, policy, users),
            ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Device(_) => Cow::Borrowed(response),
        }
    }

    /// Ends a job, if one may be ended.
    fn end_job(
        &mut self,
        subject: &ViolationSubject,
        violation: &mut ViolationState,
        held: &ViolationDetails,
        (due, snoozes): (&DueOwners, &BTreeMap<u32, SnoozeGrant>),
        ended: &mut EndedJobs,
    ) {
        if held.excess != Excess::All && self.is_cooling(subject, violation, ended) {
            return violation.require_confirmation();
        }
        let nothing = BTreeMap::new();
        let opened = violation.opened.as_ref();
        let terms = SelectionContext {
            due,
            mode: self.response.mode,
            jobs: self.jobs,
            left_to: opened.and_then(|it| it.left_to.as_ref()),
            snoozes,
            simulated: opened.map_or(&nothing, |it| &it.simulated),
        };
        match select_victim(self.context, held, ended, &terms) {
            VictimChoice::Nobody(why) => {
                let why = || why.describe(self.context, self.rule.kind);
                if let Some(step) = violation.record_exempt(why) {
                    self.record(subject, step, violation);
                }
            }
            VictimChoice::NotDue => {}
            VictimChoice::NotYet => violation.require_confirmation(),
            VictimChoice::Job(chosen) => self.apply_choice(subject, violation, chosen, ended),
        }
    }

    /// Whether a job was ended for this violation a short while ago, or on the device if
    /// the violation concerns a whole device: its memory is still being released.
    fn is_cooling(
        &self,
        subject: &ViolationSubject,
        violation: &ViolationState,
        ended: &EndedJobs,
    ) -> bool {
        let cooldown = self.context.compiled_rules.rules().enforcement.cooldown;
        let at = self.context.sample.until;
        let ended_at = violation
            .opened
            .as_ref()
            .and_then(ConfirmedViolation::ended_at);
        // A clock that was set back a little does not end the cooldown.
        let of_this = ended_at.is_some_and(|since| at.since(since.min(at)) < cooldown);
        let of_device = match subject {
            ViolationSubject::Device(device) => ended.is_cooling(device),
            ViolationSubject::Person(_)
            | ViolationSubject::PersonOn(..)
            | ViolationSubject::Group(_)
            | ViolationSubject::GroupOn(..)
            | ViolationSubject::Job(_)
            | ViolationSubject::Run(_) => false,
        };
        of_this || of_device
    }

    fn apply_choice(
        &mut self,
        subject: &ViolationSubject,
        violation: &mut ViolationState,
        chosen: ChosenVictim,
        ended: &mut EndedJobs,
    ) {
        let at = self.context.sample.until;
        let key = JobKey::clone(&self.context.jobs[chosen.job].key);
        let mode = self.response.mode;
        // A rule in dry run, while others are enforced, ends no job that counts.
        let is_dry_run = mode == GuardMode::DryRun && !self.is_dry_run();
        let is_left_running = chosen.victim.leave_to.is_some() || is_dry_run;
        if is_left_running {
            violation.require_confirmation();
            if let Some(opened) = &mut violation.opened {
                opened.left_to = Some(key);
            }
            self.record(subject, GuardStep::Ended(chosen.victim), violation);
            return;
        }
        let max_ended = self.context.compiled_rules.rules().enforcement.max_ended;
        let counted = match self.is_dry_run() {
            true => EndKind::Simulated,
            false => EndKind::Real,
        };
        let person = PersonKey::from(&chosen.victim.job.owner);
        // The violation is still due with the next sample.
        if !self.is_dry_run() && !ended.has_slot(&person) {
            return;
        }
        let is_repeated = chosen.is_repeated && self.breaker.allows_retry(&person, max_ended);
        if !is_repeated && !self.breaker.allows(counted, &person, max_ended) {
            if let Some(ended) = self.breaker.trip((counted, &person), max_ended, at) {
                self.record(subject, GuardStep::Tripped { ended }, violation);
            }
            // A dry run goes on and records every end. Otherwise no further job is ended.
            if !self.is_dry_run() {
                violation.require_confirmation();
                if self.breaker.is_stopped_for(&person)
                    && let Some(step) = violation.record_exempt(|| OTHERS_STOPPED.to_owned())
                {
                    self.record(subject, step, violation);
                }
                return;
            }
        }
        if !is_repeated {
            self.breaker.add(counted, person, at);
        }
        violation.record_ended(at);
        if self.is_dry_run() {
            let processes = chosen.runs.iter().map(|run| pid_start(self.context, *run));
            let open = violation.to_open_violation(self.rule, subject);
            let end =
                open.map(|open| SimulatedEnd::new(open, &chosen.victim, processes.into_set()));
            if let (Some(opened), Some(end)) = (&mut violation.opened, end) {
                opened.simulated.insert((key, chosen.part), end);
            }
        } else {
            ended.add(self.context, &chosen, self.rule);
        }
        self.record(subject, GuardStep::Ended(chosen.victim), violation);
    }

    fn is_dry_run(&self) -> bool {
        self.context.compiled_rules.rules().mode == GuardMode::DryRun
    }

    /// Handles a condition that does not hold. Returns whether the state stays.
    fn handle_not_violated(
        &mut self,
        subject: &ViolationSubject,
        violation: &mut ViolationState,
        index: Option<SubjectIndex>,
    ) -> bool {
        self.update_simulated(subject, violation);
        // A subject that is gone has no findings.
        let is_complete = index.is_none_or(|index| self.findings.is_complete(index));
        let is_over = match (index.is_some(), self.is_conclusive && is_complete) {
            _ if !self.is_fully_reported(subject, violation) => {
                violation.record_unknown();
                false
            }
            (false, _) if ends_with_processes(subject) || violation.has_ended_job() => true,
            // A person who ends their own processes for a moment may start others in the
            // next.
            (_, true) => violation.record_not_violated(
                self.rule.kind,
                self.context.sample,
                self.response.settled_ms,
            ),
            (_, false) => {
                violation.record_unknown();
                false
            }
        };
        if is_over {
            self.snoozes.reset_requests(self.rule, subject);
            let over = over_record(self.context.sample, self.rule, subject, violation);
            self.records.extend(over);
        }
        !is_over
    }

    /// Updates which processes of the jobs that a dry run counts as ended are still
    /// present.
    fn update_simulated(&self, subject: &ViolationSubject, violation: &mut ViolationState) {
        let is_any = |violation: &ViolationState| {
            violation
                .opened
                .as_ref()
                .is_some_and(|it| !it.simulated.is_empty())
        };
        if !is_any(violation) || !self.is_fully_reported(subject, violation) {
            return;
        }
        let simulated = violation.opened.iter_mut().flat_map(|it| &mut it.simulated);
        for ((_, part), end) in simulated {
            let job = match self.context.find_subject(&end.violation.subject) {
                Some(SubjectIndex::Job(job)) => self.context.jobs[job].runs.as_slice(),
                _ => &[],
            };
            let is_of_part = |run: &&usize| {
                let user = self.context.container_user(**run).map(ContainerUser);
                part.is_none() || user == *part
            };
            let runs = job.iter().filter(is_of_part);
            let now: BTreeSet<PidStart> = runs.map(|run| pid_start(self.context, *run)).into_set();
            // If all have gone, a job of this name is another job.
            end.processes = match end.processes.is_disjoint(&now) {
                true => BTreeSet::new(),
                false => now,
            };
        }
        if let Some(opened) = &mut violation.opened {
            opened
                .simulated
                .retain_entries(|_, end| !end.processes.is_empty());
        }
    }

    /// Whether all devices of the evidence have reported their processes.
    fn is_fully_reported(&self, subject: &ViolationSubject, violation: &ViolationState) -> bool {
        let own = match subject {
            ViolationSubject::PersonOn(_, device)
            | ViolationSubject::GroupOn(_, device)
            | ViolationSubject::Device(device) => Some(device),
            ViolationSubject::Run(run) => Some(&run.device),
            ViolationSubject::Person(_) | ViolationSubject::Group(_) | ViolationSubject::Job(_) => {
                None
            }
        };
        // If all processes of the evidence have ended, no device reports more about them.
        let has_nobody = |opened: &ConfirmedViolation| opened.evidence.count == 0;
        let has_nobody = violation.opened.as_ref().is_some_and(has_nobody);
        let is_of_device = matches!(subject, ViolationSubject::Device(_));
        let own = own.filter(|_| is_of_device || !has_nobody);
        let opened = violation.opened.iter();
        let known_by = opened.flat_map(|it| &it.evidence.runs);
        let known_by = known_by.map(|observed| &observed.run.device);
        self.device_reporting
            .covers_all(own.into_iter().chain(known_by))
    }

    fn record(&mut self, subject: &ViolationSubject, step: GuardStep, violation: &ViolationState) {
        let Some(opened) = &violation.opened else {
            return;
        };
        self.records.push(GuardRecord {
            at: self.context.sample.until,
            rule: self.rule.clone(),
            subject: subject.clone(),
            mode: self.response.mode,
            step,
            evidence: opened.evidence.to_evidence(),
            message: self.response.message.clone(),
        });
    }
}
