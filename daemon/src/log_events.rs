//! The log events for admins. Each has a `MESSAGE_ID` that never changes, so that its entries can
//! be found in the journal; `docs/journal.md` lists them. Other log messages have none.

use tracing::Level;

/// One entry names at most this many processes, users and GPUs, the first ones.
const MAX_NAMED: usize = 16;

/// The fields that hold names joined by spaces.
///
/// systemd.journal-fields(7) has `OBJECT_PID` for this, but journald looks that process up by its
/// number when it reads the message. By then a process that has just been ended may be gone, and
/// another one may have its number.
const LIST_FIELDS: [&str; 3] = ["pid", "uid", "gpu_uuid"];

/// The fields without a prefix in the journal.
const UNPREFIXED_FIELDS: [&str; 7] = ["gpu_uuid", "pid", "uid", "rule", "value", "limit", "action"];

/// Defines [`LogEvent`]: the name, `MESSAGE_ID`, level, message and possible fields of each event.
macro_rules! log_events {
    ($($kind:ident = $name:literal, $id:literal, $level:ident, $message_text:literal,
        [$($field:ident),*];)+) => {
        /// A kind of log entry. Only [`event!`] writes it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum LogEvent { $($kind),+ }

        impl LogEvent {
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),+];

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }

            /// The `MESSAGE_ID`: 128 bits in hexadecimal, made by `systemd-id128 new`.
            pub(crate) const fn id(self) -> &'static str {
                match self { $(Self::$kind => $id),+ }
            }

            pub(crate) const fn level(self) -> Level {
                match self { $(Self::$kind => Level::$level),+ }
            }

            /// The default message.
            pub(crate) const fn message(self) -> &'static str {
                match self { $(Self::$kind => $message_text),+ }
            }

            pub(crate) const fn fields(self) -> &'static [&'static str] {
                match self { $(Self::$kind => &[$(stringify!($field)),*]),+ }
            }
        }
    };
}

log_events! {
    RuleViolated = "rule-violated", "388166fbcb354dcea5ddbc1e088ba2ae", WARN, "a rule is broken",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid];
    Warned = "warned", "7c449f2725704a55b61d45f569955c07", WARN,
        "the user who breaks a rule is warned",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, action, times, deadline];
    JobEnded = "job-ended", "724c514bc4474e569ccc9dcf38ab9971", WARN, "a job is ended",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, action, job, owner];
    JobGone = "job-gone", "271d1e72aac54e50b0ae7ee94aa3ef8e", WARN,
        "a job that broke a rule has ended",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner, ended, left, why];
    JobNotEnded = "job-not-ended", "6b3b23a1c94d47d29b803a908fa27731", ERROR,
        "a job that broke a rule was not ended",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner, ended, left, why];
    Snoozed = "snoozed", "94258119a97f4e4d84d2fd2d75f0516e", INFO,
        "the deadline of a warned user is postponed",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, caller_uid, deadline, left];
    SnoozeVoided = "snooze-voided", "5b2e2a7d0c1f4f0b9a6d3f0b7d1c6e84", WARN,
        "a snooze is void before it ends: its rule is gone",
        [rule, subject, mode, uid, deadline];
    RulesDoubted = "rules-doubted", "c3a1f6de7b0e4c52a1d4e7f2903b85aa", ERROR,
        "these rules may not fit this host: they affect many of its users",
        [rule, subject, mode, people, of];
    BreakerTripped = "breaker-tripped", "0478ada9cb344942bff21e178b46c797", ERROR,
        "too many jobs would be ended: the guard stops ending jobs",
        [rule, subject, mode, ended];
    BreakerReset = "breaker-reset", "c7a58f95f48a48b08014a6e7abb5b98f", WARN,
        "the guard ends jobs again",
        [caller_uid];
    JobLeftToScheduler = "job-left-to-scheduler", "a06033b805554b7093f6236a4e4bb98b", WARN,
        "a job is left to its scheduler",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner, leave_to];
    NoJobEnded = "no-job-ended", "9804477cf38e48dc8c707ee518890d9b", WARN,
        "no job can be ended for a rule",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, why];
    RuleSatisfied = "rule-satisfied", "22b3a00e24f04b9b8ee258feb7af5187", INFO, "a rule is no longer broken",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid];
    RuleChanged = "rule-changed", "52d4b9ffb58a4d88bd627b4b33033036", INFO,
        "the rules or the mode changed: the violation starts again",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid];
    RogueFound = "rogue-found", "90aa5ad891c74190895ee40ff98fc227", WARN,
        "a process is suspicious",
        [threat, risk, score, indicators, owner, pid, uid, gpu_uuid];
    OwnerNotified = "owner-notified", "9755f6f010624c998b1b9f1388c9b8ba", INFO,
        "the user who breaks a rule is notified on their terminals",
        [rule, subject, mode, uid, action, terminals, count];
    RulesInForce = "rules-in-force", "0b683b7de1864d3bb780cc33da8aeb06", INFO,
        "rules are in force", [mode, rules, revision];
    RogueRulesInForce = "rogue-rules-in-force", "a50e8d4d9f2d42d6bdbf76d025b1ef40", INFO,
        "rogue rules are in force", [revision];
    RulesRefused = "rules-refused", "e383ee22538540cc9c7d2a9299372369", ERROR,
        "rules not loaded: the rules in force stay", [file, mistake];
    ActionStarted = "action-started", "3caee72719f0479ab305c1c3bf63c7b1", INFO, "an action starts",
        [action_id, action, caller_uid, request, plan, pid, uid, gpu_uuid];
    ActionUnrecorded = "action-unrecorded", "3bac87bfb4854ed88fb874e8ecce5d5a", ERROR,
        "an action is not recorded", [action, caller_uid, request, plan, why, pid, uid, gpu_uuid];
    ActionEnded = "action-ended", "cdee4f0dc008420c99727727cb5bab85", INFO, "an action ended",
        [action_id, action, result, outcome, pid, uid, gpu_uuid];
    UnrecordedActionEnded = "unrecorded-action-ended", "0c8c308e4fae4c4995d86c7f4f968e36", WARN,
        "an unrecorded action ended",
        [action, result, outcome, pid, uid, gpu_uuid];
    ActionRefused = "action-refused", "40215318a7da4c1fac78d9c1002bddaf", INFO, "an action was refused",
        [action, caller_uid, times, request, plan, why];
    ActionInterrupted = "action-interrupted", "ac2d7348088c4128995f42a09105c022", WARN,
        "an action has no recorded outcome", [action_id, result, why];
    ActionAborted = "action-aborted", "d4e7fe0549f041b68bbbf1c59dc99beb", ERROR,
        "a bug in gpukilld interrupted an action", [action_id, action, pid, uid, gpu_uuid];
    GpuResetStarted = "gpu-reset-started", "3f14f1509eaa4814a1b4bd1383795ee5", INFO,
        "a reset of a GPU starts", [gpu, gpu_uuid, caller_uid];
    GpuReset = "gpu-reset", "a64b615cc4f64a45a3c42add2a943ffd", INFO,
        "a GPU was reset, and answers again", [gpu, gpu_uuid, caller_uid, note];
    GpuNotReset = "gpu-not-reset", "478149ce176e421a9487122412f45080", WARN,
        "a GPU was not reset", [gpu, gpu_uuid, caller_uid, why];
    GpuResetFailed = "gpu-reset-failed", "45821dab491e4edaa1b5b5f9e655868e", ERROR,
        "a reset of a GPU failed", [gpu, gpu_uuid, caller_uid, why];
    GpuUnreachable = "gpu-unreachable", "213c37fee64746528f1c2914b5f49e90", ERROR,
        "a GPU does not answer after a reset", [gpu, gpu_uuid, caller_uid, why];
    DriverReleased = "driver-released", "3c8ac3f748544439aa036e03e361f17d", INFO,
        "the driver is released on request", [caller_uid, until];
    DriverReopened = "driver-reopened", "095380cbeaac4e9c8ef03785a89e1d23", INFO,
        "the driver is reopened on request", [caller_uid];
    Xid = "xid", "e7bd0feec7174793a8bce37d2dfd857b", WARN, "XID", [gpu, gpu_uuid, xid, meaning];
    ProgramXid = "program-xid", "fa1fc9436d9c44c6b0a2a0594494fa1c", INFO, "XID",
        [gpu, gpu_uuid, xid, meaning];
    DeviceEvent = "device-event", "9ca3059d9f4a4a42a39f8070dfcc768c", WARN, "event of a GPU",
        [gpu, gpu_uuid];
    InstancesChanged = "instances-changed", "24681b2aafc348a7a3c44c8d8ce3a7dc", INFO,
        "instances of a GPU changed", [gpu, gpu_uuid];
    GpuGone = "gpu-gone", "2a9ec2f18cb94efb83c7ecb2978ff41d", WARN,
        "a GPU is no longer listed by its driver", [gpu, gpu_uuid];
    GpuReturned = "gpu-returned", "39977258d7c340c5a4e2fd11047f5737", INFO,
        "a GPU that was gone is back", [gpu, gpu_uuid];
    GpuForgotten = "gpu-forgotten", "d0d9bb435ef84168953369d1ec1ff170", INFO,
        "a GPU that is gone is removed from the list on request", [gpu, gpu_uuid, caller_uid];
    FaultStarted = "fault-started", "7a0f6e91d5114eac8f05a8ae525396a7", WARN, "fault", [part, what];
    FaultOver = "fault-over", "acb33ccd1d9a408ba3b0ce86a8cfafe1", INFO, "fault is over",
        [part, what];
    AlertStarted = "alert-started", "8ca72c64341f47e9b7eb104fdd9bcc9d", WARN, "alert",
        [gpu, gpu_uuid, quantity, value, limit];
    AlertOver = "alert-over", "5d47c63f434d40cb855c0724edff23a2", INFO, "alert is over",
        [gpu, gpu_uuid, quantity, value, limit, why];
    NotRecorded = "not-recorded", "3a392c2b446f4c75abacfe202db593e5", ERROR,
        "the store rejects it: not recorded", [count, action_id, why];
    ReserveUsed = "reserve-used", "8d2ef0ff9af1410b9e97e25daac9f8e9", ERROR,
        "the disk is full: recording continues from the reserve", [];
    ReserveRestored = "reserve-restored", "eb066a650dad401d98721da994312f8c", INFO,
        "there is room again: the reserve is restored", [];
    StoreMoved = "store-moved", "1bc5891cd4ca49a7b0b6015dbecd5bc6", WARN,
        "was moved or deleted, starts empty", [file];
    StoreCorrupt = "store-corrupt", "94edd5db34404b0997efe8c2c608e944", ERROR,
        "is corrupt: quarantined, starts empty", [file, name, why];
    SettingsReloaded = "settings-reloaded", "b8983e7d64cb48aa932de6e5f2e615b3", INFO,
        "settings reloaded", [];
    SettingsRefused = "settings-refused", "231249e870af46569d6d7e9dbfa9d9cb", ERROR,
        "settings not reloaded, the previous ones stay", [mistake];
    Started = "started", "4a8dd874a6aa45609cb10fc5b28700e9", INFO, "gpukilld started",
        [version, socket, state_dir, personal];
    Stopped = "stopped", "1f681b3829144af4986a96f70fa3053b", INFO, "gpukilld stopped", [];
}

impl LogEvent {
    /// Finds the event with this name. [`event!`] uses it as the name of the tracing event.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether it may have all these fields. Evaluated at compile time.
    pub(crate) const fn has_fields(self, mut fields: &[&str]) -> bool {
        while let [field, rest @ ..] = fields {
            let mut known = self.fields();
            loop {
                match known {
                    [] => return false,
                    [one, ..] if is_equal(one, field) => break,
                    [_, others @ ..] => known = others,
                }
            }
            fields = rest;
        }
        true
    }
}

const fn is_equal(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        match (one, other) {
            ([], []) => return true,
            ([a, left @ ..], [b, right @ ..]) if *a == *b => (one, other) = (left, right),
            ([], _) | (_, []) | ([_, ..], [_, ..]) => return false,
        }
    }
}

/// Logs an event with these of its fields; text after a semicolon replaces the default message. A
/// field that the event does not have is a compile error.
macro_rules! event {
    ($kind:ident $(, $field:ident $(= $value:expr)?)* ; $($message:tt)+) => {{
        const KIND: $crate::log_events::LogEvent = $crate::log_events::LogEvent::$kind;
        const { assert!(KIND.has_fields(&[$(stringify!($field)),*]), "no field of this kind") };
        tracing::event!(
            name: KIND.name(),
            KIND.level(),
            { $($field $(= $value)?),* },
            $($message)+
        );
    }};
    ($kind:ident $(, $field:ident $(= $value:expr)?)* $(,)?) => {
        $crate::log_events::event!(
            $kind $(, $field $(= $value)?)* ;
            "{}", $crate::log_events::LogEvent::$kind.message()
        )
    };
}

pub(crate) use event;

/// The name of a field in the journal. Fields that many programs use have no prefix; all others
/// have one, because all programs share the names of the journal.
pub(crate) fn field_name(field: &str) -> String {
    let name = field.to_ascii_uppercase().replace('.', "_");
    if UNPREFIXED_FIELDS.contains(&field) {
        name
    } else {
        format!("GPUKILL_{name}")
    }
}

/// Whether a field holds names joined by spaces. In the journal each name is an assignment of its
/// own.
pub(crate) fn is_list(field: &str) -> bool {
    LIST_FIELDS.contains(&field)
}

/// The subject of an event, as the fields `pid`, `uid` and `gpu_uuid`, each joined by spaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EventSubject {
    pids: Vec<String>,
    uids: Vec<String>,
    devices: Vec<String>,
}

impl EventSubject {
    /// Adds a process once, up to the limit.
    pub(crate) fn add_pid(&mut self, pid: u32) {
        push_unique(&mut self.pids, &pid.to_string());
    }

    /// Adds the owner, if known.
    pub(crate) fn add_uid(&mut self, uid: Option<u32>) {
        if let Some(uid) = uid {
            push_unique(&mut self.uids, &uid.to_string());
        }
    }

    /// Adds a GPU by its permanent id.
    pub(crate) fn add_device(&mut self, id: &str) {
        push_unique(&mut self.devices, id);
    }

    /// The fields `pid`, `uid` and `gpu_uuid`, `None` where there is nothing to name.
    pub(crate) fn fields(&self) -> [Option<String>; 3] {
        [&self.pids, &self.uids, &self.devices]
            .map(|names| (!names.is_empty()).then(|| names.join(" ")))
    }
}

fn push_unique(names: &mut Vec<String>, name: &str) {
    if names.len() < MAX_NAMED && !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row that the document must have for this event.
    fn row(kind: LogEvent) -> String {
        let priority = match kind.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        let fields = kind.fields().iter().map(|field| field_name(field));
        let fields: Vec<String> = fields.map(|field| format!("`{field}`")).collect();
        format!(
            "| {} | `{}` | {priority} | {} | {} |",
            kind.name(),
            kind.id(),
            kind.message(),
            fields.join(", ")
        )
    }

    #[test]
    fn document_lists_every_event() {
        let document = include_str!("../../docs/journal.md");
        let is_id = |text: &str| text.len() == 32;
        let is_row = |line: &&str| line.split('`').nth(1).is_some_and(is_id);
        let documented: Vec<&str> = document.lines().filter(is_row).collect();
        let kinds: Vec<String> = LogEvent::ALL.iter().map(|kind| row(*kind)).collect();
        assert_eq!(documented, kinds, "{}", kinds.join("\n"));
    }

    #[test]
    fn names_and_ids_are_unique() {
        for (position, kind) in LogEvent::ALL.iter().enumerate() {
            let (name, id) = (kind.name(), kind.id());
            assert_eq!(LogEvent::from_name(name), Some(*kind));
            let is_hexadecimal = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
            assert!(id.len() == 32 && id.bytes().all(is_hexadecimal), "{id}");
            let others = &LogEvent::ALL[position + 1..];
            assert!(others.iter().all(|other| other.id() != id), "{name}");
        }
        assert_eq!(LogEvent::from_name("event src/faults.rs:24"), None);
    }

    #[test]
    fn event_has_only_its_fields() {
        assert!(LogEvent::Xid.has_fields(&["gpu_uuid", "xid"]));
        assert!(LogEvent::Xid.has_fields(&[]));
        assert!(!LogEvent::Xid.has_fields(&["xid", "pid"]));
        assert!(!LogEvent::Xid.has_fields(&["xi"]));
        assert!(!LogEvent::Stopped.has_fields(&["pid"]));
    }

    #[test]
    fn subject_is_deduplicated_and_bounded() {
        let mut affected = EventSubject::default();
        assert_eq!(affected.fields(), [None, None, None]);
        affected.add_uid(None);
        affected.add_device("GPU-a");
        affected.add_device("GPU-a");
        for pid in 1..=20 {
            affected.add_pid(pid);
            affected.add_uid(Some(1000));
        }
        let pids: Vec<String> = (1..=16).map(|pid| pid.to_string()).collect();
        let expected = [pids.join(" "), "1000".into(), "GPU-a".into()];
        assert_eq!(affected.fields(), expected.map(Some));
    }
}
