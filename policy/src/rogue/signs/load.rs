//! How a process uses its devices. Of this nothing is said after a few minutes: honest work
//! begins so too.

use super::Seen;
use crate::rogue::rules::Rules;
use crate::rogue::suspect::{Load, Shares, Suspect};
use std::time::Duration;

/// For so long it must have been looked at.
const LOOKED: Duration = Duration::from_secs(30 * 60);

/// What the load of a miner weighs where all of it is known.
pub(super) const WHOLE: u16 = 350;

/// Beginnings of the names of libraries that other work has, and miners have not: they
/// link what they need of CUDA, and compile their kernels.
const LIBRARIES: [&str; 44] = [
    "_C.cpython",
    "flash_attn",
    "libBLAS",
    "libEGL",
    "libGL.",
    "libGLX",
    "libOpenMM",
    "libQt5",
    "libQt6",
    "libavcodec",
    "libc10",
    "libcublas",
    "libcudf",
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libggml",
    "libgromacs",
    "libhdf5",
    "libjax",
    "libllama",
    "libmpi",
    "libnccl",
    "libnpp",
    "libnvcuvid",
    "libnvdec",
    "libnvinfer",
    "libnvidia-encode",
    "libnvoptix",
    "libonnxruntime",
    "liboptix",
    "libpython",
    "librccl",
    "libreductions",
    "librocblas",
    "librocfft",
    "libtensorflow",
    "libtorch",
    "libtvm",
    "libvulkan",
    "xla_extension",
    "libxla",
];

/// Whether it has a library of other work; `None` where that is not known.
pub(super) fn has_libraries(suspect: &Suspect) -> Option<bool> {
    let libraries = suspect.libraries.as_ref()?;
    Some(libraries.iter().any(|name| is_of_other_work(name)))
}

/// Whether it is a library of other work.
pub(super) fn is_of_other_work(name: &str) -> bool {
    LIBRARIES.iter().any(|known| name.starts_with(known))
}

/// Full load, memory that does not change, and no library of other work.
pub(super) fn mining(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let load = looked_at(suspect)?;
    let shares = saturated(load)?;
    let is_flat = load.memory?.steady >= STEADY;
    let is_busy_elsewhere =
        load.host_cpu.is_some_and(|it| it > HOST) || load.bus.is_some_and(|it| it > BUS);
    if !is_flat || is_busy_elsewhere || has_libraries(suspect) == Some(true) {
        return None;
    }
    let percent = shares.saturated / 10;
    let mut read = format!("{percent} % of the time at full load, memory does not change");
    let is_known = has_libraries(suspect).is_some() && load.host_cpu.is_some();
    if !is_known {
        return Some(Seen::new(150, read));
    }
    read.push_str(", little work for the host, no library of other work");
    Some(Seen::new(WHOLE, read))
}

/// Full load alone, of what has no library of other work.
pub(super) fn full(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    if has_libraries(suspect) == Some(true) || mining(suspect, rules).is_some() {
        return None;
    }
    let shares = saturated(looked_at(suspect)?)?;
    let percent = shares.saturated / 10;
    Some(Seen::new(
        150,
        format!("{percent} % of the time at full load"),
    ))
}

fn saturated(load: &Load) -> Option<Shares> {
    load.utilization.filter(|it| it.saturated >= SATURATED)
}

/// Of every thousand moments, so many at full load are all but a restart now and then.
const SATURATED: u16 = 850;
/// The same of memory: a miner fills it once when it begins, and at each new epoch.
const STEADY: u16 = 850;
/// Thousandths of a host CPU: a process that waits for its device without sleeping keeps
/// a whole one busy.
const HOST: u32 = 500;
/// Bytes a second.
const BUS: u64 = 500 << 20;

fn looked_at(suspect: &Suspect) -> Option<&Load> {
    suspect.load.as_ref().filter(|load| load.seen >= LOOKED)
}

/// Held for long, and not used.
pub(super) fn for_nothing(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let load = looked_at(suspect)?;
    let is_idle = load.utilization.is_some_and(|it| it.idle >= 990);
    let holds = load.memory?.most;
    let is_long = load.held >= rules.detection.max_duration;
    (is_idle && is_long && holds >= 1 << 30).then(|| {
        let hours = load.held.as_secs() / 3_600;
        Seen::new(
            500,
            format!("holds {} GiB for {hours} h and does nothing", holds >> 30),
        )
    })
}

/// Holds more than is usual.
pub(super) fn memory_hog(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let most = rules.detection.max_memory?.0;
    let load = suspect.load.as_ref();
    let least = load.filter(|load| load.seen >= HELD)?.memory?.least;
    (least > most).then(|| {
        Seen::new(
            500,
            format!(
                "holds {:.1} GiB, more than the {:.1} GiB of detection.max_memory_usage_gb",
                gib(least),
                gib(most)
            ),
        )
    })
}

/// So long it must hold too much: a limit is the admin's own word, and honest work does
/// not begin beyond it.
const HELD: Duration = Duration::from_secs(60);

#[allow(clippy::cast_precision_loss, reason = "it is printed with one digit")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

/// Works for longer than is usual.
pub(super) fn runaway(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let load = looked_at(suspect)?;
    let mean = load.mean?;
    let is_full = mean >= rules.detection.max_utilization.0;
    (is_full && load.held >= rules.detection.max_duration).then(|| {
        let hours = load.held.as_secs() / 3_600;
        Seen::new(350, format!("at {mean} % for {hours} h"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rogue::suspect::Held;
    use gpukill_proto::units::Bytes;

    const GIB: u64 = 1 << 30;

    fn miner() -> Suspect {
        Suspect {
            libraries: Some(["libcuda.so.1".to_owned(), "libnvrtc.so.12".to_owned()].into()),
            load: Some(Load {
                held: Duration::from_secs(7_200),
                seen: Duration::from_secs(3_600),
                utilization: Some(Shares {
                    saturated: 980,
                    idle: 0,
                }),
                mean: Some(98),
                memory: Some(Held {
                    least: GIB,
                    most: 5 * GIB,
                    steady: 900,
                }),
                host_cpu: Some(80),
                bus: Some(1 << 20),
            }),
            ..Suspect::default()
        }
    }

    fn weight(change: impl FnOnce(&mut Suspect)) -> Option<u16> {
        let mut suspect = miner();
        change(&mut suspect);
        mining(&suspect, &Rules::default()).map(|seen| seen.weight)
    }

    fn load(suspect: &mut Suspect) -> &mut Load {
        suspect.load.as_mut().unwrap()
    }

    #[test]
    fn a_load_as_a_miners_weighs_whole_only_where_all_of_it_is_known() {
        assert_eq!(weight(|_| ()), Some(WHOLE));
        assert_eq!(weight(|it| it.libraries = None), Some(150));
        assert_eq!(weight(|it| load(it).host_cpu = None), Some(150));
        assert_eq!(weight(|it| load(it).bus = None), Some(WHOLE));
    }

    #[test]
    fn full_load_alone_weighs_little_and_is_not_counted_twice() {
        let weight = |change: fn(&mut Suspect)| {
            let mut suspect = miner();
            change(&mut suspect);
            full(&suspect, &Rules::default()).map(|seen| seen.weight)
        };
        assert_eq!(weight(|_| ()), None);
        assert_eq!(weight(|it| load(it).host_cpu = Some(9_000)), Some(150));
        let idles: fn(&mut Suspect) = |it| load(it).utilization = Some(Shares::default());
        assert_eq!(weight(idles), None);
        let torch: fn(&mut Suspect) = |it| {
            load(it).host_cpu = Some(9_000);
            it.libraries = Some(["libtorch_cuda.so".to_owned()].into());
        };
        assert_eq!(weight(torch), None);
    }

    #[test]
    fn other_work_has_another_load() {
        let torch = ["libtorch_cuda.so".to_owned()];
        let changes: [fn(&mut Suspect); 8] = [
            |it| {
                load(it).utilization = Some(Shares {
                    saturated: 849,
                    idle: 0,
                })
            },
            |it| load(it).utilization = None,
            |it| load(it).memory.as_mut().unwrap().steady = 849,
            |it| load(it).memory = None,
            |it| load(it).host_cpu = Some(900),
            |it| load(it).bus = Some(2 * BUS),
            |it| load(it).seen = Duration::from_secs(60),
            |it| it.load = None,
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert_eq!(weight(change), None, "{at}");
        }
        assert_eq!(weight(|it| it.libraries = Some(torch.into())), None);
    }

    #[test]
    fn what_is_held_for_nothing_is_held_long_and_never_used() {
        let seen = |held: u64, idle: u16, gib: u64| {
            let mut suspect = miner();
            *load(&mut suspect) = Load {
                held: Duration::from_secs(held * 3_600),
                utilization: Some(Shares { saturated: 0, idle }),
                memory: Some(Held {
                    least: 0,
                    most: gib * GIB,
                    steady: 0,
                }),
                ..*load(&mut miner())
            };
            for_nothing(&suspect, &Rules::default()).is_some()
        };
        assert!(seen(24, 990, 1));
        assert!(!seen(23, 1_000, 40) && !seen(48, 989, 40) && !seen(48, 1_000, 0));
    }

    #[test]
    fn a_hog_and_a_runaway_are_measured_by_the_admins_limits() {
        let mut rules = Rules::default();
        assert_eq!(memory_hog(&miner(), &rules), None);
        rules.detection.max_memory = Some(Bytes(GIB - 1));
        assert!(memory_hog(&miner(), &rules).is_some());
        let hogs_for = |seconds| {
            let mut hog = miner();
            load(&mut hog).seen = Duration::from_secs(seconds);
            memory_hog(&hog, &rules).map(|it| it.read)
        };
        let read = "holds 1.0 GiB, more than the 1.0 GiB of detection.max_memory_usage_gb";
        assert_eq!(hogs_for(60).as_deref(), Some(read));
        assert_eq!(hogs_for(59), None);
        rules.detection.max_memory = Some(Bytes(GIB));
        assert_eq!(memory_hog(&miner(), &rules), None);
        assert_eq!(runaway(&miner(), &rules), None);
        rules.detection.max_duration = Duration::from_secs(7_200);
        assert!(runaway(&miner(), &rules).is_some());
    }
}
