//! The sensor's own side: gives up every privilege, confines itself, then answers polls until the
//! daemon goes away.

use super::confine::confine_to_devices;
use super::message;
use super::nvml::NvmlReader;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long an answer may wait for the daemon to read it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs as the sensor, with the socket pair as standard input, until the daemon closes it.
///
/// # Errors
/// When another release of the daemon starts it, privileges cannot be given up, or the socket
/// fails.
pub(super) fn run(arguments: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    let mut arguments = arguments.into_iter().skip(1);
    let version = arguments.next().unwrap_or_default();
    let library = arguments.next().and_then(|it| it.into_string().ok());
    let Some(library) = library.filter(|_| version == env!("CARGO_PKG_VERSION")) else {
        return Err(io::Error::other(concat!(
            "gpukill-sensor is a part of gpukilld ",
            env!("CARGO_PKG_VERSION"),
            ", which starts it: install both from the same release"
        )));
    };
    end_with_the_daemon()?;
    drop_privileges()?;
    confine_to_devices()
        .map_err(|error| io::Error::other(format!("it cannot confine itself: {error}")))?;
    super::set_process_name(None);
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut nvml = NvmlReader::new(&library);
    loop {
        socket.set_read_timeout(None)?;
        // A day: the daemon polls every few seconds, and its end closes the socket.
        let forever = Instant::now() + Duration::from_secs(86_400);
        let leave_out: Vec<u32> = match message::receive(&mut socket, forever) {
            Ok(leave_out) => leave_out,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        message::send(&mut socket, &nvml.take_events(), deadline)?;
        let readings = nvml.poll(&leave_out);
        super::set_process_name(None);
        message::send(&mut socket, &readings, Instant::now() + ANSWER_TIMEOUT)?;
    }
}

/// Makes the kernel kill this child when the daemon ends, however it ends.
pub(crate) fn end_with_the_daemon() -> io::Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The daemon may have ended before the line above took effect.
    if getppid() == parent {
        Ok(())
    } else {
        Err(io::Error::other("the daemon is gone"))
    }
}

/// Drops every capability from every set, and the way to gain any by executing a program.
pub(crate) fn drop_privileges() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    for capability in CapabilitySet::all().iter() {
        // Needs CAP_SETPCAP, and fails for capabilities that the kernel does not know; no_new_privs
        // and the empty sets below hold without it.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    // The kernel empties the ambient set together with the permitted one.
    Ok(())
}
