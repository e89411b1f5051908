//! MIG: whether a GPU is divided, the handles of its instances, and values that only an instance
//! has.

use std::ffi::c_uint;

use crate::code::Code;
use crate::device::Device;
use crate::export::{device_functions, gpu_functions};
use crate::fault;
use crate::layout::{DeviceAttributes, Handle};
use crate::out::{Out, put, put_known};
use crate::state::MAX_INSTANCES;

gpu_functions! {
    fn nvmlDeviceGetMigMode(gpu; current: Out<c_uint>, pending: Out<c_uint>) {
        let mode = gpu.mig_mode_raw.or(gpu.mig.map(c_uint::from));
        put_known(mode, current)?;
        put_known(mode, pending)
    }

    /// A GPU without MIG returns 0, not an error.
    fn nvmlDeviceGetMaxMigDeviceCount(gpu; count: Out<c_uint>) {
        put(if gpu.mig.is_some() { MAX_INSTANCES } else { 0 }, count)
    }
}

device_functions! {
    fn nvmlDeviceGetMigDeviceHandleByIndex(device; index: c_uint, handle: Out<Handle>) {
        let gpu = device.as_gpu()?;
        if handle.is_none() {
            return Err(Code::INVALID_ARGUMENT);
        }
        if !gpu.is_divided() {
            return Err(Code::NOT_SUPPORTED);
        }
        if index >= MAX_INSTANCES {
            return Err(Code::INVALID_ARGUMENT);
        }
        // An index without an instance is a gap, not the end.
        let instance = gpu.instance_at(index).ok_or(Code::NOT_FOUND)?;
        let instance = Device { instance: Some(instance), ..device };
        fault::apply_device_faults(&instance, "nvmlDeviceGetMigDeviceHandleByIndex")?;
        put(instance.handle(), handle)
    }

    fn nvmlDeviceIsMigDeviceHandle(device; is_mig: Out<c_uint>) {
        put(device.instance.is_some().into(), is_mig)
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device; handle: Out<Handle>) {
        if device.instance.is_none() || handle.is_none() {
            return Err(Code::INVALID_ARGUMENT);
        }
        put(Device::whole(device.state, device.gpu).handle(), handle)
    }

    fn nvmlDeviceGetGpuInstanceId(device; id: Out<c_uint>) {
        put(device.as_instance()?.gpu_instance, id)
    }

    fn nvmlDeviceGetComputeInstanceId(device; id: Out<c_uint>) {
        put(device.as_instance()?.compute_instance, id)
    }

    fn nvmlDeviceGetAttributes_v2(device; attributes: Out<DeviceAttributes>) {
        let known = &device.as_instance()?.attributes;
        let memory_mib = device.memory().map_or(0, |(memory, _)| memory.total >> 20);
        put(
            DeviceAttributes {
                multiprocessors: known.multiprocessors,
                copy_engines: known.copy_engines,
                decoders: known.decoders,
                encoders: known.encoders,
                jpegs: known.jpegs,
                optical_flows: known.optical_flows,
                gpu_slices: known.gpu_slices,
                compute_slices: known.compute_slices,
                memory_mib,
            },
            attributes,
        )
    }
}
