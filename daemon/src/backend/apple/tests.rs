//! Tests with text in the form that `ioreg` prints, and with scripts in place of `ioreg`.

use super::*;
use crate::fault::FaultCause;
use gpukill_proto::model::FaultCode;
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

const M4: &str = r#"+-o AGXAcceleratorG16G  <class AGXAcceleratorG16G, id 0x1000003a1, registered, matched, active, busy 0 (9 ms), retain 61>
    {
      "IOSourceVersion" = "301.9"
      "PerformanceStatistics" = {"In use system memory (driver)"=0,"Alloc system memory"=9000,"recoveryCount"=3,"Device Utilization %"=30,"In use system memory"=4096}
      "gpu-core-count" = 10
      "model" = "Apple M4"
    }
"#;

/// One client as printed: its usage comes before its creator.
fn client(id: &str, creator: &str, times: &[u64]) -> String {
    let queues: Vec<String> = times
        .iter()
        .map(|time| {
            format!("{{\"API\"=\"Metal\",\"lastSubmittedTime\"=9,\"accumulatedGPUTime\"={time}}}")
        })
        .collect();
    format!(
        "+-o AGXDeviceUserClient  <class AGXDeviceUserClient, id {id}, !registered>\n    {{\n      \
         \"AppUsage\" = ({})\n      \"CommandQueueCount\" = 1\n      \
         \"IOUserClientCreator\" = \"{creator}\"\n    }}\n\n",
        queues.join(",")
    )
}

/// The GPU share of each process at each of these polls, one second apart.
fn shares(polls: &[&[(&str, &str, &[u64])]]) -> Vec<Vec<(u32, Option<u32>)>> {
    let start = Instant::now();
    let mut usage = ClientUsage::default();
    let mut at = 0;
    let poll = |clients: &&[(&str, &str, &[u64])]| {
        let text: String = clients
            .iter()
            .map(|(id, creator, times)| client(id, creator, times))
            .collect();
        let now = start + Duration::from_secs(at);
        at += 1;
        let shares = usage.shares_since_last(registry::parse_entries(&text), now);
        shares
            .into_iter()
            .map(|(pid, share)| (pid, share.map(|share| share.0)))
            .collect()
    };
    polls.iter().map(poll).collect()
}

#[test]
fn share_sums_all_clients_of_a_process() {
    let polls: &[&[(&str, &str, &[u64])]] = &[
        &[
            ("0x1", "pid 42, a", &[100]),
            ("0x2", "pid 42, a", &[5, 5]),
            ("0x3", "pid 7, b", &[0]),
        ],
        &[
            ("0x1", "pid 42, a", &[250_000_100]),
            ("0x2", "pid 42, a", &[5, 250_000_005]),
            ("0x3", "pid 7, b", &[0]),
        ],
    ];
    assert_eq!(
        shares(polls),
        [
            vec![(7, None), (42, None)],
            vec![(7, Some(0)), (42, Some(50))]
        ]
    );
}

#[test]
fn new_and_ended_clients_do_not_count() {
    let polls: &[&[(&str, &str, &[u64])]] = &[
        &[
            ("0x1", "pid 42, a", &[100]),
            ("0x2", "pid 42, a", &[9_000_000_000]),
        ],
        // One client is gone, another came with earlier GPU time: neither counts.
        &[
            ("0x1", "pid 42, a", &[100_000_100]),
            ("0x9", "pid 42, a", &[7_000_000_000]),
        ],
        // A queue ended: its gain since the last poll is unknown.
        &[
            ("0x1", "pid 42, a", &[50]),
            ("0x9", "pid 42, a", &[7_100_000_000]),
        ],
        &[
            ("0x1", "pid 42, a", &[50]),
            ("0x9", "pid 42, a", &[9_100_000_000]),
        ],
        // The pid belongs to another process now, with a client of its own.
        &[("0xa", "pid 42, c", &[100])],
        &[],
    ];
    assert_eq!(
        shares(polls),
        [
            vec![(42, None)],
            vec![(42, Some(10))],
            vec![(42, None)],
            // Queues that ran at the same time used more than the time of one GPU.
            vec![(42, Some(100))],
            vec![(42, None)],
            vec![],
        ]
    );
}

#[test]
fn client_belongs_to_its_creator() {
    for (creator, expected) in [
        ("pid 42, Brave, Browser", Some(42)),
        ("pid 42, a\" b", Some(42)),
        // A name that contains line breaks.
        ("pid 42, x\n\"IOUserClientCreator\" = \"pid 1, y", Some(42)),
        ("pid 42, x\n+-o AGXDeviceUserClient  <", Some(42)),
        ("pid 0, kernel_task", None),
        ("pid 4294967296, x", None),
        ("pid -1, x", None),
        ("42, x", None),
        ("", None),
    ] {
        let found = shares(&[&[("0x1", creator, &[1])]]).pop().unwrap();
        let pids: Vec<u32> = found.into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(pids, Vec::from_iter(expected), "{creator:?}");
    }
}

#[test]
fn share_without_gpu_time_is_unknown() {
    let text = client("0x1", "pid 42, a", &[5]).replace("accumulatedGPUTime", "x");
    let mut usage = ClientUsage::default();
    let start = Instant::now();
    for seconds in [0, 2] {
        let now = start + Duration::from_secs(seconds);
        let shares = usage.shares_since_last(registry::parse_entries(&text), now);
        assert_eq!(shares, BTreeMap::from([(42, None)]));
    }
}

#[test]
fn name_is_the_model_and_memory_unified() {
    let mut memory = AppleState::default();
    let clients = client("0x1", "pid 42, a", &[5]);
    let start = Instant::now();
    memory.parse_readings(M4, Ok(&clients), start, Timestamp(1_000));
    let clients = client("0x1", "pid 42, a", &[500_000_005]);
    let now = start + Duration::from_secs(2);
    let readings = memory.parse_readings(M4, Ok(&clients), now, Timestamp(3_000));

    let id = DeviceId("AGXAcceleratorG16G".into());
    let mut device = DeviceReadings::unknown(id, 0, Vendor::Apple, &Reading::Unsupported);
    device.name = Reading::Value("Apple M4 (10 cores)".into());
    device.memory = MemoryReadings {
        // Not the memory that the driver itself has in use.
        used: Reading::Value(Bytes(4_096)),
        ..MemoryReadings::shared_with_host()
    };
    device.vitals.utilization = Reading::Value(Percent(30));
    device.processes = Reading::Value(vec![ProcessReadings {
        pid: 42,
        start_ticks: None,
        instance: None,
        used_for: GpuUse::default(),
        memory: Reading::Unsupported,
        utilization: Utilization {
            sm: Reading::Value(Percent(25)),
            sampled_at: Some(Timestamp(3_000)),
            ..Utilization::unknown(&Reading::Unsupported)
        },
    }]);
    let expected = BackendReadings {
        driver: Reading::Value("301.9".into()),
        devices: vec![device],
        ..BackendReadings::without_devices(BackendState::Ready)
    };
    assert_eq!(readings, expected);
}

#[test]
fn other_vendors_have_no_known_clients() {
    let text = "+-o IntelAccelerator  <class IntelAccelerator, id 0x2>\n  \
        \"PerformanceStatistics\" = {\"Device Utilization %\"=101}\n\
        +-o AMDRadeonX6000_AMDNavi14GraphicsAccelerator  <class X, id 0x3>\n  \
        \"PerformanceStatistics\" = {\"Device Utilization %\"=7\n";
    let clients = client("0x1", "pid 42, a", &[5]);
    let readings =
        AppleState::default().parse_readings(text, Ok(&clients), Instant::now(), Timestamp(0));
    let values: Vec<_> = readings
        .devices
        .iter()
        .map(|it| (it.index, it.vendor, it.vitals.utilization.clone()))
        .collect();
    let absurd = Reading::Failed("the driver reports more than 100 %".into());
    assert_eq!(
        values,
        [
            (0, Vendor::Amd, Reading::Unsupported),
            (1, Vendor::Intel, absurd)
        ]
    );
    for device in &readings.devices {
        assert_eq!(device.processes, Reading::Unsupported);
        assert!(!device.memory.unified);
    }
}

#[test]
fn a_restart_is_reported_once() {
    let mut memory = AppleState::default();
    let hung = M4.replace("\"recoveryCount\"=3", "\"recoveryCount\"=4");
    let fault = "AGXAcceleratorG16G hung and was restarted";
    let fault = FaultCause::new(FaultCode::GpuRestarted, fault);
    for (text, faults) in [(M4, vec![]), (&hung, vec![fault]), (&hung, vec![])] {
        let readings = memory.parse_readings(text, Ok(""), Instant::now(), Timestamp(0));
        assert_eq!(readings.faults, faults);
    }
}

#[test]
fn equal_gpus_get_distinct_ids() {
    let two = format!("{M4}{M4}");
    let readings = AppleState::default().parse_readings(&two, Ok(""), Instant::now(), Timestamp(0));
    let values: Vec<_> = readings
        .devices
        .iter()
        .map(|it| (it.id.0.as_str(), it.processes.clone()))
        .collect();
    assert_eq!(
        values,
        [
            ("AGXAcceleratorG16G", Reading::Unsupported),
            ("AGXAcceleratorG16G#2", Reading::Unsupported)
        ]
    );
}

/// The backend with a script in place of `ioreg`.
fn apple(directory: &tempfile::TempDir, script: &str) -> AppleBackend {
    let program = directory.path().join("ioreg");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    AppleBackend::new(program)
}

/// Reads once. Retries while another thread's child has the script open for writing.
fn read(apple: &mut AppleBackend) -> Result<BackendReadings, BackendError> {
    loop {
        match apple.read() {
            Err(BackendError::Failed(_, why)) if why.contains("Text file busy") => {}
            result => return result,
        }
    }
}

#[test]
fn both_classes_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let clients = client("0x1", "pid 42, a", &[5]);
    std::fs::write(directory.path().join("IOAccelerator"), M4).unwrap();
    std::fs::write(directory.path().join("AGXDeviceUserClient"), clients).unwrap();
    // `$8` is the class.
    let script = format!("exec /bin/cat {}/\"$8\"", directory.path().display());
    let readings = read(&mut apple(&directory, &script)).unwrap();
    assert_eq!(readings.state, BackendState::Ready);
    let processes = readings.devices[0].processes.known().unwrap();
    assert_eq!(processes.iter().map(|it| it.pid).collect::<Vec<_>>(), [42]);
}

#[test]
fn failing_ioreg_differs_from_no_gpu() {
    let directory = tempfile::tempdir().unwrap();
    let failed = read(&mut apple(&directory, "exit 1"));
    let why = "ioreg failed: exit status: 1";
    assert_eq!(
        failed,
        Err(BackendError::Failed(FaultCode::ProgramFailed, why.into()))
    );
    let absent = BackendState::Absent("ioreg lists no GPU".into());
    let none = read(&mut apple(&directory, "exit 0")).unwrap();
    assert_eq!((none.state, none.devices), (absent, vec![]));

    // The GPU can be read, its clients cannot.
    std::fs::write(directory.path().join("IOAccelerator"), M4).unwrap();
    let script = format!("exec /bin/cat {}/\"$8\"", directory.path().display());
    let half = read(&mut apple(&directory, &script)).unwrap();
    assert_eq!(half.state, BackendState::Ready);
    let why = "ioreg failed: exit status: 1";
    assert_eq!(half.devices[0].processes, Reading::Failed(why.into()));
}

proptest! {
    #[test]
    fn any_output_gives_valid_readings(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        fuzz_api::ioreg(&bytes);
        let mut text = format!("\0{M4}{}", client("0x1", "pid 42, a", &[5, 7])).into_bytes();
        for (position, byte) in changes {
            let position = position.index(text.len());
            text[position] = byte;
        }
        fuzz_api::ioreg(&text);
    }
}
