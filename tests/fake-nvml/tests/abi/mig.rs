//! Tests of a GPU divided into MIG devices, modelled on `fixtures/nvidia/h100-mig`.

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlDeviceAttributes_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_t,
    nvmlUtilization_t,
};

use crate::loaded_library::{LoadedLibrary, number, text};

/// Two compute instances of one GPU instance, and at index 5 a whole GPU instance.
const DIVIDED: &str = r#"{"gpus": [{"mig": true,
    "utilization": {"gpu": 90, "memory": 9}, "encoder": 3, "decoder": 4,
    "remapped_rows": {"correctable": 1},
    "instances": [
        {"gpu_instance": 2, "compute_instance": 0, "uuid": "MIG-a", "name": "NVIDIA H100 MIG 1c.3g.40gb",
         "memory": {"total": 42412802048, "reserved": 1048576},
         "attributes": {"multiprocessors": 60, "copy_engines": 3, "decoders": 2, "encoders": 1,
            "jpegs": 5, "optical_flows": 6, "gpu_slices": 4, "compute_slices": 7}},
        {"gpu_instance": 2, "compute_instance": 1},
        {"gpu_instance": 9, "compute_instance": 0, "index": 5}],
    "processes": [
        {"pid": 11, "memory": 1000, "sm": 50, "gpu_instance": 2, "compute_instance": 0},
        {"pid": 12, "memory": 200, "gpu_instance": 2, "compute_instance": 1},
        {"pid": 13, "memory": 30, "gpu_instance": 9, "compute_instance": 0, "kind": "graphics"}]}]}"#;

fn listed(library: &LoadedLibrary, device: nvmlDevice_t) -> Result<Vec<(u32, u32, u32)>, u32> {
    let empty = nvmlProcessInfo_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    let mut room = [empty; 8];
    let mut count = 8;
    let nvml = &library.nvml;
    match unsafe {
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, room.as_mut_ptr())
    } {
        0 => Ok(room[..count as usize]
            .iter()
            .map(|one| (one.pid, one.gpuInstanceId, one.computeInstanceId))
            .collect()),
        code => Err(code),
    }
}

#[test]
fn instances_by_index_and_uuid() {
    let library = LoadedLibrary::new(DIVIDED);
    let nvml = &library.nvml;
    let gpu = library.gpu(0);
    assert_eq!(
        number(|count| unsafe { nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, count) }),
        Ok(7)
    );
    let ids = |index| {
        let mig = library.instance(gpu, index)?;
        let gi = number(|id| unsafe { nvml.nvmlDeviceGetGpuInstanceId(mig, id) })?;
        let ci = number(|id| unsafe { nvml.nvmlDeviceGetComputeInstanceId(mig, id) })?;
        Ok::<_, u32>((gi, ci))
    };
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 6, 7].map(ids),
        [
            Ok((2, 0)),
            Ok((2, 1)),
            Err(6),
            Err(6),
            Err(6),
            Ok((9, 0)),
            Err(6),
            Err(2)
        ]
    );
    let mut by_uuid = std::ptr::null_mut();
    let code = unsafe { nvml.nvmlDeviceGetHandleByUUID(c"MIG-a".as_ptr(), &raw mut by_uuid) };
    assert_eq!((code, Ok(by_uuid)), (0, library.instance(gpu, 0)));
}

#[test]
fn instance_reports_only_its_own_values() {
    let library = LoadedLibrary::new(DIVIDED);
    let nvml = &library.nvml;
    let gpu = library.gpu(0);
    let mig = library.instance(gpu, 0).expect("an instance");
    let unnamed = library.instance(gpu, 5).expect("an instance");

    let is_mig = |device| number(|is| unsafe { nvml.nvmlDeviceIsMigDeviceHandle(device, is) });
    assert_eq!([gpu, mig].map(is_mig), [Ok(0), Ok(1)]);
    let uuid = |device| text(|to, room| unsafe { nvml.nvmlDeviceGetUUID(device, to, room) });
    assert_eq!(uuid(mig).as_deref(), Ok("MIG-a"));
    assert_eq!(
        uuid(unnamed).as_deref(),
        Ok("MIG-00000000-0000-0000-0000-000009000000")
    );
    let name = |device| text(|to, room| unsafe { nvml.nvmlDeviceGetName(device, to, room) });
    assert_eq!(name(mig).as_deref(), Ok("NVIDIA H100 MIG 1c.3g.40gb"));
    assert_eq!(
        name(unnamed).as_deref(),
        Ok("NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    );

    let parent = |device| {
        let mut parent = std::ptr::null_mut();
        let ask = nvml
            .nvmlDeviceGetDeviceHandleFromMigDeviceHandle
            .as_ref()
            .expect("a symbol");
        (unsafe { ask(device, &raw mut parent) }, parent)
    };
    assert_eq!(parent(mig), (0, gpu));
    assert_eq!(parent(gpu).0, 2);

    let mut a = unsafe { std::mem::zeroed::<nvmlDeviceAttributes_t>() };
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetAttributes_v2(mig, &raw mut a) },
        0
    );
    let engines = (
        a.multiprocessorCount,
        a.sharedCopyEngineCount,
        a.sharedDecoderCount,
    );
    assert_eq!(engines, (60, 3, 2));
    assert_eq!(
        (a.sharedEncoderCount, a.sharedJpegCount, a.sharedOfaCount),
        (1, 5, 6)
    );
    assert_eq!(
        (a.gpuInstanceSliceCount, a.computeInstanceSliceCount),
        (4, 7)
    );
    assert_eq!(a.memorySizeMB, 40448);

    let temperature = number(|to| unsafe { nvml.nvmlDeviceGetTemperature(mig, 0, to) });
    let index = number(|to| unsafe { nvml.nvmlDeviceGetIndex(mig, to) });
    assert_eq!((temperature, index), (Err(3), Err(3)));
    for ask in [
        &nvml.nvmlDeviceGetGpuInstanceId,
        &nvml.nvmlDeviceGetComputeInstanceId,
    ] {
        let ask = ask.as_ref().expect("a symbol");
        assert_eq!(
            number(|id| unsafe { ask(gpu, id) }),
            Err(3),
            "of a whole GPU"
        );
    }
}

#[test]
fn instance_has_its_gpu_instances_memory() {
    let library = LoadedLibrary::new(DIVIDED);
    let nvml = &library.nvml;
    let gpu = library.gpu(0);
    for index in [0, 1] {
        let mig = library.instance(gpu, index).expect("an instance");
        let mut v1 = unsafe { std::mem::zeroed::<nvmlMemory_t>() };
        assert_eq!(unsafe { nvml.nvmlDeviceGetMemoryInfo(mig, &raw mut v1) }, 0);
        assert_eq!((v1.total, v1.used), (42_412_802_048, 1200 + 1_048_576));
        let mut v2 = unsafe { std::mem::zeroed::<nvmlMemory_v2_t>() };
        v2.version = 0x0200_0028;
        assert_eq!(
            unsafe { nvml.nvmlDeviceGetMemoryInfo_v2(mig, &raw mut v2) },
            0
        );
        assert_eq!(
            (v2.total, v2.reserved, v2.used),
            (42_412_802_048, 1_048_576, 1200)
        );
        assert_eq!(v2.free, 42_412_802_048 - 1_048_576 - 1200);
    }
}

#[test]
fn process_lists_of_gpu_and_instances() {
    let library = LoadedLibrary::new(DIVIDED);
    let gpu = library.gpu(0);
    let second = library.instance(gpu, 1).expect("an instance");
    let third = library.instance(gpu, 5).expect("an instance");
    assert_eq!(listed(&library, gpu), Ok(vec![(11, 2, 0), (12, 2, 1)]));
    assert_eq!(listed(&library, second), Ok(vec![(12, 2, 1)]));
    assert_eq!(listed(&library, third), Ok(vec![]), "it only draws");

    library.set_state(&DIVIDED.replace(r#""mig": true"#, r#""mig": true, "mig_parent_lists": 4"#));
    assert_eq!(listed(&library, gpu), Err(4));
    assert_eq!(listed(&library, second), Ok(vec![(12, 2, 1)]));

    library
        .set_state(&DIVIDED.replace(r#""mig": true"#, r#""mig": true, "mig_instance_lists": 4"#));
    assert_eq!(listed(&library, gpu), Ok(vec![(11, 2, 0), (12, 2, 1)]));
    assert_eq!(listed(&library, second), Err(4));
}

#[test]
fn divided_gpu_hides_shared_values() {
    let library = LoadedLibrary::new(DIVIDED);
    let nvml = &library.nvml;
    let gpu = library.gpu(0);
    let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetUtilizationRates(gpu, &raw mut rates) },
        3
    );
    let mut room = [0; 4];
    let [a, b, c, d] = &mut room;
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetEncoderUtilization(gpu, a, b) },
        3
    );
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetDecoderUtilization(gpu, a, b) },
        3
    );
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetRemappedRows(gpu, a, b, c, d) },
        3
    );
    let samples = std::ptr::null_mut();
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetProcessUtilization(gpu, samples, a, 0) },
        3
    );
    assert_eq!(
        number(|to| unsafe { nvml.nvmlDeviceGetTemperature(gpu, 0, to) }),
        Ok(30)
    );
}

#[test]
fn removed_instance_and_unknown_mode() {
    let library = LoadedLibrary::new(DIVIDED);
    let nvml = &library.nvml;
    let gpu = library.gpu(0);
    let mig = library.instance(gpu, 0).expect("an instance");
    let mode = || {
        let (mut current, mut pending) = (0, 0);
        let code = unsafe { nvml.nvmlDeviceGetMigMode(gpu, &raw mut current, &raw mut pending) };
        (code, current, pending)
    };
    assert_eq!(mode(), (0, 1, 1));
    library.set_state(r#"{"gpus": [{"mig": true, "mig_mode_raw": 7}]}"#);
    assert_eq!(mode(), (0, 7, 7));
    assert_eq!(listed(&library, mig), Err(2));
    assert_eq!(listed(&library, gpu), Ok(vec![]));
    library.set_state(r#"{"gpus": []}"#);
    assert_eq!(
        (listed(&library, mig), listed(&library, gpu)),
        (Err(2), Err(15))
    );
}
