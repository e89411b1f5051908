//! The persons of simulated processes.

use crate::backend::drm::clients::{PersonLookup, ProcessAccount};
use std::path::{Path, PathBuf};

/// Reads persons from the files in this directory.
pub(super) struct PersonFiles(pub(super) PathBuf);

impl PersonLookup for PersonFiles {
    /// User 1000, unless the process has a file that names another.
    fn account(&self, directory: &Path) -> Option<ProcessAccount> {
        let told = std::fs::read_to_string(directory.join("person"));
        let user = told.map_or(Some(1000), |told| told.parse().ok())?;
        let slice = std::fs::read_to_string(directory.join("slice"));
        let slice = slice.ok().and_then(|told| told.parse().ok());
        Some(ProcessAccount { user, slice })
    }

    /// A user is a person of its own unless a file names the person; an account with a slice
    /// belongs to the slice's person.
    fn person(&self, account: ProcessAccount) -> Option<u32> {
        let told = std::fs::read_to_string(self.0.join(account.user.to_string()));
        let person = || told.map_or(Some(account.user), |told| told.parse().ok());
        account.slice.or_else(person)
    }
}
