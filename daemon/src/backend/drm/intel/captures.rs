//! Tests with recordings of real cards, where they are available.

use super::*;
use crate::backend::drm::card::list_all_cards;
use crate::procfs::recordings;
use gpukill_proto::model::ThrottleReasons;
use gpukill_proto::units::{Celsius, Milliwatts, Rpm};

/// The first readings of the only card of a recording.
fn first_readings(recording: &str) -> Option<CardReadings> {
    let directory = recordings("intel")?;
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("class")).unwrap();
    let drm = root.path().join("class/drm");
    std::os::unix::fs::symlink(directory.join(recording).canonicalize().unwrap(), drm).unwrap();
    let card = list_all_cards(root.path()).pop().unwrap();
    Some(IntelCard::new().read(&card))
}

fn expected_card(unified: bool, vitals: Vitals) -> CardReadings {
    let memory = MemoryReadings {
        unified,
        ..MemoryReadings::unknown(&Reading::Unsupported)
    };
    CardReadings {
        memory,
        vitals,
        ..CardReadings::unknown(&Reading::Unsupported)
    }
}

fn quiet() -> Vitals {
    Vitals {
        throttle: Reading::Value(ThrottleReasons(Vec::new())),
        ..Vitals::unknown(&Reading::Unsupported)
    }
}

#[test]
fn arc_a380_under_i915() {
    let Some(readings) = first_readings("lact-a380-i915") else {
        return;
    };
    let vitals = Vitals {
        temperature: Reading::Value(Celsius(55)),
        fan_speed: Reading::Value(Rpm(0)),
        power_limit: Reading::Value(Milliwatts(55_000)),
        clock_graphics: Reading::Value(Megahertz(600)),
        clock_sm: Reading::Value(Megahertz(600)),
        clock_sm_max: Reading::Value(Megahertz(2_450)),
        ..quiet()
    };
    assert_eq!(readings, expected_card(false, vitals));
}

#[test]
fn arc_b580_under_xe() {
    let Some(readings) = first_readings("lact-b580-6.16") else {
        return;
    };
    let vitals = Vitals {
        temperature: Reading::Value(Celsius(46)),
        memory_temperature: Reading::Value(Celsius(48)),
        fan_speed: Reading::Value(Rpm(418)),
        clock_graphics: Reading::Value(Megahertz(400)),
        clock_sm: Reading::Value(Megahertz(400)),
        clock_sm_max: Reading::Value(Megahertz(2_850)),
        clock_video: Reading::Value(Megahertz(0)),
        ..quiet()
    };
    assert_eq!(readings, expected_card(false, vitals));
}

#[test]
fn tiger_lake_under_xe() {
    let Some(readings) = first_readings("lact-tigerlake") else {
        return;
    };
    let vitals = Vitals {
        clock_graphics: Reading::Value(Megahertz(0)),
        clock_sm: Reading::Value(Megahertz(0)),
        clock_sm_max: Reading::Value(Megahertz(1_300)),
        ..quiet()
    };
    assert_eq!(readings, expected_card(true, vitals));
}
