//! Frames and their contents, bounded, with tarpc's traps closed.
//!
//! tarpc's own bincode codec cannot be used by a privileged daemon: it trusts
//! the deadline inside a request, and one frame with a far deadline panics in
//! three different places (tarpc 0.38, tracing-subscriber 0.3). Here such a
//! frame is refused before tarpc sees it.

use super::{MAX_DEADLINE, MAX_REQUEST, MAX_RESPONSE};
use crate::service::{GpukillRequest, GpukillResponse};
use bincode::Options as _;
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;
use tarpc::{ClientMessage, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::{Decoder, Encoder, Framed, LengthDelimitedCodec};

/// What the daemon reads and what it writes.
pub type ServerTransport<S> = tokio_serde::Framed<
    Framed<S, Frames>,
    ClientMessage<GpukillRequest>,
    Response<GpukillResponse>,
    Bincode<ClientMessage<GpukillRequest>, Response<GpukillResponse>>,
>;

/// The daemon's side of a connection whose prefaces are exchanged.
pub fn server<S: AsyncRead + AsyncWrite>(stream: S) -> ServerTransport<S> {
    let frames = Framed::new(stream, Frames::new(MAX_REQUEST, MAX_RESPONSE));
    tokio_serde::Framed::new(frames, Bincode(PhantomData))
}

/// Encodes a value as it travels: variable-length integers, little-endian.
///
/// # Errors
/// When the value holds something bincode has no form for.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, bincode::Error> {
    // Not its `serialize`, which counts the bytes first: that is another serializer of
    // each type.
    let mut bytes = Vec::new();
    bincode::DefaultOptions::new().serialize_into(&mut bytes, value)?;
    Ok(bytes)
}

/// How many bytes a value is as it travels.
///
/// # Errors
/// As [`encode`].
pub fn encoded_size<T: Serialize>(value: &T) -> Result<u64, bincode::Error> {
    // Not bincode's own, for the same reason, and it has all integers fixed.
    encode(value).map(|bytes| bytes.len() as u64)
}

/// Decodes a value; every byte must belong to it.
///
/// # Errors
/// When the bytes are not exactly one such value.
pub fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, bincode::Error> {
    bincode::DefaultOptions::new().deserialize(bytes)
}

/// Encodes a request as a tarpc client writes it, without a trace.
///
/// # Errors
/// When it holds something bincode has no form for.
pub fn encode_request(
    id: u64,
    deadline: Duration,
    request: &GpukillRequest,
) -> io::Result<Vec<u8>> {
    // `ClientMessage::Request`: the deadline, the ids of a trace and that it is not
    // sampled, the request's id.
    let (is_request, trace, span, unsampled) = (0_u32, [0_u8; 16], 0_u64, 1_u32);
    let message = (is_request, deadline, trace, span, unsampled, id, request);
    encode(&message).map_err(invalid)
}

/// Decodes a request as the daemon does, refusing a deadline that is too far.
///
/// # Errors
/// When the frame is not exactly one request, or its deadline is too far.
pub fn decode_request(frame: &[u8]) -> Result<ClientMessage<GpukillRequest>, io::Error> {
    check_deadline(frame)?;
    decode(frame).map_err(invalid)
}

/// The beginning of tarpc's `ClientMessage`, in which a deadline is only a
/// duration and not yet an instant: making the instant is what panics.
#[derive(Deserialize)]
enum Beginning {
    Request(RequestBeginning),
    Cancel,
}

#[derive(Deserialize)]
struct RequestBeginning {
    deadline: Duration,
}

fn check_deadline(frame: &[u8]) -> io::Result<()> {
    let beginning = bincode::DefaultOptions::new()
        .allow_trailing_bytes()
        .deserialize(frame)
        .map_err(invalid)?;
    match beginning {
        Beginning::Request(request) if request.deadline > MAX_DEADLINE => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "deadline too far",
        )),
        Beginning::Request(_) | Beginning::Cancel => Ok(()),
    }
}

fn invalid(error: bincode::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Length-delimited frames, with a longest frame for each direction.
pub struct Frames {
    reader: LengthDelimitedCodec,
    writer: LengthDelimitedCodec,
}

impl Frames {
    fn new(max_read: usize, max_written: usize) -> Self {
        let codec = |max| {
            LengthDelimitedCodec::builder()
                .max_frame_length(max)
                .new_codec()
        };
        Self {
            reader: codec(max_read),
            writer: codec(max_written),
        }
    }
}

impl Decoder for Frames {
    type Item = BytesMut;
    type Error = io::Error;

    fn decode(&mut self, buffer: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        self.reader.decode(buffer)
    }
}

impl Encoder<Bytes> for Frames {
    type Error = io::Error;

    fn encode(&mut self, frame: Bytes, buffer: &mut BytesMut) -> io::Result<()> {
        self.writer.encode(frame, buffer)
    }
}

/// The contents of frames: requests in, answers out.
pub struct Bincode<Item, SinkItem>(PhantomData<fn() -> (Item, SinkItem)>);

impl<Item: for<'a> Deserialize<'a>, SinkItem> tokio_serde::Deserializer<Item>
    for Bincode<Item, SinkItem>
{
    type Error = io::Error;

    fn deserialize(self: Pin<&mut Self>, frame: &BytesMut) -> io::Result<Item> {
        check_deadline(frame)?;
        decode(frame).map_err(invalid)
    }
}

impl<Item, SinkItem: Serialize> tokio_serde::Serializer<SinkItem> for Bincode<Item, SinkItem> {
    type Error = io::Error;

    fn serialize(self: Pin<&mut Self>, item: &SinkItem) -> io::Result<Bytes> {
        encode(item).map(Bytes::from).map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `ClientMessage::Request` with everything after the deadline as tarpc
    /// sends it: trace context, request id, `GpukillRequest::Status`.
    fn status_request(deadline: Duration) -> Vec<u8> {
        encode(&(0u32, deadline, [0u8; 16], 0u64, 1u32, 7u64, 2u32)).expect("plain values encode")
    }

    #[test]
    fn a_request_with_a_fair_deadline_is_read() {
        let request = decode_request(&status_request(Duration::from_secs(10))).expect("a request");
        assert!(
            matches!(request, ClientMessage::Request(r) if matches!(r.message, GpukillRequest::Status {}))
        );
    }

    #[test]
    fn a_deadline_that_would_panic_inside_tarpc_is_refused() {
        let too_far = MAX_DEADLINE.as_secs() + 1;
        for seconds in [too_far, 3 * 31_536_000, 9_000 * 31_536_000, u64::MAX] {
            let refused = decode_request(&status_request(Duration::from_secs(seconds)));
            let error = refused.err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some("deadline too far"), "{seconds} s");
        }
    }

    #[test]
    fn an_unknown_call_and_trailing_bytes_are_errors() {
        let mut unknown = status_request(Duration::from_secs(1));
        *unknown.last_mut().expect("not empty") = 200;
        assert!(decode_request(&unknown).is_err());
        let mut trailing = status_request(Duration::from_secs(1));
        trailing.push(0);
        assert!(decode_request(&trailing).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_can_panic_the_request_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_request(&bytes);
        }

        #[test]
        fn nor_can_a_true_request_with_bytes_changed(at in 0usize..40, byte: u8, seconds in 0u64..200) {
            let mut frame = status_request(Duration::from_secs(seconds));
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
            let _ = decode_request(&frame);
        }
    }
}
