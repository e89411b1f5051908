//! A healthy daemon on a host with some faults.

use super::NOW;
use super::guard::guard_report;
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::guard::GuardReport;
use gpukill_proto::model::{BackendReport, BackendState, Fault, FaultCode};
use gpukill_proto::reading::Reading::{Unsupported, Value};
use gpukill_proto::rogue::RogueReport;
use gpukill_proto::status::{
    CallerReport, CountersReport, DaemonStatus, PollingReport, Right, StoreReport,
};
use gpukill_proto::units::{Bytes, Timestamp};

fn backend(name: &str, state: BackendState) -> BackendReport {
    BackendReport {
        name: name.into(),
        state,
        since: NOW.plus_seconds(-267),
        devices: 0,
        driver: Unsupported,
        cuda: Unsupported,
        poll_cost_us: 0,
    }
}

/// The status of the same host.
pub(crate) fn status() -> DaemonStatus {
    let nvidia = BackendReport {
        devices: 10,
        driver: Value("580.65.06".into()),
        cuda: Value("13.0".into()),
        poll_cost_us: 4_100,
        ..backend("nvidia", BackendState::Ready)
    };
    let fault = |part: &str, code, what: &str| Fault {
        part: part.into(),
        code,
        what: what.into(),
        since: NOW.plus_seconds(-267),
    };
    DaemonStatus {
        version: "0.1.0".into(),
        protocol: PROTOCOL_VERSION,
        host: "gpu-box-07".into(),
        started_at: NOW.plus_seconds(-12 * 86_400 - 4 * 3_600),
        now: NOW,
        caller: CallerReport {
            uid: 1000,
            user: Value("alice".into()),
            rights: vec![Right::Look, Right::EndOwn],
            log_in_again_for: Some("gpukill-operators".into()),
        },
        personal: false,
        will_not_act: None,
        backends: vec![
            nvidia,
            backend("amd", BackendState::Absent("no device".into())),
            backend(
                "intel",
                BackendState::Failed(
                    FaultCode::NotPermitted,
                    "cannot read /sys/class/drm: permission denied".into(),
                ),
            ),
            backend(
                "apple",
                BackendState::Absent("no ioreg: Apple GPUs are read on macOS".into()),
            ),
        ],
        faults: vec![
            fault(
                "GPU 7",
                FaultCode::GpuLost,
                "lost (XID 79): needs a reset or a reboot; 9 others unaffected",
            ),
            fault(
                "names",
                FaultCode::UserNamesUnanswered,
                "the name service does not answer: users are shown by number",
            ),
        ],
        alerts: Vec::new(),
        polling: PollingReport {
            interval_ms: 2000,
            set_interval_ms: 2000,
            last_at: Some(Timestamp(NOW.0 - 400)),
            polls: 524_118,
            late: 0,
        },
        store: StoreReport {
            directory: "/var/lib/gpukill".into(),
            samples: Bytes::mib(61),
            audit: Bytes(1_258_291),
            recorded_since: Some(Timestamp(NOW.0 - 86_400_000)),
            written_at: Some(Timestamp(NOW.0 - 300)),
            written: 104_823,
            dropped: 0,
        },
        // For a file without mistakes.
        guard: GuardReport {
            mistakes: Vec::new(),
            dropped: 0,
            overflow: 0,
            open: 1,
            simulated_warned_today: 3,
            simulated_ended_today: 1,
            ..guard_report()
        },
        settings: Vec::new(),
        rogue: RogueReport::default(),
        counters: CountersReport::default(),
    }
}
