//! What attackers do to the socket, a hundred of them at once, for as long as it
//! is wanted. The bench of the load uses it too.

use crate::raw::{frame, request};
use gpukill_proto::service::GpukillRequest;
use gpukill_proto::transport::preface::{LENGTH, Preface, Status};
use gpukill_proto::transport::{MAX_REQUEST, MAX_RESPONSE};
use gpukill_tests::harness::{acting_as, can_be_several_people, user};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// How many there are, and of how many users. Each user has 8 places and all
/// plain users together 48: these fill theirs and not those of the others.
const ATTACKERS: usize = 100;
const USERS: u32 = 4;

/// Where nobody can act as another they take the honest one's own places, and so
/// must be fewer.
const OWN_ATTACKERS: usize = 6;

const FIRST_USER: u32 = user(0);

/// An attacker does not let go before.
const HOLD: Duration = Duration::from_millis(700);

/// Lets all of them attack while `work` runs; says how often they were let in.
pub(crate) fn beside<T>(socket: &Path, work: impl FnOnce() -> T) -> (T, usize) {
    let others = can_be_several_people();
    let (over, let_in) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done = std::thread::scope(|scope| {
        // However the work ends, they must end too.
        let _ends = Ends(&over);
        for n in 0..if others { ATTACKERS } else { OWN_ATTACKERS } {
            let (over, let_in) = (&over, &let_in);
            let run = move || attack(ATTACKS[n % ATTACKS.len()], socket, over, let_in);
            let uid = FIRST_USER + u32::try_from(n).unwrap() % USERS;
            scope.spawn(move || match others {
                true => acting_as(uid, &[], run),
                false => run(),
            });
        }
        work()
    });
    (done, let_in.into_inner())
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Attack = fn(&mut UnixStream) -> io::Result<()>;

const ATTACKS: [Attack; 12] = [
    |_| Ok(()),
    |stream| stream.write_all(b"GET / HTTP/1.1\r\n\r\n"),
    |stream| stream.write_all(&ours()[..8]),
    |stream| {
        let mut foreign = Preface::ours(Status::Welcome, MAX_RESPONSE);
        foreign.version.major += 1;
        stream.write_all(&foreign.encode())
    },
    |stream| {
        let whole = frame(&status(Duration::from_secs(10)));
        greeted(stream, &whole[..whole.len() / 2])
    },
    |stream| greeted(stream, &frame(&[0xff; MAX_REQUEST])),
    |stream| greeted(stream, &frame(&[7; MAX_REQUEST])[..MAX_REQUEST]),
    |stream| greeted(stream, &u32::MAX.to_be_bytes()),
    |stream| greeted(stream, &frame(&status(Duration::MAX))),
    drip,
    never_read,
    |stream| {
        let news = GpukillRequest::Snapshot {
            after: Some(u64::MAX),
        };
        // A call of somebody who has gone holds its place until its deadline.
        greeted(stream, &frame(&request(Duration::from_secs(3), 1, &news)))
    },
];

fn ours() -> [u8; LENGTH] {
    Preface::ours(Status::Welcome, MAX_RESPONSE).encode()
}

fn status(deadline: Duration) -> Vec<u8> {
    request(deadline, 1, &GpukillRequest::Status {})
}

fn greeted(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(&ours())?;
    stream.write_all(bytes)
}

/// A byte now and then, so that it is never silent.
fn drip(stream: &mut UnixStream) -> io::Result<()> {
    let bytes = [&ours()[..], &frame(&status(Duration::from_secs(10)))].concat();
    for byte in bytes {
        stream.write_all(&[byte])?;
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Asks for all it can, and reads nothing.
fn never_read(stream: &mut UnixStream) -> io::Result<()> {
    greeted(stream, &[])?;
    let call = GpukillRequest::Snapshot { after: None };
    for id in 0..2_000 {
        stream.write_all(&frame(&request(Duration::from_secs(60), id, &call)))?;
    }
    Ok(())
}

/// Attacks again and again. The daemon may end any of it at any time.
fn attack(attack: Attack, socket: &Path, over: &AtomicBool, let_in: &AtomicUsize) {
    let patience = Some(Duration::from_millis(500));
    while !over.load(Ordering::Relaxed) {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        let mut theirs = [0; LENGTH];
        let greeting = stream.read_exact(&mut theirs);
        let theirs = greeting.ok().and_then(|()| Preface::decode(&theirs));
        if theirs.is_none_or(|theirs| theirs.status != Status::Welcome) {
            // Hardly a pause: they are many.
            sleep(Duration::from_millis(20));
            continue;
        }
        let_in.fetch_add(1, Ordering::Relaxed);
        let _ = attack(&mut stream);
        sleep(HOLD);
    }
}
