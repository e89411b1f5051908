//! Processes that are never ended, and processes that are not explained.

use super::*;

#[test]
fn protected_process_says_why() {
    let monitor = explain_to(PROTECTED, 0, &[], None).unwrap();
    assert_eq!(
        monitor.may_end.never.as_deref(),
        Some("it watches the devices")
    );
    let elsewhere = explain_to(71, 0, &[], Some("pids would name others")).unwrap();
    assert_eq!(
        elsewhere.may_end.never.as_deref(),
        Some("pids would name others")
    );
}

#[test]
fn process_without_device_is_not_explained() {
    for pid in [0, 1, 70, u32::MAX] {
        assert_eq!(explain_to(pid, 0, &[], None), None, "{pid}");
    }
}
