//! The parsers of untrusted bytes, each with the properties that hold for any input. For fuzzing
//! and for the replay of the corpus; not a public interface.

use crate::backend::{BackendReadings, DeviceReadings, driver_files, validation};
use crate::host::fuzz_api::assert_printable;
use crate::reset::{HelperAnswer, parse_answer};
use crate::reset_helper::{MAX_ANSWER_BYTES, request};
use gpukill_proto::model::{BackendState, DeviceId, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::transport::codec;

pub use crate::backend::apple::fuzz_api::ioreg;
pub use crate::backend::drm::amd::fuzz_api::{gpu_metrics, hwmon, ids, kfd};
pub use crate::backend::drm::fdinfo::fuzz_api::fdinfo;
pub use crate::host::evidence::fuzz_api::{mappings, sent};
pub use crate::host::fuzz_api::{cgroup, command, container, login_uid, stat, status};
pub use crate::host::sockets::fuzz_api::sockets;
pub use crate::store::bench_api::{copy, times};

/// Decodes the body of a sensor answer: the bytes themselves, and a valid answer changed by them.
/// Each change is two bytes: position and value.
pub fn sensor(bytes: &[u8]) {
    check_decoded(bytes);
    let why = Reading::Failed("no answer".to_owned());
    let device = |id: &str| DeviceReadings::unknown(DeviceId(id.into()), 0, Vendor::Nvidia, &why);
    let mut honest = BackendReadings::without_devices(BackendState::Ready);
    honest.devices = vec![device("GPU-1"), device("GPU-2")];
    let mut changed = codec::encode(&honest).expect("plain values encode");
    for change in bytes.chunks_exact(2) {
        let end = changed.len();
        if let Some(place) = changed.get_mut(usize::from(change[0]) % end) {
            *place = change[1];
        }
    }
    check_decoded(&changed);
}

fn check_decoded(bytes: &[u8]) {
    let Ok(readings) = codec::decode::<BackendReadings>(bytes) else {
        return;
    };
    if validation::validate_readings(&readings).is_ok() {
        assert!(readings.devices.len() + readings.lost.len() <= 256);
        assert!(readings.faults.iter().all(|fault| fault.what.len() <= 512));
        let again = codec::encode(&readings).expect("what was decoded encodes");
        assert_eq!(
            codec::decode::<BackendReadings>(&again).ok(),
            Some(readings)
        );
    }
}

/// Parses the files of the NVIDIA driver below `/proc`: its version and its devices.
pub fn driver_files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(version) = driver_files::parse_driver_version(&text) {
        assert_printable(&version, 128);
    }
    let failed = Reading::Failed("no NVML".to_owned());
    let device = driver_files::parse_device(&text, &text, &failed);
    assert_printable(&device.id.0, 128);
    for text in [&device.name, &device.pci] {
        assert_printable(text.known().map_or("", String::as_str), 128);
    }
    let alone = BackendReadings {
        devices: vec![device],
        ..BackendReadings::without_devices(BackendState::Ready)
    };
    assert_eq!(validation::validate_readings(&alone), Ok(()));
}

/// Parses a request to the reset helper: exactly what the daemon writes, or nothing.
pub fn reset_request(bytes: &[u8]) {
    if let Ok(request) = request::parse(bytes) {
        assert_eq!(request.to_string().into_bytes(), bytes);
        let address = request.gpu.address().to_string();
        let is_harmless = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        assert!(address.len() <= 13 && address.bytes().all(is_harmless));
        assert!(!address.contains(".."));
    }
}

/// Parses an answer of the reset helper.
pub fn reset_answer(bytes: &[u8]) {
    match parse_answer(bytes) {
        Ok(HelperAnswer::Done(None)) => assert_eq!(bytes, b"ok\n"),
        Ok(
            HelperAnswer::Done(Some(text)) | HelperAnswer::Busy(text) | HelperAnswer::Failed(text),
        )
        | Err(text) => assert_printable(&text, 2 * MAX_ANSWER_BYTES),
    }
}
