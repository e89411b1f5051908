//! A terminal to run the client on.

use crate::watch::TEST_TIMEOUT;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// A terminal of 80 columns and 6 rows, and what was written to it.
pub(crate) struct Terminal {
    master: File,
    shown: Receiver<Vec<u8>>,
    received: String,
}

impl Terminal {
    pub(crate) fn open() -> (Self, File) {
        // A client that inherited this descriptor would keep its own terminal open and outlive
        // a failed test.
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
            received: String::new(),
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

    /// Types this text.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("typed");
    }

    /// The text written until the last writer closes the terminal.
    pub(crate) fn read_to_end(mut self) -> String {
        loop {
            match self.shown.recv_timeout(TEST_TIMEOUT) {
                Ok(more) => self.add(&more),
                Err(error) => {
                    let why = "somebody has it open still";
                    assert_eq!(error, RecvTimeoutError::Disconnected, "{why}");
                    return self.received;
                }
            }
        }
    }

    fn add(&mut self, more: &[u8]) {
        let more = std::str::from_utf8(more).expect("UTF-8");
        self.received.push_str(more);
    }

    /// The text written up to and including `end`.
    pub(crate) fn read_until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.received.find(end) {
                let rest = self.received.split_off(at + end.len());
                return std::mem::replace(&mut self.received, rest);
            }
            let more = self
                .shown
                .recv_timeout(TEST_TIMEOUT)
                .expect("more is written");
            self.add(&more);
        }
    }
}
