//! The watch for rogues, and who reads for it.

mod sockets;

use crate::audit::Store;
use crate::config::Config;
use crate::host::connections::Connections;
use crate::host::hashes::Hashes;
use crate::host::traces::TraceReader;
use crate::rogue::rules::Keeper;
use crate::rogue::{OfProc, Rogue};
use std::sync::Arc;

/// Starts it, and what looks at sockets: polls count with that who is connected.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn start(
    config: &Config,
    store: &Store,
    boot: String,
) -> std::io::Result<(Rogue, Arc<Connections>)> {
    let procfs = &config.backends.procfs_root;
    let kept = sockets::kept(&config.daemon.state_dir, &boot);
    let connections = Arc::new(Connections::start(procfs.clone(), kept)?);
    let witness = OfProc {
        traces: TraceReader::new(procfs.clone()),
        hashes: Hashes::new(procfs.clone()),
        connections: Arc::clone(&connections),
    };
    let rules = Keeper::start(config.rogue.rules.clone(), store.clone());
    let rogue = Rogue::start(rules, Box::new(witness), store.clone(), boot)?;
    Ok((rogue, connections))
}
