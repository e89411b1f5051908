//! A program on a pseudo-terminal of the test, and its output.

use super::CommandOutput;
use super::running_program::RunningProgram;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};

/// A program that controls a terminal. It is killed when dropped.
pub struct Terminal {
    keyboard: File,
    child: Child,
    written: Receiver<Vec<u8>>,
    unread: String,
}

impl Terminal {
    /// Starts `command` on a terminal of this size. Returns `None` if the system has no
    /// `setsid`, which makes the terminal the controlling one.
    ///
    /// # Panics
    /// When the system gives no terminal, or the command cannot be started.
    #[must_use]
    pub fn start(command: &Command, columns: u16, rows: u16) -> Option<Self> {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&main).expect("granted");
        unlockpt(&main).expect("unlocked");
        let name = ptsname(&main, Vec::new()).expect("it has a name");
        let name = name.to_str().expect("ASCII");
        let side = || File::options().read(true).write(true).open(name);
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&main, size).expect("resized");
        let mut on_terminal = Command::new("setsid");
        super::test_box::clear_environment(&mut on_terminal);
        on_terminal.arg("--ctty").arg(command.get_program());
        on_terminal.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => on_terminal.env(name, value),
                None => on_terminal.env_remove(name),
            };
        }
        on_terminal.env("TERM", "xterm-256color");
        for part in [Command::stdin, Command::stdout, Command::stderr] {
            part(&mut on_terminal, side().expect("a terminal"));
        }
        let child = on_terminal.spawn().ok()?;
        // Only the program has the terminal open now, so the terminal closes when the program
        // ends.
        drop(on_terminal);
        let keyboard = File::from(main);
        let written = read_output(keyboard.try_clone().expect("a descriptor"));
        Some(Self {
            keyboard,
            child,
            written,
            unread: String::new(),
        })
    }

    /// Returns the output up to and including `end`.
    ///
    /// # Panics
    /// When `end` is not written.
    pub fn read_until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.unread.find(end) {
                let rest = self.unread.split_off(at + end.len());
                return std::mem::replace(&mut self.unread, rest);
            }
            let more = self.written.recv_timeout(RunningProgram::LINE_TIMEOUT);
            let more = more.unwrap_or_else(|_| panic!("no {end:?} in {:?}", self.unread));
            self.unread.push_str(&String::from_utf8_lossy(&more));
        }
    }

    /// Types as a person does: `\x03` is Ctrl-C.
    ///
    /// # Panics
    /// When the program has ended.
    pub fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits for the program to end. Returns its exit code and the unread output.
    ///
    /// # Panics
    /// When the program is killed by a signal.
    #[must_use]
    pub fn wait(mut self) -> CommandOutput {
        let code = super::eventually("the program ends", || {
            self.child.try_wait().expect("a child can be waited for")
        });
        let mut stdout = std::mem::take(&mut self.unread);
        // The reading thread ends when no process has the terminal open.
        while let Ok(more) = self.written.recv_timeout(RunningProgram::LINE_TIMEOUT) {
            stdout.push_str(&String::from_utf8_lossy(&more));
        }
        CommandOutput {
            code: code.code().unwrap_or_else(|| panic!("{code}")),
            stdout,
            stderr: String::new(),
        }
    }
}

fn read_output(mut main: File) -> Receiver<Vec<u8>> {
    let (sender, written) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        // An error is the end of the output: no process has the other side open.
        while let Ok(length) = main.read(&mut buffer) {
            if length == 0 || sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    written
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
