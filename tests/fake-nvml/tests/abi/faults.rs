//! Tests of faults of one GPU that do not affect the others.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::loaded_library::{LoadedLibrary, number};

#[test]
fn hang_affects_only_its_gpu() {
    let state = r#"{"gpus": [{"hang": ["nvmlDeviceGetTemperature"]}, {"temperature": 51}]}"#;
    // Leaked, because a thread never returns from it.
    let library: &LoadedLibrary = Box::leak(Box::new(LoadedLibrary::new(state)));
    let (stuck, other) = (library.gpu(0) as usize, library.gpu(1));
    let temperature = |gpu: usize| {
        number(|to| unsafe { library.nvml.nvmlDeviceGetTemperature(gpu as *mut _, 0, to) })
    };
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(temperature(stuck)));
    let answer = receiver.recv_timeout(Duration::from_millis(100));
    assert_eq!(answer, Err(RecvTimeoutError::Timeout));
    assert_eq!(temperature(other as usize), Ok(51));
    // A function without a fault answers, for the same GPU too.
    let index = number(|to| unsafe { library.nvml.nvmlDeviceGetIndex(stuck as *mut _, to) });
    assert_eq!(index, Ok(0));
}
