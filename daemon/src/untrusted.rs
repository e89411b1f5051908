//! The parsers that read bytes of strangers, each with what must hold whatever
//! the bytes. For fuzzing and for the replay of its corpus; no interface.

use crate::backend::{DeviceReadings, Readings, checked, driver_files};
use crate::helper::{LONGEST_ANSWER, request};
use crate::host::untrusted::assert_shown;
use crate::reset::{Answer, understand};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendState, DeviceId, Vendor};
use gpukill_proto::transport::codec;

pub use crate::audit::untrusted::{copy, times};
pub use crate::backend::apple::untrusted::ioreg;
pub use crate::backend::drm::amd::untrusted::{gpu_metrics, hwmon, ids, kfd};
pub use crate::backend::drm::fdinfo::untrusted::fdinfo;
pub use crate::host::connections::untrusted::sockets;
pub use crate::host::traces::untrusted::{mappings, sent};
pub use crate::host::untrusted::{cgroup, command, container, login_uid, stat, status};

/// The body of a sensor's answer: as it is, and as changes of a true one, each
/// of two bytes: where, and what.
pub fn sensor(bytes: &[u8]) {
    believe(bytes);
    let why = Reading::Failed("no answer".to_owned());
    let device = |id: &str| DeviceReadings::unknown(DeviceId(id.into()), 0, Vendor::Nvidia, &why);
    let mut honest = Readings::nothing(BackendState::Ready);
    honest.devices = vec![device("GPU-1"), device("GPU-2")];
    let mut changed = codec::encode(&honest).expect("plain values encode");
    for change in bytes.chunks_exact(2) {
        let end = changed.len();
        if let Some(place) = changed.get_mut(usize::from(change[0]) % end) {
            *place = change[1];
        }
    }
    believe(&changed);
}

fn believe(bytes: &[u8]) {
    let Ok(readings) = codec::decode::<Readings>(bytes) else {
        return;
    };
    if checked::check(&readings).is_ok() {
        assert!(readings.devices.len() + readings.lost.len() <= 256);
        assert!(readings.faults.iter().all(|fault| fault.what.len() <= 512));
        let again = codec::encode(&readings).expect("what was decoded encodes");
        assert_eq!(codec::decode::<Readings>(&again).ok(), Some(readings));
    }
}

/// What the NVIDIA driver writes below `/proc`: its version, and its devices.
pub fn driver_files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(version) = driver_files::driver(&text) {
        assert_shown(&version, 128);
    }
    let failed = Reading::Failed("no NVML".to_owned());
    let device = driver_files::device(&text, &text, &failed);
    assert_shown(&device.id.0, 128);
    for text in [&device.name, &device.pci] {
        assert_shown(text.known().map_or("", String::as_str), 128);
    }
    let alone = Readings {
        devices: vec![device],
        ..Readings::nothing(BackendState::Ready)
    };
    assert_eq!(checked::check(&alone), Ok(()));
}

/// What the helper is asked: exactly what the daemon writes, or nothing.
pub fn reset_request(bytes: &[u8]) {
    if let Ok(request) = request::parse(bytes) {
        assert_eq!(request.to_string().into_bytes(), bytes);
        let address = request.gpu.address().to_string();
        let is_harmless = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        assert!(address.len() <= 13 && address.bytes().all(is_harmless));
        assert!(!address.contains(".."));
    }
}

/// What the helper says.
pub fn reset_answer(bytes: &[u8]) {
    match understand(bytes) {
        Ok(Answer::Done(None)) => assert_eq!(bytes, b"ok\n"),
        Ok(Answer::Done(Some(text)) | Answer::Busy(text) | Answer::Failed(text)) | Err(text) => {
            assert_shown(&text, 2 * LONGEST_ANSWER)
        }
    }
}
