//! The library's state in a process: the count of NVML initializations, the state file, and the
//! handles given out. Every function passes through [`ask`] or [`ask_device`].

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
    known_devices: Vec::new(),
    event_sets: BTreeMap::new(),
    next_event_set: FIRST_EVENT_SET,
});

/// Handles are numbers far from any index and from each other, so that a confused handle is
/// refused.
const FIRST_DEVICE: usize = 0x6b01;
const FIRST_EVENT_SET: usize = 0x6e01_0000;

struct Session {
    /// Successful `nvmlInit` calls minus `nvmlShutdown` calls.
    users: u32,
    /// The driver load at the first `nvmlInit`; never changes.
    load: Option<u64>,
    /// Opened by an `nvmlInit` without earlier users.
    file: Option<StateFile>,
    /// By handle, never removed: a handle means the same device after another `nvmlInit`.
    known_devices: Vec<KnownDevice>,
    event_sets: BTreeMap<usize, EventSet>,
    next_event_set: usize,
}

/// A device with a handle.
#[derive(Clone)]
struct KnownDevice {
    uuid: String,
    /// The code for the handle when the state no longer has the device.
    when_gone: Code,
}

/// Answers a function about the driver.
pub(crate) fn ask(function: &str, body: impl FnOnce(&State) -> Answer) -> Code {
    let answer = || {
        let state = state()?;
        fault::apply_faults(&state, function)?;
        body(&state)
    };
    // A panic must not unwind into C. None is expected; UNKNOWN would be the correct code for one.
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
        let known = known_device(device).ok_or(Code::INVALID_ARGUMENT)?;
        let device = Device::with_uuid(state, &known.uuid).ok_or(known.when_gone)?;
        fault::apply_device_faults(&device, function)?;
        body(device)
    })
}

/// Answers a function about one whole GPU.
pub(crate) fn ask_gpu(function: &str, device: Handle, body: impl FnOnce(&Gpu) -> Answer) -> Code {
    ask_device(function, device, |device| body(device.as_gpu()?))
}

/// `nvmlInit`, under any of its names.
pub(crate) fn open(function: &str) -> Code {
    let answer = || {
        let state = state_to_open()?;
        fault::apply_faults(&state, function)?;
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

/// The current state, for a function that takes time.
pub(crate) fn state() -> Result<Arc<State>, Code> {
    let mut session = lock();
    if session.users == 0 {
        return Err(Code::UNINITIALIZED);
    }
    session.current_state().unwrap_or(Err(Code::UNINITIALIZED))
}

/// The handle of a device: its earlier one, or a new one.
pub(crate) fn handle_of(uuid: String, when_gone: Code) -> Handle {
    let handed_out = &mut lock().known_devices;
    let place = handed_out
        .iter()
        .position(|known| known.uuid == uuid)
        .unwrap_or_else(|| {
            handed_out.push(KnownDevice { uuid, when_gone });
            handed_out.len() - 1
        });
    Handle(FIRST_DEVICE + place)
}

pub(crate) fn new_event_set() -> Handle {
    let mut session = lock();
    let set = session.next_event_set;
    session.next_event_set += 1;
    session.event_sets.insert(set, EventSet::default());
    Handle(set)
}

/// Calls `action` with an event set, if it exists.
pub(crate) fn with_event_set<T>(set: Handle, action: impl FnOnce(&mut EventSet) -> T) -> Option<T> {
    lock().event_sets.get_mut(&set.0).map(action)
}

/// Frees an event set; false if there was none.
pub(crate) fn free_event_set(set: Handle) -> bool {
    lock().event_sets.remove(&set.0).is_some()
}

impl Session {
    /// The current state of the file, if one is open; an error if the driver has been reloaded
    /// since the first `nvmlInit`.
    fn current_state(&mut self) -> Option<Result<Arc<State>, Code>> {
        let state = self.file.as_mut()?.current();
        Some(check_load(self.load, &state).map(|()| state))
    }
}

/// Whether a library that first found this driver load can communicate with the load of the state.
fn check_load(load: Option<u64>, state: &State) -> Answer {
    if load.is_none_or(|load| load == state.load) {
        Ok(())
    } else {
        Err(Code(state.load_error))
    }
}

fn known_device(device: Handle) -> Option<KnownDevice> {
    let place = device.0.checked_sub(FIRST_DEVICE)?;
    lock().known_devices.get(place).cloned()
}

fn state_to_open() -> Result<Arc<State>, Code> {
    let mut session = lock();
    if session.users == 0 {
        let path = env::var_os("FAKE_NVML_STATE").ok_or(Code::DRIVER_NOT_LOADED)?;
        session.file = Some(StateFile::open(path.into()).ok_or(Code::UNKNOWN)?);
    }
    session.current_state().unwrap_or(Err(Code::UNKNOWN))
}

/// Held only briefly, never while a fault is applied: a call that hangs must not stop the others.
fn lock() -> MutexGuard<'static, Session> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_keeps_its_first_driver_load() {
        let state = State::parse(br#"{"load": 2, "load_error": 999}"#).expect("a valid state");
        for (first, answer) in [(None, Ok(())), (Some(2), Ok(())), (Some(1), Err(Code(999)))] {
            assert_eq!(check_load(first, &state), answer, "{first:?}");
        }
    }
}
