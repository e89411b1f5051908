//! Starts the watch for rogue processes and its readers.

mod served_sockets_file;

use crate::config::Config;
use crate::host::evidence::EvidenceReader;
use crate::host::hashes::ExecutableHashes;
use crate::host::sockets::SocketWatcher;
use crate::rogue::rules::RogueRuleStore;
use crate::rogue::{ProcEvidence, Rogue};
use crate::store::Store;
use std::sync::Arc;

/// Starts the watch for rogue processes and the socket watcher, which also counts connections for
/// polls.
///
/// # Errors
/// If a thread cannot be started.
pub(super) fn start(
    config: &Config,
    store: &Store,
    boot: String,
) -> std::io::Result<(Rogue, Arc<SocketWatcher>)> {
    let procfs = &config.backends.procfs_root;
    let kept = served_sockets_file::load(&config.daemon.state_dir, &boot);
    let connections = Arc::new(SocketWatcher::start(procfs.clone(), kept)?);
    let witness = ProcEvidence {
        evidence: EvidenceReader::new(procfs.clone()),
        hashes: ExecutableHashes::new(procfs.clone()),
        sockets: Arc::clone(&connections),
    };
    let rules = RogueRuleStore::start(config.rogue.rules.clone(), store.clone());
    let rogue = Rogue::start(rules, Box::new(witness), store.clone(), boot)?;
    Ok((rogue, connections))
}
