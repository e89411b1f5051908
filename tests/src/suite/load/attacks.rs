//! Attacks on the socket by many connections at once, while a test or a bench does its
//! work. The load bench includes this file too.

use crate::raw::{encode_frame, encode_request};
use gpukill_proto::service::GpukillRequest;
use gpukill_proto::transport::preface::{PREFACE_LENGTH, Preface, PrefaceStatus};
use gpukill_proto::transport::{MAX_REQUEST, MAX_RESPONSE};
use gpukill_tests::harness::{can_use_several_persons, run_as_user, test_uid};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// The number of attackers and of their users. Each user has 8 connection slots and all
/// plain users together have 48: the attackers fill their own slots and not those of other
/// users.
const ATTACKERS: usize = 100;
const ATTACKING_USERS: u32 = 4;

/// Where the test cannot run as other users, the attackers use the slots of the honest
/// user, so they must be fewer.
const OWN_ATTACKERS: usize = 6;

const FIRST_USER: u32 = test_uid(0);

/// An attacker keeps its connection for this long.
const HOLD_TIME: Duration = Duration::from_millis(700);

/// Runs `work` while all attackers attack. Returns its result and the number of admitted
/// connections.
pub(crate) fn run_under_attack<T>(socket: &Path, work: impl FnOnce() -> T) -> (T, usize) {
    let others = can_use_several_persons();
    let (over, let_in) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done = std::thread::scope(|scope| {
        // The attackers must end however the work ends.
        let _ends = StopOnDrop(&over);
        for n in 0..if others { ATTACKERS } else { OWN_ATTACKERS } {
            let (over, let_in) = (&over, &let_in);
            let run = move || attack(ATTACKS[n % ATTACKS.len()], socket, over, let_in);
            let uid = FIRST_USER + u32::try_from(n).unwrap() % ATTACKING_USERS;
            scope.spawn(move || match others {
                true => run_as_user(uid, &[], run),
                false => run(),
            });
        }
        work()
    });
    (done, let_in.into_inner())
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Attack = fn(&mut UnixStream) -> io::Result<()>;

const ATTACKS: [Attack; 12] = [
    |_| Ok(()),
    |stream| stream.write_all(b"GET / HTTP/1.1\r\n\r\n"),
    |stream| stream.write_all(&valid_preface()[..8]),
    |stream| {
        let mut foreign = Preface::new(PrefaceStatus::Welcome, MAX_RESPONSE);
        foreign.version.major += 1;
        stream.write_all(&foreign.encode())
    },
    |stream| {
        let whole = encode_frame(&status_request(Duration::from_secs(10)));
        send_after_preface(stream, &whole[..whole.len() / 2])
    },
    |stream| send_after_preface(stream, &encode_frame(&[0xff; MAX_REQUEST])),
    |stream| send_after_preface(stream, &encode_frame(&[7; MAX_REQUEST])[..MAX_REQUEST]),
    |stream| send_after_preface(stream, &u32::MAX.to_be_bytes()),
    |stream| send_after_preface(stream, &encode_frame(&status_request(Duration::MAX))),
    send_slowly,
    never_read,
    |stream| {
        let news = GpukillRequest::Snapshot {
            after: Some(u64::MAX),
        };
        // The call of a disconnected client keeps its slot until its deadline.
        send_after_preface(
            stream,
            &encode_frame(&encode_request(Duration::from_secs(3), 1, &news)),
        )
    },
];

fn valid_preface() -> [u8; PREFACE_LENGTH] {
    Preface::new(PrefaceStatus::Welcome, MAX_RESPONSE).encode()
}

fn status_request(deadline: Duration) -> Vec<u8> {
    encode_request(deadline, 1, &GpukillRequest::Status {})
}

fn send_after_preface(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(&valid_preface())?;
    stream.write_all(bytes)
}

/// Sends one byte at a time, so that the connection is never idle.
fn send_slowly(stream: &mut UnixStream) -> io::Result<()> {
    let bytes = [
        &valid_preface()[..],
        &encode_frame(&status_request(Duration::from_secs(10))),
    ]
    .concat();
    for byte in bytes {
        stream.write_all(&[byte])?;
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Sends many requests and reads no answer.
fn never_read(stream: &mut UnixStream) -> io::Result<()> {
    send_after_preface(stream, &[])?;
    let call = GpukillRequest::Snapshot { after: None };
    for id in 0..2_000 {
        stream.write_all(&encode_frame(&encode_request(
            Duration::from_secs(60),
            id,
            &call,
        )))?;
    }
    Ok(())
}

/// Attacks repeatedly. The daemon may end any connection at any time.
fn attack(attack: Attack, socket: &Path, over: &AtomicBool, let_in: &AtomicUsize) {
    let timeout = Some(Duration::from_millis(500));
    while !over.load(Ordering::Relaxed) {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(timeout).unwrap();
        stream.set_write_timeout(timeout).unwrap();
        let mut answer = [0; PREFACE_LENGTH];
        let greeting = stream.read_exact(&mut answer);
        let answer = greeting.ok().and_then(|()| Preface::decode(&answer));
        if answer.is_none_or(|answer| answer.status != PrefaceStatus::Welcome) {
            // A short pause, because the attackers are many.
            sleep(Duration::from_millis(20));
            continue;
        }
        let_in.fetch_add(1, Ordering::Relaxed);
        let _ = attack(&mut stream);
        sleep(HOLD_TIME);
    }
}
