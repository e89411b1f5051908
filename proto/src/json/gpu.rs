//! The JSON of a device and of its parts.

use super::fields::{bytes, celsius, document, documents, map_ref, megahertz, mib, percent, watts};
use super::process::top_process;
use super::schema::{described, object_schema, word_schemas};
use super::{ProcessAnnotations, ProcessDocument};
use crate::model::{
    Device, GpuEvent, Instance, Loss, LossKind, RemappedRows, RetiredPages, Snapshot,
    ThrottleReasons, Vendor, Vitals,
};
use crate::reading::Reading;
use crate::units::Timestamp;
use crate::words::words;

document! {
    /// One device.
    GpuDocument(snapshot: &Snapshot, device: &Device, marks: ProcessAnnotations<'_>) {
        gpu_index: u32 = device.index,
        /// The permanent identity: the UUID (NVIDIA) or the PCI address.
        id: String = device.id.0.clone(),
        pci: Option<String> = device.pci.clone(),
        name: Option<String> = device.name.clone(),
        vendor: &'static str as Vendor = device.vendor.name(),
        /// `ok`, `lost`, `gone`, `not_permitted`, or `unknown` while its driver does not answer.
        state: &'static str as GpuState = state(device).name(),
        lost_since: Option<String> as Option<Timestamp> = shown_loss(device).map(|loss| loss.since.to_rfc3339()),
        lost_reason: Option<String> = shown_loss(device).map(|loss| loss.reason.clone()),
        serial: Option<String> = device.vitals.serial.clone(),
        /// The N of `/dev/nvidiaN`.
        minor: Option<u32> = device.vitals.minor.clone(),
        mem_used_mb: Option<u64> = mib(&device.memory_used),
        mem_total_mb: Option<u64> = mib(&device.memory_total),
        mem_used_bytes: Option<u64> = bytes(&device.memory_used),
        mem_total_bytes: Option<u64> = bytes(&device.memory_total),
        /// Reserved by the driver; not part of `mem_used_bytes`.
        mem_reserved_bytes: Option<u64> = bytes(&device.memory_reserved),
        /// Used memory that no process explains.
        mem_unattributed_bytes: Option<u64> = bytes(&device.memory_unattributed),
        mem_unified: bool = device.memory_unified,
        util_pct: Option<u32> = percent(&device.vitals.utilization),
        /// Share of the memory controller's time, not of the memory.
        mem_util_pct: Option<u32> = percent(&device.vitals.memory_utilization),
        encoder_util_pct: Option<u32> = percent(&device.vitals.encoder),
        decoder_util_pct: Option<u32> = percent(&device.vitals.decoder),
        temp_c: Option<i32> = celsius(&device.vitals.temperature),
        mem_temp_c: Option<i32> = celsius(&device.vitals.memory_temperature),
        /// The hottest spot of the die.
        hotspot_temp_c: Option<i32> = celsius(&device.vitals.hotspot_temperature),
        fan_pct: Option<u32> = percent(&device.vitals.fan),
        fan_rpm: Option<u32> = map_ref(&device.vitals.fan_speed, |speed| speed.0),
        power_w: Option<f64> = watts(&device.vitals.power),
        power_limit_w: Option<f64> = watts(&device.vitals.power_limit),
        clock_graphics_mhz: Option<u32> = megahertz(&device.vitals.clock_graphics),
        clock_sm_mhz: Option<u32> = megahertz(&device.vitals.clock_sm),
        clock_mem_mhz: Option<u32> = megahertz(&device.vitals.clock_memory),
        clock_video_mhz: Option<u32> = megahertz(&device.vitals.clock_video),
        clock_sm_max_mhz: Option<u32> = megahertz(&device.vitals.clock_sm_max),
        clock_mem_max_mhz: Option<u32> = megahertz(&device.vitals.clock_memory_max),
        /// From 0, the fastest, to 15.
        performance_state: Option<u32> = device.vitals.performance_state.clone(),
        /// Why the clocks are reduced: `sw_power_cap`, …
        throttle_reasons: Option<Vec<String>> =
            map_ref(&device.vitals.throttle, |reasons: &ThrottleReasons| reasons.0.clone()),
        /// Uncorrected errors since the driver was loaded.
        ecc_volatile: Option<u64> = device.vitals.ecc_volatile.clone(),
        ecc_volatile_corrected: Option<u64> = device.vitals.ecc_volatile_corrected.clone(),
        /// Uncorrected errors over the life of the device.
        ecc_aggregate: Option<u64> = device.vitals.ecc_aggregate.clone(),
        ecc_aggregate_corrected: Option<u64> = device.vitals.ecc_aggregate_corrected.clone(),
        remapped_rows: Option<RemappedRows> = device.vitals.remapped_rows.clone(),
        retired_pages: Option<RetiredPages> = device.vitals.retired_pages.clone(),
        bad_pages: Option<u64> = device.vitals.bad_pages.clone(),
        /// Host memory that the device can use (AMD).
        gtt_total_bytes: Option<u64> = bytes(&device.vitals.gtt_total),
        gtt_used_bytes: Option<u64> = bytes(&device.vitals.gtt_used),
        /// The recommendation of the driver: `none`, `reset`, …
        recovery_action: Option<String> = map_ref(&device.vitals.recovery_action, ToString::to_string),
        last_xid: Option<XidDocument> = device.last_xid.as_ref().and_then(xid_document),
        /// Whether the device is in runtime suspend; it is not woken for a reading.
        suspended: Option<bool> = device.vitals.suspended.clone(),
        persistence_mode: Option<bool> = device.vitals.persistence.clone(),
        pcie_gen: Option<u32> = device.vitals.pcie_generation.clone(),
        pcie_width: Option<u32> = device.vitals.pcie_width.clone(),
        pcie_gen_max: Option<u32> = device.vitals.pcie_generation_max.clone(),
        pcie_width_max: Option<u32> = device.vitals.pcie_width_max.clone(),
        /// The partition modes of its compute units and its memory (AMD): `CPX`, `NPS4`.
        compute_partition: Option<String> = device.vitals.compute_partition.clone(),
        memory_partition: Option<String> = device.vitals.memory_partition.clone(),
        mig_mode: Option<bool> = device.vitals.mig.clone(),
        /// The instances of a divided device.
        instances: Vec<InstanceDocument> = documents(&device.instances),
        /// The number of processes that use it.
        pids: Option<u32> = device.process_count.clone(),
        /// The process that holds the most memory.
        top_proc: Option<ProcessDocument> =
            top_process(snapshot.processes.iter().filter(|process| process.device == device.id))
                .map(|process| ProcessDocument::from_snapshot(snapshot, process, marks)),
    }
}

document! {
    /// One instance of a device (MIG).
    InstanceDocument(instance: &Instance) {
        gpu_instance: u32 = instance.id.gpu,
        compute_instance: u32 = instance.id.compute,
        uuid: String = instance.uuid.0.clone(),
        /// `3g.40gb`
        profile: Option<String> = instance.profile.clone(),
        /// The memory of the GPU instance: sums count each GPU instance once.
        mem_total_bytes: Option<u64> = bytes(&instance.memory_total),
        mem_used_bytes: Option<u64> = bytes(&instance.memory_used),
        pids: Option<u32> = instance.process_count.clone(),
    }
}

words! {
    /// The state of a device in JSON.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GpuState {
        /// Its driver answers.
        Ok = "ok",
        /// The driver cannot reach it.
        Lost = "lost",
        /// The driver no longer lists it.
        Gone = "gone",
        /// The system denies access to it.
        NotPermitted = "not_permitted",
        /// Its driver does not answer.
        Unknown = "unknown",
    }
    /// The name in JSON.
    name(self)
}

word_schemas! { GpuState, }

/// The state of a device. Without any fresh reading from its driver nothing shows that it
/// works.
fn state(device: &Device) -> GpuState {
    // The minor number comes from the kernel, without a query of the device.
    let vitals = Vitals {
        minor: Reading::Unsupported,
        ..device.vitals.clone()
    };
    let memory = [&device.memory_used, &device.memory_total];
    let answers = vitals.is_any_known()
        || memory.into_iter().any(|it| it.known().is_some())
        || device.process_count.known().is_some();
    match (device.lost.as_ref().map(|loss| loss.kind), answers) {
        (Some(LossKind::Lost), _) => GpuState::Lost,
        (Some(LossKind::Gone), _) => GpuState::Gone,
        (Some(LossKind::NotPermitted), _) => GpuState::NotPermitted,
        (None, true) => GpuState::Ok,
        (Some(LossKind::Unknown), _) | (None, false) => GpuState::Unknown,
    }
}

/// The loss of a device that the driver cannot reach or does not list.
fn shown_loss(device: &Device) -> Option<&Loss> {
    let loss = device.lost.as_ref();
    loss.filter(|loss| matches!(loss.kind, LossKind::Lost | LossKind::Gone))
}

described! {
    /// The last XID error of a device.
    pub struct XidDocument {
        pub xid: u64,
        pub at: String as Timestamp,
    }
}

object_schema! {
    /// Rows of a device's memory that were replaced by spare rows.
    RemappedRows {
        /// Replaced after corrected errors.
        correctable: u64,
        /// Replaced after uncorrected errors.
        uncorrectable: u64,
        /// Whether some rows are replaced only after a reset.
        pending: bool,
        /// Whether some rows could not be replaced.
        failed: bool,
    }
}

object_schema! {
    /// Retired pages of a device's memory.
    RetiredPages {
        /// Retired after many corrected errors.
        single_bit: u64,
        /// Retired after uncorrected errors.
        double_bit: u64,
        /// Whether some pages are retired only after a reset.
        pending: bool,
    }
}

fn xid_document(event: &GpuEvent) -> Option<XidDocument> {
    let xid = event.kind.xid()?;
    let at = event.at.to_rfc3339();
    Some(XidDocument { xid, at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DeviceId;
    use crate::reading::Reading::{Failed, Stale, Value};
    use crate::units::Bytes;

    type Change = fn(&mut Device);

    fn lose(device: &mut Device, kind: LossKind) {
        device.lost = Some(Loss {
            since: Timestamp(0),
            reason: "the driver says so".into(),
            kind,
        });
    }

    #[test]
    fn state_is_ok_only_with_fresh_readings() {
        let state_with = |change: Change| {
            let failed = Failed("its driver does not answer".to_owned());
            let id = DeviceId("0000:03:00.0".to_owned());
            let mut device = Device::unknown(id, 0, Vendor::Amd, &failed);
            change(&mut device);
            state(&device).name()
        };
        let cases: [(&str, Change); 11] = [
            ("unknown", |_| {}),
            ("unknown", |device| device.name = Value("MI300X".into())),
            // The kernel has known this number since the driver was loaded.
            ("unknown", |device| device.vitals.minor = Value(3)),
            ("unknown", |device| {
                device.process_count = Stale(1, 12);
                device.memory_used = Stale(Bytes(5), 12);
                device.vitals.suspended = Stale(false, 12);
            }),
            ("ok", |device| device.vitals.suspended = Value(true)),
            ("ok", |device| device.process_count = Value(0)),
            ("ok", |device| device.memory_used = Value(Bytes(0))),
            ("ok", |device| device.memory_total = Value(Bytes(1))),
            ("lost", |device| lose(device, LossKind::Lost)),
            ("not_permitted", |device| {
                lose(device, LossKind::NotPermitted)
            }),
            ("unknown", |device| {
                lose(device, LossKind::Unknown);
                device.vitals.minor = Value(3);
            }),
        ];
        for (case, (expected, change)) in cases.into_iter().enumerate() {
            assert_eq!(state_with(change), expected, "case {case}");
        }
    }
}
