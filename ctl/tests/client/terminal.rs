//! A terminal to run the client on.

use crate::watching::PATIENCE;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// A terminal of 80 by 6, and what was written to it.
pub(crate) struct Terminal {
    master: File,
    shown: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    pub(crate) fn open() -> (Self, File) {
        // A client that had it too would keep its own terminal open, and outlive a test that
        // fails.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let slave = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().expect("ASCII"))
            .expect("opened");
        let master = File::from(master);
        let (sender, shown) = channel();
        let mut reader = master.try_clone().expect("cloned");
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(length) = reader.read(&mut buffer) {
                if length == 0 || sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        let terminal = Self {
            master,
            shown,
            seen: String::new(),
        };
        terminal.resize(80, 6);
        (terminal, slave)
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.master, size).expect("resized");
    }

    /// Types this.
    pub(crate) fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("typed");
    }

    /// What is written until nobody has it open to write to.
    pub(crate) fn rest(mut self) -> String {
        loop {
            match self.shown.recv_timeout(PATIENCE) {
                Ok(more) => self.add(&more),
                Err(error) => {
                    let why = "somebody has it open still";
                    assert_eq!(error, RecvTimeoutError::Disconnected, "{why}");
                    return self.seen;
                }
            }
        }
    }

    fn add(&mut self, more: &[u8]) {
        let more = std::str::from_utf8(more).expect("UTF-8");
        self.seen.push_str(more);
    }

    /// What is written up to and with `end`.
    pub(crate) fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(end) {
                let rest = self.seen.split_off(at + end.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let more = self.shown.recv_timeout(PATIENCE).expect("more is written");
            self.add(&more);
        }
    }
}
