//! Checks whether a process has the device open, as root sees it.

use super::ResetHelperArgs;
use crate::fd_scan::{DeviceNumber, FdScanHandle, WatchMode};
use gpukill_proto::collect::IntoSet as _;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The maximum time of a scan of all processes: three times as long as on a host with ten thousand.
const SCAN_TIMEOUT: Duration = Duration::from_secs(6);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// At most this many processes are named.
const MAX_NAMED: usize = 8;

/// Refuses if a process has the device open, and if that cannot be determined.
pub(super) fn check_unused(
    nodes: &BTreeSet<DeviceNumber>,
    args: &ResetHelperArgs,
) -> Result<(), String> {
    let looking = |why: &dyn std::fmt::Display| format!("cannot scan processes: {why}");
    let holders = FdScanHandle::start(args.procfs.clone()).map_err(|error| looking(&error))?;
    holders.watch("reset", nodes.clone(), WatchMode::Always);
    let request = holders.request_scan();
    let deadline = Instant::now() + SCAN_TIMEOUT;
    while !holders.has_scanned(request) {
        if Instant::now() > deadline {
            return Err(looking(&"it takes too long"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let file_holders = holders.file_holders();
    let pids: BTreeSet<u32> = file_holders.processes.keys().map(|key| key.pid).into_set();
    if !pids.is_empty() {
        let named: Vec<String> = pids.iter().take(MAX_NAMED).map(u32::to_string).collect();
        let more = pids.len().saturating_sub(MAX_NAMED);
        let more = (more > 0).then(|| format!(" and {more} more"));
        return Err(format!(
            "it is in use by {}{}",
            named.join(", "),
            more.unwrap_or_default()
        ));
    }
    match holders
        .fault()
        .map(|fault| fault.what)
        .or_else(|| file_holders.incomplete_reason.clone())
    {
        Some(why) => Err(looking(&why)),
        None => Ok(()),
    }
}
