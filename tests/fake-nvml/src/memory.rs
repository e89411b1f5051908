//! Device memory, in its two versions, which count `used` differently.

use crate::code::Code;
use crate::export::gpu_functions;
use crate::layout::{Memory, MemoryV2, version_tag};
use crate::out::{Out, put};

gpu_functions! {
    /// `used` includes what the driver reserved.
    fn nvmlDeviceGetMemoryInfo(gpu; info: Out<Memory>) {
        let memory = gpu.memory.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let used = gpu.memory_used(memory).saturating_add(memory.reserved);
        put(Memory { total: memory.total, free: memory.total.saturating_sub(used), used }, info)
    }

    /// `used` excludes what the driver reserved.
    fn nvmlDeviceGetMemoryInfo_v2(gpu; info: Option<&mut MemoryV2>) {
        let info = info.ok_or(Code::INVALID_ARGUMENT)?;
        if info.version != version_tag::<MemoryV2>(2) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let memory = gpu.memory.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        if memory.v1_only {
            return Err(Code::FUNCTION_NOT_FOUND);
        }
        info.total = memory.total;
        info.reserved = memory.reserved;
        info.used = gpu.memory_used(memory);
        info.free = memory.total.saturating_sub(info.used.saturating_add(memory.reserved));
        Ok(())
    }
}
