//! Tests of shares computed from counters, regular and irregular.

use super::*;
use crate::backend::drm::engines::driver_by_name;
use crate::backend::drm::fdinfo::parse;
use proptest::prelude::*;

/// The shares after these readings, each so many milliseconds after the previous one.
fn shares(driver_name: &str, readings: &[(u64, &str)]) -> BTreeMap<String, Reading<u64>> {
    let mut at = Instant::now();
    let mut history: Option<CounterHistory> = None;
    for (after, lines) in readings {
        at += Duration::from_millis(*after);
        let text = format!("drm-driver: {driver_name}\n{lines}");
        let parsed = parse(text.as_bytes()).unwrap();
        history = Some(match history {
            Some(before) => before.after_reading(&parsed, at, driver_by_name(driver_name)),
            None => CounterHistory::from_first_reading(&parsed, at),
        });
    }
    history.unwrap().shares
}

/// The share of the engine `e` after these readings, one second apart.
fn share(readings: &[&str]) -> Reading<u64> {
    let readings: Vec<(u64, &str)> = readings.iter().map(|text| (1_000, *text)).collect();
    shares("unheard", &readings)["e"].clone()
}

fn failed(why: &str) -> Reading<u64> {
    Reading::Failed(why.into())
}

#[test]
fn share_is_growth_over_possible_growth() {
    let quarter = Reading::Value(250_000);
    let cases: [(&[&str], Reading<u64>); 19] = [
        (&["drm-engine-e: 7 ns"], Reading::Unsupported),
        // It never worked, whenever the client started.
        (&["drm-engine-e: 0 ns"], Reading::Value(0)),
        (
            &["drm-cycles-e: 0\ndrm-total-cycles-e: 9"],
            Reading::Value(0),
        ),
        (
            &["drm-cycles-e: 1\ndrm-total-cycles-e: 9"],
            Reading::Unsupported,
        ),
        (&["drm-cycles-e: 0\ndrm-maxfreq-e: 9"], Reading::Value(0)),
        (&["drm-cycles-e: 1\ndrm-maxfreq-e: 9"], Reading::Unsupported),
        (
            &["drm-engine-e: 7 ns", "drm-engine-e: 250000007 ns"],
            quarter.clone(),
        ),
        (
            &["drm-engine-e: 7 ns", "drm-engine-e: 7 ns"],
            Reading::Value(0),
        ),
        // The counter was behind, and catches up.
        (
            &["drm-engine-e: 7 ns", "drm-engine-e: 9000000000 ns"],
            Reading::Value(FULL_SHARE),
        ),
        (
            &[
                "drm-engine-e: 0 ns\ndrm-engine-capacity-e: 2",
                "drm-engine-e: 500000000 ns\ndrm-engine-capacity-e: 2",
            ],
            quarter.clone(),
        ),
        (
            &[
                "drm-cycles-e: 10\ndrm-total-cycles-e: 1000",
                "drm-cycles-e: 20\ndrm-total-cycles-e: 1040",
            ],
            quarter.clone(),
        ),
        (
            &[
                "drm-cycles-e: 10\ndrm-total-cycles-e: 1000\ndrm-engine-capacity-e: 4",
                "drm-cycles-e: 50\ndrm-total-cycles-e: 1040\ndrm-engine-capacity-e: 4",
            ],
            quarter.clone(),
        ),
        (
            &[
                "drm-cycles-e: 10\ndrm-maxfreq-e: 800 MHz",
                "drm-cycles-e: 200000010\ndrm-maxfreq-e: 800 MHz",
            ],
            quarter.clone(),
        ),
        // Time is better than cycles with a maximum frequency that is never reached.
        (
            &[
                "drm-engine-e: 0 ns\ndrm-cycles-e: 0\ndrm-maxfreq-e: 1 MHz",
                "drm-engine-e: 250000000 ns\ndrm-cycles-e: 9\ndrm-maxfreq-e: 1 MHz",
            ],
            quarter,
        ),
        (
            &[
                "drm-engine-e: 0 ns\ndrm-engine-capacity-e: 0",
                "drm-engine-e: 5 ns\ndrm-engine-capacity-e: 0",
            ],
            failed(ZERO_CAPACITY),
        ),
        (
            &[
                "drm-cycles-e: 1\ndrm-total-cycles-e: 9",
                "drm-cycles-e: 2\ndrm-total-cycles-e: 9",
            ],
            failed(CLOCK_STOPPED),
        ),
        (
            &[
                "drm-cycles-e: 1\ndrm-maxfreq-e: 0",
                "drm-cycles-e: 2\ndrm-maxfreq-e: 0",
            ],
            failed(CLOCK_STOPPED),
        ),
        // The driver reports another kind of counter from now on.
        (
            &[
                "drm-cycles-e: 1\ndrm-total-cycles-e: 9",
                "drm-engine-e: 5 ns",
            ],
            Reading::Unsupported,
        ),
        (
            &["drm-engine-e: 1 ns", "drm-engine-e: 1 parsec"],
            failed("not understood: 1 parsec"),
        ),
    ];
    for (readings, expected) in cases {
        assert_eq!(share(readings), expected, "{readings:?}");
    }
}

#[test]
fn engine_without_counter_has_no_share() {
    for lines in [
        "drm-maxfreq-e: 5 MHz",
        "drm-engine-capacity-e: 2",
        "drm-total-cycles-e: 5",
        "drm-cycles-e: 5",
    ] {
        let result = shares("unheard", &[(0, lines), (1_000, lines)]);
        assert_eq!(result, BTreeMap::new(), "{lines}");
    }
}

#[test]
fn fallen_counter_is_idle_until_exceeded() {
    let falls = ["drm-engine-e: 500000000 ns", "drm-engine-e: 100000000 ns"];
    assert_eq!(share(&falls), Reading::Value(0));
    let rises = [falls[0], falls[1], "drm-engine-e: 400000000 ns"];
    assert_eq!(share(&rises), Reading::Value(0));
    let passes = [falls[0], falls[1], "drm-engine-e: 600000000 ns"];
    assert_eq!(share(&passes), Reading::Value(100_000));
}

#[test]
fn reset_gpu_is_measured_afresh() {
    let texts = [
        "drm-cycles-e: 900\ndrm-total-cycles-e: 1000",
        "drm-cycles-e: 0\ndrm-total-cycles-e: 10",
        "drm-cycles-e: 5\ndrm-total-cycles-e: 20",
    ];
    assert_eq!(share(&texts[..2]), failed(CLOCK_WENT_BACK));
    assert_eq!(share(&texts), Reading::Value(500_000));
}

#[test]
fn short_interval_changes_nothing() {
    let (a, b, c) = (
        "drm-engine-e: 0 ns",
        "drm-engine-e: 500000000 ns",
        "drm-engine-e: 508000000 ns",
    );
    let half = Reading::Value(500_000);
    let share = |readings: &[(u64, &str)]| shares("unheard", readings)["e"].clone();
    assert_eq!(share(&[(0, a), (1_000, b)]), half);
    assert_eq!(share(&[(0, a), (1_000, b), (9, c)]), half);
    assert_eq!(share(&[(0, a), (1_000, b), (0, c)]), half);
    assert_eq!(share(&[(0, a), (9, b)]), Reading::Value(0));
    assert_eq!(share(&[(0, b), (9, c)]), Reading::Unsupported);
    // Measured by the time since the last reading that counted.
    assert_eq!(share(&[(0, a), (1_000, b), (9, c), (7, c)]), half);
}

#[test]
fn engine_reported_late_was_unused() {
    let (none, some) = ("", "drm-engine-e: 250000000 ns");
    let readings = [(0, none), (1_000, some)];
    let quarter = BTreeMap::from([("e".to_owned(), Reading::Value(250_000))]);
    assert_eq!(shares("amdgpu", &readings), quarter);
    let first = BTreeMap::from([("e".to_owned(), Reading::Unsupported)]);
    assert_eq!(shares("unheard", &readings), first);
    let again = [(0, some), (1_000, none)];
    let idle = BTreeMap::from([("e".to_owned(), Reading::Value(0))]);
    assert_eq!(shares("amdgpu", &again), idle);
    assert_eq!(shares("unheard", &again), BTreeMap::new());
}

proptest! {
    #[test]
    fn shares_never_exceed_the_whole(
        readings in proptest::collection::vec(
            (0u64..100_000, any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>(),
             any::<Option<u64>>(), proptest::option::of(0u64..5)),
            1..12,
        ),
        sparse: bool,
    ) {
        let texts: Vec<(u64, String)> = readings
            .into_iter()
            .map(|(after, busy, cycles, all, hertz, capacity)| {
                let line = |key: &str, value: Option<u64>, unit: &str| {
                    value.map_or_else(String::new, |value| format!("drm-{key}-e: {value}{unit}\n"))
                };
                let text = line("engine", busy, " ns")
                    + &line("cycles", cycles, "")
                    + &line("total-cycles", all, "")
                    + &line("maxfreq", hertz, " Hz")
                    + &line("engine-capacity", capacity, "");
                (after, text)
            })
            .collect();
        let readings: Vec<(u64, &str)> =
            texts.iter().map(|(after, text)| (*after, text.as_str())).collect();
        let name = if sparse { "amdgpu" } else { "unheard" };
        for share in shares(name, &readings).values() {
            prop_assert!(share.known().is_none_or(|share| *share <= FULL_SHARE));
        }
    }
}
