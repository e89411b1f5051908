//! Indicators from device use. A few minutes show nothing, because honest work starts
//! the same way.

use super::IndicatorMatch;
use crate::rogue::rules::RogueRules;
use crate::rogue::suspect::{DeviceLoad, Suspect, UtilizationShares};
use gpukill_proto::units::Bytes;
use std::time::Duration;

/// Minimum observed time.
const MIN_OBSERVED: Duration = Duration::from_secs(30 * 60);

/// The weight of a miner's load where all its facts are known.
pub(super) const FULL_WEIGHT: u16 = 350;

/// Name prefixes of libraries that other work loads. Miners do not: they link what they
/// need of CUDA and compile their kernels.
#[rustfmt::skip]
const WORKLOAD_LIBRARIES: [&str; 44] = [
    "_C.cpython", "flash_attn", "libBLAS", "libEGL", "libGL.", "libGLX", "libOpenMM", "libQt5",
    "libQt6", "libavcodec", "libc10", "libcublas", "libcudf", "libcudnn", "libcufft", "libcurand",
    "libcusolver", "libcusparse", "libggml", "libgromacs", "libhdf5", "libjax", "libllama",
    "libmpi", "libnccl", "libnpp", "libnvcuvid", "libnvdec", "libnvinfer", "libnvidia-encode",
    "libnvoptix", "libonnxruntime", "liboptix", "libpython", "librccl", "libreductions",
    "librocblas", "librocfft", "libtensorflow", "libtorch", "libtvm", "libvulkan", "xla_extension",
    "libxla",
];

/// Whether a library of other work is loaded; `None` where that is unknown.
pub(super) fn has_workload_library(suspect: &Suspect) -> Option<bool> {
    let libraries = suspect.libraries.as_ref()?;
    Some(libraries.iter().any(|name| is_workload_library(name)))
}

/// Whether it is a library of other work.
pub(super) fn is_workload_library(name: &str) -> bool {
    WORKLOAD_LIBRARIES
        .iter()
        .any(|known| name.starts_with(known))
}

/// Full load, constant memory, and no library of other work.
pub(super) fn mining_load(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let load = observed_load(suspect)?;
    let shares = saturated_shares(load)?;
    let is_flat = load.memory?.steady >= MIN_STEADY;
    let is_busy_elsewhere = load.host_cpu.is_some_and(|it| it > MAX_HOST_CPU)
        || load.bus_bytes.is_some_and(|it| it > MAX_BUS_BYTES);
    if !is_flat || is_busy_elsewhere || has_workload_library(suspect) == Some(true) {
        return None;
    }
    let percent = shares.saturated / 10;
    let mut evidence = format!("{percent} % of the time at full load, memory does not change");
    let is_known = has_workload_library(suspect).is_some() && load.host_cpu.is_some();
    if !is_known {
        return Some(IndicatorMatch::new(150, evidence));
    }
    evidence.push_str(", little work for the host, no library of other work");
    Some(IndicatorMatch::new(FULL_WEIGHT, evidence))
}

/// Full load alone, without a library of other work.
pub(super) fn full_load(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    if has_workload_library(suspect) == Some(true) || mining_load(suspect, rules).is_some() {
        return None;
    }
    let shares = saturated_shares(observed_load(suspect)?)?;
    let percent = shares.saturated / 10;
    Some(IndicatorMatch::new(
        150,
        format!("{percent} % of the time at full load"),
    ))
}

fn saturated_shares(load: &DeviceLoad) -> Option<UtilizationShares> {
    load.utilization.filter(|it| it.saturated >= MIN_SATURATED)
}

/// Minimum share of time at full load, in thousandths: all but an occasional restart.
const MIN_SATURATED: u16 = 850;
/// Minimum share of time at one memory level: a miner fills the memory once at its
/// start, and at each new epoch.
const MIN_STEADY: u16 = 850;
/// Maximum host CPU use in thousandths of a CPU: a process that busy-waits for its
/// device keeps a whole CPU busy.
const MAX_HOST_CPU: u32 = 500;
/// Maximum bus traffic in bytes per second.
const MAX_BUS_BYTES: u64 = 500 << 20;

fn observed_load(suspect: &Suspect) -> Option<&DeviceLoad> {
    suspect
        .load
        .as_ref()
        .filter(|load| load.seen >= MIN_OBSERVED)
}

/// Memory that is held for long without use.
pub(super) fn held_for_nothing(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    let load = observed_load(suspect)?;
    let is_idle = load.utilization.is_some_and(|it| it.idle >= 990);
    let holds = load.memory?.max;
    let is_long = load.held >= rules.detection.max_duration;
    (is_idle && is_long && holds >= 1 << 30).then(|| {
        let hours = load.held.as_secs() / 3_600;
        IndicatorMatch::new(
            500,
            format!("holds {} GiB for {hours} h without use", holds >> 30),
        )
    })
}

/// More memory than the admin's limit.
pub(super) fn memory_hog(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    let max_memory = rules.detection.max_memory?;
    let load = suspect.load.as_ref();
    let min_used = load.filter(|load| load.seen >= MIN_HELD)?.memory?.min;
    (min_used > max_memory.0).then(|| {
        IndicatorMatch::new(
            500,
            format!(
                "holds {:.1} GiB, more than the {:.1} GiB of detection.max_memory_usage_gb",
                Bytes(min_used).as_gib(),
                max_memory.as_gib()
            ),
        )
    })
}

/// Minimum time above the memory limit: the limit is the admin's own, and honest work
/// does not start above it.
const MIN_HELD: Duration = Duration::from_secs(60);

/// Full load for longer than the admin's limit.
pub(super) fn runaway(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    let load = observed_load(suspect)?;
    let mean = load.mean?;
    let is_full = mean >= rules.detection.max_utilization.0;
    (is_full && load.held >= rules.detection.max_duration).then(|| {
        let hours = load.held.as_secs() / 3_600;
        IndicatorMatch::new(350, format!("at {mean} % for {hours} h"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rogue::suspect::HeldMemory;

    const GIB: u64 = 1 << 30;

    fn miner() -> Suspect {
        Suspect {
            libraries: Some(["libcuda.so.1".to_owned(), "libnvrtc.so.12".to_owned()].into()),
            load: Some(DeviceLoad {
                held: Duration::from_secs(7_200),
                seen: Duration::from_secs(3_600),
                utilization: Some(UtilizationShares {
                    saturated: 980,
                    idle: 0,
                }),
                mean: Some(98),
                memory: Some(HeldMemory {
                    min: GIB,
                    max: 5 * GIB,
                    steady: 900,
                }),
                host_cpu: Some(80),
                bus_bytes: Some(1 << 20),
            }),
            ..Suspect::default()
        }
    }

    fn weight(change: impl FnOnce(&mut Suspect)) -> Option<u16> {
        let mut suspect = miner();
        change(&mut suspect);
        mining_load(&suspect, &RogueRules::default()).map(|indicator| indicator.weight)
    }

    fn load(suspect: &mut Suspect) -> &mut DeviceLoad {
        suspect.load.as_mut().unwrap()
    }

    #[test]
    fn mining_load_needs_all_facts_for_full_weight() {
        assert_eq!(weight(|_| ()), Some(FULL_WEIGHT));
        assert_eq!(weight(|it| it.libraries = None), Some(150));
        assert_eq!(weight(|it| load(it).host_cpu = None), Some(150));
        assert_eq!(weight(|it| load(it).bus_bytes = None), Some(FULL_WEIGHT));
    }

    #[test]
    fn full_load_alone_weighs_little() {
        let weight = |change: fn(&mut Suspect)| {
            let mut suspect = miner();
            change(&mut suspect);
            full_load(&suspect, &RogueRules::default()).map(|indicator| indicator.weight)
        };
        assert_eq!(weight(|_| ()), None);
        assert_eq!(weight(|it| load(it).host_cpu = Some(9_000)), Some(150));
        let idles: fn(&mut Suspect) =
            |it| load(it).utilization = Some(UtilizationShares::default());
        assert_eq!(weight(idles), None);
        let torch: fn(&mut Suspect) = |it| {
            load(it).host_cpu = Some(9_000);
            it.libraries = Some(["libtorch_cuda.so".to_owned()].into());
        };
        assert_eq!(weight(torch), None);
    }

    #[test]
    fn other_work_is_not_mining() {
        let torch = ["libtorch_cuda.so".to_owned()];
        let changes: [fn(&mut Suspect); 8] = [
            |it| {
                load(it).utilization = Some(UtilizationShares {
                    saturated: 849,
                    idle: 0,
                })
            },
            |it| load(it).utilization = None,
            |it| load(it).memory.as_mut().unwrap().steady = 849,
            |it| load(it).memory = None,
            |it| load(it).host_cpu = Some(900),
            |it| load(it).bus_bytes = Some(2 * MAX_BUS_BYTES),
            |it| load(it).seen = Duration::from_secs(60),
            |it| it.load = None,
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert_eq!(weight(change), None, "{at}");
        }
        assert_eq!(weight(|it| it.libraries = Some(torch.into())), None);
    }

    #[test]
    fn held_for_nothing_needs_long_idle_time() {
        let is_found = |held: u64, idle: u16, gib: u64| {
            let mut suspect = miner();
            *load(&mut suspect) = DeviceLoad {
                held: Duration::from_secs(held * 3_600),
                utilization: Some(UtilizationShares { saturated: 0, idle }),
                memory: Some(HeldMemory {
                    min: 0,
                    max: gib * GIB,
                    steady: 0,
                }),
                ..*load(&mut miner())
            };
            held_for_nothing(&suspect, &RogueRules::default()).is_some()
        };
        assert!(is_found(24, 990, 1));
        assert!(!is_found(23, 1_000, 40) && !is_found(48, 989, 40) && !is_found(48, 1_000, 0));
    }

    #[test]
    fn admin_limits_define_hog_and_runaway() {
        let mut rules = RogueRules::default();
        assert_eq!(memory_hog(&miner(), &rules), None);
        rules.detection.max_memory = Some(Bytes(GIB - 1));
        assert!(memory_hog(&miner(), &rules).is_some());
        let hogs_for = |seconds| {
            let mut hog = miner();
            load(&mut hog).seen = Duration::from_secs(seconds);
            memory_hog(&hog, &rules).map(|it| it.evidence)
        };
        let evidence = "holds 1.0 GiB, more than the 1.0 GiB of detection.max_memory_usage_gb";
        assert_eq!(hogs_for(60).as_deref(), Some(evidence));
        assert_eq!(hogs_for(59), None);
        rules.detection.max_memory = Some(Bytes(GIB));
        assert_eq!(memory_hog(&miner(), &rules), None);
        assert_eq!(runaway(&miner(), &rules), None);
        rules.detection.max_duration = Duration::from_secs(7_200);
        assert!(runaway(&miner(), &rules).is_some());
    }
}
