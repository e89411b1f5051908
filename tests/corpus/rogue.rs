//! A corpus of disguised miners and honest work, as they appear on a real host, with their
//! verdicts by the shipped rules. The author of a third of the cases, in `unseen-*.toml`, did not
//! know the rules.

use gpukill_policy::rogue::evaluate;
use gpukill_policy::rogue::rules::RogueRules;
use gpukill_policy::rogue::suspect::{
    DeviceLoad, HeldMemory, SentTraffic, Suspect, UtilizationShares,
};
use gpukill_proto::rogue::{Risk, Threat, Verdict};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

const FILES: [(&str, bool, &str); 4] = [
    ("miners", true, include_str!("rogue/miners.toml")),
    ("honest", true, include_str!("rogue/honest.toml")),
    (
        "unseen-miners",
        false,
        include_str!("rogue/unseen-miners.toml"),
    ),
    (
        "unseen-honest",
        false,
        include_str!("rogue/unseen-honest.toml"),
    ),
];

#[derive(Deserialize)]
struct File {
    case: Vec<CaseFile>,
}

/// A case in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    name: String,
    #[allow(dead_code, reason = "for readers of the file")]
    description: String,
    verdict: Truth,
    user: String,
    comm: String,
    exe: String,
    command: Vec<String>,
    #[serde(default)]
    parents: Vec<String>,
    container: Option<Container>,
    #[serde(default)]
    maps: Vec<String>,
    #[serde(default)]
    listens: Vec<SocketAddr>,
    #[serde(default)]
    connections: Vec<SocketAddr>,
    #[serde(default)]
    own_network: bool,
    sent_gib: Option<f64>,
    held_hours: f64,
    gpus: u32,
    utilization: Vec<f64>,
    memory_gib: Vec<f64>,
    device_memory_gib: f64,
    host_cpu: Vec<f64>,
    pcie_mib_s: Vec<f64>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Truth {
    Miner,
    Honest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Container {
    #[allow(dead_code, reason = "for readers of the file")]
    runtime: String,
    image: String,
}

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) is_miner: bool,
    /// Whether the author knew the rules.
    pub(crate) is_seen: bool,
    pub(crate) suspect: Suspect,
}

impl Case {
    /// The verdicts by the shipped rules.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        evaluate(&self.suspect, &RogueRules::default())
    }

    /// The risk of a miner or of a hidden process.
    pub(crate) fn risk(&self) -> Option<Risk> {
        let verdicts = self.verdicts();
        let is_it = |it: &&Verdict| match it.threat {
            Threat::CryptoMiner | Threat::SuspiciousProcess => true,
            Threat::ResourceAbuser | Threat::DataExfiltrator => false,
        };
        verdicts.iter().filter(is_it).map(|it| it.risk).max()
    }
}

/// All cases.
pub(crate) fn cases() -> Vec<Case> {
    let files = FILES.into_iter().flat_map(|(name, is_seen, text)| {
        let file: File = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        file.case.into_iter().map(move |it| case(it, is_seen))
    });
    files.collect()
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the files hold small numbers, none below 0"
)]
fn case(it: CaseFile, is_seen: bool) -> Case {
    let bytes = |gib: f64| (gib * f64::from(1 << 30)) as u64;
    let mean = |series: &[f64]| series.iter().sum::<f64>() / series.len() as f64;
    let share = |is: fn(f64) -> bool| {
        let count = it
            .utilization
            .iter()
            .filter(|percent| is(**percent))
            .count();
        (1_000 * count / it.utilization.len()) as u16
    };
    for series in [
        &it.utilization,
        &it.memory_gib,
        &it.host_cpu,
        &it.pcie_mib_s,
    ] {
        assert_eq!(series.len(), 24, "{}", it.name);
        assert!(series.iter().all(|value| *value >= 0.0), "{}", it.name);
    }
    assert!(it.comm.len() <= 15 && it.gpus > 0, "{}", it.name);
    assert!(
        it.memory_gib.iter().all(|gib| *gib <= it.device_memory_gib),
        "{}",
        it.name
    );
    let held = Duration::from_secs_f64(it.held_hours * 3_600.0);
    let memory = it
        .memory_gib
        .iter()
        .map(|gib| bytes(*gib) * u64::from(it.gpus));
    let load = DeviceLoad {
        held,
        seen: held.min(Duration::from_secs(24 * 3_600)),
        utilization: Some(UtilizationShares {
            saturated: share(|percent| percent >= 90.0),
            idle: share(|percent| percent < 5.0),
        }),
        mean: Some(mean(&it.utilization) as u32),
        memory: Some(held_memory(memory.collect())),
        host_cpu: Some((mean(&it.host_cpu) * 1_000.0) as u32),
        bus_bytes: Some(bytes(mean(&it.pcie_mib_s)) >> 10),
    };
    let suspect = Suspect {
        user: Some(it.user),
        name: Some(it.comm),
        executable: Some(it.exe),
        arguments: Some(it.command),
        sha256: None,
        is_in_host_namespace: Some(true),
        image: Some(it.container.map(|it| it.image)),
        ancestors: Some(it.parents),
        libraries: Some(it.maps.into_iter().collect()),
        listens: Some(it.listens.iter().map(SocketAddr::port).collect()),
        peers: Some(it.connections.into_iter().collect()),
        sent: match it.sent_gib.filter(|_| it.own_network) {
            Some(gib) => SentTraffic::OwnNamespace(bytes(gib)),
            None if it.own_network => SentTraffic::Unknown,
            None => SentTraffic::Shared,
        },
        load: Some(load),
        refused: 0,
    };
    Case {
        name: it.name,
        is_miner: it.verdict == Truth::Miner,
        is_seen,
        suspect,
    }
}

/// The memory that a process held, from its readings in bytes.
fn held_memory(mut readings: Vec<u64>) -> HeldMemory {
    readings.sort_unstable();
    let (min, max) = (readings[0], readings[readings.len() - 1]);
    let mostly = readings[readings.len() / 2];
    let slack = (mostly / 50).max(64 << 20);
    let steady = readings.iter().filter(|it| it.abs_diff(mostly) <= slack);
    HeldMemory {
        min,
        max,
        steady: u16::try_from(1_000 * steady.count() / readings.len()).unwrap_or(0),
    }
}

/// The risks of all cases.
pub(crate) struct Matrix {
    /// The names of cases by whether the author knew the rules and whether the case is a miner,
    /// then by risk.
    pub(crate) counts: BTreeMap<(bool, bool), BTreeMap<Option<Risk>, Vec<String>>>,
}

impl Matrix {
    pub(crate) fn from_cases(cases: &[Case]) -> Self {
        let mut counts: BTreeMap<_, BTreeMap<_, Vec<String>>> = BTreeMap::new();
        for case in cases {
            let of_kind = counts.entry((case.is_seen, case.is_miner)).or_default();
            let of_risk = of_kind.entry(case.risk()).or_default();
            of_risk.push(case.name.clone());
        }
        Self { counts }
    }

    /// The number of cases of a kind with at least this risk, and the number of all cases of the
    /// kind.
    pub(crate) fn count_from(&self, kind: (bool, bool), least: Risk) -> (usize, usize) {
        let of_kind = self.counts.get(&kind).into_iter().flatten();
        let count = |risks: &dyn Fn(Option<Risk>) -> bool| {
            let of_risk = of_kind.clone().filter(|(risk, _)| risks(**risk));
            of_risk.map(|(_, names)| names.len()).sum()
        };
        (count(&|risk| risk >= Some(least)), count(&|_| true))
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let risks = [
            None,
            Some(Risk::Low),
            Some(Risk::Medium),
            Some(Risk::High),
            Some(Risk::Critical),
        ];
        let named = |risk: Option<Risk>| risk.map_or("none", Risk::name);
        write!(f, "{:<24}{:>6}", "TAKEN FOR A RISK OF", "ALL")?;
        for risk in risks {
            write!(f, "{:>10}", named(risk))?;
        }
        writeln!(f)?;
        for ((is_seen, is_miner), of_kind) in self.counts.iter().rev() {
            let kind = if *is_miner { "miners" } else { "honest" };
            let by = if *is_seen { "rules known" } else { "unseen" };
            let all: usize = of_kind.values().map(Vec::len).sum();
            write!(f, "{:<24}{all:>6}", format!("{kind}, {by}"))?;
            for risk in risks {
                write!(f, "{:>10}", of_kind.get(&risk).map_or(0, Vec::len))?;
            }
            writeln!(f)?;
        }
        for ((is_seen, is_miner), of_kind) in self.counts.iter().rev() {
            let by = if *is_seen { "rules known" } else { "unseen" };
            for (risk, names) in of_kind {
                let is_wrong = *is_miner == (*risk < Some(Risk::Medium));
                let what = if *is_miner { "missed" } else { "wronged" };
                for name in names.iter().filter(|_| is_wrong) {
                    writeln!(f, "{what}, {by}, {}: {name}", named(*risk))?;
                }
            }
        }
        Ok(())
    }
}
