//! Faults: the parts of gpukill and the devices that are broken, and alerts, which are kept in the
//! same list.

use crate::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// A fault that is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The broken part: `nvidia`, `GPU 3`, `store`, `names`.
    pub part: String,
    /// The kind of fault.
    pub code: FaultCode,
    /// The problem, and the remedy where one is known.
    pub what: String,
    /// When the fault was first observed.
    pub since: Timestamp,
}

/// Defines [`FaultCode`] with the name of each kind. Append a new kind at the end: the wire has the
/// position of a kind, not its name.
macro_rules! fault_codes {
    ($($(#[$doc:meta])* $code:ident = $name:literal,)*) => {
        /// The kind of a fault. Unlike the text of a fault it contains no name of a person.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum FaultCode {
            $($(#[$doc])* #[serde(rename = $name)] $code,)*
        }

        impl FaultCode {
            /// All kinds of faults.
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            /// All names, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($name,)*];

            /// The name in reports and in the record.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)*
                }
            }
        }
    };
}

fault_codes! {
    /// The vendor's library cannot be loaded, or does not find another library.
    LibraryUnusable = "library_unusable",
    /// The vendor's kernel driver is not loaded.
    DriverNotLoaded = "driver_not_loaded",
    /// The vendor's library and the loaded driver are of different versions.
    VersionMismatch = "version_mismatch",
    /// The driver or the system denies access.
    NotPermitted = "not_permitted",
    /// The vendor's library reports another error.
    DriverError = "driver_error",
    /// The sensor process cannot be started.
    SensorNotStarted = "sensor_not_started",
    /// The sensor process ended, or its answer cannot be read.
    SensorFailed = "sensor_failed",
    /// The sensor process does not answer in time.
    SensorHangs = "sensor_hangs",
    /// A sensor process was killed and does not end.
    SensorStuck = "sensor_stuck",
    /// A program that a backend runs fails.
    ProgramFailed = "program_failed",
    /// A backend does not answer in time, and its readings are old.
    ReadingsOld = "readings_old",
    /// A backend has not answered since it started.
    NoAnswerYet = "no_answer_yet",
    /// A backend answers slowly, and is polled less often.
    AnswersSlowly = "answers_slowly",
    /// XIDs and other events cannot be received.
    EventsNotReceived = "events_not_received",
    /// More events arrived at once than gpukill keeps.
    EventsDropped = "events_dropped",
    /// A GPU cannot be read, not even its name.
    GpuUnnamed = "gpu_unnamed",
    /// The host has more GPUs than gpukill reads.
    GpusLeftOut = "gpus_left_out",
    /// A GPU hung and was restarted by its driver.
    GpuRestarted = "gpu_restarted",
    /// The system refuses another thread.
    NoThread = "no_thread",
    /// Processes have more descriptors of a device open than gpukill reads.
    DescriptorsLeftOut = "descriptors_left_out",
    /// The driver of one GPU does not answer.
    GpuSilent = "gpu_silent",
    /// A GPU is lost until a reset or a reboot.
    GpuLost = "gpu_lost",
    /// A GPU left the bus.
    GpuGone = "gpu_gone",
    /// All GPUs of a driver left at once.
    DriverUnloaded = "driver_unloaded",
    /// The driver fails at a GPU without reporting that the GPU is lost.
    GpuStateUnknown = "gpu_state_unknown",
    /// A reading of a GPU fails.
    ReadingFailed = "reading_failed",
    /// The processes of a GPU cannot be listed.
    ProcessListFailed = "process_list_failed",
    /// The instances of a GPU cannot be listed.
    InstanceListFailed = "instance_list_failed",
    /// The memory of an instance cannot be read.
    InstanceMemoryFailed = "instance_memory_failed",
    /// The driver reports an impossible memory use of a process.
    ProcessMemoryImpossible = "process_memory_impossible",
    /// Broken memory rows could not be replaced.
    RowRemapFailed = "row_remap_failed",
    /// Broken memory rows wait for a reset.
    RowRemapPending = "row_remap_pending",
    /// Broken memory pages wait for a reset.
    PageRetirementPending = "page_retirement_pending",
    /// The driver advises to reset a GPU.
    ResetAdvised = "reset_advised",
    /// The driver advises to reboot.
    RebootAdvised = "reboot_advised",
    /// The driver advises to drain the NVLink peers of a GPU.
    DrainPeersAdvised = "drain_peers_advised",
    /// The driver advises to drain and reset a GPU.
    DrainAndResetAdvised = "drain_and_reset_advised",
    /// The driver advises to recover the IMEX domain.
    ImexRecoveryAdvised = "imex_recovery_advised",
    /// The driver advises an action that gpukill does not know.
    UnknownActionAdvised = "unknown_action_advised",
    /// Short-lived processes hold a GPU one after the other.
    ShortLivedHolders = "short_lived_holders",
    /// The temperature of a GPU reached its alert threshold.
    TemperatureAlert = "temperature_alert",
    /// The memory use of a GPU reached its alert threshold.
    MemoryAlert = "memory_alert",
    /// The name service does not answer for users.
    UserNamesUnanswered = "user_names_unanswered",
    /// The name service does not answer for groups.
    GroupNamesUnanswered = "group_names_unanswered",
    /// The name service fails.
    NameServiceFailed = "name_service_failed",
    /// Command lines of processes cannot be read in time.
    CommandLinesStuck = "command_lines_stuck",
    /// Files of containers cannot be read in time.
    ContainerFilesStuck = "container_files_stuck",
    /// The search for file holders is stuck.
    HolderSearchStuck = "holder_search_stuck",
    /// The search for file holders fails.
    HolderSearchFailed = "holder_search_failed",
    /// A process cannot be searched for open devices.
    ProcessUnanswered = "process_unanswered",
    /// Not every process that uses a GPU may be listed.
    ListIncomplete = "list_incomplete",
    /// The samples cannot be used.
    SamplesUnusable = "samples_unusable",
    /// The record of actions cannot be used.
    AuditUnusable = "audit_unusable",
    /// No samples are written because free disk space is low.
    SamplesPaused = "samples_paused",
    /// The disk is full, and the record uses its reserve.
    DiskFull = "disk_full",
    /// The record has no reserve for a full disk.
    ReserveMissing = "reserve_missing",
    /// A corrupt file of the store was quarantined.
    FileQuarantined = "file_quarantined",
    /// More faults began than gpukill records individually.
    FaultsUnrecorded = "faults_unrecorded",
    /// A file of rules has mistakes.
    RulesMistaken = "rules_mistaken",
    /// The circuit breaker of the guard is open.
    CircuitBreakerOpen = "circuit_breaker_open",
    /// Rules affect so many people that an admin must confirm them.
    RulesUnconfirmed = "rules_unconfirmed",
    /// The state of the guard cannot be written.
    GuardStateUnwritten = "guard_state_unwritten",
    /// More processes use GPUs than gpukill watches.
    ProcessesUnwatched = "processes_unwatched",
    /// Evidence of a process cannot be read in time.
    EvidenceStuck = "evidence_stuck",
    /// The settings have mistakes.
    SettingsMistaken = "settings_mistaken",
    /// Changed settings need a restart.
    RestartNeeded = "restart_needed",
    /// There are more violations than the guard has room for.
    ViolationsUntracked = "violations_untracked",
    /// A saved state was refused at the start.
    StateRefused = "state_refused",
}

impl FaultCode {
    /// Whether it is an alert: a GPU reached a threshold that an admin set, and nothing is
    /// broken.
    #[must_use]
    pub const fn is_alert(self) -> bool {
        matches!(self, Self::TemperatureAlert | Self::MemoryAlert)
    }
}

impl Fault {
    /// The index of the GPU that the fault is about, if it is about one.
    #[must_use]
    pub fn gpu_index(&self) -> Option<u32> {
        self.part.strip_prefix("GPU ")?.parse().ok()
    }
}

impl Display for FaultCode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
