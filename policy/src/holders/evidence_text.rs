//! Texts about holders and their evidence.

use super::program_names::full_name;
use super::role::kernel_name;
use gpukill_proto::holders::{EndedHolder, Holder};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::format_duration;
use gpukill_proto::units::{Bytes, Timestamp};

/// Maximum number of processes named in one sentence, and of sentences in one finding.
/// The table has all rows.
pub(super) const MAX_NAMED: usize = 4;

/// Example: `60211 (python of carol)`
pub(super) fn describe_holder(holder: &Holder) -> String {
    let owner = holder.owner.last_known().map(|owner| &owner.name);
    let user = owner.or(holder.user.last_known());
    describe_process(holder.pid, kernel_name(holder), user.map(String::as_str))
}

/// Example: `nvtop 4711 of eve`
pub(super) fn describe_by_name(holder: &Holder) -> String {
    let owner = holder.owner.last_known().map(|owner| &owner.name);
    let user = owner.or(holder.user.last_known());
    let user = user.map_or_else(String::new, |user| format!(" of {user}"));
    format!("{} {}{user}", full_name(kernel_name(holder)), holder.pid)
}

fn describe_process(pid: u32, name: &str, user: Option<&str>) -> String {
    match (name, user) {
        ("", None) => pid.to_string(),
        ("", Some(user)) => format!("{pid} (of {user})"),
        (name, None) => format!("{pid} ({name})"),
        (name, Some(user)) => format!("{pid} ({name} of {user})"),
    }
}

/// Example: `60190 (python of carol) ended 2h 10m ago and held 35.6 GiB`
pub(super) fn describe_ended(holder: &EndedHolder, now: Timestamp) -> String {
    let name = holder.name.last_known().map_or("", String::as_str);
    let user = holder.user.last_known().map(String::as_str);
    let holder_text = describe_process(holder.key.pid, name, user);
    let ago = format_duration(now.since(holder.at));
    match holder.memory.last_known() {
        Some(held) => format!(
            "{holder_text} ended {ago} ago and held {}",
            format_size(*held)
        ),
        None => format!("{holder_text} ended {ago} ago"),
    }
}

/// Example: `7`, `7 and 9`, `7, 9, 11, 12 and 40 more`
pub(super) fn join_pids(pids: &[u32]) -> String {
    let mut texts: Vec<String> = pids.iter().take(MAX_NAMED).map(u32::to_string).collect();
    match pids.len().saturating_sub(MAX_NAMED) {
        0 => {}
        more => texts.push(format!("{more} more")),
    }
    match texts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

pub(super) fn singular_or_plural<'a>(number: usize, one: &'a str, several: &'a str) -> &'a str {
    if number == 1 { one } else { several }
}

/// A size in GiB, or in MiB below 1 GiB.
pub(super) fn format_size(bytes: Bytes) -> String {
    if bytes.as_mib() < 1024 {
        format!("{} MiB", bytes.as_mib())
    } else {
        format!("{:.1} GiB", bytes.as_gib())
    }
}

/// The container or PID namespace of a holder.
pub(super) fn describe_namespace(holder: &Holder) -> String {
    if let Some(Some(container)) = holder.container.last_known() {
        return format!("in {container}");
    }
    match &holder.inner_pid {
        Reading::Value(Some(pid)) | Reading::Stale(Some(pid), _) => {
            format!("as {pid} of another PID namespace")
        }
        _ => "in another PID namespace".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pid_lists_are_cut() {
        let cases: [(&[u32], &str); 5] = [
            (&[], ""),
            (&[7], "7"),
            (&[7, 9], "7 and 9"),
            (&[1, 2, 3, 4], "1, 2, 3 and 4"),
            (&[1, 2, 3, 4, 5, 6], "1, 2, 3, 4 and 2 more"),
        ];
        for (numbers, expected) in cases {
            assert_eq!(join_pids(numbers), expected);
        }
    }
}
