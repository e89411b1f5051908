//! What daemon and sensor say to each other: a length of four bytes,
//! little-endian, then so many bytes of bincode. Both are the same program, so
//! there are no versions; the lengths are bounded all the same, for the sensor
//! may have been overwritten by the library it hosts.

use gpukill_proto::transport::codec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// What the daemon asks of the sensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Read everything once, but for the devices at these indices; answered
    /// with what happened since the last time, and then with `Readings`.
    Poll(Vec<u32>),
}

/// The longest message. Readings of 64 devices with 1,000 processes each fit.
const LONGEST: usize = 8 << 20;

/// Sends one message, within the deadline.
pub(crate) fn send<T: Serialize>(
    socket: &mut UnixStream,
    message: &T,
    deadline: Instant,
) -> io::Result<()> {
    let body = codec::encode(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|_| body.len() <= LONGEST);
    let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    let mut rest = frame.as_slice();
    while !rest.is_empty() {
        socket.set_write_timeout(Some(left(deadline)?))?;
        match socket.write(rest) {
            Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives one message, whole within the deadline.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: &mut UnixStream,
    deadline: Instant,
) -> io::Result<T> {
    let mut length = [0; 4];
    read_whole(socket, &mut length, deadline)?;
    let mut body = vec![0; checked(length)?];
    read_whole(socket, &mut body, deadline)?;
    decode(&body)
}

/// Takes the first message off what was received, once it is whole.
pub(crate) fn take<T: DeserializeOwned>(received: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some((length, rest)) = received.split_first_chunk() else {
        return Ok(None);
    };
    let length = checked(*length)?;
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let message = decode(body)?;
    received.drain(..length + 4);
    Ok(Some(message))
}

fn checked(length: [u8; 4]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {length} bytes"),
        ));
    }
    Ok(length)
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    codec::decode(body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn read_whole(socket: &mut UnixStream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<std::time::Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let request = Request::Poll(vec![3]);
        send(&mut a, &request, soon()).unwrap();
        assert_eq!(receive::<Request>(&mut b, soon()).unwrap(), request);
    }

    #[test]
    fn messages_are_taken_one_by_one_and_only_whole() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        for leave_out in [vec![3], vec![]] {
            send(&mut a, &Request::Poll(leave_out), soon()).unwrap();
        }
        drop(a);
        let mut all = Vec::new();
        b.read_to_end(&mut all).unwrap();
        let mut received = Vec::new();
        let mut taken = Vec::new();
        for byte in all {
            received.push(byte);
            taken.extend(take::<Request>(&mut received).unwrap());
        }
        assert_eq!(taken, [Request::Poll(vec![3]), Request::Poll(vec![])]);
        assert!(received.is_empty());
        assert!(take::<Request>(&mut vec![0xff; 5]).is_err());
    }

    #[test]
    fn giant_lengths_garbage_silence_and_ends_are_errors() {
        let cases: [(&[u8], io::ErrorKind); 4] = [
            (&[0xff, 0xff, 0xff, 0xff], io::ErrorKind::InvalidData),
            (&[1, 0, 0, 0, 200], io::ErrorKind::InvalidData),
            (&[9, 0, 0, 0, 1], io::ErrorKind::UnexpectedEof),
            (&[], io::ErrorKind::UnexpectedEof),
        ];
        for (bytes, kind) in cases {
            let (mut a, mut b) = UnixStream::pair().unwrap();
            a.write_all(bytes).unwrap();
            drop(a);
            assert_eq!(
                receive::<Request>(&mut b, soon()).unwrap_err().kind(),
                kind,
                "{bytes:?}"
            );
        }
        let (_silent, mut b) = UnixStream::pair().unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let error = receive::<Request>(&mut b, soon).unwrap_err();
        assert!(matches!(
            error.kind(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
        ));
    }
}
