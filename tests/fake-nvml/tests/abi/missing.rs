//! A driver without some functions.

#[path = "../../older.rs"]
mod older;

use crate::played::{Played, built};

#[test]
fn a_function_taken_out_is_no_symbol_any_more_and_all_others_are() {
    let gone = ["nvmlDeviceGetMemoryInfo_v2", "nvmlShutdown"];
    let library = older::without(&built(), &gone);
    let played = Played::loaded(&library, r#"{"gpus": [{}]}"#);
    assert_eq!(played.init(), 0);
    let missing = |name: &str| {
        let symbol = [name.as_bytes(), b"\0"].concat();
        // SAFETY: the symbol is looked up and not called.
        unsafe { played.nvml.__library.get::<fn()>(&symbol).is_err() }
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
    assert!(played.nvml.nvmlShutdown.is_err(), "the bindings see it too");
    played.gpu(0);
}

#[test]
#[should_panic(expected = "the library has no nvmlDeviceGetCoffee")]
fn a_function_that_was_never_there_cannot_be_taken_out() {
    let _ = older::without(&built(), &["nvmlDeviceGetCoffee"]);
}
