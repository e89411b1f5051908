//! Of whom was told what: once, and again only when it gets worse.

use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::rogue::{Finding, Risk, Threat, Verdict};
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many processes are remembered: as many of each user, or all that they have.
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
    /// How many are known of each user.
    of_user: BTreeMap<Option<u32>, usize>,
    /// When was told of whose processes, the oldest first.
    told: BTreeMap<Option<u32>, VecDeque<(Timestamp, Risk)>>,
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
    /// Since when it uses no device. It may come back.
    gone_at: Option<Timestamp>,
}

impl Known {
    fn worst(&self) -> Option<Risk> {
        let verdicts = self.finding.verdicts.iter();
        verdicts.map(|verdict| verdict.risk).max()
    }

    const fn is_here(&self) -> bool {
        self.is_open && self.gone_at.is_none()
    }
}

impl Findings {
    /// Takes what a process was found to be, the worst first; nothing is a verdict that is
    /// over.
    pub fn found(&mut self, who: Finding, verdicts: Vec<Verdict>) {
        let known = self.known.get_mut(&who.process);
        match known {
            Some(known) if verdicts.is_empty() => known.is_open = false,
            Some(known) => {
                known.is_open = true;
                known.gone_at = None;
                if known.finding.uid != who.uid {
                    leaves(&mut self.of_user, known.finding.uid);
                    *self.of_user.entry(who.uid).or_default() += 1;
                }
                known.finding = Finding {
                    since: known.finding.since,
                    verdicts,
                    ..who
                };
            }
            None if verdicts.is_empty() => {}
            None => {
                let known = Known {
                    finding: Finding { verdicts, ..who },
                    told: None,
                    is_open: true,
                    gone_at: None,
                };
                if self.make_room(&known) {
                    self.insert(known);
                } else {
                    self.beyond = self.beyond.saturating_add(1);
                }
            }
        }
    }

    fn insert(&mut self, known: Known) {
        let uid = known.finding.uid;
        if self.known.insert(known.finding.process, known).is_none() {
            *self.of_user.entry(uid).or_default() += 1;
        }
    }

    /// Whether there is room for this. Where all of it is taken, a process that matters less
    /// is forgotten: one that is gone or without a verdict, else one that is less bad. Each
    /// user has an equal part: a user who has more than this one's user loses the least of
    /// theirs, and nobody loses any to a user who has more.
    fn make_room(&mut self, newcomer: &Known) -> bool {
        if self.known.len() < MOST {
            return true;
        }
        let count = |uid: &Option<u32>| self.of_user.get(uid).copied().unwrap_or(0);
        let own = count(&newcomer.finding.uid);
        let biggest = self.of_user.iter().max_by_key(|(_, count)| **count);
        let biggest = biggest.filter(|(_, count)| **count > own + 1);
        let biggest = biggest.map(|(uid, _)| *uid);
        let matters = |known: &Known| (known.is_here(), known.worst());
        let known = self.known.iter().filter(|(_, known)| {
            let uid = known.finding.uid;
            match biggest {
                Some(biggest) => uid == biggest,
                None => uid == newcomer.finding.uid || count(&uid) > own,
            }
        });
        let least = known.min_by_key(|(process, known)| (matters(known), **process));
        let makes_room = |known: &Known| biggest.is_some() || matters(known) < matters(newcomer);
        let least = least.filter(|(_, known)| makes_room(known));
        let least = least.map(|(process, _)| *process);
        let forgotten = least.and_then(|process| self.known.remove(&process));
        if let Some(known) = &forgotten {
            leaves(&mut self.of_user, known.finding.uid);
        }
        forgotten.is_some()
    }

    /// What is to be told now, the worst first: the first verdict of a process, or a worse
    /// one than was told. Of whom there is too much, the rest is told later, if it is so
    /// still.
    pub fn to_tell(&mut self, now: Timestamp) -> Vec<Finding> {
        let known = self.known.values_mut();
        let untold = known.filter(|known| known.is_here() && known.told < known.worst());
        let mut untold: Vec<&mut Known> = untold.collect();
        untold.sort_indirect_by_key(|known| rank(&known.finding));
        let mut telling = Vec::new();
        for known in untold {
            let Some(worst) = known.worst() else {
                continue;
            };
            if may_tell(self.told.entry(known.finding.uid).or_default(), now, worst) {
                known.told = Some(worst);
                telling.push(known.finding.clone());
            }
        }
        telling
    }

    /// That this was told before: the daemon was started anew.
    pub fn was_told(&mut self, finding: Finding) {
        let told = Known {
            told: None,
            is_open: false,
            gone_at: None,
            finding,
        };
        let (process, worst) = (told.finding.process, told.worst());
        if !self.known.contains_key(&process) {
            if !self.make_room(&told) {
                return;
            }
            self.insert(told);
        }
        if let Some(known) = self.known.get_mut(&process) {
            known.told = known.told.max(worst);
        }
    }

    /// Those of whom there is a verdict now, the worst first.
    #[must_use]
    pub fn open(&self) -> Vec<&Finding> {
        let open = self.known.values().filter(|known| known.is_here());
        let mut open: Vec<&Finding> = open.map(|known| &known.finding).collect();
        open.sort_indirect_by_key(|finding| rank(finding));
        open
    }

    /// Of how many nothing was told, for there was no room.
    #[must_use]
    pub const fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Takes who is there. Who has been gone for an hour is forgotten.
    pub fn follow(&mut self, is_here: impl Fn(&ProcessKey) -> bool, now: Timestamp) {
        let of_user = &mut self.of_user;
        self.known.retain(|process, known| {
            if is_here(process) {
                known.gone_at = None;
                return true;
            }
            let gone_at = *known.gone_at.get_or_insert(now);
            let is_kept = gone_at <= now && now.since(gone_at) < WINDOW;
            if !is_kept {
                leaves(of_user, known.finding.uid);
            }
            is_kept
        });
        self.told.retain(|_, told| {
            forget_old(told, now);
            !told.is_empty()
        });
    }
}

/// One fewer is known of this user.
fn leaves(of_user: &mut BTreeMap<Option<u32>, usize>, uid: Option<u32>) {
    if let Some(count) = of_user.get_mut(&uid) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            of_user.remove(&uid);
        }
    }
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
    verdicts.sort_indirect_by_key(|it| (std::cmp::Reverse(it.score), it.threat));
    verdicts
}

/// What is worse than all that was told of somebody lately is always told.
fn may_tell(told: &mut VecDeque<(Timestamp, Risk)>, now: Timestamp, risk: Risk) -> bool {
    forget_old(told, now);
    let is_worse = told.iter().all(|(_, told)| *told < risk);
    let may = told.len() < MOST_TOLD || is_worse;
    if may {
        told.push_back((now, risk));
    }
    may
}

/// A clock that was set back makes nothing of before count for ever.
fn forget_old(told: &mut VecDeque<(Timestamp, Risk)>, now: Timestamp) {
    told.retain(|(at, _)| *at <= now && now.since(*at) < WINDOW);
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
            executable: None,
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

    /// Finds this at that second; who is told of then.
    fn find(findings: &mut Findings, who: Finding, verdicts: Vec<Verdict>) -> Vec<u32> {
        let now = who.last_seen;
        findings.found(who, verdicts);
        let told = findings.to_tell(now).into_iter();
        told.map(|it| it.process.pid).collect()
    }

    #[test]
    fn it_is_told_once_and_again_only_when_it_gets_worse() {
        let mut findings = Findings::default();
        let mut found = |second, verdicts| {
            let told = find(&mut findings, who(1, 7, second), verdicts);
            !told.is_empty()
        };
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
        assert!(findings.to_tell(Timestamp(3_000)).is_empty());
    }

    #[test]
    fn what_was_told_before_a_restart_is_not_told_again() {
        let mut findings = Findings::default();
        for (risk, second) in [(Risk::High, 2), (Risk::Medium, 1)] {
            findings.was_told(Finding {
                verdicts: of(risk),
                ..who(1, 7, second)
            });
        }
        assert!(findings.open().is_empty());
        assert!(find(&mut findings, who(1, 7, 9), of(Risk::High)).is_empty());
        // It began before.
        assert_eq!(findings.open()[0].since, Timestamp(2_000));
        assert_eq!(find(&mut findings, who(1, 7, 9), of(Risk::Critical)), [1]);
    }

    #[test]
    fn whoever_starts_many_is_told_of_often_enough_and_of_the_worst_first() {
        let mut findings = Findings::default();
        for pid in 0..1_000 {
            findings.found(who(pid, 7, 1), of(Risk::Low));
        }
        findings.found(who(5_000, 7, 1), of(Risk::High));
        let told = findings.to_tell(Timestamp(1_000));
        assert_eq!((told.len(), told[0].process.pid), (MOST_TOLD, 5_000));
        // Nobody else is kept quiet by that, and an hour later the rest is told of.
        assert_eq!(
            find(&mut findings, who(6_000, 8, 2), of(Risk::Low)),
            [6_000]
        );
        assert!(findings.to_tell(Timestamp(3_600_000)).is_empty());
        // What is worse than all that was told is told at once.
        assert!(find(&mut findings, who(5_001, 7, 3), of(Risk::High)).is_empty());
        assert_eq!(
            find(&mut findings, who(5_002, 7, 3), of(Risk::Critical)),
            [5_002]
        );
        assert_eq!(findings.to_tell(Timestamp(3_603_000)).len(), MOST_TOLD);
    }

    #[test]
    fn whoever_is_away_for_a_moment_is_not_told_of_again() {
        let mut findings = Findings::default();
        assert_eq!(find(&mut findings, who(1, 7, 1), of(Risk::High)), [1]);
        findings.follow(|_| false, Timestamp(2_000));
        assert!(findings.open().is_empty());
        assert!(find(&mut findings, who(1, 7, 3), of(Risk::High)).is_empty());
        assert_eq!(findings.open().len(), 1);
        findings.follow(|_| false, Timestamp(4_000));
        findings.follow(|_| false, Timestamp(3_605_000));
        assert_eq!(find(&mut findings, who(1, 7, 3_606), of(Risk::High)), [1]);
    }

    #[test]
    fn those_who_are_gone_make_room() {
        let mut findings = Findings::default();
        let most = u32::try_from(MOST).unwrap();
        for pid in 0..=most {
            findings.found(who(pid, pid, 1), of(Risk::Low));
        }
        assert_eq!((findings.open().len(), findings.beyond()), (MOST, 1));
        // Whoever is worse finds room.
        findings.found(who(most + 1, 0, 1), of(Risk::High));
        assert_eq!(findings.open()[0].process.pid, most + 1);
        assert_eq!((findings.open().len(), findings.beyond()), (MOST, 1));
        for second in [2, 3_602] {
            findings.follow(|process| process.pid == 3, Timestamp(second * 1_000));
        }
        assert_eq!(findings.open().len(), 1);
        findings.found(who(most, most, 3_603), of(Risk::Low));
        assert_eq!(findings.open().len(), 2);
    }

    #[test]
    fn one_users_many_findings_drive_out_nobody_elses() {
        let mut findings = Findings::default();
        let most = u32::try_from(MOST).unwrap();
        findings.found(who(0, 8, 1), of(Risk::Low));
        for pid in 1..2 * most {
            findings.found(who(pid, 7, 1), of(Risk::Critical));
        }
        let of_other = |findings: &Findings| {
            let open = findings.open().into_iter();
            open.filter(|it| it.uid == Some(8)).count()
        };
        assert_eq!((findings.open().len(), of_other(&findings)), (MOST, 1));
        // There is room for more of the other's, up to half, however harmless they are.
        for pid in 2 * most..3 * most {
            findings.found(who(pid, 8, 1), of(Risk::Low));
        }
        assert_eq!(findings.open().len(), MOST);
        assert!(of_other(&findings).abs_diff(MOST / 2) <= 1);
        // What is worse takes the place of one's own.
        for pid in 3 * most..4 * most {
            findings.found(who(pid, 7, 1), of(Risk::Critical));
            findings.found(who(most + pid, 8, 1), of(Risk::Medium));
        }
        assert!(of_other(&findings).abs_diff(MOST / 2) <= 1);
        let open = findings.open();
        assert!(open.iter().all(|it| it.verdicts[0].risk > Risk::Low));
    }

    #[test]
    fn of_two_looks_the_worse_counts_for_each_threat() {
        let score = |threat, share| Verdict {
            threat,
            score: Share::thousandths(share),
            ..of(Risk::High).remove(0)
        };
        let one = vec![
            score(Threat::CryptoMiner, 500),
            score(Threat::ResourceAbuser, 400),
        ];
        let other = vec![
            score(Threat::CryptoMiner, 300),
            score(Threat::ResourceAbuser, 600),
        ];
        let expected = [
            score(Threat::ResourceAbuser, 600),
            score(Threat::CryptoMiner, 500),
        ];
        assert_eq!(worse_of(one.clone(), other.clone()), expected);
        assert_eq!(worse_of(other, one), expected);
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
