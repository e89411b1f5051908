//! Selects the jobs that each behaviour rule applies to. The modules beside this one decide
//! whether a job violates it.

use super::super::limits::ResolvedLimit;
use super::super::person_key::PersonRef;
use super::super::rules::{ForbiddenBehaviour, IdleParams};
use super::compiled_rules::PolicyIndex;
use super::context::EvaluationContext;
use super::findings::{Findings, SELF_REPORTED_ACCOUNT, SubjectIndex};
use super::overflow::fair_share;
use super::scope::{applies_to_device, time_limits};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::RuleKind;
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// A behaviour rule and the runs that it selects.
pub(crate) struct BehaviourCheck {
    pub(crate) policy: PolicyIndex,
    pub(crate) behaviour: ForbiddenBehaviour,
    /// Why it is unknown whether the rule applies to them.
    pub(crate) doubt: Option<&'static str>,
    /// The selected runs, in the order of their jobs.
    pub(crate) runs: Vec<usize>,
    /// The jobs, and the position in `runs` at which the runs of each end.
    ends: Vec<(usize, usize)>,
}

impl BehaviourCheck {
    /// How many windows the rule looks back over for a job with these selected runs.
    const fn lookback_windows(&self, runs: &[usize]) -> usize {
        match self.behaviour {
            ForbiddenBehaviour::Waste(_)
            | ForbiddenBehaviour::Idle(IdleParams {
                cpu_below: Some(_), ..
            }) => 1,
            ForbiddenBehaviour::Runaway(_) | ForbiddenBehaviour::Growth(_) => runs.len(),
            ForbiddenBehaviour::Duration(_)
            | ForbiddenBehaviour::Idle(_)
            | ForbiddenBehaviour::Rogue(_) => 0,
        }
    }

    /// Leaves out the jobs that `keeps` refuses by job and number of windows; returns both of
    /// each.
    fn retain_jobs(&mut self, mut keeps: impl FnMut(usize, usize) -> bool) -> Vec<(usize, usize)> {
        let (mut kept_runs, mut ends, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for (job, runs) in self.jobs() {
            let windows = self.lookback_windows(runs);
            if keeps(job, windows) {
                kept_runs.extend_from_slice(runs);
                ends.push((job, kept_runs.len()));
            } else {
                left_out.push((job, windows));
            }
        }
        (self.runs, self.ends) = (kept_runs, ends);
        left_out
    }

    /// The jobs, each with its selected runs.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (usize, &[usize])> {
        let mut from = 0;
        self.ends.iter().map(move |(job, end)| {
            let runs = &self.runs[from..*end];
            from = *end;
            (*job, runs)
        })
    }
}

/// A [`BehaviourCheck`] under construction.
struct BehaviourCheckBuilder {
    policy: PolicyIndex,
    behaviour: ForbiddenBehaviour,
    doubt: Option<&'static str>,
    /// Jobs and runs.
    runs: Vec<(usize, usize)>,
}

impl BehaviourCheckBuilder {
    fn new(
        policy: PolicyIndex,
        behaviour: ForbiddenBehaviour,
        doubt: Option<&'static str>,
    ) -> Self {
        Self {
            policy,
            behaviour,
            doubt,
            runs: Vec::new(),
        }
    }

    fn build(mut self) -> BehaviourCheck {
        self.runs.sort_indirect();
        let mut ends: Vec<(usize, usize)> = Vec::new();
        for (end, (job, _)) in (1..).zip(&self.runs) {
            match ends.last_mut() {
                Some(last) if last.0 == *job => last.1 = end,
                Some(_) | None => ends.push((*job, end)),
            }
        }
        BehaviourCheck {
            policy: self.policy,
            behaviour: self.behaviour,
            doubt: self.doubt,
            runs: self.runs.into_iter().map(|(_, run)| run).collect(),
            ends,
        }
    }
}

/// Leaves out jobs of the people with the most windows, if the rules look back over more than
/// `bound`. Returns the number of windows that are left out.
pub(crate) fn limit_lookback(
    context: &EvaluationContext<'_>,
    checks: &mut [BehaviourCheck],
    bound: usize,
    findings: &mut Findings,
) -> usize {
    let owner = |job: usize| PersonRef::from(context.people[context.jobs[job].person]);
    let mut windows: BTreeMap<PersonRef<'_>, usize> = BTreeMap::new();
    for check in &*checks {
        for (job, runs) in check.jobs() {
            *windows.entry(owner(job)).or_default() += check.lookback_windows(runs);
        }
    }
    if windows.values().sum::<usize>() <= bound {
        return 0;
    }
    let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for (person, count) in &windows {
        *counts.entry(person.share()).or_default() += count;
    }
    let share = fair_share(counts.into_values().collect(), bound);
    // All owners who are no user of the host divide one share.
    let others = windows
        .iter()
        .filter(|(person, _)| person.share().is_none());
    let share_of_other = fair_share(others.map(|(_, count)| *count).collect(), share);
    let mut used: BTreeMap<PersonRef<'_>, usize> = BTreeMap::new();
    let mut used_of_share: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    let (mut left, mut excess) = (bound, 0);
    for check in checks {
        // The first rules take the share of a person, so that it does not pass from rule to
        // rule.
        let left_out = check.retain_jobs(|job, windows| {
            let person = owner(job);
            let most = person.share().map_or(share_of_other, |_| share);
            let of_person = used.entry(person).or_default();
            let of_share = used_of_share.entry(person.share()).or_default();
            let fits =
                *of_person + windows <= most && *of_share + windows <= share && windows <= left;
            if fits {
                *of_person += windows;
                *of_share += windows;
                left -= windows;
            }
            fits
        });
        for (job, windows) in left_out {
            excess += windows;
            let why = "the rules look back over too many jobs and processes";
            let (kind, subject) = (check.behaviour.kind(), SubjectIndex::Job(job));
            findings.add_unknown(check.policy, kind, subject, why);
        }
    }
    excess
}

/// A limit of a person, evaluated as a behaviour of its processes.
type PersonLimit = (RuleKind, fn(Duration, Bytes) -> ForbiddenBehaviour);

const PERSON_LIMITS: [PersonLimit; 2] = [
    (RuleKind::Duration, |limit, _| {
        ForbiddenBehaviour::Duration(limit)
    }),
    (RuleKind::Idle, |limit, min_memory| {
        ForbiddenBehaviour::Idle(IdleParams {
            limit,
            min_memory,
            with_connections: false,
            cpu_below: None,
        })
    }),
];

/// By policy, kind, and the parameters that differ between processes.
type ChecksByRule =
    BTreeMap<(PolicyIndex, RuleKind, u64, u64, Option<&'static str>), BehaviourCheckBuilder>;

pub(crate) fn collect_checks(
    context: &EvaluationContext<'_>,
    findings: &mut Findings,
) -> Vec<BehaviourCheck> {
    let mut checks = ChecksByRule::new();
    for limited in &PERSON_LIMITS {
        add_person_limits(context, limited, &mut checks, findings);
    }
    add_behaviour_rules(context, &mut checks, findings);
    checks
        .into_values()
        .map(BehaviourCheckBuilder::build)
        .collect()
}

fn add_person_limits(
    context: &EvaluationContext<'_>,
    (kind, behaviour): &PersonLimit,
    checks: &mut ChecksByRule,
    findings: &mut Findings,
) {
    let times = time_limits(context, *kind);
    for (position, run) in context.runs.iter().enumerate() {
        let resolved = &context.profiles[run.profile].1;
        let own = match resolved.by_kind.get(kind) {
            Some(ResolvedLimit::Known { policy, limit }) => Some((*policy, *limit, None)),
            Some(ResolvedLimit::Unknown {
                policy,
                other_policies,
                why,
            }) => {
                for policy in [*policy].iter().chain(other_policies) {
                    findings.add_unknown(
                        *policy,
                        *kind,
                        job_or_run(context, position),
                        why.clone(),
                    );
                }
                None
            }
            None => None,
        };
        let doubt = resolved.doubts.get(kind);
        let doubt = doubt.map(|(policy, limit)| (*policy, *limit, Some(SELF_REPORTED_ACCOUNT)));
        let of_times = times.iter().map(|(policy, limit)| (*policy, *limit, None));
        let additional = resolved.additional.iter().filter(|it| it.kind == *kind);
        let additional = additional.map(|it| (it.policy, it.limit, None));
        let all = own
            .into_iter()
            .chain(doubt)
            .chain(additional)
            .chain(of_times);
        for (policy, limit, doubt) in all {
            match applies_to_device(context, policy, run.device) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    let subject = job_or_run(context, position);
                    findings.add_unknown(policy, *kind, subject, why.to_owned());
                    continue;
                }
            }
            let of_time = match policy {
                PolicyIndex::Time(at) => {
                    context.compiled_rules.rules().times[at]
                        .limits
                        .idle_min_memory
                }
                PolicyIndex::Default
                | PolicyIndex::User(_)
                | PolicyIndex::Group(_)
                | PolicyIndex::Gpu(_)
                | PolicyIndex::Behaviour(_) => None,
            };
            let beside = resolved.additional.iter().find(|it| it.policy == policy);
            let of_time = beside.map(|it| Bytes(it.idle_min_memory)).or(of_time);
            let in_doubt = doubt.and(resolved.doubtful_idle_min_memory);
            let min_memory = in_doubt.or(of_time.map(|it| it.0));
            let min_memory = min_memory.unwrap_or(resolved.idle_min_memory);
            let Some(job) = run.job else {
                add_unowned(context, position, policy, *kind, findings);
                continue;
            };
            let check = checks.entry((policy, *kind, limit, min_memory, doubt));
            let check = check.or_insert_with(|| {
                let behaviour = behaviour(Duration::from_millis(limit), Bytes(min_memory));
                BehaviourCheckBuilder::new(policy, behaviour, doubt)
            });
            check.runs.push((job, position));
        }
    }
}

fn add_behaviour_rules(
    context: &EvaluationContext<'_>,
    checks: &mut ChecksByRule,
    findings: &mut Findings,
) {
    let behaviours = &context.compiled_rules.rules().behaviours;
    for (position, run) in context.runs.iter().enumerate() {
        for at in &run.policy_match.behaviours {
            let policy = PolicyIndex::Behaviour(*at);
            let behaviour = &behaviours[*at].behaviour;
            match (
                context.policy_devices.behaviours[*at].contains(run.device),
                run.job,
            ) {
                (Ok(false), _) => {}
                (Err(why), _) => {
                    let subject = job_or_run(context, position);
                    findings.add_unknown(policy, behaviour.kind(), subject, why.to_owned());
                }
                (Ok(true), None) => {
                    add_unowned(context, position, policy, behaviour.kind(), findings)
                }
                (Ok(true), Some(job)) => {
                    let check = checks.entry((policy, behaviour.kind(), 0, 0, None));
                    let check = check.or_insert_with(|| {
                        BehaviourCheckBuilder::new(policy, behaviour.clone(), None)
                    });
                    check.runs.push((job, position));
                }
            }
        }
        for (at, why) in &run.policy_match.doubtful_behaviours {
            if context.policy_devices.behaviours[*at].contains(run.device) != Ok(false) {
                let (policy, kind) = (
                    PolicyIndex::Behaviour(*at),
                    behaviours[*at].behaviour.kind(),
                );
                findings.add_unknown(policy, kind, job_or_run(context, position), *why);
            }
        }
    }
}

fn add_unowned(
    context: &EvaluationContext<'_>,
    run: usize,
    policy: PolicyIndex,
    kind: RuleKind,
    findings: &mut Findings,
) {
    let subject = job_or_run(context, run);
    findings.add_unknown(policy, kind, subject, "its owner is not known");
}

/// The job of a run, or the run itself if its owner is unknown.
fn job_or_run(context: &EvaluationContext<'_>, run: usize) -> SubjectIndex {
    context.runs[run]
        .job
        .map_or(SubjectIndex::Run(run), SubjectIndex::Job)
}
