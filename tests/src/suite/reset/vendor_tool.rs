//! Every failure of NVIDIA's tool gets a clear message from the helper.

use super::{FIRST_GPU, ResetBox};
use std::time::{Duration, Instant};

fn request() -> Vec<u8> {
    format!("gpukill-reset 2 reset nvidia {FIRST_GPU}\n").into_bytes()
}

#[test]
fn each_tool_failure_has_its_message() {
    let it = ResetBox::new();
    for (code, meaning) in [
        (1, "it failed"),
        (2, "an argument is wrong for it"),
        (3, "this GPU, or its driver, has no reset"),
        (4, "it has no permission"),
        (6, "it does not find this GPU"),
        (9, "the driver is not loaded"),
        (10, "there is a problem with the GPU's interrupts"),
        (12, "NVML was not found"),
        (13, "this NVML lacks a function that it needs"),
        (14, "the GPU's infoROM is corrupt"),
        (
            15,
            "the GPU has fallen off the bus, or cannot be reached for another reason",
        ),
        (255, "it failed"),
    ] {
        it.install_tool(&format!(
            "echo GPU 0: In use by another client; exit {code}"
        ));
        assert_eq!(
            it.request_helper(&request()),
            format!(
                "failed nvidia-smi ended with {code}: {meaning}: GPU 0: In use by another client\n"
            )
        );
    }
    it.install_tool("kill -9 $$");
    assert_eq!(
        it.request_helper(&request()),
        "failed nvidia-smi was ended by a signal\n"
    );
}

#[test]
fn missing_tool_is_reported() {
    let it = ResetBox::new();
    let tool = it.test_box.path("nvidia-smi");
    std::fs::remove_file(&tool).unwrap();
    let answer = it.request_helper(&request());
    let why = "cannot be run: No such file or directory (os error 2)";
    assert_eq!(answer, format!("failed {} {why}\n", tool.display()));
}

#[test]
fn garbage_output_is_harmless_and_bounded() {
    let it = ResetBox::new();
    it.install_tool("printf '\\033[2J\\377\\n%0200000d' 7; exit 7");
    let answer = it.request_helper(&request());
    assert!(
        answer.starts_with("failed nvidia-smi ended with 7: it failed: ") && answer.len() < 400,
        "{answer:?}"
    );
    assert!(
        answer.trim_end().chars().all(|c| !c.is_control()),
        "{answer:?}"
    );
    // A success with garbage output is a success.
    it.install_tool("printf '\\033[2J\\377'");
    assert_eq!(it.request_helper(&request()), "ok\n");
}

#[test]
fn background_process_of_tool_is_not_awaited() {
    let it = ResetBox::new();
    // A tool may start a daemon.
    it.install_tool("command -p sleep 20 & exit 0");
    let started_at = Instant::now();
    assert_eq!(it.request_helper(&request()), "ok\n");
    assert!(started_at.elapsed() < Duration::from_secs(15));
}

#[test]
fn persistence_mode_is_restored() {
    let it = ResetBox::new();
    it.write_file("persistent", "Enabled\n");
    assert_eq!(it.request_helper(&request()), "ok\n");
    let calls = |reset: bool| -> Vec<String> {
        let calls = [
            Some(format!("-i {FIRST_GPU} -pm 0")),
            reset.then(|| format!("--gpu-reset -i {FIRST_GPU}")),
            Some(format!("-i {FIRST_GPU} -pm 1")),
        ];
        calls.into_iter().flatten().collect()
    };
    assert_eq!(it.recorded_calls(), calls(true));
    std::fs::remove_file(it.test_box.path("called")).unwrap();
    // Persistence mode is restored after a failure too.
    it.add_process(4711, "python", &["/dev/full"]);
    assert_eq!(
        it.request_helper(&request()),
        "failed it is in use by 4711\n"
    );
    assert_eq!(it.recorded_calls(), calls(false));
}
