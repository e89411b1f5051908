//! The connection to the daemon: which socket, how long to wait, when to try again.

mod daemon;
mod guard;
mod kill;
mod reset;
mod rogue;
mod rules;
mod socket;
mod store;
mod timeout;
mod wait_hooks;

pub(crate) use daemon::{AnnotatedSnapshot, Daemon};
pub(crate) use kill::is_over;
pub(crate) use rules::{RulesChange, RulesKind};
pub(crate) use socket::choose_socket;
pub(crate) use store::Mode;
pub(crate) use timeout::RequestTimeout;
pub(crate) use wait_hooks::{NoHooks, WaitHooks, sleep};
