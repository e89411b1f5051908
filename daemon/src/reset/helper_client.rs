//! Sends requests to the helper, and always with a timeout.

use crate::reset_helper::MAX_ANSWER_BYTES;
use crate::reset_helper::request::{PciAddress, RequestedGpu, ResetHelperRequest, ResetVerb};
use gpukill_policy::reset::HelperCheck;
use gpukill_proto::model::Vendor;
use gpukill_proto::text::sanitize;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than all steps of a reset together: the helper has a timeout for each of its commands.
const RESET_TIMEOUT: Duration = Duration::from_secs(180);

/// How long a check may take: it runs nothing, but systemd starts the helper for it.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long sending a request may take: it fits any buffer.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the deadline and a stop of the daemon are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why there is no helper; `None` if there seems to be one.
fn absence_reason(socket: &Path) -> Option<String> {
    let found = std::fs::metadata(socket).is_ok_and(|file| file.file_type().is_socket());
    (!found).then(|| {
        let socket = socket.display();
        format!("gpukill-reset is not installed or not started: there is no socket {socket}")
    })
}

pub(super) fn parse_address(text: &str) -> Option<PciAddress> {
    PciAddress::parse(text)
}

/// The device as the helper names it; `None` for a vendor that the helper does not support, and if
/// `pci` is not a PCI address.
pub(super) fn requested_gpu(vendor: Vendor, pci: &str) -> Option<RequestedGpu> {
    let address = parse_address(pci)?;
    match vendor {
        Vendor::Nvidia => Some(RequestedGpu::Nvidia(address)),
        Vendor::Amd => Some(RequestedGpu::Amd(address)),
        Vendor::Intel | Vendor::Apple | Vendor::Other => None,
    }
}

/// Requests a check whether a reset could start.
pub(super) fn check(
    socket: &Path,
    gpu: RequestedGpu,
    is_stopping: impl Fn() -> bool,
) -> HelperCheck {
    if let Some(why) = absence_reason(socket) {
        return HelperCheck::NoAnswer(why);
    }
    let verb = ResetVerb::Check;
    match send_request(
        socket,
        &ResetHelperRequest { verb, gpu },
        CHECK_TIMEOUT,
        is_stopping,
    ) {
        Ok(HelperAnswer::Done(_)) => HelperCheck::Possible,
        Ok(HelperAnswer::Busy(why)) => HelperCheck::Busy(why),
        Ok(HelperAnswer::Failed(why)) => HelperCheck::Refused(why),
        Err(why) => HelperCheck::NoAnswer(why),
    }
}

/// Requests a reset. Returns a note about state that was not restored.
///
/// # Errors
/// Why the reset was not done, or is not known to be done.
pub(super) fn reset(
    socket: &Path,
    gpu: RequestedGpu,
    is_stopping: impl Fn() -> bool,
) -> Result<Option<String>, String> {
    let verb = ResetVerb::Reset;
    match send_request(
        socket,
        &ResetHelperRequest { verb, gpu },
        RESET_TIMEOUT,
        is_stopping,
    )? {
        HelperAnswer::Done(note) => Ok(note),
        HelperAnswer::Busy(why) | HelperAnswer::Failed(why) => Err(why),
    }
}

fn send_request(
    socket: &Path,
    request: &ResetHelperRequest,
    timeout: Duration,
    is_stopping: impl Fn() -> bool,
) -> Result<HelperAnswer, String> {
    let broken = |error| format!("gpukill-reset does not answer: {error}");
    let mut stream = UnixStream::connect(socket).map_err(broken)?;
    stream
        .set_write_timeout(Some(SEND_TIMEOUT))
        .map_err(broken)?;
    stream
        .set_read_timeout(Some(POLL_INTERVAL))
        .map_err(broken)?;
    stream
        .write_all(request.to_string().as_bytes())
        .map_err(broken)?;
    let deadline = Instant::now() + timeout;
    let mut answer = [0; MAX_ANSWER_BYTES];
    let mut length = 0;
    loop {
        let room = answer.get_mut(length..).unwrap_or_default();
        match stream.read(room) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                // The helper ended without reading everything, or midway.
                ErrorKind::ConnectionReset => break,
                _ => return Err(broken(error)),
            },
        }
        if answer.get(..length).is_some_and(|it| it.contains(&b'\n')) {
            break;
        }
        if Instant::now() > deadline {
            let seconds = timeout.as_secs();
            return Err(format!("gpukill-reset did not answer within {seconds} s"));
        }
        if is_stopping() {
            return Err("gpukilld stopped while gpukill-reset was running".to_owned());
        }
    }
    parse_answer(answer.get(..length).unwrap_or_default())
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HelperAnswer {
    /// It is done; holds a note about state that was not restored.
    Done(Option<String>),
    /// Another reset is running; holds the reason.
    Busy(String),
    /// It is impossible, or it failed; holds the reason.
    Failed(String),
}

/// Parses one line: `ok`, `ok` and a note, or `busy` or `failed` and a reason.
pub(crate) fn parse_answer(answer: &[u8]) -> Result<HelperAnswer, String> {
    let Some(line) = answer.strip_suffix(b"\n") else {
        return Err("gpukill-reset ended before it reported a result".to_owned());
    };
    let line = sanitize(line, MAX_ANSWER_BYTES);
    if line == "ok" {
        return Ok(HelperAnswer::Done(None));
    }
    match line.split_once(' ') {
        Some(("ok", note)) => Ok(HelperAnswer::Done(Some(note.to_owned()))),
        Some(("busy", why)) => Ok(HelperAnswer::Busy(why.to_owned())),
        Some(("failed", why)) => Ok(HelperAnswer::Failed(why.to_owned())),
        Some(_) | None => Err(format!("gpukill-reset gave an invalid answer: {line:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_one_line_with_a_verdict() {
        for (answer, meaning) in [
            (&b"ok\n"[..], Ok(HelperAnswer::Done(None))),
            (
                b"ok it is off\n",
                Ok(HelperAnswer::Done(Some("it is off".to_owned()))),
            ),
            (
                b"failed it is in use\n",
                Ok(HelperAnswer::Failed("it is in use".to_owned())),
            ),
            (b"busy later\n", Ok(HelperAnswer::Busy("later".to_owned()))),
            (
                b"ok",
                Err("gpukill-reset ended before it reported a result".to_owned()),
            ),
            (
                b"",
                Err("gpukill-reset ended before it reported a result".to_owned()),
            ),
            (
                b"okay\n",
                Err("gpukill-reset gave an invalid answer: \"okay\"".to_owned()),
            ),
            (
                b"\n",
                Err("gpukill-reset gave an invalid answer: \"\"".to_owned()),
            ),
        ] {
            assert_eq!(parse_answer(answer), meaning);
        }
    }
}
