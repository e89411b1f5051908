//! However NVIDIA's tool fails, the helper says so in words.

use super::{Box, FIRST};
use std::time::{Duration, Instant};

fn request() -> Vec<u8> {
    format!("gpukill-reset 2 reset nvidia {FIRST}\n").into_bytes()
}

#[test]
fn each_way_in_which_the_tool_fails_has_its_words() {
    let it = Box::new();
    for (code, meaning) in [
        (1, "it failed"),
        (2, "an argument is wrong for it"),
        (3, "this GPU, or its driver, has no reset"),
        (4, "it has no permission"),
        (6, "it finds no such GPU"),
        (9, "the driver is not loaded"),
        (10, "there is a problem with the GPU's interrupts"),
        (12, "NVML was not found"),
        (13, "this NVML does not have what it needs"),
        (14, "the GPU's infoROM is corrupt"),
        (
            15,
            "the GPU has fallen off the bus, or cannot be reached for another reason",
        ),
        (255, "it failed"),
    ] {
        it.tool(&format!(
            "echo GPU 0: In use by another client; exit {code}"
        ));
        assert_eq!(
            it.asked(&request()),
            format!(
                "failed nvidia-smi ended with {code}: {meaning}: GPU 0: In use by another client\n"
            )
        );
    }
    it.tool("kill -9 $$");
    assert_eq!(
        it.asked(&request()),
        "failed nvidia-smi was ended by a signal\n"
    );
}

#[test]
fn a_tool_that_is_not_there_is_said_not_to_be() {
    let it = Box::new();
    let tool = it.stage.path("nvidia-smi");
    std::fs::remove_file(&tool).unwrap();
    let answer = it.asked(&request());
    let why = "cannot be run: No such file or directory (os error 2)";
    assert_eq!(answer, format!("failed {} {why}\n", tool.display()));
}

#[test]
fn garbage_is_shown_harmless_and_short_and_holds_nobody_up() {
    let it = Box::new();
    it.tool("printf '\\033[2J\\377\\n%0200000d' 7; exit 7");
    let answer = it.asked(&request());
    assert!(
        answer.starts_with("failed nvidia-smi ended with 7: it failed: ") && answer.len() < 400,
        "{answer:?}"
    );
    assert!(
        answer.trim_end().chars().all(|c| !c.is_control()),
        "{answer:?}"
    );
    // A success that says garbage is a success.
    it.tool("printf '\\033[2J\\377'");
    assert_eq!(it.asked(&request()), "ok\n");
}

#[test]
fn somebody_whom_the_tool_leaves_behind_with_its_output_is_not_waited_for() {
    let it = Box::new();
    // As a tool may start a daemon.
    it.tool("command -p sleep 20 & exit 0");
    let began = Instant::now();
    assert_eq!(it.asked(&request()), "ok\n");
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn persistence_mode_is_off_for_the_reset_and_on_again_after_it() {
    let it = Box::new();
    it.write("persistent", "Enabled\n");
    assert_eq!(it.asked(&request()), "ok\n");
    let calls = |reset: bool| -> Vec<String> {
        let calls = [
            Some(format!("-i {FIRST} -pm 0")),
            reset.then(|| format!("--gpu-reset -i {FIRST}")),
            Some(format!("-i {FIRST} -pm 1")),
        ];
        calls.into_iter().flatten().collect()
    };
    assert_eq!(it.called(), calls(true));
    std::fs::remove_file(it.stage.path("called")).unwrap();
    // Also where nothing comes of it.
    it.invent(4711, "python", &["/dev/full"]);
    assert_eq!(it.asked(&request()), "failed it is in use by 4711\n");
    assert_eq!(it.called(), calls(false));
}
