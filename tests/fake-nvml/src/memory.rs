//! Device memory, in its two versions, which count `used` differently. The memory of a MIG instance
//! is that of its GPU instance.

use crate::code::Code;
use crate::export::device_functions;
use crate::layout::{MemoryV1, MemoryV2, version_tag};
use crate::out::{Out, put};

device_functions! {
    /// `used` includes the driver's reserved memory.
    fn nvmlDeviceGetMemoryInfo(device; info: Out<MemoryV1>) {
        let (memory, used) = device.memory().ok_or(Code::NOT_SUPPORTED)?;
        let used = used.saturating_add(memory.reserved);
        put(MemoryV1 { total: memory.total, free: memory.total.saturating_sub(used), used }, info)
    }

    /// `used` excludes the driver's reserved memory.
    fn nvmlDeviceGetMemoryInfo_v2(device; info: Option<&mut MemoryV2>) {
        let info = info.ok_or(Code::INVALID_ARGUMENT)?;
        if info.version != version_tag::<MemoryV2>(2) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let (memory, used) = device.memory().ok_or(Code::NOT_SUPPORTED)?;
        if memory.v1_only {
            return Err(Code::FUNCTION_NOT_FOUND);
        }
        info.total = memory.total;
        info.reserved = memory.reserved;
        info.used = used;
        info.free = memory.total.saturating_sub(used.saturating_add(memory.reserved));
        Ok(())
    }
}
