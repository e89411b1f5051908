//! What was seen of holders, in words.

use super::names::whole;
use super::role::name;
use gpukill_proto::holders::{EndedHolder, Holder};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::duration;
use gpukill_proto::units::{Bytes, Timestamp};

/// So many processes are named in one sentence, and so many sentences said of
/// them: whoever wants all reads the rows.
pub(super) const NAMED: usize = 4;

/// `60211 (python of carol)`
pub(super) fn who(holder: &Holder) -> String {
    let owner = holder.owner.last_known().map(|owner| &owner.name);
    let user = owner.or(holder.user.last_known());
    called(holder.pid, name(holder), user.map(String::as_str))
}

/// `nvtop 4711 of eve`
pub(super) fn called_first(holder: &Holder) -> String {
    let owner = holder.owner.last_known().map(|owner| &owner.name);
    let user = owner.or(holder.user.last_known());
    let user = user.map_or_else(String::new, |user| format!(" of {user}"));
    format!("{} {}{user}", whole(name(holder)), holder.pid)
}

fn called(pid: u32, name: &str, user: Option<&str>) -> String {
    match (name, user) {
        ("", None) => pid.to_string(),
        ("", Some(user)) => format!("{pid} (of {user})"),
        (name, None) => format!("{pid} ({name})"),
        (name, Some(user)) => format!("{pid} ({name} of {user})"),
    }
}

/// `60190 (python of carol) ended 2h 10m ago and held 35.6 GiB`
pub(super) fn ended(holder: &EndedHolder, now: Timestamp) -> String {
    let name = holder.name.last_known().map_or("", String::as_str);
    let user = holder.user.last_known().map(String::as_str);
    let who = called(holder.key.pid, name, user);
    let ago = duration(now.since(holder.at));
    match holder.memory.last_known() {
        Some(held) => format!("{who} ended {ago} ago and held {}", size(*held)),
        None => format!("{who} ended {ago} ago"),
    }
}

/// `7`, `7 and 9`, `7, 9, 11, 12 and 40 more`
pub(super) fn pids(pids: &[u32]) -> String {
    let mut texts: Vec<String> = pids.iter().take(NAMED).map(u32::to_string).collect();
    match pids.len().saturating_sub(NAMED) {
        0 => {}
        more => texts.push(format!("{more} more")),
    }
    match texts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// One word for one, another for several.
pub(super) fn of_number<'a>(number: usize, one: &'a str, several: &'a str) -> &'a str {
    if number == 1 { one } else { several }
}

/// A size in GiB, or in MiB below one.
pub(super) fn size(bytes: Bytes) -> String {
    if bytes.as_mib() < 1024 {
        format!("{} MiB", bytes.as_mib())
    } else {
        format!("{:.1} GiB", bytes.as_gib())
    }
}

/// Where a holder runs that has pids of its own.
pub(super) fn inside(holder: &Holder) -> String {
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
    fn a_few_processes_are_named_and_the_others_counted() {
        let cases: [(&[u32], &str); 5] = [
            (&[], ""),
            (&[7], "7"),
            (&[7, 9], "7 and 9"),
            (&[1, 2, 3, 4], "1, 2, 3 and 4"),
            (&[1, 2, 3, 4, 5, 6], "1, 2, 3, 4 and 2 more"),
        ];
        for (numbers, expected) in cases {
            assert_eq!(pids(numbers), expected);
        }
    }
}
