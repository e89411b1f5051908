//! The C structs of `nvml.h` that cross the boundary. They are deliberately defined a second time:
//! sharing the daemon's bindings would hide a mistake in them.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_ulonglong};

use crate::code::Code;

/// An opaque pointer of NVML: here a number that is never dereferenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(pub(crate) usize);

/// The tag of versioned structs: their size and, in the top byte, their version.
pub(crate) const fn version_tag<T>(version: u32) -> u32 {
    size_of::<T>() as u32 | version << 24
}

#[repr(C)]
pub(crate) struct PciInfo {
    pub(crate) bus_id_legacy: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) pci_device_id: c_uint,
    pub(crate) pci_subsystem_id: c_uint,
    pub(crate) bus_id: [c_char; 32],
}

#[repr(C)]
pub(crate) struct MemoryV1 {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

#[repr(C)]
pub(crate) struct MemoryV2 {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

#[repr(C)]
pub(crate) struct UtilizationRates {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

#[repr(C)]
pub(crate) struct Temperature {
    pub(crate) version: c_uint,
    pub(crate) sensor: c_uint,
    pub(crate) celsius: c_int,
}

/// 16 bytes: the unversioned process lists.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ProcessV1 {
    pub(crate) pid: c_uint,
    pub(crate) used_memory: c_ulonglong,
}

/// 24 bytes: the process lists named `_v2` and, on every driver but some of R535, `_v3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ProcessV2 {
    pub(crate) pid: c_uint,
    pub(crate) used_memory: c_ulonglong,
    pub(crate) gpu_instance: c_uint,
    pub(crate) compute_instance: c_uint,
}

/// 32 bytes: the lists named `_v3` of some builds of R535.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ProcessOfR535 {
    pub(crate) v2: ProcessV2,
    pub(crate) protected_memory: c_ulonglong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ProcessSample {
    pub(crate) pid: c_uint,
    pub(crate) timestamp: c_ulonglong,
    pub(crate) sm: c_uint,
    pub(crate) memory: c_uint,
    pub(crate) encoder: c_uint,
    pub(crate) decoder: c_uint,
}

#[repr(C)]
pub(crate) struct FieldValue {
    pub(crate) field: c_uint,
    pub(crate) scope: c_uint,
    pub(crate) timestamp: c_longlong,
    pub(crate) latency: c_longlong,
    pub(crate) value_type: c_uint,
    pub(crate) code: Code,
    pub(crate) value: c_ulonglong,
}

/// 24 bytes: exactly what the first `nvmlEventSetWait` writes.
#[repr(C)]
pub(crate) struct EventDataV1 {
    pub(crate) device: Handle,
    pub(crate) kind: c_ulonglong,
    pub(crate) data: c_ulonglong,
}

#[repr(C)]
pub(crate) struct EventDataV2 {
    pub(crate) v1: EventDataV1,
    pub(crate) gpu_instance: c_uint,
    pub(crate) compute_instance: c_uint,
}

#[repr(C)]
pub(crate) struct DeviceAttributes {
    pub(crate) multiprocessors: c_uint,
    pub(crate) copy_engines: c_uint,
    pub(crate) decoders: c_uint,
    pub(crate) encoders: c_uint,
    pub(crate) jpegs: c_uint,
    pub(crate) optical_flows: c_uint,
    pub(crate) gpu_slices: c_uint,
    pub(crate) compute_slices: c_uint,
    pub(crate) memory_mib: c_ulonglong,
}

// The sizes in nvml.h on a 64-bit machine; a wrong size would silently damage the caller's memory.
const _: () = {
    assert!(size_of::<PciInfo>() == 68);
    assert!(version_tag::<MemoryV2>(2) == 0x0200_0028);
    assert!(version_tag::<Temperature>(1) == 0x0100_000c);
    assert!(size_of::<ProcessV1>() == 16);
    assert!(size_of::<ProcessV2>() == 24);
    assert!(size_of::<ProcessOfR535>() == 32);
    assert!(size_of::<ProcessSample>() == 32);
    assert!(size_of::<FieldValue>() == 40);
    assert!(size_of::<EventDataV1>() == 24);
    assert!(size_of::<EventDataV2>() == 32);
    assert!(size_of::<DeviceAttributes>() == 40);
};
