//! Who may have been up to no good: what the store tells of the past, judged by the rules
//! of now, with what was found at the time.
//!
//! The store tells less than a look at a living process: neither what it had loaded nor
//! whom it spoke with. What was found then counts besides.

use super::findings::{rank, worse_of};
use super::loads::Loads;
use super::rules::Rules;
use super::suspect::Suspect;
use super::verdict::{again, judge};
use crate::guard::bucket::{About, Bucket};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::rogue::{Finding, ScanReport};
use gpukill_proto::snapshot::{DeviceId, ProcessKey};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many findings are kept, the worst of all, and so many of them told.
const MOST: usize = 4_096;
const MOST_TOLD: usize = 200;

/// A scan that goes on.
#[derive(Debug)]
pub struct Scan {
    rules: Rules,
    since: Timestamp,
    loads: Loads,
    /// Those that the last bucket has.
    here: BTreeMap<ProcessKey, Here>,
    /// What was found at the time.
    recorded: BTreeMap<ProcessKey, Finding>,
    found: BTreeMap<ProcessKey, Finding>,
    judged: u32,
    /// Of how many more there was a verdict than are kept.
    more: u32,
}

/// A process, as far as the scan has come.
#[derive(Debug)]
struct Here {
    about: Arc<About>,
    gpus: BTreeSet<u32>,
    first: Timestamp,
    last: Timestamp,
}

impl Scan {
    /// Looks from this moment on.
    #[must_use]
    pub fn new(rules: Rules, since: Timestamp) -> Self {
        Self {
            rules,
            since,
            loads: Loads::over_all(),
            here: BTreeMap::new(),
            recorded: BTreeMap::new(),
            found: BTreeMap::new(),
            judged: 0,
            more: 0,
        }
    }

    /// Adds the next bucket.
    pub fn add(&mut self, bucket: &Bucket) {
        self.loads.add_stored(bucket);
        let index = |id: &DeviceId| bucket.devices.get(id).map(|device| device.index);
        let mut present = BTreeSet::new();
        for (run, judged) in &bucket.runs {
            let process = run.process();
            if judged.is_present {
                present.insert(process);
            }
            let here = self.here.entry(process).or_insert_with(|| Here {
                about: Arc::clone(&judged.about),
                gpus: BTreeSet::new(),
                first: bucket.from,
                last: bucket.until,
            });
            here.about = Arc::clone(&judged.about);
            here.gpus.extend(index(&run.device));
            here.last = bucket.until;
        }
        let gone = self.here.keys().filter(|key| !present.contains(key));
        let gone: Vec<ProcessKey> = gone.copied().collect();
        for process in gone {
            if let Some(here) = self.here.remove(&process) {
                self.judge(process, &here);
            }
        }
        self.loads.keep_only(|process| present.contains(process));
    }

    fn judge(&mut self, process: ProcessKey, here: &Here) {
        self.judged = self.judged.saturating_add(1);
        let suspect = Suspect {
            load: self.loads.of(process),
            ..Suspect::of_past(&here.about)
        };
        let about = &here.about;
        let known = Finding {
            process,
            owner: about.owner.clone(),
            uid: about.user.as_ref().map(|(_, uid)| *uid),
            name: about.name.clone(),
            executable: about.executable.clone(),
            gpus: here.gpus.iter().copied().collect(),
            since: here.first,
            last_seen: here.last,
            is_present: false,
            verdicts: judge(&suspect, &self.rules),
        };
        let known = match self.recorded.remove(&process) {
            Some(recorded) => both(known, self.again(recorded, &suspect)),
            None => known,
        };
        self.put(known);
    }

    /// What was found at the time, by the rules of now.
    fn again(&self, recorded: Finding, suspect: &Suspect) -> Finding {
        Finding {
            verdicts: again(&recorded.verdicts, suspect, &self.rules),
            ..recorded
        }
    }

    /// Adds what was found at the time.
    pub fn was_found(&mut self, finding: Finding) {
        let is_full = self.recorded.len() >= MOST;
        match self.recorded.remove(&finding.process) {
            Some(known) => {
                let both = both(known, finding);
                self.recorded.insert(both.process, both);
            }
            None if is_full => self.more = self.more.saturating_add(1),
            None => {
                self.recorded.insert(finding.process, finding);
            }
        }
    }

    fn put(&mut self, finding: Finding) {
        if finding.verdicts.is_empty() {
            return;
        }
        // It may have left its device and come back.
        let finding = match self.found.remove(&finding.process) {
            Some(known) => both(known, finding),
            None => finding,
        };
        self.found.insert(finding.process, finding);
        if self.found.len() > MOST {
            let least = self.found.values().max_by_key(|finding| rank(finding));
            let least = least.map(|finding| finding.process);
            self.found.retain(|process, _| Some(*process) != least);
            self.more = self.more.saturating_add(1);
        }
    }

    /// What it came to, with `living`: what is found now of those that use a device, as
    /// far as `is_told` lets whoever asks see them. Of who lives, what is known now counts,
    /// and what was found of it before.
    #[must_use]
    pub fn finish(
        mut self,
        living: &BTreeMap<ProcessKey, Option<Finding>>,
        until: Timestamp,
        is_told: &dyn Fn(&Finding) -> bool,
    ) -> ScanReport {
        let here = std::mem::take(&mut self.here);
        for (process, here) in &here {
            if !living.contains_key(process) {
                self.judge(*process, here);
            }
        }
        for (process, recorded) in std::mem::take(&mut self.recorded) {
            let suspect = Suspect::of_finding(&recorded);
            let known = self.again(recorded, &suspect);
            match living.get(&process) {
                None => self.put(known),
                Some(now) => self.put(beside(now.as_ref(), known, until)),
            }
        }
        let judged = self.judged.saturating_add(count(living.len()));
        for now in living.values().flatten() {
            if !self.found.contains_key(&now.process) {
                self.put(now.clone());
            }
        }
        let all = self.found.into_values();
        let mut findings: Vec<Finding> = all.filter(|finding| is_told(finding)).collect();
        findings.sort_indirect_by_key(rank);
        let beyond = count(findings.len().saturating_sub(MOST_TOLD));
        findings.truncate(MOST_TOLD);
        ScanReport {
            since: self.since,
            until,
            judged,
            findings,
            more: self.more.saturating_add(beyond),
        }
    }
}

/// What is known of a process by two ways.
fn both(one: Finding, other: Finding) -> Finding {
    let gpus: BTreeSet<u32> = one.gpus.into_iter().chain(other.gpus).into_set();
    Finding {
        since: one.since.min(other.since),
        last_seen: one.last_seen.max(other.last_seen),
        gpus: gpus.into_iter().collect(),
        owner: one.owner.or(other.owner),
        uid: one.uid.or(other.uid),
        name: one.name.or(other.name),
        executable: one.executable.or(other.executable),
        verdicts: worse_of(one.verdicts, other.verdicts),
        ..one
    }
}

/// What was found of who lives still, beside what is known of it now.
fn beside(now: Option<&Finding>, before: Finding, until: Timestamp) -> Finding {
    match now {
        Some(now) => both(now.clone(), before),
        None => Finding {
            is_present: true,
            last_seen: until,
            ..before
        },
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::bucket::{Judged, JudgedDevice};
    use crate::guard::schedule::Civil;
    use crate::rogue::rules::{Allowed, AllowedBy};
    use crate::usage::{DeviceUsage, Gauge, RunUsage};
    use gpukill_proto::guard::{JudgedRun, Person};
    use gpukill_proto::rogue::{Family, Risk, Share, Sign, Threat, Verdict};

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            start_ticks: 7,
        }
    }

    fn at(sample: i64) -> Timestamp {
        Timestamp(sample * 10_000)
    }

    /// The sample of this number: who is in it, and who has left in it.
    fn bucket(sample: i64, here: &[(u32, &str)], left: &[(u32, &str)]) -> Bucket {
        let device = DeviceId("GPU-0".into());
        let full = Gauge {
            most: Some(99),
            known_ms: 10_000,
            total: 990_000,
            is_failed: false,
        };
        let run = |pid: u32, command: &str, is_present| {
            let run = JudgedRun {
                pid,
                start_ticks: 7,
                device: device.clone(),
                instance: None,
            };
            let about = About {
                owner: Some(Person {
                    name: "eve".into(),
                    uid: Some(1004),
                }),
                user: Some((Some("eve".into()), 1004)),
                name: command.split(' ').next().map(str::to_owned),
                command: Some(command.to_owned()),
                ..About::default()
            };
            let judged = Judged {
                about: Arc::new(about),
                first_seen: at(0),
                usage: RunUsage {
                    utilization: full.clone(),
                    memory: full.clone(),
                    ..RunUsage::default()
                },
                is_present,
            };
            (Arc::new(run), judged)
        };
        let here = here.iter().map(|(pid, command)| run(*pid, command, true));
        let left = left.iter().map(|(pid, command)| run(*pid, command, false));
        Bucket {
            from: at(sample),
            until: at(sample + 1),
            seen_ms: 10_000,
            civil: Civil::default(),
            devices: [(
                device.clone(),
                JudgedDevice {
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

    fn told(scan: Scan, living: &BTreeMap<ProcessKey, Option<Finding>>) -> ScanReport {
        scan.finish(living, at(1_000), &|_| true)
    }

    #[test]
    fn who_is_gone_is_judged_by_what_the_store_tells() {
        let mut scan = Scan::new(Rules::default(), at(0));
        scan.add(&bucket(0, &[(1, MINER), (2, "python train.py")], &[]));
        scan.add(&bucket(1, &[(2, "python train.py")], &[(1, MINER)]));
        scan.add(&bucket(2, &[(2, "python train.py"), (3, MINER)], &[]));
        let report = told(scan, &BTreeMap::new());
        assert_eq!((report.judged, report.more), (3, 0));
        let pids: Vec<u32> = report.findings.iter().map(|it| it.process.pid).collect();
        assert_eq!(pids, [1, 3]);
        let first = &report.findings[0];
        assert_eq!((first.since, first.last_seen), (at(0), at(2)));
        assert_eq!((&first.gpus[..], first.is_present), (&[3][..], false));
        assert_eq!(first.uid, Some(1004));
        assert_eq!(first.verdicts[0].threat, Threat::CryptoMiner);
    }

    #[test]
    fn one_that_loads_a_device_for_long_is_told_by_its_name_and_that() {
        let worst = |samples: i64| {
            let mut scan = Scan::new(Rules::default(), at(0));
            for sample in 0..samples {
                scan.add(&bucket(sample, &[(1, "xmrig")], &[]));
            }
            let report = told(scan, &BTreeMap::new());
            let verdict = report.findings[0].verdicts[0].clone();
            (verdict.score, verdict.risk)
        };
        let (short, long) = (worst(3), worst(200));
        assert!(
            long.0 > short.0 && long.1 >= Risk::High,
            "{short:?} {long:?}"
        );
    }

    fn finding(pid: u32, score: u16) -> Finding {
        Finding {
            process: key(pid),
            owner: None,
            uid: None,
            name: None,
            executable: None,
            gpus: vec![5],
            since: at(-4),
            last_seen: at(-3),
            is_present: true,
            verdicts: vec![Verdict {
                threat: Threat::CryptoMiner,
                confidence: Share::thousandths(score),
                score: Share::thousandths(score),
                risk: Risk::Critical,
                signs: vec![Sign {
                    kind: "miner_name".into(),
                    family: Family::A,
                    weight: Share::thousandths(score),
                    read: String::new(),
                }],
            }],
        }
    }

    #[test]
    fn what_was_found_at_the_time_counts_where_it_is_worse() {
        let mut scan = Scan::new(Rules::default(), at(0));
        scan.was_found(finding(1, 1_000));
        scan.was_found(finding(2, 1));
        scan.was_found(finding(9, 500));
        scan.add(&bucket(0, &[], &[(1, MINER), (2, MINER)]));
        let report = told(scan, &BTreeMap::new());
        let scores: BTreeMap<u32, Share> = report
            .findings
            .iter()
            .map(|it| (it.process.pid, it.verdicts[0].score))
            .collect();
        assert_eq!(scores[&1], Share::ONE);
        assert!(scores[&2] > Share::thousandths(1));
        assert_eq!(scores[&9], Share::thousandths(500));
        let first = &report.findings[0];
        assert_eq!((first.since, first.uid), (at(-4), Some(1004)));
        assert_eq!(first.gpus, [3, 5]);
    }

    #[test]
    fn whoever_is_allowed_by_now_was_nothing() {
        let judged_by = |allowed: &[Allowed]| {
            let rules = Rules {
                allowed: allowed.to_vec(),
                ..Rules::default()
            };
            let mut scan = Scan::new(rules, at(0));
            scan.was_found(finding(1, 900));
            scan.was_found(Finding {
                uid: Some(1004),
                ..finding(2, 900)
            });
            scan.add(&bucket(0, &[], &[(1, "train")]));
            let report = told(scan, &BTreeMap::new());
            let pids = report.findings.iter().map(|it| it.process.pid);
            pids.collect::<Vec<u32>>()
        };
        let by = |by, user: Option<&str>| Allowed {
            by,
            user: user.map(str::to_owned),
        };
        assert_eq!(judged_by(&[]), [1, 2]);
        assert_eq!(judged_by(&[by(AllowedBy::User, Some("eve"))]), [2]);
        assert_eq!(judged_by(&[by(AllowedBy::User, Some("1004"))]), [1]);
        // What is nearly a proof counts still.
        assert_eq!(
            judged_by(&[by(AllowedBy::Process("train".into()), None)]),
            [1, 2]
        );
    }

    #[test]
    fn whoever_left_and_came_back_is_as_bad_as_it_was_at_its_worst() {
        let mut scan = Scan::new(Rules::default(), at(0));
        scan.add(&bucket(0, &[], &[(1, MINER)]));
        scan.add(&bucket(1, &[], &[]));
        scan.add(&bucket(2, &[], &[(1, "xmrig")]));
        let report = told(scan, &BTreeMap::new());
        let signs = &report.findings[0].verdicts[0].signs;
        assert!(signs.iter().any(|sign| sign.kind == "pool_on_command_line"));
        assert_eq!(report.findings[0].last_seen, at(3));
    }

    #[test]
    fn of_who_lives_what_is_known_now_counts_and_what_was_found_before() {
        let mut scan = Scan::new(Rules::default(), at(0));
        scan.was_found(finding(1, 900));
        scan.was_found(finding(2, 900));
        scan.add(&bucket(0, &[(1, MINER), (2, MINER), (3, MINER)], &[]));
        let living = [
            (key(1), None),
            (key(2), Some(finding(2, 700))),
            // By what the store has it would be one; a look at it says that it is none.
            (key(3), None),
        ];
        let report = told(scan, &living.into());
        assert_eq!(report.judged, 3);
        let found = report.findings.iter();
        let found: Vec<(u32, bool, Share)> = found
            .map(|it| (it.process.pid, it.is_present, it.verdicts[0].score))
            .collect();
        let score = Share::thousandths(900);
        assert_eq!(found, [(1, true, score), (2, true, score)]);
    }

    #[test]
    fn nobody_is_told_of_whom_the_asker_may_not_see_and_no_more_than_fit() {
        let mut scan = Scan::new(Rules::default(), at(0));
        for pid in 0..1_000 {
            scan.was_found(finding(pid, 900));
        }
        let report = scan.finish(&BTreeMap::new(), at(1), &|it| it.process.pid != 0);
        assert_eq!((report.findings.len(), report.more), (MOST_TOLD, 799));
        assert_eq!(report.findings[0].process, key(1));
    }
}
