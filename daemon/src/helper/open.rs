//! Whether somebody has the device open, as root sees it.

use super::Args;
use crate::holders::{DeviceNumber, Holders, When};
use gpukill_proto::collect::IntoSet as _;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a look at all processes may take: three times as long as on a box of
/// ten thousand.
const PATIENCE: Duration = Duration::from_secs(6);

const STEP: Duration = Duration::from_millis(5);

/// So many are named.
const SAID: usize = 8;

/// Refuses where somebody has it open, and where that cannot be told.
pub(super) fn nobody(nodes: &BTreeSet<DeviceNumber>, args: &Args) -> Result<(), String> {
    let looking = |why: &dyn std::fmt::Display| format!("processes cannot be looked at: {why}");
    let holders = Holders::start(args.procfs.clone()).map_err(|error| looking(&error))?;
    holders.watch("reset", nodes.clone(), When::Always);
    let ticket = holders.look_now();
    let deadline = Instant::now() + PATIENCE;
    while !holders.has_looked(ticket) {
        if Instant::now() > deadline {
            return Err(looking(&"it takes too long"));
        }
        std::thread::sleep(STEP);
    }
    let found = holders.found();
    let pids: BTreeSet<u32> = found.processes.keys().map(|key| key.pid).into_set();
    if !pids.is_empty() {
        let named: Vec<String> = pids.iter().take(SAID).map(u32::to_string).collect();
        let more = pids.len().saturating_sub(SAID);
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
        .or_else(|| found.unseen.clone())
    {
        Some(why) => Err(looking(&why)),
        None => Ok(()),
    }
}
