//! The child's own side: gives up every privilege, limits itself, reads one request, opens
//! what that needs, has itself confined to that, and answers. Of the rules nothing is
//! looked at before.

use super::Request;
use crate::sensor::child::{drop_privileges, end_with_the_daemon};
use crate::sensor::confine::confine_to_open_files;
use gpukill_proto::service::LONGEST_RULES;
use gpukill_proto::transport::codec::{decode, encode};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{self, Read as _, Write as _};

/// A request has the rules and a path.
const LONGEST: u64 = LONGEST_RULES as u64 + (64 << 10);

/// Runs as the child: `open` opens what a request needs; after that nothing can be opened,
/// and `answer` does what is asked for, and encodes what came of it.
///
/// # Errors
/// When privileges cannot be given up, or there is no request.
pub(crate) fn run<T>(
    open: impl FnOnce(&Request) -> T,
    answer: impl FnOnce(Request, T) -> Result<Vec<u8>, bincode::Error>,
) -> io::Result<()> {
    end_with_the_daemon()?;
    drop_privileges()?;
    // Rather this one than the daemon.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    let mut bytes = Vec::new();
    io::stdin().take(LONGEST).read_to_end(&mut bytes)?;
    let request: Request = decode(&bytes).map_err(io::Error::other)?;
    limit(Resource::Data, request.memory())?;
    limit(Resource::Cpu, request.seconds())?;
    let opened = open(&request);
    confine_to_open_files()?;
    let answer = answer(request, opened).map_err(io::Error::other)?;
    io::stdout().write_all(&answer)
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let most = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(resource, most).map_err(io::Error::from)
}

/// Encodes an answer.
///
/// # Errors
/// When it cannot be.
pub(crate) fn encoded<T: serde::Serialize>(answer: &T) -> Result<Vec<u8>, bincode::Error> {
    encode(answer)
}
