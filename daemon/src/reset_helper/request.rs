//! The request: one line of one form, `gpukill-reset 2 reset nvidia 0000:1b:00.0`, or with `check`
//! instead of `reset`.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::fmt;
use std::time::{Duration, Instant};

/// The maximum length of a request, in bytes. The longest valid one has 45.
const MAX_REQUEST_BYTES: usize = 64;

/// How long a request may take to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResetHelperRequest {
    pub(crate) verb: ResetVerb,
    pub(crate) gpu: RequestedGpu,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResetVerb {
    /// Check whether a reset could start, and change nothing. Requested before processes are ended
    /// for a reset.
    Check,
    /// Reset it.
    Reset,
}

/// The requested GPU. Vendor and address have the right form; whether the device exists is checked
/// later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedGpu {
    Nvidia(PciAddress),
    Amd(PciAddress),
}

/// `0000:1b:00.0`, as sysfs writes it. It cannot contain anything else, because it becomes part of
/// paths and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PciAddress(String);

impl RequestedGpu {
    pub(crate) const fn address(&self) -> &PciAddress {
        match self {
            Self::Nvidia(address) | Self::Amd(address) => address,
        }
    }
}

impl fmt::Display for ResetHelperRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            ResetVerb::Check => "check",
            ResetVerb::Reset => "reset",
        };
        let vendor = match self.gpu {
            RequestedGpu::Nvidia(_) => "nvidia",
            RequestedGpu::Amd(_) => "amd",
        };
        let address = self.gpu.address();
        writeln!(f, "gpukill-reset 2 {verb} {vendor} {address}")
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PciAddress {
    /// Accepts exactly the form of sysfs: four digits, or five for a domain of VMD, which is not
    /// the domain of a slot; then two, two and one; hexadecimal in lower case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str, min_digits: usize, max_digits: usize| {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            (min_digits..=max_digits).contains(&text.len()) && text.bytes().all(is_digit)
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

pub(super) fn receive(from: impl AsFd) -> Result<ResetHelperRequest, String> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    // One byte more, to detect a request that is too long.
    let mut bytes = [0; MAX_REQUEST_BYTES + 1];
    let mut length = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        wait_readable(&from, left)?;
        let room = bytes.get_mut(length..).unwrap_or_default();
        let more = rustix::io::read(&from, room).map_err(|error| read_error(&error))?;
        length += more;
        let read = bytes.get(..length).unwrap_or_default();
        // One line, followed by the end or by nothing yet.
        if more == 0 || read.contains(&b'\n') || length > MAX_REQUEST_BYTES {
            return parse(read).map_err(str::to_owned);
        }
    }
}

fn wait_readable(on: &impl AsFd, left: Duration) -> Result<(), String> {
    let timeout = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(0),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut ready = [PollFd::new(on, PollFlags::IN)];
    match poll(&mut ready, Some(&timeout)) {
        Ok(0) => Err(format!(
            "no request came within {} s",
            REQUEST_TIMEOUT.as_secs()
        )),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(read_error(&error)),
    }
}

fn read_error(error: &rustix::io::Errno) -> String {
    format!("the request cannot be read: {error}")
}

/// Parses these bytes, which must be exactly one request.
pub(crate) fn parse(bytes: &[u8]) -> Result<ResetHelperRequest, &'static str> {
    if bytes.len() > MAX_REQUEST_BYTES {
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
        return Err("it is not a request of gpukilld");
    }
    if words.next() != Some("2") {
        return Err(
            "the request is of another version: install gpukilld and gpukill-reset from the same \
             release",
        );
    }
    let (verb, vendor, address) = (words.next(), words.next(), words.next());
    if words.next().is_some() {
        return Err("it is not a request of gpukilld");
    }
    let verb = match verb {
        Some("check") => ResetVerb::Check,
        Some("reset") => ResetVerb::Reset,
        Some(_) | None => return Err("it is not a request of gpukilld"),
    };
    let Some(address) = address.and_then(PciAddress::parse) else {
        return Err("the request has no PCI address");
    };
    let gpu = match vendor {
        Some("nvidia") => RequestedGpu::Nvidia(address),
        Some("amd") => RequestedGpu::Amd(address),
        Some(_) | None => return Err("the request names no vendor with GPUs that can be reset"),
    };
    Ok(ResetHelperRequest { verb, gpu })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop, proptest};

    #[test]
    fn parses_valid_requests() {
        let address = PciAddress("0000:1b:00.0".into());
        for (line, verb, gpu) in [
            (
                "gpukill-reset 2 reset nvidia 0000:1b:00.0\n",
                ResetVerb::Reset,
                RequestedGpu::Nvidia(address.clone()),
            ),
            (
                "gpukill-reset 2 check amd 0000:1b:00.0\n",
                ResetVerb::Check,
                RequestedGpu::Amd(address),
            ),
            (
                "gpukill-reset 2 reset amd 10000:c1:1f.7\n",
                ResetVerb::Reset,
                RequestedGpu::Amd(PciAddress("10000:c1:1f.7".into())),
            ),
        ] {
            let request = ResetHelperRequest { verb, gpu };
            assert_eq!(parse(line.as_bytes()), Ok(request.clone()));
            assert_eq!(request.to_string(), line);
        }
    }

    #[test]
    fn near_misses_are_refused() {
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
        fn parsed_request_prints_as_received(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(request) = parse(&bytes) {
                assert_eq!(request.to_string().into_bytes(), bytes);
            }
        }

        #[test]
        fn changed_byte_never_parses_as_the_same(at in 0usize..42, byte in any::<u8>()) {
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
