//! What `gpukillctl status --report` tells: a bundle for a report of a bug, which names
//! nobody. Nothing is filtered out of it: it is made of what may stand in it, and what
//! that is its types say ([`Tellable`]).

mod sentence;

mod word;

mod model;

mod made;

pub use super::status::ValueDocument;
pub use made::rights;
pub use sentence::SENTENCES;
pub use word::{Tellable, Word};

use super::{RuleCountsDocument, SCHEMA};
use word::told;

impl Tellable for RuleCountsDocument {}
impl Tellable for ValueDocument {}

/// What is left out, whatever it is about.
pub const LEAVES_OUT: &str = "names of users, groups, hosts, processes, containers, jobs, units \
    and rules; command lines; labels; paths, but for the usual ones; UUIDs, serial numbers and \
    addresses; texts in settings";

told! {
    /// The whole.
    ReportDocument {
        schema: u32,
        /// The client's clock.
        ts: Word,
        leaves_out: &'static str,
        client: ClientPart,
        host: HostPart,
        socket: SocketPart,
        unit: UnitPart,
        /// Why the daemon does not answer; `null` where it does.
        failure: Option<FailurePart>,
        daemon: Option<DaemonPart>,
        /// `null` where it could not be had.
        devices: Option<Vec<DevicePart>>,
        processes: Option<u64>,
        /// Of the last day, the newest first.
        recent_faults: Option<Vec<RecentPart>>,
    }

    /// Who asks, and how.
    ClientPart {
        version: Word,
        protocol: Word,
        settings: Vec<SettingPart>,
        /// How many mistakes are in them; where there are any, none of them holds.
        settings_mistakes: u64,
        rights: Vec<&'static str>,
        /// Whether another login would give more.
        log_in_again: bool,
    }

    /// A setting that is not what it is by default.
    SettingPart {
        key: Word,
        /// Of a length of time, so many milliseconds; `null` of a text or a list.
        value: Option<ValueDocument>,
    }

    /// What runs on the box.
    HostPart {
        kernel: Word,
        architecture: &'static str,
        distribution: Option<Word>,
        distribution_version: Option<Word>,
        /// Of the one that is installed.
        systemd: Option<Word>,
        /// Whether it runs the box.
        systemd_runs: bool,
    }

    /// Where the daemon is asked.
    SocketPart {
        /// `box`, `own`, `named`.
        place: &'static str,
        /// Of the box's alone.
        path: Option<&'static str>,
        /// `socket`, `other`, `missing`, or why it cannot be looked at.
        is: Word,
        mode: Option<Word>,
        /// `root`, `you`, `another`.
        owner: Option<&'static str>,
    }

    /// What systemd has of it.
    UnitPart {
        /// `installed`, `masked`, `none`.
        gpukilld: &'static str,
        /// Whether an admin's files change it.
        drop_ins: bool,
        reset_socket: &'static str,
    }

    /// Why there is no answer.
    FailurePart {
        what: &'static str,
        /// What the kernel says.
        error: Option<Word>,
        /// The wire that the daemon speaks, where that is another.
        protocol: Option<Word>,
        /// What tells more.
        see: Option<&'static str>,
        /// The exit code.
        exit: u8,
    }

    /// How the daemon stands.
    DaemonPart {
        version: Word,
        protocol: Word,
        started_at: Word,
        uptime_seconds: u64,
        personal: bool,
        will_not_act: Option<Word>,
        settings: Vec<SettingPart>,
        backends: Vec<BackendPart>,
        faults: Vec<FaultPart>,
        poll_interval_ms: u64,
        last_poll_at: Option<Word>,
        polls: u64,
        polls_late: u64,
        store: StorePart,
        guard: GuardPart,
        rogue: RoguePart,
    }

    /// One backend.
    BackendPart {
        name: Word,
        state: &'static str,
        why: Option<Word>,
        since: Word,
        gpus: Option<u64>,
        driver: Option<Word>,
        cuda: Option<Word>,
        poll_cost_us: Option<u64>,
    }

    /// What is broken.
    FaultPart {
        part: Word,
        what: Word,
        since: Word,
    }

    /// What was broken, or is.
    RecentPart {
        at: Word,
        part: Word,
        what: Word,
        /// Whether it was over then.
        over: bool,
        times: u64,
    }

    /// The files of the past.
    StorePart {
        samples_bytes: u64,
        audit_bytes: u64,
        written_at: Option<Word>,
        written: u64,
        dropped: u64,
    }

    /// The guard.
    GuardPart {
        mode: &'static str,
        rehearses: &'static str,
        rule_counts: RuleCountsDocument,
        /// Whether there is a file.
        has_file: bool,
        mistakes: u64,
        file_changed: Option<bool>,
        judged_at: Option<Word>,
        dropped: u64,
        beyond: u64,
        tripped_at: Option<Word>,
        open: u64,
        would_have_ended: u64,
        warned_today: u64,
        ended_today: u64,
        simulated_warned_today: u64,
        simulated_ended_today: u64,
    }

    /// The watch for rogues.
    RoguePart {
        has_file: bool,
        mistakes: u64,
        watched: u64,
        beyond: u64,
        findings: u64,
        worst: Option<&'static str>,
    }

    /// One GPU.
    DevicePart {
        gpu_index: u64,
        vendor: &'static str,
        model: Option<Word>,
        lost: bool,
        mem_total_bytes: Option<u64>,
        instances: u64,
        pids: Option<u64>,
        last_xid: Option<u64>,
    }
}

impl ReportDocument {
    /// The version of its shape.
    pub const SCHEMA: u32 = SCHEMA;
}

#[cfg(test)]
pub(super) mod tests;
