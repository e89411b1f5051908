//! What is odd about what is said of devices and of hours.

use super::{Odd, path};
use crate::guard::rules::{Glob, GpuPolicy, Limits, TimePolicy};
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::units::Bytes;

pub(super) fn check(odd: &mut Odd<'_>) {
    let rules = odd.rules;
    for gpu in &rules.gpus {
        check_gpu(odd, gpu);
    }
    for time in &rules.times {
        check_time(odd, time);
    }
}

fn check_gpu(odd: &mut Odd<'_>, gpu: &GpuPolicy) {
    let at = path(PolicyKind::Gpu, &gpu.name);
    odd.measures(&at, &gpu.measures);
    odd.never_more(&format!("{at}.max_utilization_pct"), gpu.max_utilization);
    let allowed = ("allowed_users", gpu.allowed_users.as_slice());
    odd.both(&at, allowed, ("blocked_users", &gpu.blocked_users));
    let typed =
        |globs: &[Glob]| -> Vec<String> { globs.iter().map(|it| it.typed.clone()).collect() };
    let (allowed, blocked) = (typed(&gpu.allowed_processes), typed(&gpu.blocked_processes));
    odd.both(
        &at,
        ("allowed_processes", &allowed),
        ("blocked_processes", &blocked),
    );
    odd.spared(&format!("{at}.blocked_users"), &gpu.blocked_users);
    odd.too_much(&format!("{at}.max_memory_gb"), gpu.max_memory);
    odd.too_much(&format!("{at}.reserved_memory_gb"), gpu.reserved_memory);
    if gpu.max_memory == Some(Bytes(0)) {
        odd.warn(&format!("{at}.max_memory_gb"), "nobody may use it");
    }
    if let (Some(reserved), Some(most)) = (gpu.reserved_memory, gpu.max_memory)
        && reserved >= most
    {
        let (reserved, most) = (reserved.as_gib(), most.as_gib());
        let what = format!("{reserved} stay free, and no process may hold more than {most}");
        odd.warn(&format!("{at}.reserved_memory_gb"), what);
    }
    if let Some(hours) = &gpu.maintenance {
        let at = format!("{at}.maintenance_window");
        if Odd::is_always(hours) {
            odd.warn(&at, "it is always maintained: nobody may ever use it");
        } else {
            odd.hours(&at, hours);
        }
    }
    let says_nothing = gpu.max_memory.is_none()
        && gpu.max_utilization.is_none()
        && gpu.reserved_memory.is_none()
        && gpu.allowed_users.is_empty()
        && gpu.blocked_users.is_empty()
        && gpu.allowed_processes.is_empty()
        && gpu.blocked_processes.is_empty()
        && gpu.maintenance.is_none();
    if says_nothing {
        odd.warn(&at, "it limits nothing");
    }
    let is_by_name = !odd.says(&format!("{at}.gpus"));
    if is_by_name && gpu.gpus.iter().any(|gpu| is_whole_name(&gpu.0)) {
        let what = "it is about GPUs of just this name; write gpus = […] to say which";
        odd.warn(&at, what);
    }
}

/// Whether it can only be the whole name of a model, which is hardly typed: not an
/// index, a UUID, an address, or a pattern.
fn is_whole_name(selector: &str) -> bool {
    let digits = selector.strip_prefix("GPU-").unwrap_or(selector);
    let is_digit = |c: char| c.is_ascii_hexdigit() || c == '-';
    let is_number = selector.chars().all(|c| c.is_ascii_digit());
    let is_uuid = digits.len() >= 4 && digits.chars().all(is_digit);
    !is_number && !is_uuid && !selector.contains([':', '*', '?', ' '])
}

fn check_time(odd: &mut Odd<'_>, time: &TimePolicy) {
    let at = path(PolicyKind::Time, &time.name);
    odd.measures(&at, &time.measures);
    odd.limits(&at, "", &time.limits);
    odd.hours(&at, &time.hours);
    let allowed = ("allowed_users", time.allowed_users.as_slice());
    odd.both(&at, allowed, ("blocked_users", &time.blocked_users));
    odd.spared(&format!("{at}.blocked_users"), &time.blocked_users);
    let says_nothing = time.limits == Limits::default()
        && time.allowed_users.is_empty()
        && time.blocked_users.is_empty();
    if says_nothing {
        odd.warn(&at, "it limits nothing");
    }
}
