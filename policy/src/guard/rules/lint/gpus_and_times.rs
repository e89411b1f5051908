//! Lints for GPU and time policies.

use super::{Linter, policy_path};
use crate::guard::rules::{Glob, GpuPolicy, TimePolicy};
use crate::guard::schedule::Hours;
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::units::Bytes;

pub(super) fn check(linter: &mut Linter<'_>) {
    let rules = linter.rules;
    for gpu in &rules.gpus {
        check_gpu(linter, gpu);
    }
    for time in &rules.times {
        check_time(linter, time);
    }
}

fn check_gpu(linter: &mut Linter<'_>, gpu: &GpuPolicy) {
    let at = policy_path(PolicyKind::Gpu, &gpu.name);
    linter.check_mode(&at, &gpu.measures);
    linter.check_utilization_limit(&format!("{at}.max_utilization_pct"), gpu.max_utilization);
    let allowed = ("allowed_users", gpu.allowed_users.as_slice());
    linter.check_allowed_and_blocked(&at, allowed, ("blocked_users", &gpu.blocked_users));
    let typed =
        |globs: &[Glob]| -> Vec<String> { globs.iter().map(|it| it.typed.clone()).collect() };
    let (allowed, blocked) = (typed(&gpu.allowed_processes), typed(&gpu.blocked_processes));
    linter.check_allowed_and_blocked(
        &at,
        ("allowed_processes", &allowed),
        ("blocked_processes", &blocked),
    );
    linter.check_protected_users(&format!("{at}.blocked_users"), &gpu.blocked_users);
    linter.check_memory_limit(&format!("{at}.max_memory_gb"), gpu.max_memory);
    linter.check_memory_limit(&format!("{at}.reserved_memory_gb"), gpu.reserved_memory);
    if gpu.max_memory == Some(Bytes(0)) {
        linter.warn(&format!("{at}.max_memory_gb"), "nobody may use it");
    }
    if let Some(hours) = &gpu.maintenance {
        let at = format!("{at}.maintenance_window");
        if covers_whole_week(hours) {
            linter.warn(&at, "the maintenance never ends: nobody may ever use it");
        } else {
            linter.check_hours(&at, hours);
        }
    }
    let is_by_name = !linter.has_key(&format!("{at}.gpus"));
    if is_by_name && gpu.gpus.iter().any(|gpu| is_whole_name(&gpu.0)) {
        let what = "it selects only GPUs of exactly this name; write gpus = […] to select others";
        linter.warn(&at, what);
    }
}

fn covers_whole_week(hours: &Hours) -> bool {
    let is_whole_day = hours.from == hours.to || (hours.from, hours.to) == (0, 24 * 60);
    is_whole_day && (hours.days.is_empty() || hours.days.len() == 7)
}

/// Whether the selector can only be the whole name of a GPU model, which is hardly ever
/// typed: it is not an index, a UUID, an address or a pattern.
fn is_whole_name(selector: &str) -> bool {
    let digits = selector.strip_prefix("GPU-").unwrap_or(selector);
    let is_digit = |c: char| c.is_ascii_hexdigit() || c == '-';
    let is_number = selector.chars().all(|c| c.is_ascii_digit());
    let is_uuid = digits.len() >= 4 && digits.chars().all(is_digit);
    !is_number && !is_uuid && !selector.contains([':', '*', '?', ' '])
}

fn check_time(linter: &mut Linter<'_>, time: &TimePolicy) {
    let at = policy_path(PolicyKind::Time, &time.name);
    linter.check_mode(&at, &time.measures);
    linter.check_limits(&at, "", &time.limits);
    linter.check_hours(&at, &time.hours);
    let allowed = ("allowed_users", time.allowed_users.as_slice());
    linter.check_allowed_and_blocked(&at, allowed, ("blocked_users", &time.blocked_users));
    linter.check_protected_users(&format!("{at}.blocked_users"), &time.blocked_users);
}
