//! Event sets: created, filled, and waited on until the state file contains an event.

use std::ffi::{c_uint, c_ulonglong};
use std::thread;
use std::time::{Duration, Instant};

use crate::code::Code;
use crate::device::Device;
use crate::export::{device_functions, functions, gpu_functions};
use crate::layout::{EventDataV1, EventDataV2, Handle};
use crate::out::{Out, put, put_known};
use crate::session;

/// How often a wait checks the state file. A test waits for its event about this long.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The instance of an event without an instance.
const NO_INSTANCE: c_uint = c_uint::MAX;

functions! {
    fn nvmlEventSetCreate(_state; set: Out<Handle>) {
        if set.is_none() {
            return Err(Code::INVALID_ARGUMENT);
        }
        put(session::new_event_set(), set)
    }

    fn nvmlEventSetFree(_state; set: Handle) {
        if session::free_event_set(set) { Ok(()) } else { Err(Code::INVALID_ARGUMENT) }
    }

    fn nvmlEventSetWait(_state; set: Handle, data: Out<EventDataV1>, timeout_ms: c_uint) {
        if data.is_none() {
            return Err(Code::INVALID_ARGUMENT);
        }
        put(wait(set, timeout_ms)?.v1, data)
    }

    fn nvmlEventSetWait_v2(_state; set: Handle, data: Out<EventDataV2>, timeout_ms: c_uint) {
        if data.is_none() {
            return Err(Code::INVALID_ARGUMENT);
        }
        put(wait(set, timeout_ms)?, data)
    }
}

gpu_functions! {
    fn nvmlDeviceGetSupportedEventTypes(gpu; types: Out<c_ulonglong>) {
        put_known(gpu.supported_events, types)
    }
}

device_functions! {
    fn nvmlDeviceRegisterEvents(device; types: c_ulonglong, set: Handle) {
        let supported = device.as_gpu()?.supported_events.ok_or(Code::NOT_SUPPORTED)?;
        session::with_event_set(set, |set| {
            // One unsupported type fails the registration: callers must query the supported types
            // and mask.
            if types & !supported != 0 {
                return Err(Code::NOT_SUPPORTED);
            }
            set.register(device, types);
            Ok(())
        })
        .ok_or(Code::INVALID_ARGUMENT)?
    }
}

fn wait(set: Handle, timeout_ms: c_uint) -> Result<EventDataV2, Code> {
    let end = Instant::now() + Duration::from_millis(timeout_ms.into());
    loop {
        let state = session::state()?;
        if state.event_wait_error != 0 {
            return Err(Code(state.event_wait_error));
        }
        // The set is gone after it was freed, and after the last `nvmlShutdown`.
        let next = session::with_event_set(set, |set| set.next(&state));
        if let Some(event) = next.ok_or(Code::INVALID_ARGUMENT)? {
            let gpu = state.gpus.get(event.gpu).ok_or(Code::UNKNOWN)?;
            return Ok(EventDataV2 {
                v1: EventDataV1 {
                    device: Device::whole(&state, gpu).handle(),
                    kind: event.kind,
                    data: event.data,
                },
                gpu_instance: event.gpu_instance.unwrap_or(NO_INSTANCE),
                compute_instance: event.compute_instance.unwrap_or(NO_INSTANCE),
            });
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Code::TIMEOUT);
        }
        thread::sleep(CHECK_INTERVAL.min(left));
    }
}
