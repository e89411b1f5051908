//! The way to the daemon: which socket, how long to wait, when to try again.

mod meanwhile;

mod patience;

mod socket;

mod daemon;

mod acting;

mod copying;

mod guarding;

mod rules;

mod resetting;

mod suspecting;

pub(crate) use acting::is_over;
pub(crate) use copying::Doing;
pub(crate) use daemon::{Daemon, Sight};
pub(crate) use meanwhile::{Meanwhile, Nothing, sleep};
pub(crate) use patience::Patience;
pub(crate) use rules::{Change, RulesOf};
pub(crate) use socket::choose;
