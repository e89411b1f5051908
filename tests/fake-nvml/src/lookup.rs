//! The number of GPUs, and the handle of a GPU by its index, UUID, serial or PCI address. A MIG
//! instance is found by its UUID too.
//!
//! Attaching happens here and not in `nvmlInit`, so one lost GPU fails alone.

use std::ffi::{CStr, c_char, c_uint};

use crate::code::{Answer, Code};
use crate::device::Device;
use crate::export::functions;
use crate::fault;
use crate::layout::Handle;
use crate::out::{Out, put};
use crate::pci::PciAddress;
use crate::state::{Gpu, State};

functions! {
    fn nvmlDeviceGetCount(state; count: Out<c_uint>) {
        put(count_of(state), count)
    }

    fn nvmlDeviceGetCount_v2(state; count: Out<c_uint>) {
        put(count_of(state), count)
    }

    fn nvmlDeviceGetHandleByIndex(state; index: c_uint, device: Out<Handle>) {
        attach("nvmlDeviceGetHandleByIndex", at_index(state, index)?, device)
    }

    fn nvmlDeviceGetHandleByIndex_v2(state; index: c_uint, device: Out<Handle>) {
        attach("nvmlDeviceGetHandleByIndex_v2", at_index(state, index)?, device)
    }

    fn nvmlDeviceGetHandleByUUID(state; uuid: *const c_char, device: Out<Handle>) {
        // SAFETY: nvml.h requires the caller to pass a C string.
        let uuid = unsafe { text_at(uuid) }?;
        let found = Device::with_uuid(state, uuid).ok_or(Code::NOT_FOUND)?;
        attach("nvmlDeviceGetHandleByUUID", found, device)
    }

    fn nvmlDeviceGetHandleBySerial(state; serial: *const c_char, device: Out<Handle>) {
        // SAFETY: nvml.h requires the caller to pass a C string.
        let serial = unsafe { text_at(serial) }?;
        let gpu = find_gpu(state, |gpu| gpu.serial.as_deref() == Some(serial))?;
        attach("nvmlDeviceGetHandleBySerial", gpu, device)
    }

    fn nvmlDeviceGetHandleByPciBusId(state; address: *const c_char, device: Out<Handle>) {
        // SAFETY: nvml.h requires the caller to pass a C string.
        let gpu = at_address(state, unsafe { text_at(address) }?)?;
        attach("nvmlDeviceGetHandleByPciBusId", gpu, device)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(state; address: *const c_char, device: Out<Handle>) {
        // SAFETY: nvml.h requires the caller to pass a C string.
        let gpu = at_address(state, unsafe { text_at(address) }?)?;
        attach("nvmlDeviceGetHandleByPciBusId_v2", gpu, device)
    }
}

/// Lost GPUs count, as with the real library.
fn count_of(state: &State) -> c_uint {
    state.gpus.last().map_or(0, |gpu| gpu.index + 1)
}

fn attach(function: &str, found: Device<'_>, device: Out<Handle>) -> Answer {
    fault::apply_gpu_faults(found.gpu, function)?;
    put(found.handle(), device)
}

fn at_index(state: &State, index: c_uint) -> Result<Device<'_>, Code> {
    let gpu = state.gpus.get(index as usize);
    gpu.map(|gpu| Device::whole(state, gpu))
        .ok_or(Code::INVALID_ARGUMENT)
}

fn at_address<'a>(state: &'a State, address: &str) -> Result<Device<'a>, Code> {
    let address = PciAddress::parse(address).ok_or(Code::INVALID_ARGUMENT)?;
    find_gpu(state, |gpu| gpu.pci() == address)
}

fn find_gpu(state: &State, is_meant: impl Fn(&Gpu) -> bool) -> Result<Device<'_>, Code> {
    state
        .gpus
        .iter()
        .find(|gpu| is_meant(gpu))
        .map(|gpu| Device::whole(state, gpu))
        .ok_or(Code::NOT_FOUND)
}

/// # Safety
/// `text` is NULL or a C string that outlives the call.
unsafe fn text_at<'a>(text: *const c_char) -> Result<&'a str, Code> {
    if text.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    // SAFETY: the caller guarantees a C string.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| Code::INVALID_ARGUMENT)
}
