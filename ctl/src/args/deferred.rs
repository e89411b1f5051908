//! Defines the arguments of a command only when this command was typed.
//!
//! The whole command line has some 70 commands. Defining all of them costs three quarters of
//! what `gpukillctl list` executes, and a run parses only one.

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::ops::Deref;

/// The arguments of one command, `T`'s. clap asks for them when it meets the command's name.
///
/// Readers of the whole command line (help, completions, manual) use
/// [`command`](super::command), which defines all arguments at once.
#[derive(Debug)]
pub struct Deferred<T>(pub T);

impl<T> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(define_args::<T>)
    }

    /// Defines the arguments at once, for [`command`](super::command). clap calls this to
    /// update a parsed value, which never happens here.
    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args(command)
    }
}

/// Defines the arguments and keeps the description from the list of commands. The description
/// of `T` is for readers of the code.
fn define_args<T: Args>(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let long_about = command.get_long_about().cloned();
    let command = T::augment_args(command).about(about);
    match long_about {
        Some(long_about) => command.long_about(long_about),
        None => command.long_about(None),
    }
}
