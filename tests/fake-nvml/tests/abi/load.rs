//! Tests of a driver that is reloaded while a process uses it.

use crate::loaded_library::LoadedLibrary;

#[test]
fn reloaded_driver_needs_a_new_mapping() {
    let library = LoadedLibrary::new(r#"{"gpus": [{}]}"#);
    let mut count = 0;
    let mut ask = || unsafe { library.nvml.nvmlDeviceGetCount_v2(&raw mut count) };
    assert_eq!(ask(), 0);

    library.set_state(r#"{"gpus": [{}], "load": 1}"#);
    assert_eq!(ask(), 18);
    assert_eq!(library.init(), 18);
    assert_eq!(library.new_mapping().init(), 0);

    library.set_state(r#"{"gpus": [{}], "load": 1, "load_error": 999}"#);
    assert_eq!(ask(), 999);
    assert_eq!(library.init(), 999);

    library.set_state(r#"{"gpus": [{}]}"#);
    assert_eq!(ask(), 0);
}

#[test]
fn shutdown_keeps_the_driver_load() {
    let library = LoadedLibrary::new(r#"{"gpus": [{}]}"#);
    assert_eq!(unsafe { library.nvml.nvmlShutdown() }, 0);
    library.set_state(r#"{"gpus": [{}], "load": 1}"#);
    assert_eq!(library.init(), 18);
}
