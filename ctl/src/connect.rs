//! The connection to the daemon: which socket, how to call, how long to wait, when to try again.

mod daemon;
mod rules;
mod socket;
mod timeout;
mod wait_hooks;

pub(crate) use daemon::{AnnotatedSnapshot, Daemon, Mode, call};
pub(crate) use rules::{RulesChange, RulesKind};
pub(crate) use socket::choose_socket;
pub(crate) use timeout::RequestTimeout;
pub(crate) use wait_hooks::{WaitHooks, sleep};
