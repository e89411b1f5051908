//! What a process that loaded the library has open: how often it initialised NVML, the state it
//! plays, and the handles it was given. Every function passes through [`ask`] or [`ask_gpu`].

use std::collections::BTreeSet;
use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::code::{Answer, Code};
use crate::fault;
use crate::layout::Handle;
use crate::state::{Gpu, State};
use crate::state_file::StateFile;

static SESSION: Mutex<Session> = Mutex::new(Session {
    users: 0,
    file: None,
    handed_out: Vec::new(),
    event_sets: BTreeSet::new(),
    next_event_set: FIRST_EVENT_SET,
});

/// Handles are numbers far from any index and from each other, so that a mixed-up one is refused.
const FIRST_DEVICE: usize = 0x6b01;
const FIRST_EVENT_SET: usize = 0x6e01_0000;

struct Session {
    /// Successful `nvmlInit` less `nvmlShutdown`.
    users: u32,
    /// Opened by the `nvmlInit` that finds no users.
    file: Option<StateFile>,
    /// UUIDs by handle, for ever: a handle means the same GPU after another `nvmlInit`.
    handed_out: Vec<String>,
    event_sets: BTreeSet<usize>,
    next_event_set: usize,
}

/// Answers a function about the driver.
pub(crate) fn ask(function: &str, body: impl FnOnce(&State) -> Answer) -> Code {
    let answer = || {
        let state = state()?;
        fault::meet(&state, function)?;
        body(&state)
    };
    // A panic must not unwind into C. None is expected; were there one, UNKNOWN is the honest code.
    panic::catch_unwind(AssertUnwindSafe(answer))
        .unwrap_or(Err(Code::UNKNOWN))
        .into()
}

/// Answers a function about one GPU.
pub(crate) fn ask_gpu(function: &str, device: Handle, body: impl FnOnce(&Gpu) -> Answer) -> Code {
    ask(function, |state| {
        let uuid = uuid_of(device).ok_or(Code::INVALID_ARGUMENT)?;
        let gpu = state
            .gpus
            .iter()
            .find(|gpu| gpu.uuid() == uuid)
            .ok_or(Code::GPU_IS_LOST)?;
        fault::meet_gpu(gpu, function)?;
        body(gpu)
    })
}

/// `nvmlInit`, by any of its names.
pub(crate) fn open(function: &str) -> Code {
    let answer = || {
        let state = state_to_open()?;
        fault::meet(&state, function)?;
        if state.init_error != 0 {
            return Err(Code(state.init_error));
        }
        lock().users += 1;
        Ok(())
    };
    panic::catch_unwind(AssertUnwindSafe(answer))
        .unwrap_or(Err(Code::UNKNOWN))
        .into()
}

/// `nvmlShutdown`; the last one ends the session.
pub(crate) fn close(function: &str) -> Code {
    ask(function, |_| {
        let mut session = lock();
        session.users = session.users.saturating_sub(1);
        if session.users == 0 {
            session.event_sets.clear();
        }
        Ok(())
    })
}

/// The handle of a GPU: the one given before, or a new one.
pub(crate) fn handle_of(gpu: &Gpu) -> Handle {
    let uuid = gpu.uuid();
    let known = &mut lock().handed_out;
    let place = known
        .iter()
        .position(|known| *known == uuid)
        .unwrap_or_else(|| {
            known.push(uuid);
            known.len() - 1
        });
    Handle(FIRST_DEVICE + place)
}

/// A new event set.
pub(crate) fn new_event_set() -> Handle {
    let mut session = lock();
    let set = session.next_event_set;
    session.next_event_set += 1;
    session.event_sets.insert(set);
    Handle(set)
}

/// Whether an event set exists.
pub(crate) fn has_event_set(set: Handle) -> bool {
    lock().event_sets.contains(&set.0)
}

/// Frees an event set; false if there was none.
pub(crate) fn free_event_set(set: Handle) -> bool {
    lock().event_sets.remove(&set.0)
}

fn uuid_of(device: Handle) -> Option<String> {
    let place = device.0.checked_sub(FIRST_DEVICE)?;
    lock().handed_out.get(place).cloned()
}

fn state() -> Result<Arc<State>, Code> {
    let mut session = lock();
    if session.users == 0 {
        return Err(Code::UNINITIALIZED);
    }
    session
        .file
        .as_mut()
        .map(StateFile::current)
        .ok_or(Code::UNINITIALIZED)
}

fn state_to_open() -> Result<Arc<State>, Code> {
    let mut session = lock();
    if session.users == 0 {
        let path = env::var_os("FAKE_NVML_STATE").ok_or(Code::DRIVER_NOT_LOADED)?;
        session.file = Some(StateFile::open(path.into()).ok_or(Code::UNKNOWN)?);
    }
    session
        .file
        .as_mut()
        .map(StateFile::current)
        .ok_or(Code::UNKNOWN)
}

/// Held for moments only, never while a fault is met: a call that hangs must not stop the others.
fn lock() -> MutexGuard<'static, Session> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}
