//! The driver reloaded under a process that speaks to it.

use crate::played::Played;

#[test]
fn a_driver_loaded_anew_answers_only_a_library_mapped_anew() {
    let played = Played::new(r#"{"gpus": [{}]}"#);
    let mut count = 0;
    let mut ask = || unsafe { played.nvml.nvmlDeviceGetCount_v2(&raw mut count) };
    assert_eq!(ask(), 0);

    played.play(r#"{"gpus": [{}], "load": 1}"#);
    assert_eq!(ask(), 18);
    assert_eq!(played.init(), 18);
    assert_eq!(played.mapped_anew().init(), 0);

    played.play(r#"{"gpus": [{}], "load": 1, "load_error": 999}"#);
    assert_eq!(ask(), 999);
    assert_eq!(played.init(), 999);

    played.play(r#"{"gpus": [{}]}"#);
    assert_eq!(ask(), 0);
}

#[test]
fn a_shutdown_does_not_make_the_library_forget_its_load() {
    let played = Played::new(r#"{"gpus": [{}]}"#);
    assert_eq!(unsafe { played.nvml.nvmlShutdown() }, 0);
    played.play(r#"{"gpus": [{}], "load": 1}"#);
    assert_eq!(played.init(), 18);
}
