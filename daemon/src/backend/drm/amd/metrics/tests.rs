//! Tests with `gpu_metrics` structures of each layout, and with invalid ones.

use super::*;
use gpukill_proto::units::{Celsius, Megahertz};
use proptest::prelude::*;

/// A structure of this revision and size in which only these fields, of sixteen bits each, are
/// present.
fn structure(revision: (u8, u8), size: u16, fields: &[(usize, u16)]) -> Vec<u8> {
    let mut bytes = vec![0xff; usize::from(size)];
    bytes[..2].copy_from_slice(&size.to_le_bytes());
    (bytes[2], bytes[3]) = revision;
    for (offset, value) in fields {
        bytes[*offset..*offset + 2].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn nothing() -> Vitals {
    Vitals::unknown(&Reading::Unsupported)
}

#[test]
fn discrete_card_layouts() {
    let metrics = Vitals {
        temperature: Reading::Value(Celsius(48)),
        hotspot_temperature: Reading::Value(Celsius(52)),
        memory_temperature: Reading::Value(Celsius(72)),
        power: Reading::Value(Milliwatts(49_000)),
        utilization: Reading::Value(Percent(25)),
        memory_utilization: Reading::Value(Percent(3)),
        clock_graphics: Reading::Value(Megahertz(900)),
        clock_sm: Reading::Value(Megahertz(900)),
        clock_memory: Reading::Value(Megahertz(1_124)),
        clock_video: Reading::Value(Megahertz(25)),
        fan_speed: Reading::Value(Rpm(1_944)),
        pcie_generation: Reading::Value(4),
        pcie_width: Reading::Value(8),
        ..nothing()
    };
    let at = |shift: usize, power, link: [(usize, u16); 2]| {
        [
            (4 + shift, 48),
            (6 + shift, 52),
            (8 + shift, 72),
            (16 + shift, 25),
            (18 + shift, 3),
            (power, 49),
            (54, 900),
            (58, 1_124),
            (60, 25),
            (72, 1_944),
            link[0],
            link[1],
        ]
    };
    let words = [(74, 8), (76, 160)];
    // Lanes and speed in one byte each.
    let bytes = [(74, 160 << 8 | 8); 2];
    for (minor, size, fields) in [
        (0, 80, at(12, 34, bytes)),
        (1, 96, at(0, 22, words)),
        (2, 104, at(0, 22, words)),
        (3, 120, at(0, 22, words)),
    ] {
        let bytes = structure((1, minor), size, &fields);
        assert_eq!(parse(&bytes), Some(metrics.clone()), "1.{minor}");
    }
}

#[test]
fn accelerator_layouts_have_no_edge_temperature() {
    let metrics = Vitals {
        hotspot_temperature: Reading::Value(Celsius(61)),
        memory_temperature: Reading::Value(Celsius(55)),
        power: Reading::Value(Milliwatts(750_000)),
        utilization: Reading::Value(Percent(100)),
        memory_utilization: Reading::Value(Percent(40)),
        clock_graphics: Reading::Value(Megahertz(2_100)),
        clock_sm: Reading::Value(Megahertz(2_100)),
        clock_memory: Reading::Value(Megahertz(1_300)),
        clock_video: Reading::Value(Megahertz(1_750)),
        pcie_generation: Reading::Value(5),
        pcie_width: Reading::Value(16),
        ..nothing()
    };
    for (minor, size, clock, video_clock, memory_clock, link) in [
        (4, 288, 240, 264, 280, 48),
        (5, 360, 312, 336, 352, 112),
        (6, 1_664, 264, 288, 304, 60),
        (7, 2_208, 296, 320, 336, 68),
        (8, 3_360, 296, 320, 336, 68),
        (8, 3_872, 296, 320, 336, 68),
    ] {
        let fields = [
            (4, 61),
            (6, 55),
            (10, 750),
            (12, 100),
            (14, 40),
            (clock, 2_100),
            (video_clock, 1_750),
            (memory_clock, 1_300),
            (link, 16),
            (link + 2, 320),
        ];
        let bytes = structure((1, minor), size, &fields);
        assert_eq!(parse(&bytes), Some(metrics.clone()), "1.{minor}");
    }
}

#[test]
fn integrated_layouts_use_hundredths_of_degrees() {
    let metrics = |power| Vitals {
        temperature: Reading::Value(Celsius(38)),
        clock_graphics: Reading::Value(Megahertz(800)),
        clock_sm: Reading::Value(Megahertz(800)),
        clock_memory: Reading::Value(Megahertz(400)),
        clock_video: Reading::Value(Megahertz(700)),
        power,
        ..nothing()
    };
    let watts = || Reading::Value(Milliwatts(3_401));
    for (revision, size, fields, power) in [
        // Milliwatts or watts: the first layouts do not say which.
        ((2, 0), 120, [16, 44, 80, 84, 88], Reading::Unsupported),
        ((2, 1), 120, [4, 40, 76, 80, 84], Reading::Unsupported),
        ((2, 2), 128, [4, 40, 76, 80, 84], Reading::Unsupported),
        ((2, 3), 152, [4, 40, 76, 80, 84], Reading::Unsupported),
        ((2, 4), 168, [4, 40, 76, 80, 84], watts()),
        ((3, 0), 264, [4, 112, 174, 186, 184], watts()),
    ] {
        let [degrees, power_at, clock, memory_clock, video_clock] = fields;
        let fields = [
            (degrees, 3_812),
            (power_at, 3_401),
            (clock, 800),
            (memory_clock, 400),
            (video_clock, 700),
        ];
        let mut bytes = structure(revision, size, &fields);
        if revision == (3, 0) {
            // Its power has 32 bits.
            bytes[114..116].fill(0);
        }
        assert_eq!(parse(&bytes), Some(metrics(power)), "{revision:?}");
    }
}

#[test]
fn absent_clock_falls_back_to_average() {
    let metrics = Vitals {
        clock_graphics: Reading::Value(Megahertz(800)),
        clock_sm: Reading::Value(Megahertz(800)),
        clock_memory: Reading::Value(Megahertz(400)),
        clock_video: Reading::Value(Megahertz(700)),
        ..nothing()
    };
    for (revision, size, [clock, memory_clock, video_clock]) in [
        ((1, 0), 80, [40, 44, 46]),
        ((1, 3), 120, [40, 44, 46]),
        ((2, 0), 120, [68, 72, 76]),
        ((2, 1), 120, [64, 68, 72]),
        ((2, 4), 168, [64, 68, 72]),
    ] {
        let fields = [(clock, 800), (memory_clock, 400), (video_clock, 700)];
        let bytes = structure(revision, size, &fields);
        assert_eq!(parse(&bytes), Some(metrics.clone()), "{revision:?}");
    }
}

#[test]
fn chip_independent_throttle_bits_have_names() {
    let slowed = |revision, size, offset: usize| {
        let mut bytes = structure(revision, size, &[]);
        let bits = 1_u64 | 1 << 36 | 1 << 60;
        bytes[offset..offset + 8].copy_from_slice(&bits.to_le_bytes());
        parse(&bytes).unwrap().throttle
    };
    let names = ["ppt0", "temp_hotspot", "0x1000000000000000"].map(str::to_owned);
    let reasons = Reading::Value(ThrottleReasons(names.to_vec()));
    assert_eq!(slowed((1, 3), 120, 112), reasons);
    assert_eq!(slowed((2, 2), 128, 120), reasons);
    assert_eq!(slowed((2, 3), 152, 120), reasons);
    assert_eq!(slowed((2, 4), 168, 120), reasons);
    let nothing_slows = structure((1, 3), 120, &[(112, 0), (114, 0), (116, 0), (118, 0)]);
    assert_eq!(
        parse(&nothing_slows).unwrap().throttle,
        Reading::Value(ThrottleReasons(Vec::new()))
    );
}

#[test]
fn chip_specific_throttle_bits_are_unknown() {
    for (revision, size, offset) in [
        ((1, 0), 80, 68),
        ((1, 1), 96, 68),
        ((1, 2), 104, 68),
        ((1, 4), 288, 40),
        ((1, 5), 360, 104),
        ((2, 0), 120, 112),
        ((2, 1), 120, 108),
    ] {
        let slowed = |low, high| {
            let bytes = structure(revision, size, &[(offset, low), (offset + 2, high)]);
            parse(&bytes).unwrap().throttle
        };
        let nothing = Reading::Value(ThrottleReasons(Vec::new()));
        assert_eq!(slowed(0, 0), nothing, "{revision:?}");
        assert_eq!(slowed(1, 0), Reading::Unsupported, "{revision:?}");
        assert_eq!(slowed(0, 1), Reading::Unsupported, "{revision:?}");
        let absent = slowed(u16::MAX, u16::MAX);
        assert_eq!(absent, Reading::Unsupported, "{revision:?}");
    }
}

#[test]
fn zero_fan_and_link_are_unsupported() {
    let bytes = structure((1, 3), 120, &[(60, 0), (72, 0), (74, 0), (76, 0)]);
    let metrics = Vitals {
        // A video unit that is switched off has a clock of 0.
        clock_video: Reading::Value(Megahertz(0)),
        ..nothing()
    };
    assert_eq!(parse(&bytes), Some(metrics));
    let bytes = structure((1, 3), 120, &[(72, 50_001), (74, 33), (76, 161)]);
    let metrics = Vitals {
        fan_speed: Reading::impossible("50001 RPM"),
        pcie_width: Reading::Failed("not a link width".into()),
        pcie_generation: Reading::Failed("not a link speed".into()),
        ..nothing()
    };
    assert_eq!(parse(&bytes), Some(metrics));
}

#[test]
fn impossible_value_fails_alone() {
    let bytes = structure(
        (1, 3),
        120,
        &[(4, 48), (6, 60_000), (16, 130), (54, 65_000)],
    );
    assert_eq!(
        parse(&bytes),
        Some(Vitals {
            temperature: Reading::Value(Celsius(48)),
            hotspot_temperature: Reading::impossible("60000000 m°C"),
            utilization: Reading::impossible("130 %"),
            clock_graphics: Reading::impossible("65000000000 Hz"),
            clock_sm: Reading::impossible("65000000000 Hz"),
            ..nothing()
        })
    );
}

#[test]
fn unknown_layout_is_not_read() {
    let fields = [(4, 48), (6, 52), (10, 49)];
    for (revision, size) in [
        // From here on the file is a list of attributes, and no structure.
        ((1, 9), 120),
        ((1, 10), 120),
        ((2, 5), 168),
        ((3, 1), 264),
        ((0, 0), 120),
        ((4, 0), 120),
        // A known revision of another length is another layout.
        ((1, 3), 128),
        ((1, 6), 1_000),
    ] {
        let bytes = structure(revision, size, &fields);
        assert_eq!(parse(&bytes), None, "{revision:?} {size}");
    }
    let short = &structure((1, 3), 120, &fields)[..119];
    assert_eq!(parse(short), None);
    assert_eq!(parse(&[0x78, 0, 1]), None);
}

#[test]
fn unreadable_file_fails_missing_is_unsupported() {
    let root = tempfile::tempdir().unwrap();
    let missing = read(&root.path().join("gpu_metrics"));
    assert_eq!(missing, (nothing(), false));
    // Reading a directory fails.
    let (failed, _) = read(root.path());
    assert_eq!(failed.failures().count(), 16, "{failed:?}");
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes: Vec<u8>) {
        super::super::fuzz_api::gpu_metrics(&bytes);
    }

    #[test]
    fn known_layouts_are_bounded(
        which in 0..LAYOUTS.len(),
        content in proptest::collection::vec(any::<u8>(), 4_096),
    ) {
        let layout = &LAYOUTS[which];
        let mut bytes = content;
        bytes[..2].copy_from_slice(&layout.sizes[0].to_le_bytes());
        (bytes[2], bytes[3]) = layout.revision;
        prop_assert!(parse(&bytes).is_some());
        super::super::fuzz_api::gpu_metrics(&bytes);
    }

    #[test]
    fn unknown_revision_gives_nothing(
        format: u8,
        content: u8,
        rest in proptest::collection::vec(any::<u8>(), 512),
    ) {
        prop_assume!(LAYOUTS.iter().all(|layout| layout.revision != (format, content)));
        let mut bytes = rest;
        bytes[..4].copy_from_slice(&[120, 0, format, content]);
        prop_assert_eq!(parse(&bytes), None);
    }
}

#[test]
fn video_utilization_is_the_busiest_unit() {
    let share = |share| Reading::Value(Percent(share));
    type VideoCase<'a> = ((u8, u8), u16, &'a [(usize, u16)], Reading<Percent>);
    let cases: [VideoCase<'_>; 9] = [
        ((1, 0), 80, &[(32, 7)], share(7)),
        ((1, 3), 120, &[(20, 100)], share(100)),
        ((1, 3), 120, &[(20, 101)], Reading::impossible("101 %")),
        ((1, 4), 288, &[(16, 3), (18, 40), (22, 5)], share(40)),
        ((1, 5), 360, &[(22, 9)], share(9)),
        ((1, 6), 1_664, &[(16, 9)], Reading::Unsupported),
        // Some of these write percent, others hundredths of a percent.
        ((2, 1), 120, &[(20, 9)], Reading::Unsupported),
        ((3, 0), 264, &[(44, 4_250)], share(43)),
        ((3, 0), 264, &[], Reading::Unsupported),
    ];
    for (revision, size, fields, expected) in cases {
        let metrics = parse(&structure(revision, size, fields)).unwrap();
        assert_eq!(metrics.encoder, expected, "{revision:?} {fields:?}");
        assert_eq!(metrics.decoder, expected, "{revision:?} {fields:?}");
    }
}

#[test]
fn newer_header_identifies_integrated_gpu() {
    for (revision, expected) in [
        ((1, 3), false),
        ((1, 9), false),
        ((2, 0), true),
        ((3, 1), true),
        ((4, 0), true),
        ((0, 0), false),
        ((255, 255), false),
    ] {
        let bytes = structure(revision, 77, &[]);
        assert_eq!(is_integrated(&bytes), expected, "{revision:?}");
        assert_eq!(parse(&bytes), None);
    }
    assert!(!is_integrated(&[8, 1, 3]));
}
