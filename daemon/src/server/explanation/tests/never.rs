//! What is never ended, and what is not explained.

use super::*;

#[test]
fn what_is_never_ended_says_why() {
    let monitor = asked(PROTECTED, 0, &[], None).unwrap();
    assert_eq!(
        monitor.may_end.never.as_deref(),
        Some("it watches the devices")
    );
    let elsewhere = asked(71, 0, &[], Some("pids would name others")).unwrap();
    assert_eq!(
        elsewhere.may_end.never.as_deref(),
        Some("pids would name others")
    );
}

#[test]
fn what_uses_nothing_is_not_explained() {
    for pid in [0, 1, 70, u32::MAX] {
        assert_eq!(asked(pid, 0, &[], None), None, "{pid}");
    }
}
