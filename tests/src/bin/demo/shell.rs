//! A shell with a `gpukillctl` that connects to the demo's daemon.

use std::io;
use std::path::Path;
use std::process::Command;

/// Runs the user's shell until the user leaves it. `commands` has the commands of the tour.
pub(crate) fn run(socket: &Path, gpukillctl: &Path, commands: &Path) -> io::Result<()> {
    println!("Type a number for a tour, or any gpukillctl command: it speaks to the demo.");
    println!("Leave with exit or Ctrl-D; then everything is cleaned up.\n");
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let ours = gpukillctl.parent().unwrap_or_else(|| Path::new("."));
    let mut path = ours.as_os_str().to_owned();
    path.push(":");
    path.push(commands);
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    // The exit status of the shell does not matter to the demo.
    Command::new(shell)
        .env("PATH", path)
        .env("GPUKILL_SOCKET", socket)
        .status()?;
    println!("\nStopping the demo.");
    Ok(())
}
