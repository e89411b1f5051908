//! Tests of events that appear in the state file while a set is waited on.

use std::ptr;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{nvmlEventData_t, nvmlEventSet_t};

use crate::loaded_library::LoadedLibrary;

const BEFORE: &str =
    r#"{"gpus": [{}, {}], "events": [{"id": 3, "gpu": 0, "type": 8, "data": 13}]}"#;
const AFTER: &str = r#"{"gpus": [{}, {}], "events": [
    {"id": 3, "gpu": 0, "type": 8, "data": 13},
    {"id": 4, "gpu": 1, "type": 8, "data": 31},
    {"id": 5, "gpu": 0, "type": 1},
    {"id": 6, "gpu": 0, "type": 8, "data": 79, "gpu_instance": 2, "compute_instance": 1},
    {"id": 7, "gpu": 0, "type": 256}]}"#;

/// A set that watches GPU 0 for XIDs and changes of MIG.
fn set(library: &LoadedLibrary) -> nvmlEventSet_t {
    let mut set = ptr::null_mut();
    let nvml = &library.nvml;
    assert_eq!(unsafe { nvml.nvmlEventSetCreate(&raw mut set) }, 0);
    let code = unsafe { nvml.nvmlDeviceRegisterEvents(library.gpu(0), 0x108, set) };
    assert_eq!(code, 0);
    set
}

fn wait(library: &LoadedLibrary, set: nvmlEventSet_t, ms: u32) -> Result<nvmlEventData_t, u32> {
    let mut data = unsafe { std::mem::zeroed() };
    match unsafe { library.nvml.nvmlEventSetWait_v2(set, &raw mut data, ms) } {
        0 => Ok(data),
        code => Err(code),
    }
}

fn next_event(library: &LoadedLibrary, set: nvmlEventSet_t) -> Result<(u64, u64, u32, u32), u32> {
    let data = wait(library, set, 0)?;
    assert_eq!(data.device, library.gpu(0));
    Ok((
        data.eventType,
        data.eventData,
        data.gpuInstanceId,
        data.computeInstanceId,
    ))
}

#[test]
fn set_returns_new_registered_events_once() {
    let library = LoadedLibrary::new(BEFORE);
    let set = set(&library);
    assert_eq!(next_event(&library, set), Err(10));
    library.set_state(AFTER);
    assert_eq!(next_event(&library, set), Ok((8, 79, 2, 1)));
    assert_eq!(next_event(&library, set), Ok((256, 0, u32::MAX, u32::MAX)));
    assert_eq!(next_event(&library, set), Err(10));
}

#[test]
fn event_ends_an_earlier_wait() {
    let library = LoadedLibrary::new(BEFORE);
    let set = set(&library);
    let started_at = Instant::now();
    let library = &library;
    let waited = std::thread::scope(|scope| {
        // A raw pointer cannot be sent to another thread, but its number can.
        let set = set as usize;
        let waiting = scope
            .spawn(move || wait(library, set as nvmlEventSet_t, 60_000).map(|data| data.eventData));
        library.set_state(AFTER);
        waiting.join().expect("a thread that ends")
    });
    assert_eq!(waited, Ok(79));
    assert!(
        started_at.elapsed() < Duration::from_secs(30),
        "{:?}",
        started_at.elapsed()
    );
}

#[test]
fn first_wait_writes_24_bytes() {
    let library = LoadedLibrary::new(BEFORE);
    let set = set(&library);
    library.set_state(AFTER);
    let mut words = [0xAAAA_AAAA_AAAA_AAAA_u64; 4];
    // SAFETY: the symbol has the signature of `_v2`, and there is room for its struct.
    let code = unsafe {
        let wait: unsafe extern "C" fn(nvmlEventSet_t, *mut u64, u32) -> u32 = *library
            .nvml
            .__library
            .get(b"nvmlEventSetWait\0")
            .expect("a symbol");
        wait(set, words.as_mut_ptr(), 0)
    };
    assert_eq!(
        (code, words),
        (0, [library.gpu(0) as u64, 8, 79, 0xAAAA_AAAA_AAAA_AAAA])
    );
}

#[test]
fn wait_error_and_shutdown() {
    let library = LoadedLibrary::new(BEFORE);
    let set = set(&library);
    library.set_state(&AFTER.replacen('{', r#"{"event_wait_error": 15, "#, 1));
    assert_eq!(next_event(&library, set), Err(15));
    library.set_state(AFTER);
    assert_eq!(
        next_event(&library, set),
        Ok((8, 79, 2, 1)),
        "the failure used nothing up"
    );
    assert_eq!(unsafe { library.nvml.nvmlShutdown() }, 0);
    assert_eq!(wait(&library, set, 0).err(), Some(1));
    assert_eq!(library.init(), 0);
    assert_eq!(wait(&library, set, 0).err(), Some(2));
}

#[test]
fn unsupported_type_registers_nothing() {
    let library =
        LoadedLibrary::new(r#"{"gpus": [{"supported_events": 9}, {"supported_events": null}]}"#);
    let nvml = &library.nvml;
    let set = {
        let mut set = ptr::null_mut();
        assert_eq!(unsafe { nvml.nvmlEventSetCreate(&raw mut set) }, 0);
        set
    };
    let register =
        |gpu, types| unsafe { nvml.nvmlDeviceRegisterEvents(library.gpu(gpu), types, set) };
    assert_eq!(
        [register(0, 8 | 2), register(1, 8), register(0, 8)],
        [3, 3, 0]
    );
    let mut types = 0;
    let gpu = library.gpu(0);
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetSupportedEventTypes(gpu, &raw mut types) },
        0
    );
    assert_eq!(types, 9);
    library.set_state(r#"{"gpus": [{}, {}], "events": [{"id": 1, "gpu": 0, "type": 2}, {"id": 2, "gpu": 0, "type": 8}]}"#);
    let data = wait(&library, set, 0).map(|data| data.eventType);
    assert_eq!(data, Ok(8), "a refused event is not reported");
}
