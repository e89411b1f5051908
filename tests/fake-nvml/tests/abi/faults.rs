//! Faults of one GPU that leave the others alone.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::played::{Played, number};

#[test]
fn a_function_that_hangs_for_one_gpu_answers_for_another_meanwhile() {
    let state = r#"{"gpus": [{"hang": ["nvmlDeviceGetTemperature"]}, {"temperature": 51}]}"#;
    // For ever, because a thread stays in it for ever.
    let played: &Played = Box::leak(Box::new(Played::new(state)));
    let (stuck, other) = (played.gpu(0) as usize, played.gpu(1));
    let temperature = |gpu: usize| {
        number(|to| unsafe { played.nvml.nvmlDeviceGetTemperature(gpu as *mut _, 0, to) })
    };
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(temperature(stuck)));
    let answer = told.recv_timeout(Duration::from_millis(100));
    assert_eq!(answer, Err(RecvTimeoutError::Timeout));
    assert_eq!(temperature(other as usize), Ok(51));
    // What it is not told to hang in answers, for the same GPU too.
    let index = number(|to| unsafe { played.nvml.nvmlDeviceGetIndex(stuck as *mut _, to) });
    assert_eq!(index, Ok(0));
}
