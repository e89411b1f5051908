//! A terminal of the test's own, and what is written to it.

use super::Ran;
use super::stream::Stream;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};

/// A program that has a terminal for itself. Killed when dropped.
pub struct Terminal {
    keyboard: File,
    child: Child,
    written: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// Starts `command` on a terminal so large; `None` where the system has no
    /// `setsid`, which gives the terminal to a program.
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
        super::stage::clean(&mut on_terminal);
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
        // Only the program has the terminal now, so that it ends with it.
        drop(on_terminal);
        let keyboard = File::from(main);
        let written = read(keyboard.try_clone().expect("a descriptor"));
        Some(Self {
            keyboard,
            child,
            written,
            seen: String::new(),
        })
    }

    /// What is written up to and with `end`.
    ///
    /// # Panics
    /// When it is not written.
    pub fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(end) {
                let rest = self.seen.split_off(at + end.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let more = self.written.recv_timeout(Stream::PATIENCE);
            let more = more.unwrap_or_else(|_| panic!("no {end:?} in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    /// Types, as a person does: `\x03` is Ctrl-C.
    ///
    /// # Panics
    /// When there is nobody to type to.
    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits for its end: its exit code, and what it wrote since.
    ///
    /// # Panics
    /// When it is killed by a signal.
    #[must_use]
    pub fn end(mut self) -> Ran {
        let code = super::eventually("the program ends", || {
            self.child.try_wait().expect("a child can be waited for")
        });
        let mut stdout = std::mem::take(&mut self.seen);
        // The reading thread ends when the last writer has gone.
        while let Ok(more) = self.written.recv_timeout(Stream::PATIENCE) {
            stdout.push_str(&String::from_utf8_lossy(&more));
        }
        Ran {
            code: code.code().unwrap_or_else(|| panic!("{code}")),
            stdout,
            stderr: String::new(),
        }
    }
}

fn read(mut main: File) -> Receiver<Vec<u8>> {
    let (sender, written) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        // An error is the end: nobody has the other side open any more.
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
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
