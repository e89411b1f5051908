//! The sentences in which the daemon says what is wrong, and what of each may be told to
//! strangers: the words that are ours. What stands at a `*` names somebody or something,
//! and is left out, but for a reason that is itself known here; at a `#` stands a number
//! that names nobody. A sentence that is not here is left out whole.

use crate::reading::IMPOSSIBLE;
use crate::snapshot::Vitals;

/// What is wrong, as daemon and policy say it.
pub const SENTENCES: &[&str] = &[
    // The store.
    "*: was written by another version of gpukilld (schema #, this one knows #) and is left as it is, so nothing is lost: install that version again, or go on without what is in it: *",
    "*: is not a file of gpukill: move it away",
    "*: is no file: move it away",
    "*: is not ready yet",
    "*: too little of the disk is free (less than # MiB, or an eighth): samples pause",
    "*: the disk is full: the record goes on from its reserve",
    "*: the record has no reserve for a full disk: *",
    "* was broken and begun anew; it is set aside as *: move it away",
    "*; # such files are set aside already today: move it away",
    "*; too many were set aside: move it away",
    "cannot make the directory *: *",
    // Rules.
    "*: the rules of before hold; see *",
    "*: the built-in rules hold; see *",
    "it ends nobody any more: too many jobs were, or would be, ended in ten minutes; see gpukillctl guard status",
    "what it remembers cannot be written down: it ends nobody, and a restart begins anew",
    "more processes use GPUs than are watched",
    // Settings.
    "mistakes in the settings: #; those of before hold: gpukilld --check-config",
    "changed, and held from the next start on: *: systemctl restart gpukilld",
    // People and processes.
    "the name service does not answer: users are shown by number",
    "the name service does not answer: groups of users are not known",
    "the name service fails: *",
    "the search for processes that hold devices is stuck",
    "process * cannot be looked into: it does not answer",
    "process * does not let its command line be read: it may be stuck in a driver",
    "processes * do not let their command lines be read: they may be stuck in a driver",
    "process * does not let its command line be read: it may be stuck in a driver, and no other is read until one of them goes on",
    "processes * do not let their command lines be read: they may be stuck in a driver, and no other is read until one of them goes on",
    "no verdict on process *: what it is cannot be read, it may be stuck in a driver",
    "no verdict on process *: what it is cannot be read, it may be stuck in a driver, and no other is read until one of them goes on",
    "the files of * containers do not let themselves be read: their disk may hang",
    "gpukilld is not in the host's PID namespace, so pids may name other processes: run it on the host, or in a container with the host's PIDs (hostPID: true)*",
    // Backends.
    "does not answer in time: readings are old",
    "answers slowly: polls are less frequent until it answers in time again",
    "has not answered yet: the driver may be waking its devices",
    "no library *: for NVIDIA GPUs install the driver",
    "* does not find a library that it needs: install the driver's libraries again",
    "cannot load *: *",
    "the driver is loaded without its library *: install the one of its version",
    "the NVIDIA driver is not loaded: modprobe nvidia",
    "the NVIDIA library and the loaded driver are of different versions: reload the driver or reboot",
    "the NVIDIA driver does not let gpukilld in: see the modes of /dev/nvidia*",
    "a sensor was killed and does not end: the box may need a reboot",
    "answered with garbage: *",
    "ended unexpectedly (*)",
    "NVML does not answer",
    "no GPU with the driver amdgpu",
    "no GPU with the driver i915 or xe",
    "no GPU with another DRM driver",
    "no ioreg: Apple GPUs are read on macOS",
    "ioreg lists no GPU",
    "XIDs and other events are not heard: *",
    "XIDs of a GPU are not heard: *",
    "more events at once than are told",
    "GPU at index #: *",
    "more began than are recorded one by one",
    // Devices.
    "its driver does not answer",
    "lost (*): needs a reset or a reboot",
    "gone (*): where it stays away, gpukillctl forget --gpu #",
    "gone (*): where it stays away, gpukillctl forget --gpu *",
    "all # GPUs are gone: its driver was unloaded",
    "not permitted (*): see the modes of /dev/nvidia*",
    "state unknown (*)",
    "processes: *",
    "instances: *",
    "memory of instance #/#: *",
    "memory of a process: *",
    "broken memory rows could not be replaced: exchange the GPU",
    "broken memory rows wait to be replaced: reset the GPU",
    "broken memory pages wait to be retired: reset the GPU",
    "the driver advises to reset the GPU",
    "the driver advises to reboot the box",
    "the driver advises to drain its NVLink peers",
    "the driver advises to drain and reset the GPU",
    "the driver advises to recover the IMEX domain",
    "the driver advises a recovery action that gpukill does not know (#)",
    "temperature at or above # °C",
    "memory in use at or above # %",
];

/// The same, as SQLite says it of a file.
const OF_SQLITE: &[&str] = &[
    "*: database is locked",
    "*: disk I/O error",
    "*: attempt to write a readonly database",
    "*: database disk image is malformed",
    "*: file is not a database",
    "*: database or disk is full",
    "*unable to open database file: *",
];

/// What of a device can fail to be read, as faults name it.
const VALUES: &[&str] = &["name", "PCI address", "memory"];

/// Why: the words of NVML's wrapper, and of ours. None has a `*`. They also stand alone,
/// as what is wrong with a backend.
const REASONS: &[&str] = &[
    "GPU_IS_LOST",
    "GPU_REQUIRES_RESET",
    "NVML says that it was not started (1)",
    "NVML refuses the request (2)",
    "NVML does not support this (3)",
    "the driver denies access (4)",
    "NVML says that it was started already (5)",
    "NVML does not find it (6)",
    "NVML has more to tell than there was room for (7)",
    "the power cables of the GPU are not attached properly (8)",
    "NVML says that the driver is not loaded (9)",
    "NVML gave up waiting for the driver (10)",
    "the driver has a problem with the interrupts of the GPU (11)",
    "NVML does not find a library that it needs (12)",
    "NVML does not have this function (13)",
    "the infoROM of the GPU is corrupted (14)",
    "the system or a cgroup blocks access (17)",
    "library and driver are of different versions (18)",
    "the GPU is in use by another client (19)",
    "NVML has not enough memory (20)",
    "NVML has no data (21)",
    "NVML does not support this while ECC is on (22)",
    "NVML has not enough resources (23)",
    "the GPU does not have this frequency (24)",
    "the GPU is not ready (27)",
    "the driver does not find the GPU (28)",
    "the GPU is in an invalid state (29)",
    "NVML answered with an unknown code (#)",
    "NVML reports an unknown error (999)",
    "XID #",
    "the driver hangs or crashes at it",
    "the driver reports more than # %",
    "not looked everywhere yet",
    "its driver does not list it",
    "its driver does not list it, and it is on the PCI bus",
    "it is not on the PCI bus",
    "contradicted: busy all the time at a clock of 0 MHz",
    "contradicted: a clock of 0 MHz while clients work",
];

/// Our own files, which faults name with their directories.
const FILES: &[&str] = &[
    "samples.db",
    "audit.db",
    "reserve",
    "guard.toml",
    "rogue.toml",
];

/// What may be told of a sentence; `None` where it is not known.
pub(super) fn known(text: &str) -> Option<String> {
    let mut sentences = SENTENCES.iter().chain(OF_SQLITE).chain(REASONS);
    sentences
        .find_map(|sentence| fill(sentence, text))
        .or_else(|| of_a_value(text))
}

/// `fan: …`, `memory and others: …`
fn of_a_value(text: &str) -> Option<String> {
    let (what, why) = text.split_once(": ")?;
    let (value, others) = match what.strip_suffix(" and others") {
        Some(value) => (value, " and others"),
        None => (what, ""),
    };
    let mut values = VALUES.iter().chain(Vitals::WORDS);
    let value = values.find(|it| **it == value)?;
    Some(format!("{value}{others}: {}", reason(why)))
}

/// What may be told at a `*`: a reason that is known here, the number of what the system
/// says, or which of our own files; nothing where nothing is.
fn reason(named: &str) -> String {
    if named.is_empty() {
        return String::new();
    }
    let known = REASONS.iter().find_map(|reason| fill(reason, named));
    let file = || FILES.iter().find(|it| named.ends_with(**it));
    if named.strip_prefix(IMPOSSIBLE).is_some() {
        return format!("{IMPOSSIBLE}: {LEFT_OUT}");
    }
    known.unwrap_or_else(|| match (os_error(named), file()) {
        (Some(number), _) => format!("{LEFT_OUT} (os error {number})"),
        (None, Some(file)) if *file == named => named.to_owned(),
        (None, Some(file)) => format!("{LEFT_OUT}{file}"),
        (None, None) => LEFT_OUT.to_owned(),
    })
}

/// The number in `Permission denied (os error 13)`, which says what the words do.
fn os_error(text: &str) -> Option<&str> {
    let (_, end) = text.rsplit_once(" (os error ")?;
    let number = end.strip_suffix(')')?;
    let is_number = number.len() <= MOST_DIGITS && number.bytes().all(|it| it.is_ascii_digit());
    is_number.then_some(number)
}

const LEFT_OUT: &str = "…";

/// So many digits has a number that is told: fewer than most pids and all addresses.
const MOST_DIGITS: usize = 4;

/// The pattern with what the text has at its numbers and reasons; `None` where it is not
/// of this pattern. A `*` reaches as far as the next words of the pattern, and the last
/// one to the end.
fn fill(pattern: &str, text: &str) -> Option<String> {
    let Some(at) = pattern.find(['*', '#']) else {
        return (pattern == text).then(|| text.to_owned());
    };
    let (words, rest) = pattern.split_at_checked(at)?;
    let text = text.strip_prefix(words)?;
    if let Some(rest) = rest.strip_prefix('#') {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, text) = text.split_at_checked(digits)?;
        let is_told = (1..=MOST_DIGITS).contains(&digits);
        return is_told.then(|| Some(format!("{words}{number}{}", fill(rest, text)?)))?;
    }
    let rest = rest.strip_prefix('*')?;
    let next = rest.find(['*', '#']).map_or(rest, |end| &rest[..end]);
    let starts = text.match_indices(next).map(|(start, _)| start);
    // The empty words behind a last `*` are found at the end.
    let starts: Vec<usize> = match next {
        "" => vec![text.len()],
        _ => starts.take(MOST_TRIES).collect(),
    };
    starts.into_iter().find_map(|start| {
        let (named, text) = text.split_at_checked(start)?;
        Some(format!("{words}{}{}", reason(named), fill(rest, text)?))
    })
}

/// A name may hold the pattern's words so often, and no more is looked at.
const MOST_TRIES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_a_sentence_our_words_are_told_and_no_name() {
        for (text, expected) in [
            (
                "/home/alice/.local/state/gpukill/samples.db: was written by another version of \
                 gpukilld (schema 99, this one knows 1) and is left as it is, so nothing is lost: \
                 install that version again, or go on without what is in it: mkdir /home/alice/x",
                "…samples.db: was written by another version of gpukilld (schema 99, this one \
                 knows 1) and is left as it is, so nothing is lost: install that version again, \
                 or go on without what is in it: …",
            ),
            (
                "cannot make the directory /home/alice: Permission denied (os error 13)",
                "cannot make the directory …: … (os error 13)",
            ),
            (
                "process 4182 cannot be looked into: it does not answer",
                "process … cannot be looked into: it does not answer",
            ),
            (
                "lost (GPU_IS_LOST): needs a reset or a reboot",
                "lost (GPU_IS_LOST): needs a reset or a reboot",
            ),
            (
                "the files of user 1001's containers do not let themselves be read: their disk may hang",
                "the files of … containers do not let themselves be read: their disk may hang",
            ),
            (
                "gone (it is not on the PCI bus): where it stays away, gpukillctl forget --gpu 2",
                "gone (it is not on the PCI bus): where it stays away, gpukillctl forget --gpu 2",
            ),
            (
                "fan and others: NVML has no data (21)",
                "fan and others: NVML has no data (21)",
            ),
            (
                "state unknown (NVML refuses the request (2))",
                "state unknown (NVML refuses the request (2))",
            ),
            ("fan: alice", "fan: …"),
            (
                "temperature: the driver reports an impossible value: -1 °C",
                "temperature: the driver reports an impossible value: …",
            ),
            (
                "NVML reports an unknown error (999)",
                "NVML reports an unknown error (999)",
            ),
            (
                "/home/alice/guard.toml: line 3: the built-in rules hold; see gpukillctl x",
                "…: the built-in rules hold; see …",
            ),
        ] {
            assert_eq!(known(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        for text in [
            "",
            "alice",
            "alice: GPU_IS_LOST",
            "its driver does not answer, says alice",
            "GPU at index 4182000001: GPU_IS_LOST",
            "temperature at or above 85 °C for alice",
        ] {
            assert_eq!(known(text), None, "{text}");
        }
    }

    #[test]
    fn a_reason_names_nobody() {
        assert!(REASONS.iter().all(|it| !it.contains('*')));
    }

    proptest! {
        #[test]
        fn whatever_is_named_is_left_out(name in "[a-z]{3,12}[QXZ][a-z]{2,8}", at in 0usize..100) {
            let sentence = SENTENCES[at % SENTENCES.len()].replace('#', "7").replace('*', &name);
            let told = known(&sentence);
            prop_assert!(told.is_some(), "{}", sentence);
            prop_assert!(!told.unwrap_or_default().contains(&name), "{}", sentence);
        }

        #[test]
        fn no_text_can_panic_it(text: String) {
            let _ = known(&text);
        }
    }
}
