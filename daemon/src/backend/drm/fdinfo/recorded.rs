//! Tests with reports recorded on real hosts or printed in the kernel's documentation, where the
//! recordings are available.

use super::*;
use crate::procfs::recordings;

fn engine(fill: impl FnOnce(&mut Engine)) -> Engine {
    let mut engine = Engine::UNREPORTED;
    fill(&mut engine);
    engine
}

/// An engine of xe: its cycles, all cycles, and the number of engines.
fn cycles(worked: u64, all: u64, capacity: Option<u64>) -> Engine {
    engine(|engine| {
        engine.cycles = Reading::Value(worked);
        engine.total_cycles = Reading::Value(all);
        engine.capacity = capacity.map_or(Reading::Unsupported, Reading::Value);
    })
}

fn region(resident: Option<u64>, alias: Option<u64>, shared: Option<u64>) -> Region {
    let reading = |bytes: Option<u64>| bytes.map_or(Reading::Unsupported, Reading::Value);
    Region {
        resident: reading(resident),
        alias: reading(alias),
        shared: reading(shared),
    }
}

fn by_name<T, const N: usize>(entries: [(&str, T); N]) -> BTreeMap<String, T> {
    entries.map(|(name, entry)| (name.to_owned(), entry)).into()
}

#[test]
fn recorded_reports_have_the_expected_values() {
    let Some(directory) = recordings("drm/fdinfo") else {
        return;
    };
    let all = 7_655_183_225;
    let expected = [
        (
            "amdgpu-linux6.1-pid2217-fd99.txt",
            FdInfo {
                driver: "amdgpu".into(),
                pdev: Some("0000:08:00.0".into()),
                client: Some(217),
                engines: by_name([(
                    "gfx",
                    engine(|engine| engine.busy = Reading::Value(107_322_799)),
                )]),
                regions: by_name([
                    ("vram", region(None, Some(2_117_632), None)),
                    ("gtt", region(None, Some(8_388_608), None)),
                    ("cpu", region(None, Some(0), None)),
                ]),
                oversize_reason: None,
            },
        ),
        (
            "amdxdna-npu-6.13.txt",
            FdInfo {
                driver: "amdxdna_accel_driver".into(),
                pdev: Some("0000:c5:00.1".into()),
                client: Some(76),
                engines: by_name([(
                    "npu-amdxdna",
                    engine(|engine| engine.busy = Reading::Value(0)),
                )]),
                regions: by_name([("memory", region(None, None, Some(0)))]),
                oversize_reason: None,
            },
        ),
        (
            "panthor-kerneldoc.txt",
            FdInfo {
                driver: "panthor".into(),
                pdev: None,
                client: Some(10),
                engines: by_name([(
                    "panthor",
                    engine(|engine| {
                        engine.busy = Reading::Value(111_110_952_750);
                        engine.cycles = Reading::Value(94_439_687_187);
                        engine.hertz = Reading::Value(1_000_000_000);
                    }),
                )]),
                regions: by_name([("memory", region(Some(16_875_520), None, Some(0)))]),
                oversize_reason: None,
            },
        ),
        (
            "xe-dg2-kerneldoc.txt",
            FdInfo {
                driver: "xe".into(),
                pdev: Some("0000:03:00.0".into()),
                client: Some(3),
                engines: by_name([
                    ("rcs", cycles(28_257_900, all, None)),
                    ("bcs", cycles(0, all, None)),
                    ("vcs", cycles(0, all, Some(2))),
                    ("vecs", cycles(0, all, Some(2))),
                    ("ccs", cycles(0, all, Some(4))),
                ]),
                regions: by_name([
                    ("system", region(Some(0), None, Some(0))),
                    ("gtt", region(Some(196_608), None, Some(0))),
                    ("vram0", region(Some(24_567_808), None, Some(16 << 20))),
                    ("stolen", region(Some(0), None, Some(0))),
                ]),
                oversize_reason: None,
            },
        ),
    ];
    for (name, expected) in expected {
        let bytes = std::fs::read(directory.join(name)).unwrap();
        assert_eq!(parse(&bytes), Some(expected), "{name}");
    }
}
