//! What the box remembers.

use super::{NOW, gib, id};
use gpukill_proto::audit::{AuditRecord, AuditSubject};
use gpukill_proto::reading::Reading::{Failed, Unsupported, Value};
use gpukill_proto::units::{Celsius, Milliwatts, Percent};

/// Newest first.
pub(crate) fn records() -> Vec<AuditRecord> {
    let record = |id, index, memory, utilization, subject| AuditRecord {
        id,
        at: NOW.plus_seconds(-10 * (9 - i64::try_from(id).unwrap_or(0))),
        device: self::id(index),
        gpu_index: index,
        gpu_name: Some("NVIDIA H100 80GB HBM3".into()),
        memory,
        utilization,
        subject,
    };
    let process =
        |pid, user: Option<&str>, name: &str, container: Option<&str>| AuditSubject::Process {
            pid,
            uid: Some(1000),
            user: user.map(Into::into),
            owner: None,
            namespace_owner: None,
            name: Some(name.into()),
            command: Value("python train.py".into()),
            container: container.map(Into::into),
        };
    let whole = AuditSubject::Device {
        temperature: Value(Celsius(71)),
        power: Value(Milliwatts(688_000)),
    };
    vec![
        record(9, 0, Value(gib(631)), Value(Percent(98)), whole),
        record(
            8,
            0,
            Value(gib(158)),
            Value(Percent(97)),
            process(48_213, Some("alice"), "python", None),
        ),
        record(
            7,
            1,
            Value(gib(33)),
            Unsupported,
            process(60_001, None, "vllm", Some("docker/0123456789ab")),
        ),
        record(
            6,
            11,
            Failed("timeout".into()),
            Value(Percent(0)),
            process(7, Some("模型"), "tensorboard-long", None),
        ),
    ]
}
