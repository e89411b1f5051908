//! Asks the helper, and never waits for ever.

use crate::helper::LONGEST_ANSWER;
use crate::helper::request::{Address, Gpu, Request, Verb};
use gpukill_policy::reset::HelperCheck;
use gpukill_proto::snapshot::Vendor;
use gpukill_proto::text::visible;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than all that a reset may take: for each of its commands the helper has a
/// time of its own.
const RESET: Duration = Duration::from_secs(180);

/// How long a check may take: it runs nothing, but systemd starts the helper for it.
const CHECK: Duration = Duration::from_secs(5);

/// How long a request may take to be sent: it fits any buffer.
const SEND: Duration = Duration::from_secs(2);

/// How often is looked whether that is over, or the daemon stops.
const STEP: Duration = Duration::from_millis(100);

/// Why there is nobody to ask; `None` where there seems to be somebody.
fn absent(socket: &Path) -> Option<String> {
    let found = std::fs::metadata(socket).is_ok_and(|file| file.file_type().is_socket());
    (!found).then(|| {
        let socket = socket.display();
        format!("gpukill-reset is not installed or not started: there is no socket {socket}")
    })
}

/// A PCI address, if it is one.
pub(super) fn address(text: &str) -> Option<Address> {
    Address::parse(text)
}

/// What the helper calls a device; `None` of a vendor for which it does nothing, and
/// where this is no PCI address.
pub(super) fn gpu(vendor: Vendor, pci: &str) -> Option<Gpu> {
    let address = address(pci)?;
    match vendor {
        Vendor::Nvidia => Some(Gpu::Nvidia(address)),
        Vendor::Amd => Some(Gpu::Amd(address)),
        Vendor::Intel | Vendor::Apple | Vendor::Other => None,
    }
}

/// Has the helper look whether a reset of it could begin.
pub(super) fn check(socket: &Path, gpu: Gpu, is_stopping: impl Fn() -> bool) -> HelperCheck {
    if let Some(why) = absent(socket) {
        return HelperCheck::NoAnswer(why);
    }
    let verb = Verb::Check;
    match ask(socket, &Request { verb, gpu }, CHECK, is_stopping) {
        Ok(Answer::Done(_)) => HelperCheck::Possible,
        Ok(Answer::Busy(why)) => HelperCheck::Busy(why),
        Ok(Answer::Failed(why)) => HelperCheck::Refused(why),
        Err(why) => HelperCheck::NoAnswer(why),
    }
}

/// Has the helper reset it. What comes back says what it did not restore.
///
/// # Errors
/// Why it is not done, or not known to be.
pub(super) fn reset(
    socket: &Path,
    gpu: Gpu,
    is_stopping: impl Fn() -> bool,
) -> Result<Option<String>, String> {
    let verb = Verb::Reset;
    match ask(socket, &Request { verb, gpu }, RESET, is_stopping)? {
        Answer::Done(note) => Ok(note),
        Answer::Busy(why) | Answer::Failed(why) => Err(why),
    }
}

fn ask(
    socket: &Path,
    request: &Request,
    patience: Duration,
    is_stopping: impl Fn() -> bool,
) -> Result<Answer, String> {
    let broken = |error| format!("gpukill-reset does not answer: {error}");
    let mut stream = UnixStream::connect(socket).map_err(broken)?;
    stream.set_write_timeout(Some(SEND)).map_err(broken)?;
    stream.set_read_timeout(Some(STEP)).map_err(broken)?;
    stream
        .write_all(request.to_string().as_bytes())
        .map_err(broken)?;
    let deadline = Instant::now() + patience;
    let mut answer = [0; LONGEST_ANSWER];
    let mut length = 0;
    loop {
        let room = answer.get_mut(length..).unwrap_or_default();
        match stream.read(room) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                // It ended without reading all, or midway.
                ErrorKind::ConnectionReset => break,
                _ => return Err(broken(error)),
            },
        }
        if answer.get(..length).is_some_and(|it| it.contains(&b'\n')) {
            break;
        }
        if Instant::now() > deadline {
            let seconds = patience.as_secs();
            return Err(format!("gpukill-reset did not answer within {seconds} s"));
        }
        if is_stopping() {
            return Err("gpukilld stopped while gpukill-reset was at it".to_owned());
        }
    }
    understand(answer.get(..length).unwrap_or_default())
}

/// What the helper says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done; says what is not as before.
    Done(Option<String>),
    /// Not now; says why.
    Busy(String),
    /// It cannot be done, or failed; says why.
    Failed(String),
}

/// One line: `ok`, `ok` and what is not as before, or `busy` or `failed` and why.
pub(crate) fn understand(answer: &[u8]) -> Result<Answer, String> {
    let Some(line) = answer.strip_suffix(b"\n") else {
        return Err("gpukill-reset ended before it said how it went".to_owned());
    };
    let line = visible(line, LONGEST_ANSWER);
    if line == "ok" {
        return Ok(Answer::Done(None));
    }
    match line.split_once(' ') {
        Some(("ok", note)) => Ok(Answer::Done(Some(note.to_owned()))),
        Some(("busy", why)) => Ok(Answer::Busy(why.to_owned())),
        Some(("failed", why)) => Ok(Answer::Failed(why.to_owned())),
        Some(_) | None => Err(format!("gpukill-reset gave no answer, but {line:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line_that_begins_with_a_verdict() {
        for (answer, meaning) in [
            (&b"ok\n"[..], Ok(Answer::Done(None))),
            (
                b"ok it is off\n",
                Ok(Answer::Done(Some("it is off".to_owned()))),
            ),
            (
                b"failed it is in use\n",
                Ok(Answer::Failed("it is in use".to_owned())),
            ),
            (b"busy later\n", Ok(Answer::Busy("later".to_owned()))),
            (
                b"ok",
                Err("gpukill-reset ended before it said how it went".to_owned()),
            ),
            (
                b"",
                Err("gpukill-reset ended before it said how it went".to_owned()),
            ),
            (
                b"okay\n",
                Err("gpukill-reset gave no answer, but \"okay\"".to_owned()),
            ),
            (
                b"\n",
                Err("gpukill-reset gave no answer, but \"\"".to_owned()),
            ),
        ] {
            assert_eq!(understand(answer), meaning);
        }
    }
}
