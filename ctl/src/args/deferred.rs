//! A command whose arguments are defined when it is the one that was typed.
//!
//! The whole command line has some 70 commands. To define them all costs three quarters of
//! what `gpukillctl list` executes, and a run parses one of them.

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::ops::Deref;

/// The arguments of one command: `T`'s, which clap asks for when it meets the command's name.
///
/// What reads the command line as a whole (help, completions, the manual) takes
/// [`command`](super::command), which defines them all at once.
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
        command.defer(define::<T>)
    }

    /// The same at once, as [`command`](super::command) wants it. clap has this to update a
    /// value that was parsed before, which nothing here does.
    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args(command)
    }
}

/// Defines the arguments, and keeps what the list of commands says of the command: `T` has
/// a description of its own, which is for readers of the code.
fn define<T: Args>(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let long_about = command.get_long_about().cloned();
    let command = T::augment_args(command).about(about);
    match long_about {
        Some(long_about) => command.long_about(long_about),
        None => command.long_about(None),
    }
}
