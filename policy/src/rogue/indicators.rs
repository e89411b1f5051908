//! The table of indicators, one function each: what each proves, its weight, the threat
//! it indicates, and why it counts.
//!
//! The weights are our own. Sources: pool addresses and miner options are in the rules
//! of Falco and Sigma, which call them easy to avoid and unlikely by accident;
//! masquerading as kernel threads and programs in `/dev/shm` are in the rules of
//! Elastic and Sigma. NVIDIA's Morpheus looks for a miner's load: a device at full load
//! with constant memory and hardly any traffic. Some honest work looks the same, so
//! this load alone never exceeds a low risk.

mod command_line;
mod identity;
mod load;
mod network;
mod origin;

use super::rules::RogueRules;
use super::suspect::Suspect;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::rogue::{IndicatorFamily, Threat};
use gpukill_proto::text::sanitize;
use std::collections::BTreeSet;

/// A kind of indicator.
#[derive(Debug, Clone, Copy)]
pub struct IndicatorKind {
    /// The name in JSON.
    pub name: &'static str,
    /// How much it proves.
    pub family: IndicatorFamily,
    /// The threats that it indicates by itself.
    pub threats: &'static [Threat],
    /// The threats that it supports where another indicator indicates them.
    pub corroborates: &'static [Threat],
    /// Why it counts, as a sentence for people.
    pub why: &'static str,
    pub(super) detect: fn(&Suspect, &RogueRules) -> Option<IndicatorMatch>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndicatorMatch {
    /// In thousandths.
    pub(super) weight: u16,
    /// The evidence, safe to print on one line, at most [`MAX_QUOTE_BYTES`] long.
    pub(super) evidence: String,
}

/// Maximum number of quoted bytes of a text that a process controls.
const MAX_QUOTE_BYTES: usize = 160;

impl IndicatorMatch {
    fn new(weight: u16, evidence: impl Into<String>) -> Self {
        let evidence = sanitize(evidence.into().as_bytes(), MAX_QUOTE_BYTES);
        Self { weight, evidence }
    }
}

/// Selects from the loaded libraries those that an indicator uses, one for each use: a
/// PyTorch process has hundreds. Without any, one library stays, so that the set is
/// known and not empty.
#[must_use]
pub fn indicative_libraries(libraries: &BTreeSet<String>) -> BTreeSet<String> {
    let uses: [fn(&str) -> bool; 3] = [
        load::is_workload_library,
        identity::is_miner_library,
        identity::is_python_module,
    ];
    let first = |has_use: fn(&str) -> bool| libraries.iter().find(|name| has_use(name));
    uses.into_iter()
        .filter_map(first)
        .chain(libraries.first())
        .cloned()
        .into_set()
}

use IndicatorFamily::{A, B, C};
use Threat::{CryptoMiner, DataExfiltrator, ResourceAbuser, SuspiciousProcess};

/// All kinds of indicators.
#[must_use]
pub const fn indicator_kinds() -> &'static [IndicatorKind] {
    KINDS
}

/// Defines [`KINDS`]: the name, the family, the threats that it indicates, those that it supports,
/// its function, and why it counts.
macro_rules! kinds {
    ($(
        $name:ident $family:ident [$($threat:ident),*] [$($supported:ident),*] $detect:path,
            $why:literal;
    )+) => {
        const KINDS: &[IndicatorKind] = &[$(
            IndicatorKind {
                name: stringify!($name),
                family: $family,
                threats: &[$($threat),*],
                corroborates: &[$($supported),*],
                why: $why,
                detect: $detect,
            },
        )+];
    };
}

kinds! {
    pool_on_command_line A [CryptoMiner] [] command_line::pool_on_command_line,
        "only miners are given the address of a mining pool";
    miner_options A [CryptoMiner] [] command_line::miner_options,
        "only miners have these options";
    miner_name A [CryptoMiner] [] identity::miner_name,
        "it has the exact name of a known miner";
    miner_hash A [CryptoMiner] [] identity::miner_hash,
        "its executable has the hash of a miner that the admin listed";
    miner_library A [CryptoMiner] [] identity::miner_library,
        "it has loaded a library of a known miner";
    miner_api A [CryptoMiner] [] network::miner_api,
        "it listens on the port of a miner's control interface";
    pool_port B [CryptoMiner] [] network::pool_port,
        "it is connected to a port that almost only mining pools use";
    executable_location B [SuspiciousProcess] [CryptoMiner] origin::executable_location,
        "programs that should leave no trace are often placed there";
    kernel_thread_name B [SuspiciousProcess] [CryptoMiner] origin::kernel_thread_name,
        "it has the name of a kernel thread, which has no executable";
    system_name_elsewhere B [SuspiciousProcess] [CryptoMiner] identity::system_name_elsewhere,
        "it has the name of a system program, but its executable lies elsewhere";
    python_without_modules B [SuspiciousProcess] [CryptoMiner] identity::python_without_modules,
        "it has the name of Python, but has loaded no Python module";
    started_by_a_server B [SuspiciousProcess] [CryptoMiner] origin::started_by_server,
        "web servers and databases that start programs have often been compromised";
    started_by_cron C [] [CryptoMiner] origin::started_by_cron,
        "no person was present when it was started";
    mining_load C [CryptoMiner] [] load::mining_load,
        "miners saturate a device with constant memory and without libraries of other work";
    full_load C [] [CryptoMiner] load::full_load,
        "it saturates a device";
    through_tor C [] [CryptoMiner] network::through_tor,
        "it hides its network peers";
    lasting_connection C [] [CryptoMiner] network::lasting_connection,
        "it stays connected to the outside during this load and serves no clients";
    held_for_nothing B [ResourceAbuser] [] load::held_for_nothing,
        "a device that is held without use is not available to others";
    memory_hog B [ResourceAbuser] [] load::memory_hog,
        "it holds more device memory than is usual here";
    runaway C [ResourceAbuser] [] load::runaway,
        "it works at full load for longer than is usual here";
    refused B [SuspiciousProcess, ResourceAbuser] [] origin::repeated_refusals,
        "it was refused a device by the admin's rules, and tried again";
    sent_much B [DataExfiltrator] [] network::sent_much,
        "its own network namespace has sent more than is usual here";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_unique_names_and_reasons() {
        let names: BTreeSet<&str> = indicator_kinds().iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), indicator_kinds().len());
        for kind in indicator_kinds() {
            let speaks = kind.threats.len() + kind.corroborates.len();
            assert!(!kind.why.is_empty() && speaks > 0, "{kind:?}");
        }
    }

    #[test]
    fn unknown_facts_indicate_nothing() {
        for kind in indicator_kinds() {
            let found = (kind.detect)(&Suspect::default(), &RogueRules::default());
            assert_eq!(found, None, "{}", kind.name);
        }
    }

    #[test]
    fn selected_libraries_suffice() {
        let known = [
            "libc.so.6",
            "libcuda.so.1",
            "libtorch_cuda.so",
            "_ssl.cpython-311-x86_64-linux-gnu.so",
            "libxmrig-cuda.so",
            "libpython3.11.so.1.0",
        ];
        for chosen in 0..1 << known.len() {
            let is_chosen = |at: &usize| chosen >> at & 1 == 1;
            let names = (0..known.len())
                .filter(is_chosen)
                .map(|at| known[at].into());
            let all: BTreeSet<String> = names.collect();
            let few = indicative_libraries(&all);
            assert!(few.len() <= 4 && few.is_subset(&all));
            let found = |libraries: &BTreeSet<String>| {
                let suspect = Suspect {
                    name: Some("python3".into()),
                    libraries: Some(libraries.clone()),
                    ..Suspect::default()
                };
                let kinds = indicator_kinds().iter();
                let found = kinds.map(|kind| (kind.detect)(&suspect, &RogueRules::default()));
                (
                    found.collect::<Vec<_>>(),
                    load::has_workload_library(&suspect),
                )
            };
            assert_eq!(found(&few), found(&all), "{all:?}");
        }
    }

    #[test]
    fn quotes_are_truncated() {
        for text in ["a".repeat(1_000), "ä".repeat(1_000), "😀".repeat(1_000)] {
            let evidence = IndicatorMatch::new(1, text).evidence;
            assert!(
                evidence.len() <= MAX_QUOTE_BYTES && evidence.ends_with('…'),
                "{evidence}"
            );
        }
        assert_eq!(
            IndicatorMatch::new(1, "a\x1b[2J\nb").evidence,
            "a\\x1b[2J\\x0ab"
        );
    }
}
