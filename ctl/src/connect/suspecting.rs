//! The question who may be a rogue.

use super::daemon::{Daemon, question};
use super::patience::Patience;
use crate::exit::Failure;
use gpukill_proto::rogue::ScanReport;

impl Daemon {
    /// Who may be up to no good, of those that use a device and of those that did in the
    /// last so many hours.
    pub(crate) fn scan(&self, hours: u32, patience: Patience) -> Result<ScanReport, Failure> {
        question!(self, patience, Scan { hours })
    }
}
