//! Constant properties of a GPU: names, numbers, and PCI address.

use std::ffi::{c_char, c_int, c_uint};

use crate::code::Code;
use crate::export::{device_functions, gpu_functions};
use crate::layout::PciInfo;
use crate::out::{Out, put, put_text};
use crate::state::Gpu;

device_functions! {
    fn nvmlDeviceGetName(device; name: *mut c_char, length: c_uint) {
        // SAFETY: nvml.h requires the caller to pass `length` bytes at `name`.
        unsafe { put_text(&device.name(), name, length) }
    }

    fn nvmlDeviceGetUUID(device; uuid: *mut c_char, length: c_uint) {
        // SAFETY: nvml.h requires the caller to pass `length` bytes at `uuid`.
        unsafe { put_text(&device.uuid(), uuid, length) }
    }
}

gpu_functions! {
    fn nvmlDeviceGetSerial(gpu; serial: *mut c_char, length: c_uint) {
        let known = gpu.serial.as_deref().ok_or(Code::NOT_SUPPORTED)?;
        // SAFETY: nvml.h requires the caller to pass `length` bytes at `serial`.
        unsafe { put_text(known, serial, length) }
    }

    fn nvmlDeviceGetIndex(gpu; index: Out<c_uint>) {
        put(gpu.index, index)
    }

    fn nvmlDeviceGetMinorNumber(gpu; minor: Out<c_uint>) {
        put(gpu.minor(), minor)
    }

    fn nvmlDeviceGetCudaComputeCapability(gpu; major: Out<c_int>, minor: Out<c_int>) {
        put(gpu.compute_capability[0], major)?;
        put(gpu.compute_capability[1], minor)
    }

    fn nvmlDeviceGetPciInfo_v3(gpu; info: Out<PciInfo>) {
        put(pci_info(gpu), info)
    }
}

fn pci_info(gpu: &Gpu) -> PciInfo {
    let address = gpu.pci();
    PciInfo {
        bus_id_legacy: pad_text(&address.legacy()),
        domain: address.domain,
        bus: address.bus.into(),
        device: address.device.into(),
        pci_device_id: gpu.pci_device_id,
        pci_subsystem_id: 0,
        bus_id: pad_text(&address.to_string()),
    }
}

/// A text in a field of fixed size; the last byte always stays NUL.
fn pad_text<const SIZE: usize>(text: &str) -> [c_char; SIZE] {
    let mut field = [0; SIZE];
    let room = SIZE.saturating_sub(1);
    for (to, from) in field.iter_mut().take(room).zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}
