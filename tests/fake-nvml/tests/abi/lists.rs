//! Tests of process lists with another layout, and of lists that grow while they are read.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessUtilizationSample_t,
};

use crate::loaded_library::LoadedLibrary;

/// Requests the compute processes with this much room, and returns the code and the count.
fn ask(library: &LoadedLibrary, gpu: nvmlDevice_t, room: c_uint) -> (u32, c_uint) {
    let mut list = [0u64; 3 * 16];
    let mut count = room;
    let to = list.as_mut_ptr().cast();
    let nvml = &library.nvml;
    let code = unsafe { nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, &raw mut count, to) };
    (code, count)
}

#[test]
fn r535_v3_lists_have_32_byte_records() {
    let library = LoadedLibrary::new(
        r#"{"process_record": 32, "gpus": [{"processes": [
            {"pid": 1, "memory": 10}, {"pid": 2, "memory": 20, "protected_memory": 5},
            {"pid": 3, "kind": "graphics"}, {"pid": 4, "kind": "mps"}]}]}"#,
    );
    let nvml = &library.nvml;
    let gpu = library.gpu(0);
    for (ask, pids) in [
        (&nvml.nvmlDeviceGetComputeRunningProcesses_v3, vec![1, 2]),
        (&nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, vec![3]),
        (&nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, vec![4]),
    ] {
        let mut list = [[0xAAAA_AAAA_AAAA_AAAA_u64; 4]; 4];
        let mut count = 4;
        let ask = ask.as_ref().expect("a symbol");
        assert_eq!(
            unsafe { ask(gpu, &raw mut count, list.as_mut_ptr().cast()) },
            0
        );
        // SAFETY: this many records of that size were written, and fit.
        let details: &[nvmlProcessDetail_v1_t] =
            unsafe { std::slice::from_raw_parts(list.as_ptr().cast(), count as usize) };
        assert_eq!(details.iter().map(|one| one.pid).collect::<Vec<_>>(), pids);
        if pids == [1, 2] {
            let second = (
                details[1].usedGpuMemory,
                details[1].gpuInstanceId,
                details[1].usedGpuCcProtectedMemory,
            );
            assert_eq!(second, (20, u32::MAX, 5));
        }
        assert_eq!(
            list[pids.len()],
            [0xAAAA_AAAA_AAAA_AAAA; 4],
            "and no byte more"
        );
    }
}

#[test]
fn list_grows_for_callers_with_room() {
    let growing =
        r#"{"gpus": [{"grow": 2, "processes": [{"pid": 1, "sm": 1}, {"pid": 2, "sm": 1}]}]}"#;
    let library = LoadedLibrary::new(growing);
    let gpu = library.gpu(0);
    assert_eq!(
        ask(&library, gpu, 1),
        (7, 2),
        "too little room is not counted"
    );
    assert_eq!(ask(&library, gpu, 2), (7, 3));
    assert_eq!(ask(&library, gpu, 9), (7, 10));
    assert_eq!(ask(&library, gpu, 2), (0, 2));

    library.set_state(&growing.replace("\"grow\": 2", "\"grow\": 1"));
    let mut room = [unsafe { std::mem::zeroed::<nvmlProcessUtilizationSample_t>() }; 4];
    let mut samples = || {
        let mut count = 4;
        let (nvml, to) = (&library.nvml, room.as_mut_ptr());
        let code = unsafe { nvml.nvmlDeviceGetProcessUtilization(gpu, to, &raw mut count, 0) };
        (code, count)
    };
    assert_eq!([samples(), samples()], [(7, 5), (0, 2)]);
    assert_eq!(
        ask(&library, gpu, 2),
        (0, 2),
        "the samples used the growth up"
    );
}

#[test]
fn endlessly_growing_list_is_never_read() {
    let library = LoadedLibrary::new(r#"{"gpus": [{"grow": -1}]}"#);
    let gpu = library.gpu(0);
    assert_eq!(
        [0, 5, 16].map(|room| ask(&library, gpu, room)),
        [(7, 1), (7, 6), (7, 17)]
    );
}
