//! The call that scans for rogues.

use super::daemon::{Daemon, question};
use super::timeout::RequestTimeout;
use crate::exit::Error;
use gpukill_proto::rogue::ScanReport;

impl Daemon {
    /// Scans the processes that use a device, and those that used a device in the last `hours`
    /// hours.
    pub(crate) fn scan(&self, hours: u32, patience: RequestTimeout) -> Result<ScanReport, Error> {
        question!(self, patience, Scan { hours })
    }
}
