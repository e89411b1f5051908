//! Determines which logind sessions are active at a seat of the host.
//!
//! logind writes one file for each session, owned by root. A process is part of a
//! session by its control group, which users cannot choose: `session-N.scope` is not
//! delegated to them.

/// A session, as logind records it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogindSession {
    /// The user who logged in.
    pub uid: Option<u32>,
    /// Whether the session is in the foreground of its seat.
    pub is_active: bool,
    /// Whether the user is remote.
    pub is_remote: bool,
    /// The seat; `None` for a session without screen and keyboard.
    pub seat: Option<String>,
    /// The session type: `x11`, `wayland`, `mir`, `tty`, …
    pub kind: String,
    /// The session class: `user`, `greeter`, `lock-screen`, `background`, …
    pub class: String,
}

impl LogindSession {
    /// Parses the text of `/run/systemd/sessions/ID`. Lines that are not understood are
    /// ignored.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut session = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "UID" => session.uid = value.parse().ok(),
                "ACTIVE" => session.is_active = value == "1",
                "REMOTE" => session.is_remote = value != "0",
                "SEAT" => session.seat = Some(value.to_owned()).filter(|seat| !seat.is_empty()),
                "TYPE" => value.clone_into(&mut session.kind),
                "CLASS" => value.clone_into(&mut session.class),
                _ => {}
            }
        }
        session
    }

    /// Whether this user is active at a seat in this session and may draw there. A
    /// compositor may have been started in a session on a text console.
    #[must_use]
    pub fn is_at_seat(&self, uid: u32) -> bool {
        self.uid == Some(uid)
            && self.is_active
            && !self.is_remote
            && self.seat.is_some()
            && matches!(self.kind.as_str(), "x11" | "wayland" | "mir" | "tty")
            && matches!(
                self.class.as_str(),
                "user" | "user-early" | "user-incomplete" | "greeter" | "lock-screen"
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESKTOP: &str = "# This is private data. Do not parse.\nUID=1000\nUSER=alice\nACTIVE=1\n\
        IS_DISPLAY=1\nSTATE=active\nREMOTE=0\nLEADER_FD_SAVED=1\nTYPE=wayland\nORIGINAL_TYPE=wayland\n\
        CLASS=user\nSCOPE=session-2.scope\nFIFO=/run/systemd/sessions/2.ref\nSEAT=seat0\nTTY=tty2\n\
        SERVICE=gdm-password\nDESKTOP=ubuntu\nVTNR=2\nLEADER=2011\n";

    #[test]
    fn active_session_at_a_seat_counts() {
        let at_seat = |text: &str| LogindSession::parse(text).is_at_seat(1000);
        assert!(at_seat(DESKTOP));
        assert!(!LogindSession::parse(DESKTOP).is_at_seat(1001));
        for (from, to, expected) in [
            ("ACTIVE=1", "ACTIVE=0", false),
            ("ACTIVE=1\n", "", false),
            ("REMOTE=0", "REMOTE=1", false),
            ("SEAT=seat0\n", "", false),
            ("SEAT=seat0", "SEAT=", false),
            ("UID=1000\n", "UID=-1\n", false),
            ("\nTYPE=wayland", "\nTYPE=x11", true),
            ("\nTYPE=wayland", "\nTYPE=tty", true),
            ("\nTYPE=wayland", "\nTYPE=unspecified", false),
            ("CLASS=user", "CLASS=background", false),
            ("CLASS=user", "CLASS=greeter", true),
        ] {
            assert_eq!(at_seat(&DESKTOP.replace(from, to)), expected, "{to}");
        }
        assert!(!at_seat(""));
    }
}
