//! NVIDIA's step: there is no public way but its own tool (neither `nvml.h` nor
//! the library has a reset). Each command line is fixed but for the address.

use super::Args;
use super::request::Address;
use gpukill_proto::text::visible;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a reset may take. One of a GPU with NVLinks takes some seconds.
const RESET: Duration = Duration::from_secs(60);

/// How long the tool may take to ask for the persistence mode or to set it.
const ASK: Duration = Duration::from_secs(15);

/// How long a tool that was killed may take to end: one that is stuck in the
/// driver never does.
const END: Duration = Duration::from_secs(2);

const STEP: Duration = Duration::from_millis(5);

/// As much of its output is read.
const OUTPUT: u64 = 4 << 10;

/// Takes the GPU out of persistence mode, has `nobody` look whether it is free
/// then, resets it, and puts it back. What comes back says what was not restored.
pub(super) fn reset(
    address: &Address,
    args: &Args,
    nobody: impl Fn() -> Result<(), String>,
) -> Result<Option<String>, String> {
    let tool = &args.nvidia_smi;
    let address = address.to_string();
    let was_on = is_persistent(tool, &address);
    if was_on {
        // In persistence mode the driver, or nvidia-persistenced, holds the GPU.
        run(tool, &["-i", &address, "-pm", "0"], ASK)
            .map_err(|why| format!("persistence mode cannot be switched off: {why}"))?;
    }
    let done = nobody().and_then(|()| run(tool, &["--gpu-reset", "-i", &address], RESET));
    let restored = if was_on {
        run(tool, &["-i", &address, "-pm", "1"], ASK).map(drop)
    } else {
        Ok(())
    };
    let left = restored
        .err()
        .map(|why| format!("persistence mode is off now, and could not be switched on: {why}"));
    match (done, left) {
        (Ok(_), left) => Ok(left),
        (Err(why), None) => Err(why),
        (Err(why), Some(left)) => Err(format!("{why}; {left}")),
    }
}

/// Whether the GPU is in persistence mode. One that does not tell is not.
fn is_persistent(tool: &Path, address: &str) -> bool {
    let question = [
        "--query-gpu=persistence_mode",
        "--format=csv,noheader",
        "-i",
        address,
    ];
    run(tool, &question, ASK).is_ok_and(|said| said.trim() == "Enabled")
}

/// Runs the tool to its end, and no longer than that.
fn run(tool: &Path, arguments: &[&str], patience: Duration) -> Result<String, String> {
    let mut child = Command::new(tool)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{} cannot be run: {error}", tool.display()))?;
    let said = [read(child.stdout.take()), read(child.stderr.take())];
    let Some(status) = ended(&mut child, patience) else {
        // Gone already is as good.
        let _ = child.kill();
        let end = match ended(&mut child, END) {
            Some(_) => "was killed",
            None => "cannot be killed: it is stuck in the driver",
        };
        let seconds = patience.as_secs();
        return Err(format!(
            "nvidia-smi did not end within {seconds} s, and {end}"
        ));
    };
    let said: Vec<String> = said
        .into_iter()
        // Whoever keeps its output open holds nobody up.
        .filter_map(|said| said.recv_timeout(END).ok())
        .collect();
    if status.success() {
        return Ok(said.concat());
    }
    Err(failure(status, &said.join(" ")))
}

/// Reads as much as is wanted, and lets the rest go.
fn read(from: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // As much as came.
            let _ = from.by_ref().take(OUTPUT).read_to_end(&mut bytes);
            let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
            // A tool that says more must not wait for somebody who reads it.
            let _ = std::io::copy(&mut from, &mut std::io::sink());
        }
    });
    told
}

fn ended(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(STEP),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// What went wrong, by nvidia-smi(1) and by what it said.
fn failure(status: ExitStatus, said: &str) -> String {
    let Some(code) = status.code() else {
        return "nvidia-smi was ended by a signal".to_owned();
    };
    let meaning = match code {
        2 => "an argument is wrong for it",
        3 => "this GPU, or its driver, has no reset",
        4 => "it has no permission",
        6 => "it finds no such GPU",
        9 => "the driver is not loaded",
        10 => "there is a problem with the GPU's interrupts",
        12 => "NVML was not found",
        13 => "this NVML does not have what it needs",
        14 => "the GPU's infoROM is corrupt",
        15 => "the GPU has fallen off the bus, or cannot be reached for another reason",
        _ => "it failed",
    };
    let said: Vec<&str> = said.split_whitespace().collect();
    let said = visible(said.join(" ").as_bytes(), 160);
    if said.is_empty() {
        format!("nvidia-smi ended with {code}: {meaning}")
    } else {
        format!("nvidia-smi ended with {code}: {meaning}: {said}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_hangs_is_killed() {
        let began = Instant::now();
        let said = run(Path::new("/bin/sleep"), &["1000"], Duration::from_secs(1));
        let why = "nvidia-smi did not end within 1 s, and was killed";
        assert_eq!(said, Err(why.into()));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
