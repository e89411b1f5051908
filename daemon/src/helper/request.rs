//! What is asked: one line of one form, `gpukill-reset 2 reset nvidia 0000:1b:00.0`,
//! or with `check` in place of `reset`.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::fmt;
use std::time::{Duration, Instant};

/// The longest request, in bytes. The longest that makes sense has 45.
const LONGEST: usize = 64;

/// How long it may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) gpu: Gpu,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Look whether a reset could begin, and change nothing: asked before processes
    /// are ended for a reset.
    Check,
    /// Reset it.
    Reset,
}

/// The GPU that is meant. Its vendor and its address have the right form; whether
/// there is such a device is to be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gpu {
    Nvidia(Address),
    Amd(Address),
}

/// `0000:1b:00.0`, as sysfs writes it. Nothing else can be in it: it becomes part
/// of paths and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Gpu {
    /// The device's address.
    pub(crate) const fn address(&self) -> &Address {
        match self {
            Self::Nvidia(address) | Self::Amd(address) => address,
        }
    }
}

impl fmt::Display for Request {
    /// As it is sent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Check => "check",
            Verb::Reset => "reset",
        };
        let vendor = match self.gpu {
            Gpu::Nvidia(_) => "nvidia",
            Gpu::Amd(_) => "amd",
        };
        let address = self.gpu.address();
        writeln!(f, "gpukill-reset 2 {verb} {vendor} {address}")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Address {
    /// Exactly the form of sysfs: four digits or, of a domain that is no slot's
    /// own (VMD), five; then two, two and one; hexadecimal in lower case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str, least: usize, most: usize| {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            (least..=most).contains(&text.len()) && text.bytes().all(is_digit)
        };
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let is_one = digits(domain, 4, 5)
            && digits(bus, 2, 2)
            && digits(device, 2, 2)
            && matches!(function.as_bytes(), [b'0'..=b'7']);
        is_one.then(|| Self(text.to_owned()))
    }
}

/// The one request, of whoever is at the other end.
pub(super) fn receive(from: impl AsFd) -> Result<Request, String> {
    let deadline = Instant::now() + PATIENCE;
    // One more, to see that there is more.
    let mut bytes = [0; LONGEST + 1];
    let mut length = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        wait(&from, left)?;
        let room = bytes.get_mut(length..).unwrap_or_default();
        let more = rustix::io::read(&from, room).map_err(|error| cannot(&error))?;
        length += more;
        let read = bytes.get(..length).unwrap_or_default();
        // One line, and the end or nothing behind it yet.
        if more == 0 || read.contains(&b'\n') || length > LONGEST {
            return parse(read).map_err(str::to_owned);
        }
    }
}

fn wait(on: &impl AsFd, left: Duration) -> Result<(), String> {
    let timeout = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(0),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut ready = [PollFd::new(on, PollFlags::IN)];
    match poll(&mut ready, Some(&timeout)) {
        Ok(0) => Err(format!("no request came within {} s", PATIENCE.as_secs())),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(cannot(&error)),
    }
}

fn cannot(error: &rustix::io::Errno) -> String {
    format!("the request cannot be read: {error}")
}

/// What these bytes ask for, if they are exactly one request.
pub(crate) fn parse(bytes: &[u8]) -> Result<Request, &'static str> {
    if bytes.len() > LONGEST {
        return Err("the request is too long");
    }
    let Some(line) = bytes.strip_suffix(b"\n") else {
        return Err("the request is not one line");
    };
    let Ok(line) = std::str::from_utf8(line) else {
        return Err("the request is not text");
    };
    let mut words = line.split(' ');
    if words.next() != Some("gpukill-reset") {
        return Err("it is no request of gpukilld");
    }
    if words.next() != Some("2") {
        return Err(
            "the request is of another version: install gpukilld and gpukill-reset from the same release",
        );
    }
    let (verb, vendor, address) = (words.next(), words.next(), words.next());
    if words.next().is_some() {
        return Err("it is no request of gpukilld");
    }
    let verb = match verb {
        Some("check") => Verb::Check,
        Some("reset") => Verb::Reset,
        Some(_) | None => return Err("it is no request of gpukilld"),
    };
    let Some(address) = address.and_then(Address::parse) else {
        return Err("the request has no PCI address");
    };
    let gpu = match vendor {
        Some("nvidia") => Gpu::Nvidia(address),
        Some("amd") => Gpu::Amd(address),
        Some(_) | None => return Err("the request names no vendor whose GPUs can be reset"),
    };
    Ok(Request { verb, gpu })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop, proptest};

    #[test]
    fn one_form_of_request_is_understood() {
        let address = Address("0000:1b:00.0".into());
        for (line, verb, gpu) in [
            (
                "gpukill-reset 2 reset nvidia 0000:1b:00.0\n",
                Verb::Reset,
                Gpu::Nvidia(address.clone()),
            ),
            (
                "gpukill-reset 2 check amd 0000:1b:00.0\n",
                Verb::Check,
                Gpu::Amd(address),
            ),
            (
                "gpukill-reset 2 reset amd 10000:c1:1f.7\n",
                Verb::Reset,
                Gpu::Amd(Address("10000:c1:1f.7".into())),
            ),
        ] {
            let request = Request { verb, gpu };
            assert_eq!(parse(line.as_bytes()), Ok(request.clone()));
            assert_eq!(request.to_string(), line);
        }
    }

    #[test]
    fn whatever_is_nearly_a_request_is_refused() {
        for line in [
            "",
            "\n",
            "gpukill-reset 2 reset nvidia 0000:1b:00.0",
            "gpukill-reset 2 reset nvidia 0000:1b:00.0 \n",
            " gpukill-reset 2 reset nvidia 0000:1b:00.0\n",
            "gpukill-reset  2 reset nvidia 0000:1b:00.0\n",
            "gpukill-reset 2 reset nvidia 0000:1b:00.0\n\n",
            "gpukill-reset 2 reset nvidia 0000:1b:00.0\r\n",
            "gpukill-reset 2 reset nvidia 0000:1b:00.0\nx",
            "gpukill-reset 2 reset nvidia 0000:1b:00.0\0\n",
            "gpukill-reset 9 reset nvidia 0000:1b:00.0\n",
            "gpukill-reset 2 reset intel 0000:1b:00.0\n",
            "gpukill-reset 2 reset NVIDIA 0000:1b:00.0\n",
            "gpukill-reset 2 reset nvidia 0000:1B:00.0\n",
            "gpukill-reset 2 reset nvidia 00000000:1b:00.0\n",
            "gpukill-reset 2 reset nvidia 1b:00.0\n",
            "gpukill-reset 2 reset nvidia 0\n",
            "gpukill-reset 2 reset nvidia all\n",
            "gpukill-reset 2 reset nvidia ../../etc\n",
            "gpukill-reset 2 reset nvidia 0000:1b:00.8\n",
            "gpukill-reset 2 reset nvidia 0000:1b:00.0,0000:1c:00.0\n",
            "gpukill-reset 2 reset nvidia 0000:1b:00.0 --version\n",
            "gpukill-reset 2 reset nvidia ٠٠٠٠:1b:00.0\n",
            "gpukill-reset 2 reset nvidia\n",
            "gpukill-reset 2 reset\n",
            "gpukill-reset 2\n",
            "gpukill-reset 1 nvidia 0000:1b:00.0\n",
            "gpukill-reset 2 nvidia 0000:1b:00.0\n",
            "gpukill-reset 2 CHECK nvidia 0000:1b:00.0\n",
            "gpukill-reset 2 check reset nvidia 0000:1b:00.0\n",
            "gpukill-reset\n",
            "reset 1 nvidia 0000:1b:00.0\n",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line:?}");
        }
        let long = format!(
            "gpukill-reset 2 reset nvidia 0000:1b:00.0{}\n",
            " ".repeat(64)
        );
        assert_eq!(parse(long.as_bytes()), Err("the request is too long"));
        assert!(parse(b"gpukill-reset 2 reset nvidia 0000:1b:\xff0.0\n").is_err());
    }

    proptest! {
        #[test]
        fn what_is_understood_is_what_would_be_sent(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(request) = parse(&bytes) {
                assert_eq!(request.to_string().into_bytes(), bytes);
            }
        }

        #[test]
        fn one_changed_byte_makes_another_request_or_none(at in 0usize..42, byte in any::<u8>()) {
            let right = b"gpukill-reset 2 reset nvidia 0000:1b:00.0\n";
            let mut changed = right.to_vec();
            changed[at] = byte;
            match parse(&changed) {
                Ok(request) => assert_eq!(request.to_string().into_bytes(), changed),
                Err(_) => assert_ne!(changed, right),
            }
        }
    }
}
