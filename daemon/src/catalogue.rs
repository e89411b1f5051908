//! What the daemon tells whoever watches the box, kind by kind. Each kind has an
//! identifier that never changes, by which its entries are found in the journal;
//! `docs/journal.md` lists them. Whatever else is logged has none.

use tracing::Level;

/// So many processes, users and GPUs are named by one entry, the first ones.
const MOST_NAMED: usize = 16;

/// The fields that hold names joined by blanks.
///
/// Not `OBJECT_PID`, which systemd.journal-fields(7) has for this: journald describes
/// that process by its number alone, when it reads the message. By then whoever has
/// just been ended may be gone, and another may have the number.
const LISTS: [&str; 3] = ["pid", "uid", "gpu_uuid"];

/// The fields that have no prefix in the journal.
const BARE: [&str; 7] = ["gpu_uuid", "pid", "uid", "rule", "value", "limit", "action"];

/// Defines [`Kind`]: its name and identifier, how grave it is, what it says, and the
/// fields that it may have.
macro_rules! kinds {
    ($($kind:ident = $name:literal, $id:literal, $level:ident, $says:literal,
        [$($field:ident),*];)+) => {
        /// A kind of entry, told with [`tell!`] alone.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind { $($kind),+ }

        impl Kind {
            /// All there are.
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),+];

            /// Names it in documents.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }

            /// The `MESSAGE_ID`: 128 bits in hexadecimal, of `systemd-id128 new`.
            pub(crate) const fn id(self) -> &'static str {
                match self { $(Self::$kind => $id),+ }
            }

            /// How grave it is.
            pub(crate) const fn level(self) -> Level {
                match self { $(Self::$kind => Level::$level),+ }
            }

            /// What it says, where nothing else is told.
            pub(crate) const fn says(self) -> &'static str {
                match self { $(Self::$kind => $says),+ }
            }

            /// The fields that it may have.
            pub(crate) const fn fields(self) -> &'static [&'static str] {
                match self { $(Self::$kind => &[$(stringify!($field)),*]),+ }
            }
        }
    };
}

kinds! {
    RuleBroken = "rule-broken", "388166fbcb354dcea5ddbc1e088ba2ae", WARN, "a rule is broken",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid];
    Warned = "warned", "7c449f2725704a55b61d45f569955c07", WARN, "whoever breaks a rule is warned",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, action, times, deadline];
    JobEnded = "job-ended", "724c514bc4474e569ccc9dcf38ab9971", WARN, "a job is ended",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, action, job, owner];
    JobGone = "job-gone", "271d1e72aac54e50b0ae7ee94aa3ef8e", WARN, "a job that broke a rule has ended",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner, ended, left, why];
    JobStays = "job-stays", "6b3b23a1c94d47d29b803a908fa27731", ERROR, "a job that broke a rule was not ended",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner, ended, left, why];
    Snoozed = "snoozed", "94258119a97f4e4d84d2fd2d75f0516e", INFO, "whoever was warned has more time",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, caller_uid, deadline, left];
    SnoozeVoided = "snooze-voided", "5b2e2a7d0c1f4f0b9a6d3f0b7d1c6e84", WARN,
        "a snooze is void before it is over: its rule is gone",
        [rule, subject, mode, uid, deadline];
    RulesDoubted = "rules-doubted", "c3a1f6de7b0e4c52a1d4e7f2903b85aa", ERROR,
        "these rules may not fit this box: they concern many of its people",
        [rule, subject, mode, people, of];
    BreakerTripped = "breaker-tripped", "0478ada9cb344942bff21e178b46c797", ERROR,
        "too many jobs would be ended: the guard ends nobody any more",
        [rule, subject, mode, ended];
    BreakerReset = "breaker-reset", "c7a58f95f48a48b08014a6e7abb5b98f", WARN, "the guard ends jobs again",
        [caller_uid];
    JobLeft = "job-left", "a06033b805554b7093f6236a4e4bb98b", WARN,
        "a job is left to whoever scheduled it",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, job, owner, leave_to];
    NobodyEnded = "nobody-ended", "9804477cf38e48dc8c707ee518890d9b", WARN,
        "nobody can be ended for a rule",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid, why];
    RuleKept = "rule-kept", "22b3a00e24f04b9b8ee258feb7af5187", INFO, "a rule is kept again",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid];
    RuleChanged = "rule-changed", "52d4b9ffb58a4d88bd627b4b33033036", INFO,
        "the rules or the mode changed: who breaks a rule is judged anew",
        [rule, subject, mode, value, limit, pid, uid, gpu_uuid];
    RogueFound = "rogue-found", "90aa5ad891c74190895ee40ff98fc227", WARN,
        "a process may be up to no good",
        [threat, risk, score, signs, owner, pid, uid, gpu_uuid];
    OwnerTold = "owner-told", "9755f6f010624c998b1b9f1388c9b8ba", INFO,
        "whoever breaks a rule is told on their terminals",
        [rule, subject, mode, uid, action, terminals, count];
    RulesInForce = "rules-in-force", "0b683b7de1864d3bb780cc33da8aeb06", INFO,
        "rules are in force", [mode, rules, revision];
    RogueRulesInForce = "rogue-rules-in-force", "a50e8d4d9f2d42d6bdbf76d025b1ef40", INFO,
        "rules on rogues are in force", [revision];
    RulesRefused = "rules-refused", "e383ee22538540cc9c7d2a9299372369", ERROR,
        "rules not read: what is in force stays", [file, mistake];
    ActBegins = "act-begins", "3caee72719f0479ab305c1c3bf63c7b1", INFO, "an act begins",
        [act, action, caller_uid, asked, plan, pid, uid, gpu_uuid];
    ActUnrecorded = "act-unrecorded", "3bac87bfb4854ed88fb874e8ecce5d5a", ERROR,
        "an act is not recorded", [action, caller_uid, asked, plan, why, pid, uid, gpu_uuid];
    ActEnded = "act-ended", "cdee4f0dc008420c99727727cb5bab85", INFO, "an act ended",
        [act, action, word, outcome, pid, uid, gpu_uuid];
    UnrecordedActEnded = "unrecorded-act-ended", "0c8c308e4fae4c4995d86c7f4f968e36", WARN,
        "an act that is not recorded is over",
        [action, word, outcome, pid, uid, gpu_uuid];
    ActRefused = "act-refused", "40215318a7da4c1fac78d9c1002bddaf", INFO, "an act was refused",
        [action, caller_uid, times, asked, plan, why];
    ActInterrupted = "act-interrupted", "ac2d7348088c4128995f42a09105c022", WARN,
        "an act was not settled", [act, word, why];
    ActBrokenOff = "act-broken-off", "d4e7fe0549f041b68bbbf1c59dc99beb", ERROR,
        "a fault of gpukilld broke an act off", [act, action, pid, uid, gpu_uuid];
    GpuResetBegins = "gpu-reset-begins", "3f14f1509eaa4814a1b4bd1383795ee5", INFO,
        "a reset of a GPU begins", [gpu, gpu_uuid, caller_uid];
    GpuReset = "gpu-reset", "a64b615cc4f64a45a3c42add2a943ffd", INFO,
        "a GPU was reset, and answers again", [gpu, gpu_uuid, caller_uid, note];
    GpuNotReset = "gpu-not-reset", "478149ce176e421a9487122412f45080", WARN,
        "a GPU was not reset", [gpu, gpu_uuid, caller_uid, why];
    GpuResetFailed = "gpu-reset-failed", "45821dab491e4edaa1b5b5f9e655868e", ERROR,
        "a reset of a GPU failed", [gpu, gpu_uuid, caller_uid, why];
    GpuUnreachable = "gpu-unreachable", "213c37fee64746528f1c2914b5f49e90", ERROR,
        "a GPU does not answer after a reset", [gpu, gpu_uuid, caller_uid, why];
    DriverLetGo = "driver-let-go", "3c8ac3f748544439aa036e03e361f17d", INFO,
        "the driver is let go of on request", [caller_uid, until];
    DriverTaken = "driver-taken", "095380cbeaac4e9c8ef03785a89e1d23", INFO,
        "the driver is taken again on request", [caller_uid];
    Xid = "xid", "e7bd0feec7174793a8bce37d2dfd857b", WARN, "XID", [gpu, gpu_uuid, xid, meaning];
    ProgramXid = "program-xid", "fa1fc9436d9c44c6b0a2a0594494fa1c", INFO, "XID",
        [gpu, gpu_uuid, xid, meaning];
    DeviceEvent = "device-event", "9ca3059d9f4a4a42a39f8070dfcc768c", WARN, "event of a GPU",
        [gpu, gpu_uuid];
    PartsChanged = "parts-changed", "24681b2aafc348a7a3c44c8d8ce3a7dc", INFO,
        "parts of a GPU changed", [gpu, gpu_uuid];
    GpuGone = "gpu-gone", "2a9ec2f18cb94efb83c7ecb2978ff41d", WARN,
        "a GPU is not listed by its driver any more", [gpu, gpu_uuid];
    GpuReturned = "gpu-returned", "39977258d7c340c5a4e2fd11047f5737", INFO,
        "a GPU that was gone is back", [gpu, gpu_uuid];
    GpuForgotten = "gpu-forgotten", "d0d9bb435ef84168953369d1ec1ff170", INFO,
        "a GPU that is gone is dropped from the list on request", [gpu, gpu_uuid, caller_uid];
    FaultBegins = "fault-begins", "7a0f6e91d5114eac8f05a8ae525396a7", WARN, "fault", [part, what];
    FaultOver = "fault-over", "acb33ccd1d9a408ba3b0ce86a8cfafe1", INFO, "fault is over",
        [part, what];
    AlertBegins = "alert-begins", "8ca72c64341f47e9b7eb104fdd9bcc9d", WARN, "alert",
        [gpu, gpu_uuid, quantity, value, limit];
    AlertOver = "alert-over", "5d47c63f434d40cb855c0724edff23a2", INFO, "alert is over",
        [gpu, gpu_uuid, quantity, value, limit, why];
    NotRecorded = "not-recorded", "3a392c2b446f4c75abacfe202db593e5", ERROR,
        "the store does not take it: not recorded", [count, act, why];
    ReserveUsed = "reserve-used", "8d2ef0ff9af1410b9e97e25daac9f8e9", ERROR,
        "the disk is full: the record goes on from its reserve", [];
    ReserveBack = "reserve-back", "eb066a650dad401d98721da994312f8c", INFO,
        "there is room again: the record has its reserve back", [];
    StoreTaken = "store-taken", "1bc5891cd4ca49a7b0b6015dbecd5bc6", WARN,
        "was moved or deleted, begins anew", [file];
    StoreBroken = "store-broken", "94edd5db34404b0997efe8c2c608e944", ERROR,
        "is broken: set aside, begins anew", [file, name, why];
    SettingsReloaded = "settings-reloaded", "b8983e7d64cb48aa932de6e5f2e615b3", INFO,
        "settings reloaded", [];
    SettingsRefused = "settings-refused", "231249e870af46569d6d7e9dbfa9d9cb", ERROR,
        "settings not reloaded, the old ones hold", [mistake];
    Started = "started", "4a8dd874a6aa45609cb10fc5b28700e9", INFO, "gpukilld started",
        [version, socket, state_dir, personal];
    Stopped = "stopped", "1f681b3829144af4986a96f70fa3053b", INFO, "gpukilld stopped", [];
}

impl Kind {
    /// The kind whose name this is. Events that are told with [`tell!`] have it for
    /// theirs.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether it may have all these fields: asked while the daemon is compiled.
    pub(crate) const fn has(self, mut fields: &[&str]) -> bool {
        while let [field, rest @ ..] = fields {
            let mut known = self.fields();
            loop {
                match known {
                    [] => return false,
                    [one, ..] if is_same(one, field) => break,
                    [_, others @ ..] => known = others,
                }
            }
            fields = rest;
        }
        true
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        match (one, other) {
            ([], []) => return true,
            ([a, left @ ..], [b, right @ ..]) if *a == *b => (one, other) = (left, right),
            ([], _) | (_, []) | ([_, ..], [_, ..]) => return false,
        }
    }
}

/// Tells of something of this kind, with these of its fields; after a semicolon in
/// other words than the usual ones. A field that the kind has not does not compile.
macro_rules! tell {
    ($kind:ident $(, $field:ident $(= $value:expr)?)* ; $($message:tt)+) => {{
        const KIND: $crate::catalogue::Kind = $crate::catalogue::Kind::$kind;
        const { assert!(KIND.has(&[$(stringify!($field)),*]), "no field of this kind") };
        tracing::event!(
            name: KIND.name(),
            KIND.level(),
            { $($field $(= $value)?),* },
            $($message)+
        );
    }};
    ($kind:ident $(, $field:ident $(= $value:expr)?)* $(,)?) => {
        $crate::catalogue::tell!(
            $kind $(, $field $(= $value)?)* ;
            "{}", $crate::catalogue::Kind::$kind.says()
        )
    };
}

pub(crate) use tell;

/// The name of a field in the journal. The ones that anybody may look for are bare;
/// others have a prefix, for all programs share the journal's names.
pub(crate) fn field_name(field: &str) -> String {
    let name = field.to_ascii_uppercase().replace('.', "_");
    if BARE.contains(&field) {
        name
    } else {
        format!("GPUKILL_{name}")
    }
}

/// Whether a field holds names joined by blanks, each of which is an assignment of
/// its own in the journal.
pub(crate) fn is_list(field: &str) -> bool {
    LISTS.contains(&field)
}

/// Whom something is about, as fields of its entry: `pid`, `uid`, `gpu_uuid`, each
/// joined by blanks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct About {
    pids: Vec<String>,
    uids: Vec<String>,
    devices: Vec<String>,
}

impl About {
    /// Adds a process, once; of very many the first.
    pub(crate) fn pid(&mut self, pid: u32) {
        add(&mut self.pids, &pid.to_string());
    }

    /// Adds whose it is, where that is known.
    pub(crate) fn uid(&mut self, uid: Option<u32>) {
        if let Some(uid) = uid {
            add(&mut self.uids, &uid.to_string());
        }
    }

    /// Adds a GPU by the name that lasts.
    pub(crate) fn device(&mut self, id: &str) {
        add(&mut self.devices, id);
    }

    /// The fields `pid`, `uid` and `gpu_uuid`: nothing where it is about none.
    pub(crate) fn fields(&self) -> [Option<String>; 3] {
        [&self.pids, &self.uids, &self.devices]
            .map(|names| (!names.is_empty()).then(|| names.join(" ")))
    }
}

fn add(names: &mut Vec<String>, name: &str) {
    if names.len() < MOST_NAMED && !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row of this kind in the document, as it should be.
    fn row(kind: Kind) -> String {
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
            kind.says(),
            fields.join(", ")
        )
    }

    #[test]
    fn every_kind_stands_in_the_document_and_every_documented_kind_exists() {
        let document = include_str!("../../docs/journal.md");
        let is_id = |text: &str| text.len() == 32;
        let is_row = |line: &&str| line.split('`').nth(1).is_some_and(is_id);
        let documented: Vec<&str> = document.lines().filter(is_row).collect();
        let kinds: Vec<String> = Kind::ALL.iter().map(|kind| row(*kind)).collect();
        assert_eq!(documented, kinds, "{}", kinds.join("\n"));
    }

    #[test]
    fn each_kind_has_a_name_and_an_identifier_of_its_own() {
        for (position, kind) in Kind::ALL.iter().enumerate() {
            let (name, id) = (kind.name(), kind.id());
            assert_eq!(Kind::named(name), Some(*kind));
            let is_hexadecimal = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
            assert!(id.len() == 32 && id.bytes().all(is_hexadecimal), "{id}");
            let others = &Kind::ALL[position + 1..];
            assert!(others.iter().all(|other| other.id() != id), "{name}");
        }
        assert_eq!(Kind::named("event src/faults.rs:24"), None);
    }

    #[test]
    fn a_kind_has_its_fields_and_no_others() {
        assert!(Kind::Xid.has(&["gpu_uuid", "xid"]));
        assert!(Kind::Xid.has(&[]));
        assert!(!Kind::Xid.has(&["xid", "pid"]));
        assert!(!Kind::Xid.has(&["xi"]));
        assert!(!Kind::Stopped.has(&["pid"]));
    }

    #[test]
    fn whoever_an_entry_is_about_is_named_once_and_of_many_the_first() {
        let mut about = About::default();
        assert_eq!(about.fields(), [None, None, None]);
        about.uid(None);
        about.device("GPU-a");
        about.device("GPU-a");
        for pid in 1..=20 {
            about.pid(pid);
            about.uid(Some(1000));
        }
        let pids: Vec<String> = (1..=16).map(|pid| pid.to_string()).collect();
        let expected = [pids.join(" "), "1000".into(), "GPU-a".into()];
        assert_eq!(about.fields(), expected.map(Some));
    }
}
