//! The device and the processes of the fake daemon.

use crate::fake_daemon::NOW;
use gpukill_proto::model::{Device, DeviceId, GpuProcess, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent};

pub(crate) fn device() -> Device {
    let id = DeviceId("GPU-8f3c0000".into());
    let mut device = Device {
        name: Reading::Value("NVIDIA H100 80GB HBM3".into()),
        memory_total: Reading::Value(Bytes::mib(81_559)),
        memory_used: Reading::Value(Bytes::mib(4_096)),
        memory_unattributed: Reading::Value(Bytes(0)),
        process_count: Reading::Value(0),
        ..Device::unknown(id, 0, Vendor::Nvidia, &Reading::Unsupported)
    };
    let vitals = &mut device.vitals;
    vitals.utilization = Reading::Value(Percent(98));
    vitals.temperature = Reading::Value(Celsius(71));
    vitals.power = Reading::Value(Milliwatts(688_000));
    vitals.power_limit = Reading::Value(Milliwatts(700_000));
    vitals.ecc_volatile = Reading::Value(0);
    device
}

pub(crate) fn process(at: u32) -> GpuProcess {
    let device = DeviceId("GPU-8f3c0000".into());
    let mut process = GpuProcess {
        start_ticks: Reading::Value(1),
        started_at: Reading::Value(NOW),
        memory: Reading::Value(Bytes::mib(1024)),
        utilization: Reading::Value(Percent(9)),
        uid: Reading::Value(1000),
        user: Reading::Value("alice".into()),
        name: Reading::Value("python".into()),
        command: Reading::Value("python train.py".into()),
        ..GpuProcess::unknown(device, 100 + at, NOW, &Reading::Unsupported)
    };
    process.location.container = Reading::Value(None);
    process
}
