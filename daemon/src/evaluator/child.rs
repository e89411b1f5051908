//! The side of the child: drops all privileges, limits itself, reads one request, opens the files
//! for it, confines itself to these, and answers. The rules are not parsed before that.

use super::EvaluatorRequest;
use crate::sensor::child::{drop_privileges, end_with_the_daemon};
use crate::sensor::confine::confine_to_open_files;
use gpukill_proto::service::MAX_RULES_BYTES;
use gpukill_proto::transport::codec::{decode, encode};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{self, Read as _, Write as _};

/// A request contains the rules and a path.
const MAX_REQUEST_BYTES: u64 = MAX_RULES_BYTES as u64 + (64 << 10);

/// Runs as the child: `open` opens the files for a request; after that no file can be opened, and
/// `answer` carries out the request and encodes the answer.
///
/// # Errors
/// If privileges cannot be dropped, or there is no request.
pub(crate) fn run<T>(
    open: impl FnOnce(&EvaluatorRequest) -> T,
    answer: impl FnOnce(EvaluatorRequest, T) -> Result<Vec<u8>, bincode::Error>,
) -> io::Result<()> {
    end_with_the_daemon()?;
    drop_privileges()?;
    // If memory runs out, the kernel should end this process rather than the daemon.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    let mut bytes = Vec::new();
    io::stdin()
        .take(MAX_REQUEST_BYTES)
        .read_to_end(&mut bytes)?;
    let request: EvaluatorRequest = decode(&bytes).map_err(io::Error::other)?;
    set_limit(Resource::Data, request.memory_limit())?;
    set_limit(Resource::Cpu, request.cpu_seconds())?;
    let opened = open(&request);
    confine_to_open_files()?;
    let answer = answer(request, opened).map_err(io::Error::other)?;
    io::stdout().write_all(&answer)
}

fn set_limit(resource: Resource, max: u64) -> io::Result<()> {
    let max = Rlimit {
        current: Some(max),
        maximum: Some(max),
    };
    setrlimit(resource, max).map_err(io::Error::from)
}

/// Encodes an answer.
///
/// # Errors
/// If it cannot be encoded.
pub(crate) fn encode_answer<T: serde::Serialize>(answer: &T) -> Result<Vec<u8>, bincode::Error> {
    encode(answer)
}
