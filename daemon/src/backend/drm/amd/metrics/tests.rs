//! `gpu_metrics` structures of each layout, and what is none.

use super::*;
use proptest::prelude::*;

/// A structure of this revision and size with everything absent but these
/// fields, of sixteen bits each.
fn structure(revision: (u8, u8), size: u16, fields: &[(usize, u16)]) -> Vec<u8> {
    let mut bytes = vec![0xff; usize::from(size)];
    bytes[..2].copy_from_slice(&size.to_le_bytes());
    (bytes[2], bytes[3]) = revision;
    for (offset, value) in fields {
        bytes[*offset..*offset + 2].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn nothing() -> Metrics {
    Metrics::unknown(&Reading::Unsupported)
}

#[test]
fn a_cards_structure_tells_degrees_watts_shares_and_clocks() {
    let told = Metrics {
        temperature: Reading::Value(Celsius(48)),
        hotspot: Reading::Value(Celsius(52)),
        memory_temperature: Reading::Value(Celsius(72)),
        power: Reading::Value(Milliwatts(49_000)),
        utilization: Reading::Value(Percent(25)),
        memory_utilization: Reading::Value(Percent(3)),
        graphics_clock: Reading::Value(Megahertz(900)),
        memory_clock: Reading::Value(Megahertz(1_124)),
        ..nothing()
    };
    let at = |shift: usize, power| {
        [
            (4 + shift, 48),
            (6 + shift, 52),
            (8 + shift, 72),
            (16 + shift, 25),
            (18 + shift, 3),
            (power, 49),
            (54, 900),
            (58, 1_124),
        ]
    };
    for (minor, size, fields) in [
        (0, 80, at(12, 34)),
        (1, 96, at(0, 22)),
        (2, 104, at(0, 22)),
        (3, 120, at(0, 22)),
    ] {
        let bytes = structure((1, minor), size, &fields);
        assert_eq!(Metrics::parse(&bytes), Some(told.clone()), "1.{minor}");
    }
}

#[test]
fn an_accelerator_of_many_dies_has_no_edge_temperature() {
    let told = Metrics {
        hotspot: Reading::Value(Celsius(61)),
        memory_temperature: Reading::Value(Celsius(55)),
        power: Reading::Value(Milliwatts(750_000)),
        utilization: Reading::Value(Percent(100)),
        memory_utilization: Reading::Value(Percent(40)),
        graphics_clock: Reading::Value(Megahertz(2_100)),
        memory_clock: Reading::Value(Megahertz(1_300)),
        ..nothing()
    };
    for (minor, size, clock, memory_clock) in [
        (4, 288, 240, 280),
        (5, 360, 312, 352),
        (6, 1_664, 264, 304),
        (7, 2_208, 296, 336),
        (8, 3_360, 296, 336),
        (8, 3_872, 296, 336),
    ] {
        let fields = [
            (4, 61),
            (6, 55),
            (10, 750),
            (12, 100),
            (14, 40),
            (clock, 2_100),
            (memory_clock, 1_300),
        ];
        let bytes = structure((1, minor), size, &fields);
        assert_eq!(Metrics::parse(&bytes), Some(told.clone()), "1.{minor}");
    }
}

#[test]
fn a_gpu_beside_a_cpu_counts_hundredths_of_a_degree_and_is_known_by_it() {
    let told = |power| Metrics {
        integrated: true,
        temperature: Reading::Value(Celsius(38)),
        graphics_clock: Reading::Value(Megahertz(800)),
        memory_clock: Reading::Value(Megahertz(400)),
        power,
        ..nothing()
    };
    let watts = || Reading::Value(Milliwatts(3_401));
    for (revision, size, fields, power) in [
        // Milliwatts or watts: the first layouts do not say.
        ((2, 0), 120, [16, 44, 80, 84], Reading::Unsupported),
        ((2, 1), 120, [4, 40, 76, 80], Reading::Unsupported),
        ((2, 2), 128, [4, 40, 76, 80], Reading::Unsupported),
        ((2, 3), 152, [4, 40, 76, 80], Reading::Unsupported),
        ((2, 4), 168, [4, 40, 76, 80], watts()),
        ((3, 0), 264, [4, 112, 174, 186], watts()),
    ] {
        let [degrees, power_at, clock, memory_clock] = fields;
        let fields = [
            (degrees, 3_812),
            (power_at, 3_401),
            (clock, 800),
            (memory_clock, 400),
        ];
        let mut bytes = structure(revision, size, &fields);
        if revision == (3, 0) {
            // Its power has 32 bits.
            bytes[114..116].fill(0);
        }
        assert_eq!(Metrics::parse(&bytes), Some(told(power)), "{revision:?}");
    }
}

#[test]
fn a_clock_that_is_absent_now_is_the_one_of_late() {
    let bytes = structure((2, 1), 120, &[(64, 800), (68, 400)]);
    let told = Metrics {
        integrated: true,
        graphics_clock: Reading::Value(Megahertz(800)),
        memory_clock: Reading::Value(Megahertz(400)),
        ..nothing()
    };
    assert_eq!(Metrics::parse(&bytes), Some(told));
}

#[test]
fn what_slows_a_card_is_told_by_name_where_the_bits_mean_the_same_everywhere() {
    let slowed = |revision, size, offset: usize| {
        let mut bytes = structure(revision, size, &[]);
        let bits = 1_u64 | 1 << 36 | 1 << 60;
        bytes[offset..offset + 8].copy_from_slice(&bits.to_le_bytes());
        Metrics::parse(&bytes).unwrap().throttle
    };
    let names = ["ppt0", "temp_hotspot", "0x1000000000000000"].map(str::to_owned);
    let told = Reading::Value(ThrottleReasons(names.to_vec()));
    assert_eq!(slowed((1, 3), 120, 112), told);
    assert_eq!(slowed((2, 2), 128, 120), told);
    assert_eq!(slowed((2, 3), 152, 120), told);
    assert_eq!(slowed((2, 4), 168, 120), told);
    // `throttle_status` means something else on each chip.
    assert_eq!(slowed((1, 2), 104, 68), Reading::Unsupported);
    let nothing_slows = structure((1, 3), 120, &[(112, 0), (114, 0), (116, 0), (118, 0)]);
    assert_eq!(
        Metrics::parse(&nothing_slows).unwrap().throttle,
        Reading::Value(ThrottleReasons(Vec::new()))
    );
}

#[test]
fn a_value_that_cannot_be_fails_alone() {
    let bytes = structure(
        (1, 3),
        120,
        &[(4, 48), (6, 60_000), (16, 130), (54, 65_000)],
    );
    let failed = || hwmon::CANNOT_BE.to_owned();
    assert_eq!(
        Metrics::parse(&bytes),
        Some(Metrics {
            temperature: Reading::Value(Celsius(48)),
            hotspot: Reading::Failed(failed()),
            utilization: Reading::Failed(failed()),
            graphics_clock: Reading::Failed(failed()),
            ..nothing()
        })
    );
}

#[test]
fn a_layout_that_is_not_known_is_not_read() {
    let fields = [(4, 48), (6, 52), (10, 49)];
    for (revision, size) in [
        // From here on it is a list of attributes, and no structure.
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
        assert_eq!(Metrics::parse(&bytes), None, "{revision:?} {size}");
    }
    let short = &structure((1, 3), 120, &fields)[..119];
    assert_eq!(Metrics::parse(short), None);
    assert_eq!(Metrics::parse(&[0x78, 0, 1]), None);
}

#[test]
fn a_file_that_cannot_be_read_says_so_and_one_that_is_not_there_does_not() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(Metrics::read(&root.path().join("gpu_metrics")), nothing());
    // Reading a directory fails.
    let failed = Metrics::read(root.path());
    assert!(failed.power.failure().is_some(), "{failed:?}");
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes: Vec<u8>) {
        super::super::untrusted::gpu_metrics(&bytes);
    }

    #[test]
    fn a_known_layout_of_any_content_is_bounded(
        which in 0..LAYOUTS.len(),
        content in proptest::collection::vec(any::<u8>(), 4_096),
    ) {
        let layout = &LAYOUTS[which];
        let mut bytes = content;
        bytes[..2].copy_from_slice(&layout.sizes[0].to_le_bytes());
        (bytes[2], bytes[3]) = layout.revision;
        prop_assert!(Metrics::parse(&bytes).is_some());
        super::super::untrusted::gpu_metrics(&bytes);
    }

    #[test]
    fn an_unknown_revision_gives_nothing(
        format: u8,
        content: u8,
        rest in proptest::collection::vec(any::<u8>(), 512),
    ) {
        prop_assume!(LAYOUTS.iter().all(|layout| layout.revision != (format, content)));
        let mut bytes = rest;
        bytes[..4].copy_from_slice(&[120, 0, format, content]);
        prop_assert_eq!(Metrics::parse(&bytes), None);
    }
}
