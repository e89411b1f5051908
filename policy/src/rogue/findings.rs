//! Of whom was told what: once, and again only when it gets worse.

use gpukill_proto::rogue::{Finding, Risk, Threat, Verdict};
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many processes are remembered; of who comes then nothing is told.
pub const MOST: usize = 4_096;

/// So often is told of one person's processes in [`WINDOW`]: whoever starts a thousand is
/// told of often enough.
pub const MOST_TOLD: usize = 60;

/// An hour.
const WINDOW: Duration = Duration::from_secs(3_600);

/// What was found, and told.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    known: BTreeMap<ProcessKey, Known>,
    /// When was told of whose processes, the oldest first.
    told: BTreeMap<Option<u32>, VecDeque<Timestamp>>,
    /// Of how many nothing was told, for there was no room.
    beyond: u64,
}

#[derive(Debug, Clone)]
struct Known {
    finding: Finding,
    /// The worst that was told.
    told: Option<Risk>,
    /// Whether there is a verdict still.
    is_open: bool,
}

impl Findings {
    /// Takes what a process was found to be, the worst first; whether that is to be told:
    /// it is the first verdict of it, or a worse one than was told.
    pub fn found(&mut self, who: Finding, verdicts: Vec<Verdict>) -> Option<&Finding> {
        let process = who.process;
        let worst = verdicts.iter().map(|verdict| verdict.risk).max();
        let is_full = self.known.len() >= MOST;
        let Some(worst) = worst else {
            if let Some(known) = self.known.get_mut(&process) {
                known.is_open = false;
            }
            return None;
        };
        if is_full && !self.known.contains_key(&process) {
            self.beyond = self.beyond.saturating_add(1);
            return None;
        }
        let at = who.last_seen;
        let known = self.known.entry(process).or_insert_with(|| Known {
            finding: who.clone(),
            told: None,
            is_open: true,
        });
        known.is_open = true;
        known.finding = Finding {
            since: known.finding.since,
            verdicts,
            ..who
        };
        if known.told >= Some(worst) {
            return None;
        }
        // Whoever is told of no more is told of later, if it is still so then.
        if !may_tell(self.told.entry(known.finding.uid).or_default(), at) {
            return None;
        }
        known.told = Some(worst);
        Some(&known.finding)
    }

    /// That this was told before: the daemon was started anew.
    pub fn was_told(&mut self, finding: Finding) {
        let worst = finding.verdicts.iter().map(|verdict| verdict.risk).max();
        if self.known.len() >= MOST {
            return;
        }
        let known = self.known.entry(finding.process).or_insert(Known {
            finding,
            told: None,
            is_open: false,
        });
        known.told = known.told.max(worst);
    }

    /// Those of whom there is a verdict now, the worst first.
    #[must_use]
    pub fn open(&self) -> Vec<&Finding> {
        let open = self.known.values().filter(|known| known.is_open);
        let mut open: Vec<&Finding> = open.map(|known| &known.finding).collect();
        sort(&mut open);
        open
    }

    /// Of how many nothing was told, for there was no room.
    #[must_use]
    pub const fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Forgets everybody but these.
    pub fn keep_only(&mut self, is_kept: impl Fn(&ProcessKey) -> bool, now: Timestamp) {
        self.known.retain(|process, _| is_kept(process));
        self.told.retain(|_, told| {
            forget_old(told, now);
            !told.is_empty()
        });
    }
}

/// The worst first; of equals whoever has the least number.
pub fn sort(findings: &mut [&Finding]) {
    findings.sort_by_key(|finding| rank(finding));
}

/// As findings are sorted: the smaller the worse.
#[must_use]
pub fn rank(finding: &Finding) -> impl Ord + use<> {
    let worst = finding.verdicts.iter().map(|it| (it.risk, it.score)).max();
    (std::cmp::Reverse(worst), finding.process)
}

/// What somebody may be by either of these: of each threat what is worse.
#[must_use]
pub fn worse_of(one: Vec<Verdict>, other: Vec<Verdict>) -> Vec<Verdict> {
    let mut worst: BTreeMap<Threat, Verdict> = BTreeMap::new();
    for verdict in one.into_iter().chain(other) {
        match worst.get(&verdict.threat) {
            Some(known) if known.score >= verdict.score => {}
            Some(_) | None => {
                worst.insert(verdict.threat, verdict);
            }
        }
    }
    let mut verdicts: Vec<Verdict> = worst.into_values().collect();
    verdicts.sort_by_key(|it| (std::cmp::Reverse(it.score), it.threat));
    verdicts
}

fn may_tell(told: &mut VecDeque<Timestamp>, now: Timestamp) -> bool {
    forget_old(told, now);
    let may = told.len() < MOST_TOLD;
    if may {
        told.push_back(now);
    }
    may
}

/// A clock that was set back makes nothing of before count for ever.
fn forget_old(told: &mut VecDeque<Timestamp>, now: Timestamp) {
    told.retain(|at| *at <= now && now.since(*at) < WINDOW);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::rogue::Share;

    fn who(pid: u32, uid: u32, second: i64) -> Finding {
        Finding {
            process: ProcessKey {
                pid,
                start_ticks: 1,
            },
            owner: None,
            uid: Some(uid),
            name: None,
            gpus: Vec::new(),
            since: Timestamp(second * 1_000),
            last_seen: Timestamp(second * 1_000),
            is_present: true,
            verdicts: Vec::new(),
        }
    }

    fn of(risk: Risk) -> Vec<Verdict> {
        vec![Verdict {
            threat: Threat::CryptoMiner,
            confidence: Share::ONE,
            score: Share::ONE,
            risk,
            signs: Vec::new(),
        }]
    }

    #[test]
    fn it_is_told_once_and_again_only_when_it_gets_worse() {
        let mut findings = Findings::default();
        let mut found = |second, verdicts| findings.found(who(1, 7, second), verdicts).is_some();
        assert!(!found(0, Vec::new()));
        assert!(found(1, of(Risk::Medium)));
        assert!(!found(2, of(Risk::Medium)));
        assert!(!found(3, of(Risk::Low)));
        assert!(found(4, of(Risk::Critical)));
        // It is over, and so again.
        assert!(!found(5, Vec::new()));
        assert!(!found(6, of(Risk::Critical)));
        let open = findings.open();
        assert_eq!(open.len(), 1);
        assert_eq!(open[0].since, Timestamp(1_000));
        assert_eq!(open[0].last_seen, Timestamp(6_000));
    }

    #[test]
    fn who_has_no_verdict_any_more_is_no_finding() {
        let mut findings = Findings::default();
        findings.found(who(1, 7, 1), of(Risk::High));
        findings.found(who(1, 7, 2), Vec::new());
        assert!(findings.open().is_empty());
    }

    #[test]
    fn what_was_told_before_a_restart_is_not_told_again() {
        let mut findings = Findings::default();
        let told = Finding {
            verdicts: of(Risk::High),
            ..who(1, 7, 1)
        };
        findings.was_told(told);
        assert!(findings.open().is_empty());
        assert!(findings.found(who(1, 7, 9), of(Risk::High)).is_none());
        // It began before.
        assert_eq!(findings.open()[0].since, Timestamp(1_000));
        assert!(findings.found(who(1, 7, 9), of(Risk::Critical)).is_some());
    }

    #[test]
    fn whoever_starts_many_is_told_of_often_enough() {
        let mut findings = Findings::default();
        let mut told = |uid, second, pids: std::ops::Range<u32>| {
            let told = pids.filter(|pid| {
                let found = findings.found(who(*pid, uid, second), of(Risk::High));
                found.is_some()
            });
            told.count()
        };
        assert_eq!(told(7, 1, 0..1_000), MOST_TOLD);
        // Nobody else is kept quiet by that, and an hour later they are told of again.
        assert_eq!(told(8, 2, 1_000..1_010), 10);
        assert_eq!(told(7, 3_600, 60..70), 0);
        assert_eq!(told(7, 3_601, 60..70), 10);
    }

    #[test]
    fn those_who_are_gone_are_forgotten_and_make_room() {
        let mut findings = Findings::default();
        let most = u32::try_from(MOST).unwrap();
        for pid in 0..=most {
            findings.found(who(pid, pid, 1), of(Risk::Low));
        }
        assert_eq!((findings.open().len(), findings.beyond()), (MOST, 1));
        findings.keep_only(|process| process.pid == 3, Timestamp(2_000));
        assert_eq!(findings.open().len(), 1);
        assert!(findings.found(who(most, most, 3), of(Risk::Low)).is_some());
    }

    #[test]
    fn the_worst_come_first() {
        let mut findings = Findings::default();
        for (pid, risk) in [(1, Risk::Low), (2, Risk::Critical), (3, Risk::High)] {
            findings.found(who(pid, 7, 1), of(risk));
        }
        let pids: Vec<u32> = findings.open().iter().map(|it| it.process.pid).collect();
        assert_eq!(pids, [2, 3, 1]);
    }
}
