//! A stand-in for gpukilld that answers the long poll of a gateway: with snapshots of many GPUs, with
//! any rights of the caller, or at once.

use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::guard::{GuardMode, GuardReport, GuardSummary, RuleCounts};
use gpukill_proto::model::{Device, DeviceId, Snapshot, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::RogueReport;
use gpukill_proto::service::{GpukillRequest, GpukillResponse, SnapshotPage};
use gpukill_proto::status::{
    CallerReport, CountersReport, DaemonStatus, PollingReport, Right, StoreReport,
};
use gpukill_proto::transport::MAX_REQUEST;
use gpukill_proto::transport::codec::{decode_request, encode};
use gpukill_proto::transport::preface::{PREFACE_LENGTH, Preface, PrefaceStatus};
use gpukill_proto::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent, Timestamp};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::SystemTime;
use tarpc::ClientMessage;

/// What every user may do.
pub(crate) const PLAIN_RIGHTS: [Right; 2] = [Right::Look, Right::EndOwn];

/// The stand-in. Its threads end with the program.
pub(crate) struct StandInDaemon(Arc<StandInState>);

struct StandInState {
    answers: Mutex<StandInAnswers>,
    changed: Condvar,
}

struct StandInAnswers {
    snapshot: Snapshot,
    rights: Vec<Right>,
    is_impatient: bool,
    snapshot_requests: u64,
}

impl StandInDaemon {
    /// Listens on this socket, where nothing listens yet, with a first snapshot of this many GPUs.
    pub(crate) fn start(socket: &Path, gpus: u32) -> Self {
        let directory = socket.parent().expect("a directory");
        std::fs::create_dir_all(directory).expect("a directory");
        let open = |path: &Path| {
            let mode = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(path, mode).expect("it is ours");
        };
        open(directory);
        let listener = UnixListener::bind(socket).expect("a socket");
        open(socket);
        let state = Arc::new(StandInState {
            answers: Mutex::new(StandInAnswers {
                snapshot: snapshot(gpus),
                rights: PLAIN_RIGHTS.to_vec(),
                is_impatient: false,
                snapshot_requests: 0,
            }),
            changed: Condvar::new(),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.converse(stream));
            }
        });
        Self(state)
    }

    /// The next poll: other values of the same GPUs.
    pub(crate) fn poll(&self) {
        let mut answers = self.0.lock();
        let snapshot = &mut answers.snapshot;
        snapshot.polls += 1;
        snapshot.taken_at = SystemTime::now().into();
        let busy = u32::try_from(snapshot.polls % 100).expect("a percentage");
        for device in &mut snapshot.devices {
            device.vitals.utilization = Reading::Value(Percent(busy));
        }
        self.0.changed.notify_all();
    }

    /// Sets the rights of every caller.
    pub(crate) fn set_rights(&self, rights: &[Right]) {
        self.0.lock().rights = rights.to_vec();
    }

    /// Answers requests for the next snapshot at once from now on, with the one that there is.
    pub(crate) fn answer_at_once(&self) {
        self.0.lock().is_impatient = true;
        self.0.changed.notify_all();
    }

    /// The number of requests for a snapshot.
    pub(crate) fn snapshot_requests(&self) -> u64 {
        self.0.lock().snapshot_requests
    }
}

impl StandInState {
    fn lock(&self) -> MutexGuard<'_, StandInAnswers> {
        self.answers.lock().expect("not poisoned")
    }

    /// Answers until the client hangs up, or makes another call.
    fn converse(&self, mut stream: UnixStream) -> Option<()> {
        let preface = Preface::new(PrefaceStatus::Welcome, MAX_REQUEST);
        stream.write_all(&preface.encode()).ok()?;
        stream.read_exact(&mut [0; PREFACE_LENGTH]).ok()?;
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length).ok()?;
            let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
            let mut frame = vec![0; length];
            stream.read_exact(&mut frame).ok()?;
            let ClientMessage::Request(request) = decode_request(&frame).ok()? else {
                return None;
            };
            let answer = self.answer(&request.message)?;
            // tarpc's `Response`: the id of the request, and a result.
            let answer = encode(&(request.id, Ok::<_, ()>(answer))).ok()?;
            let length = u32::try_from(answer.len()).ok()?;
            stream.write_all(&length.to_be_bytes()).ok()?;
            stream.write_all(&answer).ok()?;
        }
    }

    fn answer(&self, request: &GpukillRequest) -> Option<GpukillResponse> {
        let mut answers = self.lock();
        match request {
            GpukillRequest::Snapshot { after } => {
                answers.snapshot_requests += 1;
                let is_known = |answers: &StandInAnswers| {
                    let is_known = after.is_some_and(|after| answers.snapshot.polls <= after);
                    is_known && !answers.is_impatient
                };
                while is_known(&answers) {
                    answers = self.changed.wait(answers).expect("not poisoned");
                }
                Some(GpukillResponse::Snapshot(Ok(SnapshotPage {
                    snapshot: answers.snapshot.clone(),
                    next: None,
                    guard: GuardSummary::default(),
                    verdicts: Vec::new(),
                })))
            }
            GpukillRequest::Status { .. } => {
                Some(GpukillResponse::Status(Ok(status(&answers.rights))))
            }
            _ => None,
        }
    }
}

/// A snapshot of this many H100 GPUs, with the readings that such a GPU has.
fn snapshot(gpus: u32) -> Snapshot {
    Snapshot {
        host: "box".into(),
        taken_at: SystemTime::now().into(),
        polls: 1,
        devices: (0..gpus).map(device).collect(),
        processes: Vec::new(),
        backends: Vec::new(),
        faults: Vec::new(),
    }
}

fn device(index: u32) -> Device {
    let id = DeviceId(format!("GPU-{index:08x}-0000-0000-0000-000000000000"));
    let mut device = Device {
        name: Reading::Value("NVIDIA H100 80GB HBM3".into()),
        pci: Reading::Value(format!("{index:04x}:1b:00.0")),
        memory_total: Reading::Value(Bytes::mib(81_559)),
        memory_used: Reading::Value(Bytes::mib(4_096)),
        memory_reserved: Reading::Value(Bytes::mib(510)),
        memory_unattributed: Reading::Value(Bytes(0)),
        process_count: Reading::Value(0),
        ..Device::unknown(id, index, Vendor::Nvidia, &Reading::Unsupported)
    };
    let vitals = &mut device.vitals;
    vitals.utilization = Reading::Value(Percent(1));
    vitals.memory_utilization = Reading::Value(Percent(40));
    vitals.encoder = Reading::Value(Percent(0));
    vitals.decoder = Reading::Value(Percent(0));
    vitals.temperature = Reading::Value(Celsius(71));
    vitals.memory_temperature = Reading::Value(Celsius(83));
    vitals.power = Reading::Value(Milliwatts(688_000));
    vitals.power_limit = Reading::Value(Milliwatts(700_000));
    vitals.clock_graphics = Reading::Value(Megahertz(1_755));
    vitals.clock_sm = Reading::Value(Megahertz(1_755));
    vitals.clock_memory = Reading::Value(Megahertz(2_619));
    vitals.clock_sm_max = Reading::Value(Megahertz(1_980));
    vitals.clock_memory_max = Reading::Value(Megahertz(2_619));
    vitals.performance_state = Reading::Value(0);
    vitals.ecc_volatile = Reading::Value(0);
    vitals.ecc_aggregate = Reading::Value(0);
    vitals.pcie_generation = Reading::Value(5);
    vitals.pcie_width = Reading::Value(16);
    vitals.minor = Reading::Value(index);
    device
}

fn status(rights: &[Right]) -> DaemonStatus {
    let now: Timestamp = SystemTime::now().into();
    DaemonStatus {
        version: env!("CARGO_PKG_VERSION").into(),
        protocol: PROTOCOL_VERSION,
        host: "box".into(),
        started_at: now,
        now,
        caller: CallerReport {
            uid: 1_000,
            user: Reading::Value("alice".into()),
            rights: rights.to_vec(),
            log_in_again_for: None,
        },
        personal: false,
        will_not_act: None,
        backends: Vec::new(),
        faults: Vec::new(),
        alerts: Vec::new(),
        polling: PollingReport {
            interval_ms: 60_000,
            set_interval_ms: 60_000,
            last_at: None,
            polls: 1,
            late: 0,
        },
        store: StoreReport {
            directory: "/var/lib/gpukill".into(),
            samples: Bytes(0),
            audit: Bytes(0),
            recorded_since: None,
            written_at: None,
            written: 0,
            dropped: 0,
        },
        guard: GuardReport {
            mode: GuardMode::DryRun,
            armed_mode: GuardMode::Soft,
            rules: RuleCounts::default(),
            file: "/etc/gpukill/rules/guard.toml".into(),
            revision: None,
            mistakes: Vec::new(),
            is_file_changed: Some(false),
            evaluated_at: None,
            dropped: 0,
            overflow: 0,
            tripped_at: None,
            doubt: None,
            open: 0,
            would_have_ended: 0,
            warned_today: 0,
            ended_today: 0,
            simulated_warned_today: 0,
            simulated_ended_today: 0,
            is_trip_simulated: false,
            idle_services: Vec::new(),
        },
        rogue: RogueReport::default(),
        settings: Vec::new(),
        counters: CountersReport::default(),
    }
}
