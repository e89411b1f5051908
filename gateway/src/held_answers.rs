//! Long answers that clients have not read yet. A client that reads slowly keeps a snapshot in memory
//! that is long out of date: when all such answers take too many bytes, the connections that have
//! waited the longest are closed.
//!
//! Clients that read the same snapshot share its bytes, so these count once.

use crate::connections::{Busy, Connection};
use crate::memory::MAX_HELD_BYTES;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame as BodyFrame, SizeHint};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

/// Longer parts of an answer are sent in slices of this length, so that no buffer of a connection has
/// more; shorter ones are not counted.
pub(crate) const MAX_SLICE: usize = 32 << 10;

/// The answers that clients read.
#[derive(Default)]
pub(crate) struct HeldAnswers(Mutex<HeldState>);

#[derive(Default)]
struct HeldState {
    /// By the address of the bytes, which stay where they are while a client reads them.
    contents: BTreeMap<usize, HeldContent>,
    next: u64,
}

struct HeldContent {
    bytes: usize,
    /// The connections that read it, in the order in which they began.
    readers: BTreeMap<u64, Arc<Connection>>,
}

/// A content that a client reads until this is dropped.
pub(crate) struct Hold {
    answers: Arc<HeldAnswers>,
    address: usize,
    number: u64,
}

impl HeldAnswers {
    /// Counts a content that this connection begins to read. Closes the connections that began
    /// first if there are too many bytes.
    pub(crate) fn hold(answers: &Arc<Self>, content: &Bytes, connection: &Arc<Connection>) -> Hold {
        let address = content.as_ptr().addr();
        let mut state = answers.lock();
        let number = state.next;
        state.next += 1;
        let held = state.contents.entry(address);
        let held = held.or_insert_with(|| HeldContent {
            bytes: content.len(),
            readers: BTreeMap::new(),
        });
        held.readers.insert(number, Arc::clone(connection));
        let slowest = state.take_slowest(address);
        // A connection may need the lock when it is dropped.
        drop(state);
        for connection in slowest {
            connection.close();
        }
        Hold {
            answers: Arc::clone(answers),
            address,
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldState {
    /// Removes the readers that began first until the bytes are few enough, and returns them. The
    /// readers of the content that was begun last stay.
    fn take_slowest(&mut self, last: usize) -> Vec<Arc<Connection>> {
        let mut slowest = Vec::new();
        while self.contents.values().map(|it| it.bytes).sum::<usize>() > MAX_HELD_BYTES {
            let others = self
                .contents
                .iter()
                .filter(|(address, _)| **address != last);
            let first_readers =
                others.filter_map(|(address, it)| Some((*it.readers.keys().next()?, *address)));
            let Some((_, address)) = first_readers.min() else {
                break;
            };
            let content = self.contents.get_mut(&address);
            let first = content.and_then(|content| content.readers.pop_first());
            slowest.extend(first.map(|(_, connection)| connection));
            self.remove_unread(address);
        }
        slowest
    }

    /// Forgets a content that nobody reads any more.
    fn remove_unread(&mut self, address: usize) {
        let content = self.contents.get(&address);
        if content.is_some_and(|content| content.readers.is_empty()) {
            self.contents.remove(&address);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.answers.lock();
        let content = state.contents.get_mut(&self.address);
        let reader = content.and_then(|content| content.readers.remove(&self.number));
        state.remove_unread(self.address);
        drop(state);
        drop(reader);
    }
}

/// A slice of a content, which counts as unread until the connection has sent it.
struct HeldSlice {
    bytes: Bytes,
    _hold: Option<Arc<Hold>>,
}

impl AsRef<[u8]> for HeldSlice {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of an answer: its long parts are counted while the client reads them.
pub(crate) struct HeldBody {
    body: Body,
    /// What is left of a long part.
    rest: Bytes,
    hold: Option<Arc<Hold>>,
    answers: Arc<HeldAnswers>,
    connection: Arc<Connection>,
    _busy: Busy,
}

impl HeldBody {
    /// The same body, counted.
    pub(crate) fn new(body: Body, answers: &Arc<HeldAnswers>, connection: Arc<Connection>) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            hold: None,
            answers: Arc::clone(answers),
            _busy: Busy::new(&connection),
            connection,
        }
    }

    /// The next slice of the long part.
    fn next_slice(&mut self) -> Bytes {
        let length = self.rest.len().min(MAX_SLICE);
        let bytes = self.rest.split_to(length);
        let hold = match self.rest.is_empty() {
            true => self.hold.take(),
            false => self.hold.clone(),
        };
        Bytes::from_owner(HeldSlice { bytes, _hold: hold })
    }
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let part = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(part)) => part,
                end => return Poll::Ready(end),
            };
            match part.into_data() {
                Ok(data) if data.len() > MAX_SLICE => {
                    let hold = HeldAnswers::hold(&this.answers, &data, &this.connection);
                    this.hold = Some(Arc::new(hold));
                    this.rest = data;
                }
                Ok(data) => return Poll::Ready(Some(Ok(BodyFrame::data(data)))),
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        Poll::Ready(Some(Ok(BodyFrame::data(this.next_slice()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.rest.is_empty() {
            true => self.body.size_hint(),
            // It is only looked at before the first part.
            false => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{ConnectionSlots, Peer};
    use crate::settings::Settings;
    use futures::FutureExt as _;

    struct Readers {
        slots: Arc<ConnectionSlots>,
        answers: Arc<HeldAnswers>,
    }

    impl Readers {
        fn new() -> Self {
            Self {
                slots: Arc::new(ConnectionSlots::new(&Settings::default())),
                answers: Arc::default(),
            }
        }

        fn connect(&self) -> Arc<Connection> {
            Connection::open(&self.slots, Peer::User(1))
        }

        fn begin(&self, content: &Bytes) -> (Arc<Connection>, Hold) {
            let connection = self.connect();
            let hold = HeldAnswers::hold(&self.answers, content, &connection);
            (connection, hold)
        }

        fn bytes(&self) -> usize {
            let state = self.answers.lock();
            state.contents.values().map(|it| it.bytes).sum()
        }
    }

    fn mebibytes(count: usize) -> Bytes {
        vec![b'x'; count << 20].into()
    }

    #[test]
    fn slowest_readers_are_closed_when_there_are_too_many_bytes() {
        let readers = Readers::new();
        let contents: Vec<Bytes> = (0..4).map(|_| mebibytes(20)).collect();
        // Two read the first content, and a third one has read it.
        let first = [readers.begin(&contents[0]), readers.begin(&contents[0])];
        drop(readers.begin(&contents[0]));
        let second = readers.begin(&contents[1]);
        let third = readers.begin(&contents[2]);
        assert_eq!((readers.bytes(), readers.slots.refused()), (60 << 20, 0));
        let fourth = readers.begin(&contents[3]);
        assert_eq!((readers.bytes(), readers.slots.refused()), (60 << 20, 2));
        for (connection, is_closed) in [
            (&first[0].0, true),
            (&first[1].0, true),
            (&second.0, false),
            (&third.0, false),
            (&fourth.0, false),
        ] {
            assert_eq!(connection.closed().now_or_never().is_some(), is_closed);
        }
        drop((first, second, third, fourth));
        assert_eq!(readers.bytes(), 0);
        assert_eq!(readers.slots.count(), 0);
    }

    #[test]
    fn many_readers_of_the_newest_content_are_no_burden() {
        let readers = Readers::new();
        let content = mebibytes(65);
        let all: Vec<_> = (0..100).map(|_| readers.begin(&content)).collect();
        assert_eq!((readers.bytes(), readers.slots.refused()), (65 << 20, 0));
        // They are slow when there is another content.
        let _newer = readers.begin(&mebibytes(1));
        assert_eq!((readers.bytes(), readers.slots.refused()), (1 << 20, 100));
        drop(all);
        assert_eq!(readers.bytes(), 1 << 20);
    }

    /// The data of the next part; `None` at the end.
    fn next_part(body: &mut HeldBody) -> Option<Bytes> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        match Pin::new(body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(part))) => part.into_data().ok(),
            Poll::Ready(None) => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn long_answer_is_sent_in_slices_and_counts_until_the_last_is_sent() {
        let readers = Readers::new();
        let content = mebibytes(1);
        let body = |content: &Bytes| {
            let body = Body::from(content.clone());
            HeldBody::new(body, &readers.answers, readers.connect())
        };
        let mut long = body(&content);
        assert_eq!(long.size_hint().exact(), Some(1 << 20));
        let mut slices = Vec::new();
        while let Some(slice) = next_part(&mut long) {
            assert!(slice.len() <= MAX_SLICE);
            slices.push(slice);
        }
        let sent: Vec<u8> = slices.iter().flatten().copied().collect();
        assert_eq!(sent, content);
        assert!(long.is_end_stream());
        let last = slices.pop();
        drop((slices, long));
        assert_eq!(readers.bytes(), 1 << 20);
        drop(last);
        assert_eq!(readers.bytes(), 0);
        let mut short = body(&content.slice(..MAX_SLICE));
        assert_eq!(next_part(&mut short).map(|it| it.len()), Some(MAX_SLICE));
        assert_eq!(readers.bytes(), 0);
    }
}
