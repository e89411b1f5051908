//! Tests of a driver without some functions.

#[path = "../../older.rs"]
mod older;

use crate::loaded_library::{LoadedLibrary, built_library};

#[test]
fn removed_function_has_no_symbol() {
    let gone = ["nvmlDeviceGetMemoryInfo_v2", "nvmlShutdown"];
    let bytes = older::without(&built_library(), &gone);
    let library = LoadedLibrary::loaded(&bytes, r#"{"gpus": [{}]}"#);
    assert_eq!(library.init(), 0);
    let missing = |name: &str| {
        let symbol = [name.as_bytes(), b"\0"].concat();
        // SAFETY: the symbol is looked up and not called.
        unsafe { library.nvml.__library.get::<fn()>(&symbol).is_err() }
    };
    let asked = [
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlShutdown",
        "nvmlDeviceGetMemoryInfo",
        "nvmlInit_v2",
        "nvmlErrorString",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ];
    assert_eq!(asked.map(missing), [true, true, false, false, false, false]);
    assert!(
        library.nvml.nvmlShutdown.is_err(),
        "the bindings see it too"
    );
    library.gpu(0);
}

#[test]
#[should_panic(expected = "the library has no nvmlDeviceGetCoffee")]
fn removing_an_unknown_function_panics() {
    let _ = older::without(&built_library(), &["nvmlDeviceGetCoffee"]);
}
