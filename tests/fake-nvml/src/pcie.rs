//! The PCIe link: its current and maximum generation and lanes.

use std::ffi::c_uint;

use crate::code::Answer;
use crate::export::gpu_functions;
use crate::out::{Out, put_known};
use crate::state::{Gpu, Pcie};

gpu_functions! {
    fn nvmlDeviceGetCurrPcieLinkGeneration(gpu; generation: Out<c_uint>) {
        put_link(gpu, |pcie| pcie.generation, generation)
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(gpu; width: Out<c_uint>) {
        put_link(gpu, |pcie| pcie.width, width)
    }

    /// The maximum that card and slot can reach together.
    fn nvmlDeviceGetMaxPcieLinkGeneration(gpu; generation: Out<c_uint>) {
        put_link(gpu, |pcie| pcie.max_generation, generation)
    }

    /// The maximum of the card alone; here no slot limits it.
    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(gpu; generation: Out<c_uint>) {
        put_link(gpu, |pcie| pcie.max_generation, generation)
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(gpu; width: Out<c_uint>) {
        put_link(gpu, |pcie| pcie.max_width, width)
    }
}

fn put_link(gpu: &Gpu, part: fn(&Pcie) -> Option<u32>, out: Out<c_uint>) -> Answer {
    put_known(gpu.pcie.as_ref().and_then(part), out)
}
