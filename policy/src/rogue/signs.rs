//! The signs, one function each, in one table: what each proves, how much it weighs, what
//! it speaks for and why it counts.
//!
//! The weights are ours. What they rest on: pool addresses and options of miners are in
//! the rules of Falco and Sigma, which call them easy to avoid and hard to have by
//! accident; masquerades as the kernel's threads and programs in `/dev/shm` are in
//! Elastic's and Sigma's; that a miner holds a device at full load with memory that does
//! not change and hardly any traffic is what NVIDIA's Morpheus looks for, and other
//! honest work looks alike, so that this alone is never more than low.

mod called;

mod load;

mod network;

mod place;

mod words;

use super::rules::Rules;
use super::suspect::Suspect;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::rogue::{Family, Threat};
use gpukill_proto::text::visible;
use std::collections::BTreeSet;

/// One kind of sign.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// As it is written in JSON.
    pub name: &'static str,
    /// How much it proves.
    pub family: Family,
    /// What it speaks for.
    pub threats: &'static [Threat],
    /// For what it counts besides, where another sign speaks for that.
    pub corroborates: &'static [Threat],
    /// Why it counts, in a sentence for whoever asks.
    pub why: &'static str,
    /// Looks for it.
    pub(super) look: fn(&Suspect, &Rules) -> Option<Seen>,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// In thousandths.
    pub(super) weight: u16,
    /// What was read, safe to print on one line, of at most [`LONGEST`] bytes.
    pub(super) read: String,
}

/// So many bytes of what a process says are quoted.
const LONGEST: usize = 160;

impl Seen {
    fn new(weight: u16, read: impl Into<String>) -> Self {
        let read = visible(read.into().as_bytes(), LONGEST);
        Self { weight, read }
    }
}

/// Of the libraries that a process has loaded those that a sign tells of, one for each: a
/// process of PyTorch has hundreds. Of none that tell one stays, so that some are known.
#[must_use]
pub fn that_tell(libraries: &BTreeSet<String>) -> BTreeSet<String> {
    let tells: [fn(&str) -> bool; 3] = [load::is_of_other_work, called::is_part, called::is_module];
    let first = |tells: fn(&str) -> bool| libraries.iter().find(|name| tells(name));
    let telling = tells.into_iter().filter_map(first);
    let telling: BTreeSet<String> = telling.chain(libraries.first()).cloned().into_set();
    telling
}

use Family::{A, B, C};
use Threat::{CryptoMiner, DataExfiltrator, ResourceAbuser, SuspiciousProcess};

/// All of them.
#[must_use]
pub const fn kinds() -> &'static [Kind] {
    &KINDS
}

static KINDS: [Kind; 22] = [
    Kind {
        name: "pool_on_command_line",
        family: A,
        threats: &[CryptoMiner],
        corroborates: &[],
        why: "only miners are given the address of a mining pool",
        look: words::pool,
    },
    Kind {
        name: "miner_options",
        family: A,
        threats: &[CryptoMiner],
        corroborates: &[],
        why: "only miners have these options",
        look: words::options,
    },
    Kind {
        name: "miner_name",
        family: A,
        threats: &[CryptoMiner],
        corroborates: &[],
        why: "it is called exactly as a known miner is",
        look: called::as_miner,
    },
    Kind {
        name: "miner_hash",
        family: A,
        threats: &[CryptoMiner],
        corroborates: &[],
        why: "its executable is, byte for byte, one that the admin knows as a miner",
        look: called::by_hash,
    },
    Kind {
        name: "miner_library",
        family: A,
        threats: &[CryptoMiner],
        corroborates: &[],
        why: "it has loaded a part of a known miner",
        look: called::by_library,
    },
    Kind {
        name: "miner_api",
        family: A,
        threats: &[CryptoMiner],
        corroborates: &[],
        why: "it listens where a miner's own control listens",
        look: network::api,
    },
    Kind {
        name: "pool_port",
        family: B,
        threats: &[CryptoMiner],
        corroborates: &[],
        why: "it is connected to a port that mining pools use and little else",
        look: network::pool_port,
    },
    Kind {
        name: "executable_place",
        family: B,
        threats: &[SuspiciousProcess],
        corroborates: &[CryptoMiner],
        why: "programs are put there that should leave no trace",
        look: place::executable,
    },
    Kind {
        name: "kernel_thread_name",
        family: B,
        threats: &[SuspiciousProcess],
        corroborates: &[CryptoMiner],
        why: "it calls itself like a thread of the kernel, which has no executable",
        look: place::kernel_thread,
    },
    Kind {
        name: "system_name_elsewhere",
        family: B,
        threats: &[SuspiciousProcess],
        corroborates: &[CryptoMiner],
        why: "it calls itself like a program of the system's, and lies elsewhere",
        look: called::as_system,
    },
    Kind {
        name: "python_without_modules",
        family: B,
        threats: &[SuspiciousProcess],
        corroborates: &[CryptoMiner],
        why: "it calls itself Python, and has loaded nothing that Python computes with",
        look: called::as_python,
    },
    Kind {
        name: "started_by_a_server",
        family: B,
        threats: &[SuspiciousProcess],
        corroborates: &[CryptoMiner],
        why: "web servers and databases that start programs of their own were often broken into",
        look: place::started_by_server,
    },
    Kind {
        name: "started_by_cron",
        family: C,
        threats: &[],
        corroborates: &[CryptoMiner],
        why: "it was started by no person at that moment",
        look: place::started_by_cron,
    },
    Kind {
        name: "mining_load",
        family: C,
        threats: &[CryptoMiner],
        corroborates: &[],
        why: "miners saturate a device with memory that does not change, and use no library of other work",
        look: load::mining,
    },
    Kind {
        name: "full_load",
        family: C,
        threats: &[],
        corroborates: &[CryptoMiner],
        why: "it saturates a device",
        look: load::full,
    },
    Kind {
        name: "through_tor",
        family: C,
        threats: &[],
        corroborates: &[CryptoMiner],
        why: "it hides whom it speaks with",
        look: network::tor,
    },
    Kind {
        name: "lasting_connection",
        family: C,
        threats: &[],
        corroborates: &[CryptoMiner],
        why: "while it works so it is connected to the outside, and serves nobody",
        look: network::outside,
    },
    Kind {
        name: "held_for_nothing",
        family: B,
        threats: &[ResourceAbuser],
        corroborates: &[],
        why: "a device that is held and not used is one that nobody else has",
        look: load::for_nothing,
    },
    Kind {
        name: "memory_hog",
        family: B,
        threats: &[ResourceAbuser],
        corroborates: &[],
        why: "it holds more device memory than is usual here",
        look: load::memory_hog,
    },
    Kind {
        name: "runaway",
        family: C,
        threats: &[ResourceAbuser],
        corroborates: &[],
        why: "it works at full load for longer than is usual here",
        look: load::runaway,
    },
    Kind {
        name: "refused",
        family: B,
        threats: &[SuspiciousProcess, ResourceAbuser],
        corroborates: &[],
        why: "it was refused a device by the admin's rules, and tried again",
        look: place::refused,
    },
    Kind {
        name: "sent_much",
        family: B,
        threats: &[DataExfiltrator],
        corroborates: &[],
        why: "its own network namespace has sent more than is usual here",
        look: network::sent_much,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_says_why_it_counts() {
        let names: BTreeSet<&str> = kinds().iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds().len());
        for kind in kinds() {
            let speaks = kind.threats.len() + kind.corroborates.len();
            assert!(!kind.why.is_empty() && speaks > 0, "{kind:?}");
        }
    }

    #[test]
    fn nothing_is_seen_of_what_is_not_known() {
        for kind in kinds() {
            let seen = (kind.look)(&Suspect::default(), &Rules::default());
            assert_eq!(seen, None, "{}", kind.name);
        }
    }

    #[test]
    fn few_libraries_tell_what_all_of_them_do() {
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
            let few = that_tell(&all);
            assert!(few.len() <= 4 && few.is_subset(&all));
            let seen = |libraries: &BTreeSet<String>| {
                let suspect = Suspect {
                    name: Some("python3".into()),
                    libraries: Some(libraries.clone()),
                    ..Suspect::default()
                };
                let looks = kinds().iter();
                let seen = looks.map(|kind| (kind.look)(&suspect, &Rules::default()));
                (seen.collect::<Vec<_>>(), load::has_libraries(&suspect))
            };
            assert_eq!(seen(&few), seen(&all), "{all:?}");
        }
    }

    #[test]
    fn what_a_process_says_is_cut() {
        for text in ["a".repeat(1_000), "ä".repeat(1_000), "😀".repeat(1_000)] {
            let read = Seen::new(1, text).read;
            assert!(read.len() <= LONGEST && read.ends_with('…'), "{read}");
        }
        assert_eq!(Seen::new(1, "a\x1b[2J\nb").read, "a\\x1b[2J\\x0ab");
    }
}
