//! Whether there can be a user or a group of a name that was typed, or written in rules.

use nix::unistd::{Group, User};
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A name service that has not answered in this time may know everybody: nobody
/// should wait longer for a verdict on a typing error.
const PATIENCE: Duration = Duration::from_secs(1);

/// False only where the name service of this box says that there is none. A number
/// may be a user's whether it has a name or not.
pub(in crate::command) fn may_be(typed: &str) -> bool {
    typed.parse::<u32>().is_ok() || strangers([typed]).is_empty()
}

/// Those of these names of whom the name service of this box says that it knows none,
/// as far as it answers in time.
pub(in crate::command) fn strangers<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<String> {
    unknown(names, |name| matches!(User::from_name(name), Ok(None)))
}

/// The same of groups.
pub(in crate::command) fn no_groups<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<String> {
    unknown(names, |name| matches!(Group::from_name(name), Ok(None)))
}

/// Those of these names that are known to be nobody's, as far as that is told in time.
fn unknown<'a>(
    names: impl IntoIterator<Item = &'a str>,
    is_nobodys: fn(&str) -> bool,
) -> BTreeSet<String> {
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let (answer, answered) = mpsc::channel();
    // It is left behind where it hangs: the process ends soon.
    std::thread::spawn(move || {
        for name in names {
            let is_nobodys = is_nobodys(&name);
            // Whoever asked may have given up.
            if answer.send((name, is_nobodys)).is_err() {
                return;
            }
        }
    });
    let until = Instant::now() + PATIENCE;
    let mut unknown = BTreeSet::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match answered.recv_timeout(left) {
            Ok((name, true)) => {
                unknown.insert(name);
            }
            Ok((_, false)) => {}
            // All are told, or it takes too long.
            Err(_) => return unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_nobody_has_is_nobodys() {
        assert!(may_be("root"));
        assert!(may_be("3999999999"));
        assert!(!may_be("no-such-person-here"));
        let names = ["root", "no-such-person-here", "nor-this-one"];
        let strangers: Vec<String> = strangers(names).into_iter().collect();
        assert_eq!(strangers, ["no-such-person-here", "nor-this-one"]);
        // root's own group has the number 0, and is called so nearly everywhere.
        let own = Group::from_gid(0.into()).expect("it answers");
        let own = own.map(|group| group.name);
        let names = own.iter().map(String::as_str).chain(["no-such-group"]);
        let no_groups: Vec<String> = no_groups(names).into_iter().collect();
        assert_eq!(no_groups, ["no-such-group"]);
    }
}
