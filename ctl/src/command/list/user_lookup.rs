//! Looks up whether a user or group name from the command line or from rules can exist.

use gpukill_proto::settings::closest_name;
use gpukill_proto::text::sanitize;
use nix::unistd::{Group, User};
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A name service that has not answered in this time may know every name. A verdict on a typing
/// error is not worth a longer wait.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// The name of a user who does not exist, as the name service of this host reports, with the most
/// similar local name: `alcie (did you mean alice?)`. `None` if the user may exist: a number may be
/// a uid without a name.
pub(in crate::command) fn unknown_user(typed: &str) -> Option<String> {
    let is_unknown = typed.parse::<u32>().is_err() && !unknown_users([typed]).is_empty();
    is_unknown.then(|| name_with_closest(typed, &local_users()))
}

/// The parts of a message that name typed users and groups that this host does not have; each list
/// is separated by commas: `no group is called ml-studnets (did you mean ml-students?)`.
pub(in crate::command) fn unknown_name_texts(users: &str, groups: &str) -> Vec<String> {
    let users = unknown_users(typed_names(users));
    let groups = unknown_groups(typed_names(groups));
    let text = |one: &str, unknown: BTreeSet<String>, list: fn() -> Vec<String>| {
        let known = unknown.first().map(|_| list())?;
        let names = unknown.iter().map(|name| name_with_closest(name, &known));
        let names: Vec<String> = names.collect();
        Some(format!("no {one} is called {}", names.join(" or ")))
    };
    let texts = [
        text("user", users, local_users),
        text("group", groups, local_groups),
    ];
    texts.into_iter().flatten().collect()
}

/// The names in a list with commas. A number may have no name.
fn typed_names(list: &str) -> impl Iterator<Item = &str> {
    let names = list.split(',').map(str::trim);
    names.filter(|name| !name.is_empty() && name.parse::<u32>().is_err())
}

/// A typed name, with the most similar of the known ones.
pub(in crate::command) fn name_with_closest(typed: &str, known: &[String]) -> String {
    let line = |name: &str| sanitize(name.as_bytes(), 80);
    match closest_name(typed, known.iter().map(String::as_str)) {
        Some(near) => format!("{} (did you mean {}?)", line(typed), line(near)),
        None => line(typed),
    }
}

/// The names that the name service of this host reports as unknown users, as far as it answers
/// in time.
pub(in crate::command) fn unknown_users<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<String> {
    unknown_names(names, |name| matches!(User::from_name(name), Ok(None)))
}

/// The names of people in `/etc/passwd`. Users of a directory are missing: listing them may take
/// long.
pub(in crate::command) fn local_users() -> Vec<String> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    people_in(&text)
}

/// The names of people in a text like `/etc/passwd`.
fn people_in(text: &str) -> Vec<String> {
    /// UID_MIN and UID_MAX of useradd: others are system accounts.
    const PEOPLE: std::ops::RangeInclusive<u32> = 1_000..=60_000;
    let entries = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid: u32 = fields.nth(1)?.parse().ok()?;
        (uid == 0 || PEOPLE.contains(&uid)).then(|| name.to_owned())
    });
    entries.collect()
}

/// The names of the groups in `/etc/group`; those of a directory are missing, as for
/// [`local_users`].
pub(in crate::command) fn local_groups() -> Vec<String> {
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, _)| name.to_owned()).collect()
}

pub(in crate::command) fn unknown_groups<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<String> {
    unknown_names(names, |name| matches!(Group::from_name(name), Ok(None)))
}

/// The names that `is_nobodys` reports as unknown, as far as it answers in time.
fn unknown_names<'a>(
    names: impl IntoIterator<Item = &'a str>,
    is_nobodys: fn(&str) -> bool,
) -> BTreeSet<String> {
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let (answer, answered) = mpsc::channel();
    // A thread that hangs is left behind, because the process ends soon.
    std::thread::spawn(move || {
        for name in names {
            let is_nobodys = is_nobodys(&name);
            // The receiver may have given up.
            if answer.send((name, is_nobodys)).is_err() {
                return;
            }
        }
    });
    let until = Instant::now() + LOOKUP_TIMEOUT;
    let mut unknown = BTreeSet::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match answered.recv_timeout(left) {
            Ok((name, true)) => {
                unknown.insert(name);
            }
            Ok((_, false)) => {}
            // Every name is answered, or the time is over.
            Err(_) => return unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_no_system_accounts() {
        let text = "root:x:0:0::/root:/bin/sh\nbin:x:2:2::/bin:/sbin/nologin\n\
            alice:x:1000:1000::/home/alice:/bin/sh\nnobody:x:65534:65534::/:/bin/false\nx\n";
        assert_eq!(people_in(text), ["root", "alice"]);
    }

    #[test]
    fn only_an_unused_name_is_unknown() {
        assert_eq!(unknown_user("root"), None);
        assert_eq!(unknown_user("3999999999"), None);
        let stranger = unknown_user("no-such-person-here");
        assert_eq!(stranger.as_deref(), Some("no-such-person-here"));
        let names = ["root", "no-such-person-here", "nor-this-one"];
        let strangers: Vec<String> = unknown_users(names).into_iter().collect();
        assert_eq!(strangers, ["no-such-person-here", "nor-this-one"]);
        // The group of root has the number 0 and is called `root` nearly everywhere.
        let own = Group::from_gid(0.into()).expect("it answers");
        let own = own.map(|group| group.name);
        let names = own.iter().map(String::as_str).chain(["no-such-group"]);
        let no_groups: Vec<String> = unknown_groups(names).into_iter().collect();
        assert_eq!(no_groups, ["no-such-group"]);
        assert_eq!(
            unknown_name_texts("root, no-such-person-here,1003", "no-such-group-here"),
            [
                "no user is called no-such-person-here",
                "no group is called no-such-group-here"
            ]
        );
        assert_eq!(unknown_name_texts("", ""), [""; 0]);
    }

    #[test]
    fn unknown_name_comes_with_the_closest() {
        let known = ["ml-students", "wheel"].map(str::to_owned);
        assert_eq!(
            name_with_closest("ml-studnets", &known),
            "ml-studnets (did you mean ml-students?)"
        );
        assert_eq!(name_with_closest("a\nb", &known).lines().count(), 1);
    }
}
