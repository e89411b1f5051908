//! Tests of each format that drivers write, and of invalid reports.

use super::*;
use proptest::prelude::*;

fn parse_text(text: &str) -> FdInfo {
    parse(text.as_bytes()).unwrap()
}

fn value(number: u64) -> Reading<u64> {
    Reading::Value(number)
}

fn not_understood<T>(value: &str) -> Reading<T> {
    Reading::Failed(format!("not understood: {value}"))
}

/// Resident bytes of the only region of a report.
fn resident(lines: &str) -> Reading<u64> {
    let parsed = parse_text(&format!("drm-driver:\tx\n{lines}\n"));
    assert_eq!(parsed.regions.len(), 1, "{lines}");
    parsed.regions.values().next().unwrap().resident().clone()
}

/// The engine `e` of a report.
fn engine(lines: &str) -> Engine {
    parse_text(&format!("drm-driver: x\n{lines}\n")).engines["e"].clone()
}

#[test]
fn blanks_do_not_matter() {
    let expected = FdInfo {
        driver: "amdgpu".into(),
        pdev: Some("0000:c1:00.0".into()),
        client: Some(u64::MAX),
        engines: BTreeMap::from([(
            "gfx".into(),
            Engine {
                busy: value(7),
                ..Engine::UNREPORTED
            },
        )]),
        regions: BTreeMap::from([(
            "gtt".into(),
            Region {
                resident: Reading::Unsupported,
                alias: value(8 << 10),
                shared: value(3),
            },
        )]),
        oversize_reason: None,
    };
    for (colon, end) in [
        (":\t", "\n"),
        (":", "\r\n"),
        (": \t ", " \n"),
        (" \t:  ", "\t\n"),
    ] {
        let lines = [
            ("pos", "0"),
            ("drm-driver", "amdgpu"),
            ("drm-pdev", "0000:C1:00.0"),
            ("drm-client-id", "18446744073709551615"),
            ("drm-client-name", "a: b"),
            ("drm-memory-gtt", "8 KiB"),
            ("drm-shared-gtt", "3"),
            ("drm-engine-gfx", "7 ns"),
            ("amd-evicted-vram", "9 KiB"),
            ("drm-curfreq-gfx", "1 Hz"),
        ];
        let text: String = lines
            .map(|(key, value)| format!("{key}{colon}{value}{end}"))
            .concat();
        assert_eq!(parse(text.as_bytes()), Some(expected.clone()), "{text:?}");
    }
}

#[test]
fn text_of_no_drm_driver_is_ignored() {
    let long_text = "drm-engine-e: 1 ns\n".repeat(TEXT_MAX);
    for text in [
        "",
        "pos:\t0\nflags:\t02\nmnt_id:\t24\nino:\t614\n",
        // Linux 5.14, before the keys were standardized.
        "pdev:\t0000:08:00.0\npasid:\t32771\nvram mem:\t9 kB\ngfx0:\t12.30%\n",
        "drm-client-id: 7\ndrm-engine-gfx: 1 ns\n",
        "drm-driver:\n",
        "DRM-DRIVER: x\n",
        "drm-driver x\n",
        &long_text,
    ] {
        assert_eq!(parse(text.as_bytes()), None, "{text:.60?}");
    }
}

#[test]
fn oversized_report_only_identifies_the_client() {
    let parse_client = |rest: &str| {
        let header = "drm-driver: x\ndrm-client-id: 7\ndrm-pdev: 0000:01:00.0\n";
        parse(format!("{header}{rest}").as_bytes()).unwrap()
    };
    let many = |key: &str, count: usize| -> String {
        let lines = (0..count).map(|n| format!("{key}{n}: 1\n"));
        lines.collect()
    };
    let nothing_but = |why| FdInfo {
        driver: "x".into(),
        pdev: Some("0000:01:00.0".into()),
        client: Some(7),
        engines: BTreeMap::new(),
        regions: BTreeMap::new(),
        oversize_reason: why,
    };
    let some = "drm-engine-e: 1 ns\ndrm-resident-r: 1\n";
    let long = format!("{some}{}", " ".repeat(TEXT_MAX));
    assert_eq!(parse_client(&long), nothing_but(Some(TOO_LONG)));
    let engines = format!("{some}{}", many("drm-engine-e", ENGINES_MAX));
    assert_eq!(parse_client(&engines), nothing_but(Some(TOO_MANY_ENGINES)));
    let regions = format!("{some}{}", many("drm-total-r", REGIONS_MAX));
    assert_eq!(parse_client(&regions), nothing_but(Some(TOO_MANY_REGIONS)));
    // Exactly at the limits.
    let engines = parse_client(&many("drm-engine-e", ENGINES_MAX));
    assert_eq!((engines.engines.len(), engines.oversize_reason), (64, None));
    let regions = parse_client(&many("drm-total-r", REGIONS_MAX));
    assert_eq!((regions.regions.len(), regions.oversize_reason), (32, None));
    let text = format!("drm-driver: x\n{}", " ".repeat(TEXT_MAX));
    let longest = parse(&text.as_bytes()[..TEXT_MAX]).unwrap();
    assert_eq!(longest.oversize_reason, None);
    // An incomplete line is not a number.
    let text = format!(
        "drm-driver: x\n{}\ndrm-client-id: 77",
        " ".repeat(TEXT_MAX - 32)
    );
    let cut = parse(&[text.as_bytes(), b"7"].concat()).unwrap();
    assert_eq!((cut.client, cut.oversize_reason), (None, Some(TOO_LONG)));
}

#[test]
fn shared_bytes_are_capped() {
    let cases = [
        ("drm-resident-r: 5\ndrm-shared-r: 0", Some(0)),
        ("drm-resident-r: 5\ndrm-shared-r: 3", Some(3)),
        ("drm-shared-r: 3\ndrm-memory-r: 5", Some(3)),
        // Part of the shared memory is not resident.
        ("drm-resident-r: 5\ndrm-shared-r: 9", Some(5)),
        ("drm-resident-r: 5", None),
        ("drm-resident-r: 5\ndrm-shared-r: x", None),
        ("drm-resident-r: x\ndrm-shared-r: 3", None),
        ("drm-total-r: 5\ndrm-shared-r: 3", None),
        ("drm-resident-r: 0", Some(0)),
    ];
    for (lines, expected) in cases {
        let parsed = parse_text(&format!("drm-driver: x\n{lines}\n"));
        assert_eq!(parsed.regions["r"].shared_resident(), expected, "{lines}");
    }
}

#[test]
fn sizes_in_known_units() {
    let cases = [
        ("0", value(0)),
        ("4096", value(4096)),
        ("4 KiB", value(4096)),
        ("4\tKiB", value(4096)),
        ("16 MiB", value(16 << 20)),
        ("2 GiB", value(2 << 30)),
        ("18446744073709551615", value(u64::MAX)),
        ("17179869184 GiB", not_understood("17179869184 GiB")),
        (
            "18446744073709551616",
            not_understood("18446744073709551616"),
        ),
        ("4 kB", not_understood("4 kB")),
        ("4KiB", not_understood("4KiB")),
        ("4 KiB x", not_understood("4 KiB x")),
        ("-4", not_understood("-4")),
        ("+4", not_understood("+4")),
        ("KiB", not_understood("KiB")),
        ("", not_understood("")),
    ];
    for (size, expected) in cases {
        let size_read = resident(&format!("drm-resident-r: {size}"));
        assert_eq!(size_read, expected, "{size:?}");
    }
}

#[test]
fn only_resident_memory_counts_once() {
    let cases = [
        ("drm-memory-r: 5", value(5)),
        ("drm-memory-r: 5\ndrm-resident-r: 6", value(6)),
        ("drm-resident-r: 6\ndrm-memory-r: 5", value(6)),
        ("drm-resident-r: 0\ndrm-memory-r: 5", value(0)),
        (
            "drm-resident-r: 6 x\ndrm-memory-r: 5",
            not_understood("6 x"),
        ),
        ("drm-total-r: 9", Reading::Unsupported),
        (
            "drm-total-r: 9\ndrm-shared-r: 9\ndrm-active-r: 9\ndrm-purgeable-r: 9",
            Reading::Unsupported,
        ),
        ("drm-total-r: 9\ndrm-resident-r: 1", value(1)),
        // A region named `memory`.
        ("drm-resident-memory: 3", value(3)),
    ];
    for (lines, expected) in cases {
        assert_eq!(resident(lines), expected, "{lines:?}");
    }
}

#[test]
fn engine_counters_and_units() {
    let cases = [
        ("drm-engine-e: 5 ns", |engine: &mut Engine| {
            engine.busy = value(5)
        }),
        // The standard allows only nanoseconds.
        ("drm-engine-e: 5", |engine| {
            engine.busy = not_understood("5")
        }),
        ("drm-engine-e: 5 ms", |engine| {
            engine.busy = not_understood("5 ms")
        }),
        ("drm-cycles-e: 5", |engine| engine.cycles = value(5)),
        ("drm-total-cycles-e: 5", |engine| {
            engine.total_cycles = value(5)
        }),
        ("drm-maxfreq-e: 5", |engine| engine.hertz = value(5)),
        ("drm-maxfreq-e: 5 Hz", |engine| engine.hertz = value(5)),
        ("drm-maxfreq-e: 5 KHz", |engine| engine.hertz = value(5_000)),
        ("drm-maxfreq-e: 5 MHz", |engine| {
            engine.hertz = value(5_000_000)
        }),
        ("drm-engine-capacity-e: 4", |engine| {
            engine.capacity = value(4)
        }),
    ] as [(&str, fn(&mut Engine)); 10];
    for (line, change) in cases {
        let mut expected = Engine::UNREPORTED;
        change(&mut expected);
        assert_eq!(engine(line), expected, "{line}");
    }
}

#[test]
fn first_of_two_equal_keys_counts() {
    let twice = "drm-driver: x\ndrm-driver: y\ndrm-pdev: 0000:01:00.0\ndrm-pdev: z\n\
                 drm-client-id: 1\ndrm-client-id: 2\ndrm-engine-e: 3 ns\ndrm-engine-e: 4 ns\n\
                 drm-resident-r: 5\ndrm-resident-r: 6\n";
    let once = "drm-driver: x\ndrm-pdev: 0000:01:00.0\ndrm-client-id: 1\n\
                drm-engine-e: 3 ns\ndrm-resident-r: 5\n";
    assert_eq!(parse_text(twice), parse_text(once));
}

#[test]
fn invalid_names_are_ignored() {
    let long = "e".repeat(NAME_MAX + 1);
    for name in ["", "a b", "a\x1b[2J", "é", &long] {
        let text = format!("drm-driver: x\ndrm-engine-{name}: 1 ns\ndrm-resident-{name}: 1\n");
        let parsed = parse_text(&text);
        assert_eq!(
            (parsed.engines.len(), parsed.regions.len()),
            (0, 0),
            "{name:?}"
        );
    }
    assert_eq!(parse_text("drm-driver: a\x1b[2Jb\n").driver, "a\\x1b[2Jb");
    for id in ["-1", "x", "18446744073709551616", ""] {
        let parsed = parse_text(&format!("drm-driver: x\ndrm-client-id: {id}\n"));
        assert_eq!(parsed.client, None, "{id}");
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        fuzz_api::fdinfo(&bytes);
    }

    #[test]
    fn any_lines_parse_without_panic(lines in proptest::collection::vec(
        "(drm-(driver|pdev|client-id|(engine|engine-capacity|cycles|total-cycles|maxfreq|resident|memory|total|shared)-[a-c]?) ?: ?[0-9]{0,21} ?(ns|KiB|MHz|x)?|.{0,30})",
        0..40,
    )) {
        fuzz_api::fdinfo(format!("drm-driver: x\n{}", lines.join("\n")).as_bytes());
    }

    #[test]
    fn size_is_equal_in_any_unit(gibibytes in 0u64..1 << 34) {
        let sizes = [(0, "GiB"), (10, "MiB"), (20, "KiB"), (30, "")];
        for (shift, unit) in sizes {
            let size = u128::from(gibibytes) << shift;
            if size <= u128::from(u64::MAX) {
                let size_read = resident(&format!("drm-resident-r: {size} {unit}"));
                prop_assert_eq!(size_read, value(gibibytes << 30));
            }
        }
    }

    #[test]
    fn key_order_does_not_matter(order in Just(vec![
        "drm-driver: xe", "drm-pdev: 0000:03:00.0", "drm-client-id: 3", "drm-total-vram0: 9 MiB",
        "drm-shared-vram0: 1 MiB", "drm-resident-vram0: 4 MiB", "drm-memory-vram0: 5 MiB", "drm-cycles-rcs: 1",
        "drm-total-cycles-rcs: 2", "drm-engine-capacity-rcs: 3", "drm-engine-rcs: 4 ns",
        "drm-maxfreq-rcs: 5 MHz", "pos: 0",
    ]).prop_shuffle()) {
        let sorted = {
            let mut lines = order.clone();
            lines.sort_unstable();
            parse_text(&lines.join("\n"))
        };
        prop_assert_eq!(parse_text(&order.join("\n")), sorted);
    }
}
