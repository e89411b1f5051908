//! Looks up whether a user or group name from the command line or from rules can exist.

use nix::unistd::{Group, User};
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A name service that has not answered in this time may know every name. A verdict on a typing
/// error is not worth a longer wait.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// False only when the name service of this host reports that the user does not exist. A number
/// may be a uid without a name.
pub(in crate::command) fn user_may_exist(typed: &str) -> bool {
    typed.parse::<u32>().is_ok() || unknown_users([typed]).is_empty()
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
        assert!(user_may_exist("root"));
        assert!(user_may_exist("3999999999"));
        assert!(!user_may_exist("no-such-person-here"));
        let names = ["root", "no-such-person-here", "nor-this-one"];
        let strangers: Vec<String> = unknown_users(names).into_iter().collect();
        assert_eq!(strangers, ["no-such-person-here", "nor-this-one"]);
        // The group of root has the number 0 and is called `root` nearly everywhere.
        let own = Group::from_gid(0.into()).expect("it answers");
        let own = own.map(|group| group.name);
        let names = own.iter().map(String::as_str).chain(["no-such-group"]);
        let no_groups: Vec<String> = unknown_groups(names).into_iter().collect();
        assert_eq!(no_groups, ["no-such-group"]);
    }
}
