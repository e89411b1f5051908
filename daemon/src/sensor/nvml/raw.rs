//! The NVML calls that `nvml-wrapper` does not have, or makes in a way that does not work on every
//! driver. The sensor's only unsafe code.
//!
//! Layouts and meanings are those of `nvml.h`, through `nvml-wrapper-sys`.
#![allow(unsafe_code, reason = "a C library is called")]

use gpukill_proto::model::InstanceId;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;
use std::mem::MaybeUninit;

/// Total and used bytes as drivers before R510 report them: used includes reserved.
pub(super) fn memory_v1(nvml: &Nvml, device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut memory = MaybeUninit::<sys::nvmlMemory_t>::zeroed();
    // SAFETY: the handle belongs to `device`, which borrows the library that made it; the call
    // writes the struct, and zeroes are a value of it.
    let memory = unsafe {
        nvml_try(call(device.handle(), memory.as_mut_ptr()))?;
        memory.assume_init()
    };
    Ok((memory.total, memory.used))
}

/// The throttle reasons, including bits that have no name yet.
pub(super) fn throttle_reasons(nvml: &Nvml, device: &Device<'_>) -> Result<u64, NvmlError> {
    let lib = nvml.lib();
    let newer = lib.nvmlDeviceGetCurrentClocksEventReasons.as_ref();
    // Before R535 it had another name.
    let call = nvml_sym(newer.or(lib.nvmlDeviceGetCurrentClocksThrottleReasons.as_ref()))?;
    let mut reasons = 0;
    // SAFETY: as above; the call writes one number.
    unsafe { nvml_try(call(device.handle(), &raw mut reasons))? };
    Ok(reasons)
}

/// The instance ids of a MIG device within its GPU.
pub(super) fn instance_id(nvml: &Nvml, device: &Device<'_>) -> Result<InstanceId, NvmlError> {
    let gpu_call = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let compute_call = nvml_sym(nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    let (mut gpu, mut compute) = (0, 0);
    // SAFETY: as above; each call writes one number.
    unsafe {
        nvml_try(gpu_call(device.handle(), &raw mut gpu))?;
        nvml_try(compute_call(device.handle(), &raw mut compute))?;
    }
    Ok(InstanceId { gpu, compute })
}

/// The three process lists of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Compute,
    Graphics,
    Mps,
}

/// The buffer of a list, before it is parsed into records.
#[derive(Debug)]
pub(super) struct ListBuffer {
    /// The buffer, filled with [`UNTOUCHED`] before the call.
    pub(super) bytes: Vec<u8>,
    /// The number of records that the driver reports as written, and the number that fit.
    pub(super) count: usize,
    pub(super) room: usize,
    /// The possible lengths of the records.
    pub(super) lengths: &'static [usize],
}

/// The length of a record without instances (nvml.h, `nvmlProcessInfo_v1_t`), and of those with
/// them: 24 bytes, but 32 in some builds of R535.
pub(super) const SHORT_RECORDS: &[usize] = &[size_of::<sys::nvmlProcessInfo_v1_t>()];
pub(super) const LONG_RECORDS: &[usize] = &[size_of::<sys::nvmlProcessInfo_t>(), MAX_RECORD_BYTES];

/// The fill byte of the buffer, which shows how much was written.
pub(super) const UNTOUCHED: u8 = 0xaa;

/// The longest record of any driver, in bytes.
pub(super) const MAX_RECORD_BYTES: usize = 32;

/// Tries once to read a list, with room for this many records.
///
/// # Errors
/// [`NvmlError::InsufficientSize`] with the number of records that there are, if there was too
/// little room.
pub(super) fn read_list(
    nvml: &Nvml,
    device: &Device<'_>,
    list: ListKind,
    room: u32,
) -> Result<ListBuffer, NvmlError> {
    let lib = nvml.lib();
    let newest = match list {
        ListKind::Compute => lib.nvmlDeviceGetComputeRunningProcesses_v3.as_ref(),
        ListKind::Graphics => lib.nvmlDeviceGetGraphicsRunningProcesses_v3.as_ref(),
        ListKind::Mps => lib.nvmlDeviceGetMPSComputeRunningProcesses_v3.as_ref(),
    };
    // R450 to R495 had the same records under this name.
    let older = match list {
        ListKind::Compute => lib.nvmlDeviceGetComputeRunningProcesses_v2.as_ref(),
        ListKind::Graphics => lib.nvmlDeviceGetGraphicsRunningProcesses_v2.as_ref(),
        ListKind::Mps => lib.nvmlDeviceGetMPSComputeRunningProcesses_v2.as_ref(),
    };
    // Drivers before R450 have shorter records, under a name without a version.
    let oldest = match list {
        ListKind::Compute => lib.nvmlDeviceGetComputeRunningProcesses.as_ref(),
        ListKind::Graphics => lib.nvmlDeviceGetGraphicsRunningProcesses.as_ref(),
        ListKind::Mps => lib.nvmlDeviceGetMPSComputeRunningProcesses.as_ref(),
    };
    // Aligned for any record, and large enough for the longest kind that any driver writes.
    let words = (room as usize).saturating_mul(MAX_RECORD_BYTES / 8);
    let mut buffer = vec![u64::from_ne_bytes([UNTOUCHED; 8]); words];
    let mut count = room;
    // SAFETY: the handle is as above; the driver writes at most `room` records, none of which is
    // longer than its share of the buffer.
    let (code, lengths) = unsafe {
        let count = &raw mut count;
        if let Ok(call) = newest.or(older) {
            let records = buffer.as_mut_ptr().cast::<sys::nvmlProcessInfo_t>();
            (call(device.handle(), count, records), LONG_RECORDS)
        } else {
            let call = nvml_sym(oldest)?;
            let records = buffer.as_mut_ptr().cast::<sys::nvmlProcessInfo_v1_t>();
            (call(device.handle(), count, records), SHORT_RECORDS)
        }
    };
    match nvml_try(code) {
        Ok(()) => Ok(ListBuffer {
            bytes: buffer.into_iter().flat_map(u64::to_ne_bytes).collect(),
            count: count as usize,
            room: room as usize,
            lengths,
        }),
        Err(NvmlError::InsufficientSize(_)) => {
            Err(NvmlError::InsufficientSize(Some(count as usize)))
        }
        Err(error) => Err(error),
    }
}

/// An event set of NVML. Freed with [`EventSet::free`], or by the end of the process.
#[derive(Debug)]
pub(super) struct EventSet(sys::nvmlEventSet_t);

#[derive(Debug)]
pub(super) struct RawEvent {
    /// The device's handle, as [`device_key`] returns it.
    pub(super) device: usize,
    pub(super) kind: u64,
    pub(super) data: u64,
    pub(super) instance: Option<InstanceId>,
}

/// Identifies a device's handle while the library is loaded; never dereferenced.
pub(super) fn device_key(device: &Device<'_>) -> usize {
    // SAFETY: the handle is used only as a number.
    unsafe { device.handle() }.addr()
}

impl EventSet {
    pub(super) fn new(nvml: &Nvml) -> Result<Self, NvmlError> {
        let call = nvml_sym(nvml.lib().nvmlEventSetCreate.as_ref())?;
        let mut set = std::ptr::null_mut();
        // SAFETY: the call writes one pointer.
        unsafe { nvml_try(call(&raw mut set))? };
        Ok(Self(set))
    }

    /// Registers a device for those of `wanted` that it supports.
    pub(super) fn register(
        &self,
        nvml: &Nvml,
        device: &Device<'_>,
        wanted: u64,
    ) -> Result<(), NvmlError> {
        let lib = nvml.lib();
        let supported_call = nvml_sym(lib.nvmlDeviceGetSupportedEventTypes.as_ref())?;
        let register_call = nvml_sym(lib.nvmlDeviceRegisterEvents.as_ref())?;
        let mut supported = 0;
        // SAFETY: the handle is as above, and the call writes one number.
        unsafe { nvml_try(supported_call(device.handle(), &raw mut supported))? };
        let types = supported & wanted;
        if types == 0 {
            return Err(NvmlError::NotSupported);
        }
        // SAFETY: the set was created by this library and not freed.
        unsafe { nvml_try(register_call(device.handle(), types, self.0)) }
    }

    /// The next event, waiting at most this many milliseconds.
    pub(super) fn next(&self, nvml: &Nvml, wait_ms: u32) -> Result<Option<RawEvent>, NvmlError> {
        let newest = nvml.lib().nvmlEventSetWait_v2.as_ref();
        // Before R450 it has another name, and writes no instance.
        let call = nvml_sym(newest.or(nvml.lib().nvmlEventSetWait.as_ref()))?;
        let mut data = sys::nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        };
        // SAFETY: the set is as above; the call writes the struct.
        let code = unsafe { call(self.0, &raw mut data, wait_ms) };
        match nvml_try(code) {
            Ok(()) => Ok(Some(RawEvent {
                device: data.device.addr(),
                kind: data.eventType,
                data: data.eventData,
                instance: instance(data.gpuInstanceId, data.computeInstanceId),
            })),
            Err(NvmlError::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn free(self, nvml: &Nvml) {
        if let Ok(call) = nvml.lib().nvmlEventSetFree.as_ref() {
            // SAFETY: the set was created by this library, and `self` is consumed. The result does
            // not matter.
            let _ = unsafe { call(self.0) };
        }
    }
}

/// The instance of a record; all bits set is NVML's "none".
pub(super) fn instance(gpu: u32, compute: u32) -> Option<InstanceId> {
    (gpu != u32::MAX && compute != u32::MAX).then_some(InstanceId { gpu, compute })
}
