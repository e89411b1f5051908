//! Bounded frames and their contents.
//!
//! tarpc's own bincode codec is unsafe in a privileged daemon: it trusts the deadline inside a
//! request, and one frame with a far deadline panics in three different places (tarpc 0.38,
//! tracing-subscriber 0.3). This codec refuses such a frame before tarpc sees it.

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

/// The transport of the daemon: requests in, responses out.
pub type ServerTransport<S> = tokio_serde::Framed<
    Framed<S, FrameCodec>,
    ClientMessage<GpukillRequest>,
    Response<GpukillResponse>,
    Bincode<ClientMessage<GpukillRequest>, Response<GpukillResponse>>,
>;

/// The daemon's side of a connection after the prefaces.
pub fn server_transport<S: AsyncRead + AsyncWrite>(stream: S) -> ServerTransport<S> {
    let frames = Framed::new(stream, FrameCodec::new(MAX_REQUEST, MAX_RESPONSE));
    tokio_serde::Framed::new(frames, Bincode(PhantomData))
}

/// Encodes a value for the wire: variable-length integers, little-endian.
///
/// # Errors
/// The value holds something that bincode cannot represent.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, bincode::Error> {
    // `serialize` would count the bytes first, with another serializer for each type.
    let mut bytes = Vec::new();
    bincode::DefaultOptions::new().serialize_into(&mut bytes, value)?;
    Ok(bytes)
}

/// The encoded size of a value in bytes.
///
/// # Errors
/// As for [`encode`].
pub fn encoded_size<T: Serialize>(value: &T) -> Result<u64, bincode::Error> {
    // bincode's `serialized_size` needs another serializer too, and by default assumes
    // fixed-size integers.
    encode(value).map(|bytes| bytes.len() as u64)
}

/// The room of a page that is being filled with items.
#[derive(Debug)]
pub struct PageRoom {
    items: usize,
    bytes: u64,
    is_empty: bool,
}

impl PageRoom {
    /// Room for this many items, and for this many encoded bytes of them.
    #[must_use]
    pub const fn new(items: usize, bytes: u64) -> Self {
        Self {
            items,
            bytes,
            is_empty: true,
        }
    }

    /// Takes room for an item; returns false if there is none. There is always room for the first
    /// item: otherwise a client would request it for ever.
    pub fn take<T: Serialize>(&mut self, item: &T) -> bool {
        let size = encoded_size(item).unwrap_or(u64::MAX);
        let fits = self.is_empty || self.items > 0 && size <= self.bytes;
        if fits {
            self.is_empty = false;
            self.items = self.items.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(size);
        }
        fits
    }
}

/// Decodes a value; every byte must belong to it.
///
/// # Errors
/// The bytes are not exactly one such value.
pub fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, bincode::Error> {
    bincode::DefaultOptions::new().deserialize(bytes)
}

/// Encodes a request as a tarpc client writes it, without a trace.
///
/// # Errors
/// The request holds something that bincode cannot represent.
pub fn encode_request(
    id: u64,
    deadline: Duration,
    request: &GpukillRequest,
) -> io::Result<Vec<u8>> {
    // `ClientMessage::Request`: the deadline, the trace ids, the flag "not sampled", and the id
    // of the request.
    let (is_request, trace, span, unsampled) = (0_u32, [0_u8; 16], 0_u64, 1_u32);
    let message = (is_request, deadline, trace, span, unsampled, id, request);
    encode(&message).map_err(invalid_data)
}

/// Decodes a request as the daemon does, and refuses a deadline that is too far.
///
/// # Errors
/// The frame is not exactly one request, or its deadline is too far.
pub fn decode_request(frame: &[u8]) -> Result<ClientMessage<GpukillRequest>, io::Error> {
    check_deadline(frame)?;
    decode(frame).map_err(invalid_data)
}

/// The beginning of tarpc's `ClientMessage`, with the deadline still a duration: its conversion
/// to an instant is what panics.
#[derive(Deserialize)]
enum MessageHead {
    Request(RequestHead),
    Cancel,
}

#[derive(Deserialize)]
struct RequestHead {
    deadline: Duration,
}

fn check_deadline(frame: &[u8]) -> io::Result<()> {
    let head = bincode::DefaultOptions::new()
        .allow_trailing_bytes()
        .deserialize(frame)
        .map_err(invalid_data)?;
    match head {
        MessageHead::Request(request) if request.deadline > MAX_DEADLINE => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "deadline too far",
        )),
        MessageHead::Request(_) | MessageHead::Cancel => Ok(()),
    }
}

fn invalid_data(error: bincode::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Length-delimited frames, with a maximum length for each direction.
pub struct FrameCodec {
    reader: LengthDelimitedCodec,
    writer: LengthDelimitedCodec,
}

impl FrameCodec {
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

impl Decoder for FrameCodec {
    type Item = BytesMut;
    type Error = io::Error;

    fn decode(&mut self, buffer: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        self.reader.decode(buffer)
    }
}

impl Encoder<Bytes> for FrameCodec {
    type Error = io::Error;

    fn encode(&mut self, frame: Bytes, buffer: &mut BytesMut) -> io::Result<()> {
        self.writer.encode(frame, buffer)
    }
}

/// The contents of frames: requests in, responses out.
pub struct Bincode<Item, SinkItem>(PhantomData<fn() -> (Item, SinkItem)>);

impl<Item: for<'a> Deserialize<'a>, SinkItem> tokio_serde::Deserializer<Item>
    for Bincode<Item, SinkItem>
{
    type Error = io::Error;

    fn deserialize(self: Pin<&mut Self>, frame: &BytesMut) -> io::Result<Item> {
        check_deadline(frame)?;
        decode(frame).map_err(invalid_data)
    }
}

impl<Item, SinkItem: Serialize> tokio_serde::Serializer<SinkItem> for Bincode<Item, SinkItem> {
    type Error = io::Error;

    fn serialize(self: Pin<&mut Self>, item: &SinkItem) -> io::Result<Bytes> {
        encode(item).map(Bytes::from).map_err(invalid_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_room_for_the_first_item_and_within_its_bounds() {
        let filled = |items, bytes| {
            let mut room = PageRoom::new(items, bytes);
            [7_u8; 9].iter().take_while(|item| room.take(item)).count()
        };
        assert_eq!(filled(9, 3), 3);
        assert_eq!(filled(2, 3), 2);
        assert_eq!(filled(9, 0), 1);
        assert_eq!(filled(0, 3), 1);
    }
    use proptest::prelude::*;

    /// `ClientMessage::Request` with everything after the deadline as tarpc sends it: trace
    /// context, request id, `GpukillRequest::Status`.
    fn status_request(deadline: Duration) -> Vec<u8> {
        encode(&(0u32, deadline, [0u8; 16], 0u64, 1u32, 7u64, 2u32)).expect("plain values encode")
    }

    #[test]
    fn near_deadline_is_accepted() {
        let request = decode_request(&status_request(Duration::from_secs(10))).expect("a request");
        assert!(
            matches!(request, ClientMessage::Request(r) if matches!(r.message, GpukillRequest::Status {}))
        );
    }

    #[test]
    fn far_deadline_is_refused() {
        let too_far = MAX_DEADLINE.as_secs() + 1;
        for seconds in [too_far, 3 * 31_536_000, 9_000 * 31_536_000, u64::MAX] {
            let refused = decode_request(&status_request(Duration::from_secs(seconds)));
            let error = refused.err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some("deadline too far"), "{seconds} s");
        }
    }

    #[test]
    fn unknown_call_and_trailing_bytes_fail() {
        let mut unknown = status_request(Duration::from_secs(1));
        *unknown.last_mut().expect("not empty") = 200;
        assert!(decode_request(&unknown).is_err());
        let mut trailing = status_request(Duration::from_secs(1));
        trailing.push(0);
        assert!(decode_request(&trailing).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_request(&bytes);
        }

        #[test]
        fn corrupted_request_never_panics(at in 0usize..40, byte: u8, seconds in 0u64..200) {
            let mut frame = status_request(Duration::from_secs(seconds));
            if let Some(target) = frame.get_mut(at) {
                *target = byte;
            }
            let _ = decode_request(&frame);
        }
    }
}
