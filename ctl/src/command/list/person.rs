//! Whether there can be a user of a name that was typed.

use std::sync::mpsc;
use std::time::Duration;

/// A name service that has not answered in this time may know everybody: nobody
/// should wait longer for a verdict on a typing error.
const PATIENCE: Duration = Duration::from_secs(1);

/// False only where the name service of this box says that there is none. A number
/// may be a user's whether it has a name or not.
pub(super) fn may_be(typed: &str) -> bool {
    if typed.parse::<u32>().is_ok() {
        return true;
    }
    let (answer, answered) = mpsc::channel();
    let name = typed.to_owned();
    // It is left behind where it hangs: the process ends soon.
    std::thread::spawn(move || {
        // Whoever asked may have given up.
        let _ = answer.send(nix::unistd::User::from_name(&name));
    });
    !matches!(answered.recv_timeout(PATIENCE), Ok(Ok(None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_nobody_has_is_nobodys() {
        assert!(may_be("root"));
        assert!(may_be("3999999999"));
        assert!(!may_be("no-such-person-here"));
    }
}
