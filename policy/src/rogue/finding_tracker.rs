//! Tracks which findings were reported: each once, and again only when it gets worse.

use gpukill_proto::collect::{RetainEntries as _, SortIndirect as _};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::rogue::{Risk, RogueFinding, Threat, Verdict};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Maximum number of tracked processes. Each user gets an equal part, or room for all
/// their processes.
pub const MAX_TRACKED: usize = 4_096;

/// Maximum number of reports about the processes of one person in [`WINDOW`]. A person
/// who starts a thousand processes is reported often enough.
pub const MAX_REPORTS: usize = 60;

/// One hour.
const WINDOW: Duration = Duration::from_secs(3_600);

/// The findings, and what was reported of them.
#[derive(Debug, Clone, Default)]
pub struct FindingTracker {
    tracked: BTreeMap<ProcessKey, TrackedFinding>,
    /// Number of tracked processes of each user.
    of_user: BTreeMap<Option<u32>, usize>,
    /// Times and risks of the reports about each user's processes, the oldest first.
    reports: BTreeMap<Option<u32>, VecDeque<(Timestamp, Risk)>>,
    /// Number of findings that were not tracked because there was no room.
    untracked: u64,
}

#[derive(Debug, Clone)]
struct TrackedFinding {
    finding: RogueFinding,
    /// The worst risk that was reported.
    reported: Option<Risk>,
    /// Whether the process still has a verdict.
    is_open: bool,
    /// Since when the process has used no device. It may come back.
    gone_at: Option<Timestamp>,
}

impl TrackedFinding {
    fn worst(&self) -> Option<Risk> {
        let verdicts = self.finding.verdicts.iter();
        verdicts.map(|verdict| verdict.risk).max()
    }

    const fn is_active(&self) -> bool {
        self.is_open && self.gone_at.is_none()
    }
}

impl FindingTracker {
    /// Records the verdicts of a process, the worst first. An empty list ends its
    /// verdict.
    pub fn record(&mut self, finding: RogueFinding, verdicts: Vec<Verdict>) {
        let known = self.tracked.get_mut(&finding.process);
        match known {
            Some(known) if verdicts.is_empty() => known.is_open = false,
            Some(known) => {
                known.is_open = true;
                known.gone_at = None;
                if known.finding.uid != finding.uid {
                    decrement_user(&mut self.of_user, known.finding.uid);
                    *self.of_user.entry(finding.uid).or_default() += 1;
                }
                known.finding = RogueFinding {
                    since: known.finding.since,
                    verdicts,
                    ..finding
                };
            }
            None if verdicts.is_empty() => {}
            None => {
                let known = TrackedFinding {
                    finding: RogueFinding {
                        verdicts,
                        ..finding
                    },
                    reported: None,
                    is_open: true,
                    gone_at: None,
                };
                if self.make_room(&known) {
                    self.insert(known);
                } else {
                    self.untracked = self.untracked.saturating_add(1);
                }
            }
        }
    }

    fn insert(&mut self, known: TrackedFinding) {
        let uid = known.finding.uid;
        if self.tracked.insert(known.finding.process, known).is_none() {
            *self.of_user.entry(uid).or_default() += 1;
        }
    }

    /// Makes room for a finding. Where all room is taken, a less important process is
    /// forgotten: one that is gone or has no verdict, else one of less risk. Each user
    /// has an equal part: a user with more findings than this user loses the least
    /// important, and no user loses a finding to a user with more.
    fn make_room(&mut self, newcomer: &TrackedFinding) -> bool {
        if self.tracked.len() < MAX_TRACKED {
            return true;
        }
        let count = |uid: &Option<u32>| self.of_user.get(uid).copied().unwrap_or(0);
        let own = count(&newcomer.finding.uid);
        let biggest = self
            .of_user
            .iter()
            .max_by_key(|(_, count)| **count)
            .filter(|(_, count)| **count > own + 1)
            .map(|(uid, _)| *uid);
        let matters = |known: &TrackedFinding| (known.is_active(), known.worst());
        let known = self.tracked.iter().filter(|(_, known)| {
            let uid = known.finding.uid;
            match biggest {
                Some(biggest) => uid == biggest,
                None => uid == newcomer.finding.uid || count(&uid) > own,
            }
        });
        let least_important_process =
            known.min_by_key(|(process, known)| (matters(known), **process));
        let makes_room =
            |known: &TrackedFinding| biggest.is_some() || matters(known) < matters(newcomer);
        let least_important_process =
            least_important_process.filter(|(_, known)| makes_room(known));
        let least_important_process = least_important_process.map(|(process, _)| *process);
        let forgotten = least_important_process.and_then(|process| self.tracked.remove(&process));
        if let Some(known) = &forgotten {
            decrement_user(&mut self.of_user, known.finding.uid);
        }
        forgotten.is_some()
    }

    /// Returns the findings to report now, the worst first: the first verdict of a
    /// process, or a worse risk than was reported. Reports above the limit of a person
    /// are made later, if they still apply.
    pub fn take_reportable(&mut self, now: Timestamp) -> Vec<RogueFinding> {
        let known = self.tracked.values_mut();
        let unreported = known.filter(|known| known.is_active() && known.reported < known.worst());
        let mut unreported: Vec<&mut TrackedFinding> = unreported.collect();
        unreported.sort_indirect_by_key(|known| sort_key(&known.finding));
        let mut telling = Vec::new();
        for known in unreported {
            let Some(worst) = known.worst() else {
                continue;
            };
            if may_report(
                self.reports.entry(known.finding.uid).or_default(),
                now,
                worst,
            ) {
                known.reported = Some(worst);
                telling.push(known.finding.clone());
            }
        }
        telling
    }

    /// Records that this was reported before the daemon restarted.
    pub fn restore_reported(&mut self, finding: RogueFinding) {
        let tracked = TrackedFinding {
            reported: None,
            is_open: false,
            gone_at: None,
            finding,
        };
        let (process, worst) = (tracked.finding.process, tracked.worst());
        if !self.tracked.contains_key(&process) {
            if !self.make_room(&tracked) {
                return;
            }
            self.insert(tracked);
        }
        if let Some(known) = self.tracked.get_mut(&process) {
            known.reported = known.reported.max(worst);
        }
    }

    /// The processes that have a verdict now, the worst first.
    #[must_use]
    pub fn current(&self) -> Vec<&RogueFinding> {
        let open = self.tracked.values().filter(|known| known.is_active());
        let mut open: Vec<&RogueFinding> = open.map(|known| &known.finding).collect();
        open.sort_indirect_by_key(|finding| sort_key(finding));
        open
    }

    /// Number of findings that were not tracked because there was no room.
    #[must_use]
    pub const fn untracked(&self) -> u64 {
        self.untracked
    }

    /// Updates which processes are present. A process that has been gone for an hour is
    /// forgotten.
    pub fn update_presence(&mut self, is_here: impl Fn(&ProcessKey) -> bool, now: Timestamp) {
        let of_user = &mut self.of_user;
        self.tracked.retain_entries(|process, known| {
            if is_here(process) {
                known.gone_at = None;
                return true;
            }
            let gone_at = *known.gone_at.get_or_insert(now);
            let is_kept = gone_at <= now && now.since(gone_at) < WINDOW;
            if !is_kept {
                decrement_user(of_user, known.finding.uid);
            }
            is_kept
        });
        self.reports.retain_entries(|_, reports| {
            drop_expired(reports, now);
            !reports.is_empty()
        });
    }
}

/// Counts one process less for this user.
fn decrement_user(of_user: &mut BTreeMap<Option<u32>, usize>, uid: Option<u32>) {
    if let Some(count) = of_user.get_mut(&uid) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            of_user.remove(&uid);
        }
    }
}

/// Sort key of findings: smaller is worse.
#[must_use]
pub fn sort_key(finding: &RogueFinding) -> impl Ord + use<> {
    let worst = finding.verdicts.iter().map(|it| (it.risk, it.score)).max();
    (std::cmp::Reverse(worst), finding.process)
}

/// Merges two sets of verdicts: the worse verdict for each threat.
#[must_use]
pub fn merge_verdicts(one: Vec<Verdict>, other: Vec<Verdict>) -> Vec<Verdict> {
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

/// Whether a risk may be reported. A risk above all recently reported ones always may.
fn may_report(reports: &mut VecDeque<(Timestamp, Risk)>, now: Timestamp, risk: Risk) -> bool {
    drop_expired(reports, now);
    let is_worse = reports.iter().all(|(_, reported)| *reported < risk);
    let may = reports.len() < MAX_REPORTS || is_worse;
    if may {
        reports.push_back((now, risk));
    }
    may
}

/// After a clock was set back, times in the future are dropped, so that they do not
/// count forever.
fn drop_expired(reports: &mut VecDeque<(Timestamp, Risk)>, now: Timestamp) {
    reports.retain(|(at, _)| *at <= now && now.since(*at) < WINDOW);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::rogue::Share;

    fn finding_of(pid: u32, uid: u32, second: i64) -> RogueFinding {
        RogueFinding {
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
            indicators: Vec::new(),
        }]
    }

    /// Records this finding at its time, and returns the pids that are reported then.
    fn find(
        findings: &mut FindingTracker,
        finding: RogueFinding,
        verdicts: Vec<Verdict>,
    ) -> Vec<u32> {
        let now = finding.last_seen;
        findings.record(finding, verdicts);
        let reports = findings.take_reportable(now).into_iter();
        reports.map(|it| it.process.pid).collect()
    }

    #[test]
    fn reported_again_only_when_worse() {
        let mut findings = FindingTracker::default();
        let mut found = |second, verdicts| {
            let reports = find(&mut findings, finding_of(1, 7, second), verdicts);
            !reports.is_empty()
        };
        assert!(!found(0, Vec::new()));
        assert!(found(1, of(Risk::Medium)));
        assert!(!found(2, of(Risk::Medium)));
        assert!(!found(3, of(Risk::Low)));
        assert!(found(4, of(Risk::Critical)));
        // The verdict ends, and starts again.
        assert!(!found(5, Vec::new()));
        assert!(!found(6, of(Risk::Critical)));
        let open = findings.current();
        assert_eq!(open.len(), 1);
        assert_eq!(open[0].since, Timestamp(1_000));
        assert_eq!(open[0].last_seen, Timestamp(6_000));
    }

    #[test]
    fn ended_verdict_is_no_finding() {
        let mut findings = FindingTracker::default();
        findings.record(finding_of(1, 7, 1), of(Risk::High));
        findings.record(finding_of(1, 7, 2), Vec::new());
        assert!(findings.current().is_empty());
        assert!(findings.take_reportable(Timestamp(3_000)).is_empty());
    }

    #[test]
    fn reports_survive_a_restart() {
        let mut findings = FindingTracker::default();
        for (risk, second) in [(Risk::High, 2), (Risk::Medium, 1)] {
            findings.restore_reported(RogueFinding {
                verdicts: of(risk),
                ..finding_of(1, 7, second)
            });
        }
        assert!(findings.current().is_empty());
        assert!(find(&mut findings, finding_of(1, 7, 9), of(Risk::High)).is_empty());
        // It started before the restart.
        assert_eq!(findings.current()[0].since, Timestamp(2_000));
        assert_eq!(
            find(&mut findings, finding_of(1, 7, 9), of(Risk::Critical)),
            [1]
        );
    }

    #[test]
    fn reports_of_a_person_are_limited() {
        let mut findings = FindingTracker::default();
        for pid in 0..1_000 {
            findings.record(finding_of(pid, 7, 1), of(Risk::Low));
        }
        findings.record(finding_of(5_000, 7, 1), of(Risk::High));
        let reports = findings.take_reportable(Timestamp(1_000));
        assert_eq!(
            (reports.len(), reports[0].process.pid),
            (MAX_REPORTS, 5_000)
        );
        // Reports about other people are not delayed, and an hour later the rest is
        // reported.
        assert_eq!(
            find(&mut findings, finding_of(6_000, 8, 2), of(Risk::Low)),
            [6_000]
        );
        assert!(findings.take_reportable(Timestamp(3_600_000)).is_empty());
        // A risk above all reported ones is reported at once.
        assert!(find(&mut findings, finding_of(5_001, 7, 3), of(Risk::High)).is_empty());
        assert_eq!(
            find(&mut findings, finding_of(5_002, 7, 3), of(Risk::Critical)),
            [5_002]
        );
        assert_eq!(
            findings.take_reportable(Timestamp(3_603_000)).len(),
            MAX_REPORTS
        );
    }

    #[test]
    fn short_absence_is_not_reported_again() {
        let mut findings = FindingTracker::default();
        assert_eq!(
            find(&mut findings, finding_of(1, 7, 1), of(Risk::High)),
            [1]
        );
        findings.update_presence(|_| false, Timestamp(2_000));
        assert!(findings.current().is_empty());
        assert!(find(&mut findings, finding_of(1, 7, 3), of(Risk::High)).is_empty());
        assert_eq!(findings.current().len(), 1);
        findings.update_presence(|_| false, Timestamp(4_000));
        findings.update_presence(|_| false, Timestamp(3_605_000));
        assert_eq!(
            find(&mut findings, finding_of(1, 7, 3_606), of(Risk::High)),
            [1]
        );
    }

    #[test]
    fn gone_processes_make_room() {
        let mut findings = FindingTracker::default();
        let most = u32::try_from(MAX_TRACKED).unwrap();
        for pid in 0..=most {
            findings.record(finding_of(pid, pid, 1), of(Risk::Low));
        }
        assert_eq!(
            (findings.current().len(), findings.untracked()),
            (MAX_TRACKED, 1)
        );
        // A worse finding gets room.
        findings.record(finding_of(most + 1, 0, 1), of(Risk::High));
        assert_eq!(findings.current()[0].process.pid, most + 1);
        assert_eq!(
            (findings.current().len(), findings.untracked()),
            (MAX_TRACKED, 1)
        );
        for second in [2, 3_602] {
            findings.update_presence(|process| process.pid == 3, Timestamp(second * 1_000));
        }
        assert_eq!(findings.current().len(), 1);
        findings.record(finding_of(most, most, 3_603), of(Risk::Low));
        assert_eq!(findings.current().len(), 2);
    }

    #[test]
    fn one_user_displaces_no_other() {
        let mut findings = FindingTracker::default();
        let most = u32::try_from(MAX_TRACKED).unwrap();
        findings.record(finding_of(0, 8, 1), of(Risk::Low));
        for pid in 1..2 * most {
            findings.record(finding_of(pid, 7, 1), of(Risk::Critical));
        }
        let of_other = |findings: &FindingTracker| {
            let open = findings.current().into_iter();
            open.filter(|it| it.uid == Some(8)).count()
        };
        assert_eq!(
            (findings.current().len(), of_other(&findings)),
            (MAX_TRACKED, 1)
        );
        // The other user gets room for more findings, up to half, however harmless they
        // are.
        for pid in 2 * most..3 * most {
            findings.record(finding_of(pid, 8, 1), of(Risk::Low));
        }
        assert_eq!(findings.current().len(), MAX_TRACKED);
        assert!(of_other(&findings).abs_diff(MAX_TRACKED / 2) <= 1);
        // A worse finding replaces one of the same user.
        for pid in 3 * most..4 * most {
            findings.record(finding_of(pid, 7, 1), of(Risk::Critical));
            findings.record(finding_of(most + pid, 8, 1), of(Risk::Medium));
        }
        assert!(of_other(&findings).abs_diff(MAX_TRACKED / 2) <= 1);
        let open = findings.current();
        assert!(open.iter().all(|it| it.verdicts[0].risk > Risk::Low));
    }

    #[test]
    fn worse_verdict_of_each_threat_counts() {
        let score = |threat, share| Verdict {
            threat,
            score: Share::from_thousandths(share),
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
        assert_eq!(merge_verdicts(one.clone(), other.clone()), expected);
        assert_eq!(merge_verdicts(other, one), expected);
    }

    #[test]
    fn worst_come_first() {
        let mut findings = FindingTracker::default();
        for (pid, risk) in [(1, Risk::Low), (2, Risk::Critical), (3, Risk::High)] {
            findings.record(finding_of(pid, 7, 1), of(risk));
        }
        let pids: Vec<u32> = findings.current().iter().map(|it| it.process.pid).collect();
        assert_eq!(pids, [2, 3, 1]);
    }
}
