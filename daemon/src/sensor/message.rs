//! The messages between daemon and sensor: a length of four bytes, little-endian, then that many
//! bytes of bincode. The daemon sends the indices of the devices to leave out, a list of `u32`; the
//! sensor reads everything else once, and answers with the events since the last poll, followed by
//! `BackendReadings`. Both sides are from the same release, so there are no versions; the lengths
//! are bounded nevertheless, because the library may have overwritten the sensor's memory.

use gpukill_proto::transport::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// The longest message. Readings of 64 devices with 1,000 processes each fit.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// Sends one message before the deadline.
pub(crate) fn send<T: Serialize>(
    socket: &mut UnixStream,
    message: &T,
    deadline: Instant,
) -> io::Result<()> {
    let body = codec::encode(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|_| body.len() <= MAX_MESSAGE_BYTES);
    let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    let mut rest = frame.as_slice();
    while !rest.is_empty() {
        socket.set_write_timeout(Some(time_left(deadline)?))?;
        match socket.write(rest) {
            Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives one whole message before the deadline.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: &mut UnixStream,
    deadline: Instant,
) -> io::Result<T> {
    let mut length = [0; 4];
    read_exact(socket, &mut length, deadline)?;
    let mut body = vec![0; checked_length(length)?];
    read_exact(socket, &mut body, deadline)?;
    decode(&body)
}

/// Takes the first message off the received bytes, once it is complete.
pub(crate) fn take_message<T: DeserializeOwned>(received: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some((length, rest)) = received.split_first_chunk() else {
        return Ok(None);
    };
    let length = checked_length(*length)?;
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let message = decode(body)?;
    received.drain(..length + 4);
    Ok(Some(message))
}

fn checked_length(length: [u8; 4]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE_BYTES {
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

fn read_exact(socket: &mut UnixStream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        socket.set_read_timeout(Some(time_left(deadline)?))?;
        match socket.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn time_left(deadline: Instant) -> io::Result<std::time::Duration> {
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
    fn message_roundtrip() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let request: Vec<u32> = vec![3];
        send(&mut a, &request, soon()).unwrap();
        assert_eq!(receive::<Vec<u32>>(&mut b, soon()).unwrap(), request);
    }

    #[test]
    fn messages_are_taken_whole() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        for leave_out in [vec![3], vec![]] {
            send::<Vec<u32>>(&mut a, &leave_out, soon()).unwrap();
        }
        drop(a);
        let mut all = Vec::new();
        b.read_to_end(&mut all).unwrap();
        let mut received = Vec::new();
        let mut taken = Vec::new();
        for byte in all {
            received.push(byte);
            taken.extend(take_message::<Vec<u32>>(&mut received).unwrap());
        }
        assert_eq!(taken, [vec![3], vec![]]);
        assert!(received.is_empty());
        assert!(take_message::<Vec<u32>>(&mut vec![0xff; 5]).is_err());
    }

    #[test]
    fn invalid_input_is_an_error() {
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
                receive::<Vec<u32>>(&mut b, soon()).unwrap_err().kind(),
                kind,
                "{bytes:?}"
            );
        }
        let (_silent, mut b) = UnixStream::pair().unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let error = receive::<Vec<u32>>(&mut b, soon).unwrap_err();
        assert!(matches!(
            error.kind(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
        ));
    }
}
