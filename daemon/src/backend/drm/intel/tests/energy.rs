//! Tests of energy counters that do not move.

use super::*;

#[test]
fn repeated_standstill_is_a_fault() {
    let slept = "device/power/runtime_suspended_time";
    let mut stage = IntelFixture::xe(&[HWMON, CARD_LABEL, (CARD_ENERGY, "7\n"), (slept, "0\n")]);
    let still = || Reading::Failed("the energy counter stands still".to_owned());
    let power =
        |stage: &mut IntelFixture, files: &[(&str, &str)]| stage.after(2_000, files).vitals.power;
    // The first reading, and four without movement.
    for _ in 0..5 {
        assert_eq!(power(&mut stage, &[]), Reading::Unsupported);
    }
    assert_eq!(power(&mut stage, &[]), still());
    // Too short an interval to count.
    assert_eq!(stage.after(10, &[]).vitals.power, still());
    let moved = power(&mut stage, &[(CARD_ENERGY, "20000007\n")]);
    assert_eq!(moved, Reading::Value(Milliwatts(9_950)));
    for _ in 0..4 {
        assert_eq!(power(&mut stage, &[]), Reading::Unsupported);
    }
    // The card slept: the counting starts again.
    let woken = power(&mut stage, &[(slept, "9\n")]);
    assert_eq!(woken, Reading::Unsupported);
    assert_eq!(power(&mut stage, &[]), Reading::Unsupported);
}
