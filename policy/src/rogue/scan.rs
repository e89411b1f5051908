//! Detects suspicious processes of the past: the stored samples, evaluated by the
//! current rules, together with the findings recorded at the time.
//!
//! The store knows less than an inspection of a live process: neither loaded libraries
//! nor network peers. Recorded findings add that knowledge.

use super::finding_tracker::{merge_verdicts, sort_key};
use super::load_tracker::LoadTracker;
use super::rules::RogueRules;
use super::suspect::Suspect;
use super::verdict::{evaluate, reassess};
use crate::guard::sample::{GuardSample, ProcessFacts};
use gpukill_proto::collect::{IntoSet as _, RetainEntries as _, SortIndirect as _};
use gpukill_proto::model::{DeviceId, ProcessKey};
use gpukill_proto::rogue::{RogueFinding, ScanReport};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of findings that are kept, the worst of all, and of those that are
/// reported.
const MAX_FINDINGS: usize = 4_096;
const MAX_REPORTED: usize = 200;

/// A scan in progress.
#[derive(Debug)]
pub struct HistoryScan {
    rules: RogueRules,
    since: Timestamp,
    loads: LoadTracker,
    /// The processes in the last sample.
    present: BTreeMap<ProcessKey, ScannedProcess>,
    /// The findings recorded at the time.
    recorded: BTreeMap<ProcessKey, RogueFinding>,
    findings: BTreeMap<ProcessKey, RogueFinding>,
    evaluated: u32,
    /// Number of findings beyond the kept ones.
    dropped: u32,
}

/// A process, as far as the scan has read.
#[derive(Debug)]
struct ScannedProcess {
    facts: Arc<ProcessFacts>,
    gpus: BTreeSet<u32>,
    first: Timestamp,
    last: Timestamp,
}

impl HistoryScan {
    /// Starts a scan from this time on.
    #[must_use]
    pub fn new(rules: RogueRules, since: Timestamp) -> Self {
        Self {
            rules,
            since,
            loads: LoadTracker::unlimited(),
            present: BTreeMap::new(),
            recorded: BTreeMap::new(),
            findings: BTreeMap::new(),
            evaluated: 0,
            dropped: 0,
        }
    }

    /// Adds the next sample.
    pub fn add(&mut self, sample: &GuardSample) {
        self.loads.add_stored(sample);
        let index = |id: &DeviceId| sample.devices.get(id).map(|device| device.index);
        let mut present = BTreeSet::new();
        for (run, run_sample) in &sample.runs {
            let process = run.process();
            if run_sample.is_present {
                present.insert(process);
            }
            let scanned = self
                .present
                .entry(process)
                .or_insert_with(|| ScannedProcess {
                    facts: Arc::clone(&run_sample.facts),
                    gpus: BTreeSet::new(),
                    first: sample.from,
                    last: sample.until,
                });
            scanned.facts = Arc::clone(&run_sample.facts);
            scanned.gpus.extend(index(&run.device));
            scanned.last = sample.until;
        }
        let gone = self.present.keys().filter(|key| !present.contains(key));
        let gone: Vec<ProcessKey> = gone.copied().collect();
        for process in gone {
            if let Some(scanned) = self.present.remove(&process) {
                self.evaluate_process(process, &scanned);
            }
        }
        self.loads
            .retain_processes(|process| present.contains(process));
    }

    fn evaluate_process(&mut self, process: ProcessKey, scanned: &ScannedProcess) {
        self.evaluated = self.evaluated.saturating_add(1);
        let suspect = Suspect {
            load: self.loads.load_of(process),
            ..Suspect::from_store(&scanned.facts)
        };
        let facts = &scanned.facts;
        let known = RogueFinding {
            process,
            owner: facts.owner.clone(),
            uid: facts.user.as_ref().map(|(_, uid)| *uid),
            name: facts.name.clone(),
            executable: facts.executable.clone(),
            gpus: scanned.gpus.iter().copied().collect(),
            since: scanned.first,
            last_seen: scanned.last,
            is_present: false,
            verdicts: evaluate(&suspect, &self.rules),
        };
        let known = match self.recorded.remove(&process) {
            Some(recorded) => merge_findings(known, self.reassess_finding(recorded, &suspect)),
            None => known,
        };
        self.keep_finding(known);
    }

    /// Reassesses a recorded finding by the current rules.
    fn reassess_finding(&self, recorded: RogueFinding, suspect: &Suspect) -> RogueFinding {
        RogueFinding {
            verdicts: reassess(&recorded.verdicts, suspect, &self.rules),
            ..recorded
        }
    }

    /// Adds a finding that was recorded at the time.
    pub fn add_recorded(&mut self, finding: RogueFinding) {
        let is_full = self.recorded.len() >= MAX_FINDINGS;
        match self.recorded.remove(&finding.process) {
            Some(known) => {
                let both = merge_findings(known, finding);
                self.recorded.insert(both.process, both);
            }
            None if is_full => self.dropped = self.dropped.saturating_add(1),
            None => {
                self.recorded.insert(finding.process, finding);
            }
        }
    }

    fn keep_finding(&mut self, finding: RogueFinding) {
        if finding.verdicts.is_empty() {
            return;
        }
        // The process may have left its device and come back.
        let finding = match self.findings.remove(&finding.process) {
            Some(known) => merge_findings(known, finding),
            None => finding,
        };
        self.findings.insert(finding.process, finding);
        if self.findings.len() > MAX_FINDINGS {
            let least_important = self
                .findings
                .values()
                .max_by_key(|finding| sort_key(finding));
            let least_important = least_important.map(|finding| finding.process);
            self.findings
                .retain_entries(|process, _| Some(*process) != least_important);
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Finishes the scan. `living` holds the current findings of processes that use a
    /// device. `is_reported` decides which findings the caller may see. For a live process,
    /// the current finding counts, and earlier recorded findings.
    #[must_use]
    pub fn finish(
        mut self,
        living: &BTreeMap<ProcessKey, Option<RogueFinding>>,
        until: Timestamp,
        is_reported: &dyn Fn(&RogueFinding) -> bool,
    ) -> ScanReport {
        let present = std::mem::take(&mut self.present);
        for (process, scanned) in &present {
            if !living.contains_key(process) {
                self.evaluate_process(*process, scanned);
            }
        }
        for (process, recorded) in std::mem::take(&mut self.recorded) {
            let suspect = Suspect::from_finding(&recorded);
            let known = self.reassess_finding(recorded, &suspect);
            match living.get(&process) {
                None => self.keep_finding(known),
                Some(now) => self.keep_finding(merge_with_current(now.as_ref(), known, until)),
            }
        }
        let evaluated = self.evaluated.saturating_add(saturating_u32(living.len()));
        for now in living.values().flatten() {
            if !self.findings.contains_key(&now.process) {
                self.keep_finding(now.clone());
            }
        }
        let all = self.findings.into_values();
        let mut findings: Vec<RogueFinding> = all.filter(|finding| is_reported(finding)).collect();
        findings.sort_indirect_by_key(sort_key);
        let dropped = saturating_u32(findings.len().saturating_sub(MAX_REPORTED));
        findings.truncate(MAX_REPORTED);
        ScanReport {
            since: self.since,
            until,
            evaluated,
            findings,
            more: self.dropped.saturating_add(dropped),
        }
    }
}

/// Merges two findings of the same process.
fn merge_findings(one: RogueFinding, other: RogueFinding) -> RogueFinding {
    let gpus: BTreeSet<u32> = one.gpus.into_iter().chain(other.gpus).into_set();
    RogueFinding {
        since: one.since.min(other.since),
        last_seen: one.last_seen.max(other.last_seen),
        gpus: gpus.into_iter().collect(),
        owner: one.owner.or(other.owner),
        uid: one.uid.or(other.uid),
        name: one.name.or(other.name),
        executable: one.executable.or(other.executable),
        verdicts: merge_verdicts(one.verdicts, other.verdicts),
        ..one
    }
}

/// Merges an earlier finding of a live process with its current one.
fn merge_with_current(
    now: Option<&RogueFinding>,
    before: RogueFinding,
    until: Timestamp,
) -> RogueFinding {
    match now {
        Some(now) => merge_findings(now.clone(), before),
        None => RogueFinding {
            is_present: true,
            last_seen: until,
            ..before
        },
    }
}

fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::sample::{DeviceSample, RunSample};
    use crate::guard::schedule::LocalTime;
    use crate::rogue::rules::{AllowEntry, AllowMatch};
    use crate::usage::{DeviceUsage, Gauge, RunUsage};
    use gpukill_proto::guard::{Person, RunKey};
    use gpukill_proto::rogue::{Indicator, IndicatorFamily, Risk, Share, Threat, Verdict};

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            start_ticks: 7,
        }
    }

    fn sample_time(sample: i64) -> Timestamp {
        Timestamp(sample * 10_000)
    }

    /// The sample with this number: the processes in it, and those that left during it.
    fn guard_sample(sample: i64, here: &[(u32, &str)], left: &[(u32, &str)]) -> GuardSample {
        let device = DeviceId("GPU-0".into());
        let full = Gauge {
            max: Some(99),
            known_ms: 10_000,
            total: 990_000,
            is_failed: false,
        };
        let run = |pid: u32, command: &str, is_present| {
            let run = RunKey {
                pid,
                start_ticks: 7,
                device: device.clone(),
                instance: None,
            };
            let facts = ProcessFacts {
                owner: Some(Person {
                    name: "eve".into(),
                    uid: Some(1004),
                }),
                user: Some((Some("eve".into()), 1004)),
                name: command.split(' ').next().map(str::to_owned),
                command: Some(command.to_owned()),
                ..ProcessFacts::default()
            };
            let run_sample = RunSample {
                facts: Arc::new(facts),
                first_seen: sample_time(0),
                usage: RunUsage {
                    utilization: full.clone(),
                    memory: full.clone(),
                    ..RunUsage::default()
                },
                is_present,
            };
            (Arc::new(run), run_sample)
        };
        let here = here.iter().map(|(pid, command)| run(*pid, command, true));
        let left = left.iter().map(|(pid, command)| run(*pid, command, false));
        GuardSample {
            from: sample_time(sample),
            until: sample_time(sample + 1),
            observed_ms: 10_000,
            local_time: LocalTime::default(),
            devices: [(
                device.clone(),
                DeviceSample {
                    index: 3,
                    name: None,
                    pci: None,
                    memory: None,
                    is_unified: false,
                    usage: DeviceUsage::default(),
                },
            )]
            .into(),
            runs: here.chain(left).collect(),
        }
    }

    const MINER: &str = "xmrig -o stratum+tcp://pool.example:3333 -u 4AB";

    fn finish_scan(
        scan: HistoryScan,
        living: &BTreeMap<ProcessKey, Option<RogueFinding>>,
    ) -> ScanReport {
        scan.finish(living, sample_time(1_000), &|_| true)
    }

    #[test]
    fn gone_process_is_evaluated_from_the_store() {
        let mut scan = HistoryScan::new(RogueRules::default(), sample_time(0));
        scan.add(&guard_sample(0, &[(1, MINER), (2, "python train.py")], &[]));
        scan.add(&guard_sample(1, &[(2, "python train.py")], &[(1, MINER)]));
        scan.add(&guard_sample(2, &[(2, "python train.py"), (3, MINER)], &[]));
        let report = finish_scan(scan, &BTreeMap::new());
        assert_eq!((report.evaluated, report.more), (3, 0));
        let pids: Vec<u32> = report.findings.iter().map(|it| it.process.pid).collect();
        assert_eq!(pids, [1, 3]);
        let first = &report.findings[0];
        assert_eq!(
            (first.since, first.last_seen),
            (sample_time(0), sample_time(2))
        );
        assert_eq!((&first.gpus[..], first.is_present), (&[3][..], false));
        assert_eq!(first.uid, Some(1004));
        assert_eq!(first.verdicts[0].threat, Threat::CryptoMiner);
    }

    #[test]
    fn long_load_and_name_give_a_verdict() {
        let worst = |samples: i64| {
            let mut scan = HistoryScan::new(RogueRules::default(), sample_time(0));
            for sample in 0..samples {
                scan.add(&guard_sample(sample, &[(1, "xmrig")], &[]));
            }
            let report = finish_scan(scan, &BTreeMap::new());
            let verdict = report.findings[0].verdicts[0].clone();
            (verdict.score, verdict.risk)
        };
        let (short, long) = (worst(3), worst(200));
        assert!(
            long.0 > short.0 && long.1 >= Risk::High,
            "{short:?} {long:?}"
        );
    }

    fn finding(pid: u32, score: u16) -> RogueFinding {
        RogueFinding {
            process: key(pid),
            owner: None,
            uid: None,
            name: None,
            executable: None,
            gpus: vec![5],
            since: sample_time(-4),
            last_seen: sample_time(-3),
            is_present: true,
            verdicts: vec![Verdict {
                threat: Threat::CryptoMiner,
                confidence: Share::from_thousandths(score),
                score: Share::from_thousandths(score),
                risk: Risk::Critical,
                indicators: vec![Indicator {
                    kind: "miner_name".into(),
                    family: IndicatorFamily::A,
                    weight: Share::from_thousandths(score),
                    evidence: String::new(),
                }],
            }],
        }
    }

    #[test]
    fn worse_recorded_finding_counts() {
        let mut scan = HistoryScan::new(RogueRules::default(), sample_time(0));
        scan.add_recorded(finding(1, 1_000));
        scan.add_recorded(finding(2, 1));
        scan.add_recorded(finding(9, 500));
        scan.add(&guard_sample(0, &[], &[(1, MINER), (2, MINER)]));
        let report = finish_scan(scan, &BTreeMap::new());
        let scores: BTreeMap<u32, Share> = report
            .findings
            .iter()
            .map(|it| (it.process.pid, it.verdicts[0].score))
            .collect();
        assert_eq!(scores[&1], Share::ONE);
        assert!(scores[&2] > Share::from_thousandths(1));
        assert_eq!(scores[&9], Share::from_thousandths(500));
        let first = &report.findings[0];
        assert_eq!((first.since, first.uid), (sample_time(-4), Some(1004)));
        assert_eq!(first.gpus, [3, 5]);
    }

    #[test]
    fn allowed_process_has_no_finding() {
        let evaluated_by = |allowed: &[AllowEntry]| {
            let rules = RogueRules {
                allowed: allowed.to_vec(),
                ..RogueRules::default()
            };
            let mut scan = HistoryScan::new(rules, sample_time(0));
            scan.add_recorded(finding(1, 900));
            scan.add_recorded(RogueFinding {
                uid: Some(1004),
                ..finding(2, 900)
            });
            scan.add(&guard_sample(0, &[], &[(1, "train")]));
            let report = finish_scan(scan, &BTreeMap::new());
            let pids = report.findings.iter().map(|it| it.process.pid);
            pids.collect::<Vec<u32>>()
        };
        let by = |by, user: Option<&str>| AllowEntry {
            by,
            user: user.map(str::to_owned),
        };
        assert_eq!(evaluated_by(&[]), [1, 2]);
        assert_eq!(evaluated_by(&[by(AllowMatch::User, Some("eve"))]), [2]);
        assert_eq!(evaluated_by(&[by(AllowMatch::User, Some("1004"))]), [1]);
        // Near-proof still counts.
        assert_eq!(
            evaluated_by(&[by(AllowMatch::Process("train".into()), None)]),
            [1, 2]
        );
    }

    #[test]
    fn worst_verdict_survives_absence() {
        let mut scan = HistoryScan::new(RogueRules::default(), sample_time(0));
        scan.add(&guard_sample(0, &[], &[(1, MINER)]));
        scan.add(&guard_sample(1, &[], &[]));
        scan.add(&guard_sample(2, &[], &[(1, "xmrig")]));
        let report = finish_scan(scan, &BTreeMap::new());
        let indicators = &report.findings[0].verdicts[0].indicators;
        assert!(
            indicators
                .iter()
                .any(|indicator| indicator.kind == "pool_on_command_line")
        );
        assert_eq!(report.findings[0].last_seen, sample_time(3));
    }

    #[test]
    fn live_process_uses_current_and_recorded() {
        let mut scan = HistoryScan::new(RogueRules::default(), sample_time(0));
        scan.add_recorded(finding(1, 900));
        scan.add_recorded(finding(2, 900));
        scan.add(&guard_sample(0, &[(1, MINER), (2, MINER), (3, MINER)], &[]));
        let living = [
            (key(1), None),
            (key(2), Some(finding(2, 700))),
            // The stored facts alone give a verdict; the inspection of the live process
            // gives none.
            (key(3), None),
        ];
        let report = finish_scan(scan, &living.into());
        assert_eq!(report.evaluated, 3);
        let findings = report.findings.iter();
        let findings: Vec<(u32, bool, Share)> = findings
            .map(|it| (it.process.pid, it.is_present, it.verdicts[0].score))
            .collect();
        let score = Share::from_thousandths(900);
        assert_eq!(findings, [(1, true, score), (2, true, score)]);
    }

    #[test]
    fn report_is_filtered_and_limited() {
        let mut scan = HistoryScan::new(RogueRules::default(), sample_time(0));
        for pid in 0..1_000 {
            scan.add_recorded(finding(pid, 900));
        }
        let report = scan.finish(&BTreeMap::new(), sample_time(1), &|it| it.process.pid != 0);
        assert_eq!((report.findings.len(), report.more), (MAX_REPORTED, 799));
        assert_eq!(report.findings[0].process, key(1));
    }
}
