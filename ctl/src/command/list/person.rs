//! Whether there can be a user of a name that was typed, or written in rules.

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
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let (answer, answered) = mpsc::channel();
    // It is left behind where it hangs: the process ends soon.
    std::thread::spawn(move || {
        for name in names {
            let found = nix::unistd::User::from_name(&name);
            let is_nobody = matches!(found, Ok(None));
            // Whoever asked may have given up.
            if answer.send((name, is_nobody)).is_err() {
                return;
            }
        }
    });
    let until = Instant::now() + PATIENCE;
    let mut strangers = BTreeSet::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match answered.recv_timeout(left) {
            Ok((name, true)) => {
                strangers.insert(name);
            }
            Ok((_, false)) => {}
            // All are told, or it takes too long.
            Err(_) => return strangers,
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
    }
}
