//! What a process that loaded the library has open: how often it initialised NVML, the state it
//! plays, and the handles it was given. Every function passes through [`ask`] or [`ask_device`].

use std::collections::BTreeMap;
use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::code::{Answer, Code};
use crate::device::Device;
use crate::event_set::EventSet;
use crate::fault;
use crate::layout::Handle;
use crate::state::{Gpu, State};
use crate::state_file::StateFile;

static SESSION: Mutex<Session> = Mutex::new(Session {
    users: 0,
    load: None,
    file: None,
    handed_out: Vec::new(),
    event_sets: BTreeMap::new(),
    next_event_set: FIRST_EVENT_SET,
});

/// Handles are numbers far from any index and from each other, so that a mixed-up one is refused.
const FIRST_DEVICE: usize = 0x6b01;
const FIRST_EVENT_SET: usize = 0x6e01_0000;

struct Session {
    /// Successful `nvmlInit` less `nvmlShutdown`.
    users: u32,
    /// The load of the driver that the first `nvmlInit` found, for ever.
    load: Option<u64>,
    /// Opened by the `nvmlInit` that finds no users.
    file: Option<StateFile>,
    /// By handle, for ever: a handle means the same device after another `nvmlInit`.
    handed_out: Vec<Known>,
    event_sets: BTreeMap<usize, EventSet>,
    next_event_set: usize,
}

/// A device that a handle was given for.
#[derive(Clone)]
struct Known {
    uuid: String,
    /// What the handle answers once the state has no such device.
    when_gone: Code,
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

/// Answers a function about a GPU or one of its instances.
pub(crate) fn ask_device(
    function: &str,
    device: Handle,
    body: impl FnOnce(Device<'_>) -> Answer,
) -> Code {
    ask(function, |state| {
        let known = known(device).ok_or(Code::INVALID_ARGUMENT)?;
        let device = Device::with_uuid(state, &known.uuid).ok_or(known.when_gone)?;
        fault::meet_device(&device, function)?;
        body(device)
    })
}

/// Answers a function about one whole GPU.
pub(crate) fn ask_gpu(function: &str, device: Handle, body: impl FnOnce(&Gpu) -> Answer) -> Code {
    ask_device(function, device, |device| body(device.as_gpu()?))
}

/// `nvmlInit`, by any of its names.
pub(crate) fn open(function: &str) -> Code {
    let answer = || {
        let state = state_to_open()?;
        fault::meet(&state, function)?;
        if state.init_error != 0 {
            return Err(Code(state.init_error));
        }
        let mut session = lock();
        session.users += 1;
        session.load.get_or_insert(state.load);
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

/// The state as of now, for a function that takes its time.
pub(crate) fn state() -> Result<Arc<State>, Code> {
    let mut session = lock();
    if session.users == 0 {
        return Err(Code::UNINITIALIZED);
    }
    session.play().unwrap_or(Err(Code::UNINITIALIZED))
}

/// The handle of a device: the one given before, or a new one.
pub(crate) fn handle_of(uuid: String, when_gone: Code) -> Handle {
    let handed_out = &mut lock().handed_out;
    let place = handed_out
        .iter()
        .position(|known| known.uuid == uuid)
        .unwrap_or_else(|| {
            handed_out.push(Known { uuid, when_gone });
            handed_out.len() - 1
        });
    Handle(FIRST_DEVICE + place)
}

/// A new event set.
pub(crate) fn new_event_set() -> Handle {
    let mut session = lock();
    let set = session.next_event_set;
    session.next_event_set += 1;
    session.event_sets.insert(set, EventSet::default());
    Handle(set)
}

/// Does something with an event set, if there is one.
pub(crate) fn with_event_set<T>(set: Handle, act: impl FnOnce(&mut EventSet) -> T) -> Option<T> {
    lock().event_sets.get_mut(&set.0).map(act)
}

/// Frees an event set; false if there was none.
pub(crate) fn free_event_set(set: Handle) -> bool {
    lock().event_sets.remove(&set.0).is_some()
}

impl Session {
    /// What the file says now, if one is open; an error once the driver is another than at first.
    fn play(&mut self) -> Option<Result<Arc<State>, Code>> {
        let state = self.file.as_mut()?.current();
        Some(speaks_to(self.load, &state).map(|()| state))
    }
}

/// Whether a library that first met this load of the driver can speak to the one of the state.
fn speaks_to(load: Option<u64>, state: &State) -> Answer {
    if load.is_none_or(|load| load == state.load) {
        Ok(())
    } else {
        Err(Code(state.load_error))
    }
}

fn known(device: Handle) -> Option<Known> {
    let place = device.0.checked_sub(FIRST_DEVICE)?;
    lock().handed_out.get(place).cloned()
}

fn state_to_open() -> Result<Arc<State>, Code> {
    let mut session = lock();
    if session.users == 0 {
        let path = env::var_os("FAKE_NVML_STATE").ok_or(Code::DRIVER_NOT_LOADED)?;
        session.file = Some(StateFile::open(path.into()).ok_or(Code::UNKNOWN)?);
    }
    session.play().unwrap_or(Err(Code::UNKNOWN))
}

/// Held for moments only, never while a fault is met: a call that hangs must not stop the others.
fn lock() -> MutexGuard<'static, Session> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_speaks_only_to_the_load_it_met_first() {
        let state = State::parse(br#"{"load": 2, "load_error": 999}"#).expect("a valid state");
        for (first, answer) in [(None, Ok(())), (Some(2), Ok(())), (Some(1), Err(Code(999)))] {
            assert_eq!(speaks_to(first, &state), answer, "{first:?}");
        }
    }
}
