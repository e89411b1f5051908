//! Which jobs each rule about what processes do is about. Whether they do it, the
//! files beside this one tell.

use super::super::limits::Governed;
use super::super::rules::Conduct;
use super::book::Policy;
use super::finding::{ACCOUNT, Findings, Whom};
use super::scene::Scene;
use super::scope::{is_meant, times};
use gpukill_proto::guard::RuleKind;
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// What one rule is about.
pub(crate) struct Concern {
    pub(crate) policy: Policy,
    pub(crate) conduct: Conduct,
    /// Why it is not known whether this holds for them.
    pub(crate) doubt: Option<&'static str>,
    /// The runs that the rule selects, by job.
    pub(crate) runs: Vec<usize>,
    /// Their jobs, and the place in `runs` that each one's end at.
    ends: Vec<(usize, usize)>,
}

impl Concern {
    /// How many stretches of the past the rule looks back over.
    pub(crate) fn looked_back(&self) -> usize {
        match self.conduct {
            Conduct::Waste { .. }
            | Conduct::Idle {
                cpu_below: Some(_), ..
            } => self.ends.len(),
            Conduct::Runaway { .. } | Conduct::Growth { .. } => self.runs.len(),
            Conduct::Duration(_) | Conduct::Idle { .. } | Conduct::Rogue { .. } => 0,
        }
    }

    /// Jobs, and their runs that the rule selects.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (usize, &[usize])> {
        let mut from = 0;
        self.ends.iter().map(move |(job, end)| {
            let runs = &self.runs[from..*end];
            from = *end;
            (*job, runs)
        })
    }
}

/// What one rule is about, as far as it is found.
struct Gathered {
    policy: Policy,
    conduct: Conduct,
    doubt: Option<&'static str>,
    /// Jobs and runs.
    runs: Vec<(usize, usize)>,
}

impl Gathered {
    fn new(policy: Policy, conduct: Conduct, doubt: Option<&'static str>) -> Self {
        Self {
            policy,
            conduct,
            doubt,
            runs: Vec::new(),
        }
    }

    fn by_job(mut self) -> Concern {
        self.runs.sort_unstable();
        let mut ends: Vec<(usize, usize)> = Vec::new();
        for (end, (job, _)) in (1..).zip(&self.runs) {
            match ends.last_mut() {
                Some(last) if last.0 == *job => last.1 = end,
                Some(_) | None => ends.push((*job, end)),
            }
        }
        Concern {
            policy: self.policy,
            conduct: self.conduct,
            doubt: self.doubt,
            runs: self.runs.into_iter().map(|(_, run)| run).collect(),
            ends,
        }
    }
}

/// A limit of a person, as what its processes must not do.
type Limited = (RuleKind, fn(Duration, Bytes) -> Conduct);

const LIMITED: [Limited; 2] = [
    (RuleKind::Duration, |limit, _| Conduct::Duration(limit)),
    (RuleKind::Idle, |limit, min_memory| Conduct::Idle {
        limit,
        min_memory,
        with_connections: false,
        cpu_below: None,
    }),
];

/// By policy, kind, and what of it differs between processes.
type Concerns = BTreeMap<(Policy, RuleKind, u64, u64, Option<&'static str>), Gathered>;

pub(crate) fn concerns(scene: &Scene<'_>, findings: &mut Findings) -> Vec<Concern> {
    let mut concerns = Concerns::new();
    for limited in &LIMITED {
        of_persons(scene, limited, &mut concerns, findings);
    }
    of_behaviours(scene, &mut concerns, findings);
    concerns.into_values().map(Gathered::by_job).collect()
}

fn of_persons(
    scene: &Scene<'_>,
    (kind, conduct): &Limited,
    concerns: &mut Concerns,
    findings: &mut Findings,
) {
    let times = times(scene, *kind);
    for (position, run) in scene.runs.iter().enumerate() {
        let resolved = &scene.profiles[run.profile].1;
        let own = match resolved.by_kind.get(kind) {
            Some(Governed::By { policy, limit }) => Some((*policy, *limit, None)),
            Some(Governed::Unknown {
                policy,
                others,
                why,
            }) => {
                for policy in [*policy].iter().chain(others) {
                    findings.unknown(*policy, *kind, whom(scene, position), why.clone());
                }
                None
            }
            None => None,
        };
        let doubt = resolved.doubts.get(kind);
        let doubt = doubt.map(|(policy, limit)| (*policy, *limit, Some(ACCOUNT)));
        let of_times = times.iter().map(|(policy, limit)| (*policy, *limit, None));
        let besides = resolved.besides.iter().filter(|it| it.kind == *kind);
        let besides = besides.map(|it| (it.policy, it.limit, None));
        let all = own.into_iter().chain(doubt).chain(besides).chain(of_times);
        for (policy, limit, doubt) in all {
            match is_meant(scene, policy, run.device) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    let whom = whom(scene, position);
                    findings.unknown(policy, *kind, whom, why.to_owned());
                    continue;
                }
            }
            let of_time = match policy {
                Policy::Time(at) => scene.book.rules().times[at].limits.idle_min_memory,
                Policy::Default
                | Policy::User(_)
                | Policy::Group(_)
                | Policy::Gpu(_)
                | Policy::Behaviour(_) => None,
            };
            let beside = resolved.besides.iter().find(|it| it.policy == policy);
            let of_time = beside.map(|it| Bytes(it.idle_min_memory)).or(of_time);
            let in_doubt = doubt.and(resolved.doubtful_idle_min_memory);
            let least = in_doubt.or(of_time.map(|it| it.0));
            let least = least.unwrap_or(resolved.idle_min_memory);
            let Some(job) = run.job else {
                unowned(scene, position, policy, *kind, findings);
                continue;
            };
            let concern = concerns.entry((policy, *kind, limit, least, doubt));
            let concern = concern.or_insert_with(|| {
                let conduct = conduct(Duration::from_millis(limit), Bytes(least));
                Gathered::new(policy, conduct, doubt)
            });
            concern.runs.push((job, position));
        }
    }
}

fn of_behaviours(scene: &Scene<'_>, concerns: &mut Concerns, findings: &mut Findings) {
    let behaviours = &scene.book.rules().behaviours;
    for (position, run) in scene.runs.iter().enumerate() {
        for at in &run.selected.behaviours {
            let policy = Policy::Behaviour(*at);
            let conduct = &behaviours[*at].conduct;
            match (scene.places.behaviours[*at].has(run.device), run.job) {
                (Ok(false), _) => {}
                (Err(why), _) => {
                    let whom = whom(scene, position);
                    findings.unknown(policy, conduct.kind(), whom, why.to_owned());
                }
                (Ok(true), None) => unowned(scene, position, policy, conduct.kind(), findings),
                (Ok(true), Some(job)) => {
                    let concern = concerns.entry((policy, conduct.kind(), 0, 0, None));
                    let concern =
                        concern.or_insert_with(|| Gathered::new(policy, conduct.clone(), None));
                    concern.runs.push((job, position));
                }
            }
        }
        for (at, why) in &run.selected.doubtful_behaviours {
            if scene.places.behaviours[*at].has(run.device) != Ok(false) {
                let (policy, kind) = (Policy::Behaviour(*at), behaviours[*at].conduct.kind());
                findings.unknown(policy, kind, whom(scene, position), *why);
            }
        }
    }
}

fn unowned(scene: &Scene<'_>, run: usize, policy: Policy, kind: RuleKind, findings: &mut Findings) {
    let whom = whom(scene, run);
    findings.unknown(policy, kind, whom, "whose it is, is not known");
}

/// The job, where it is known whose.
fn whom(scene: &Scene<'_>, run: usize) -> Whom {
    scene.runs[run].job.map_or(Whom::Run(run), Whom::Job)
}
