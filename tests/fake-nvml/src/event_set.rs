//! The registrations of one event set, and the events that it has returned.

use crate::device::Device;
use crate::state::{Event, State};

#[derive(Default)]
pub(crate) struct EventSet {
    registered: Vec<Registration>,
    /// The last event returned. Events are returned by growing id, so an event with a smaller id is
    /// never returned.
    last_returned: u64,
}

struct Registration {
    uuid: String,
    types: u64,
    /// The last event before the registration; events up to it are not returned.
    since: u64,
}

impl EventSet {
    /// Registers a device's future events of these types, in addition to earlier registrations.
    pub(crate) fn register(&mut self, device: Device<'_>, types: u64) {
        self.registered.push(Registration {
            uuid: device.uuid(),
            types,
            since: device.state.events.last().map_or(0, |event| event.id),
        });
    }

    /// Returns the next event and marks it as returned.
    pub(crate) fn next<'a>(&mut self, state: &'a State) -> Option<&'a Event> {
        let event = state
            .events
            .iter()
            .find(|event| self.is_due(event, state))?;
        self.last_returned = event.id;
        Some(event)
    }

    fn is_due(&self, event: &Event, state: &State) -> bool {
        let Some(gpu) = state.gpus.get(event.gpu) else {
            return false;
        };
        let asks_for_it = |registration: &Registration| {
            registration.uuid == gpu.uuid()
                && registration.types & event.kind != 0
                && registration.since < event.id
        };
        event.id > self.last_returned && self.registered.iter().any(asks_for_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two GPUs, and these events: id, GPU and type.
    fn state_with_events(events: &[(u64, usize, u64)]) -> State {
        let events: Vec<_> = events
            .iter()
            .map(|(id, gpu, kind)| format!(r#"{{"id": {id}, "gpu": {gpu}, "type": {kind}}}"#))
            .collect();
        let text = format!(
            r#"{{"gpus": [{{}}, {{}}], "events": [{}]}}"#,
            events.join(",")
        );
        State::parse(text.as_bytes()).expect("a valid state")
    }

    fn register(set: &mut EventSet, state: &State, gpu: usize, types: u64) {
        set.register(Device::whole(state, &state.gpus[gpu]), types);
    }

    fn all_events(set: &mut EventSet, state: &State) -> Vec<u64> {
        std::iter::from_fn(|| set.next(state).map(|event| event.id)).collect()
    }

    #[test]
    fn each_registered_event_is_returned_once() {
        let mut set = EventSet::default();
        register(&mut set, &state_with_events(&[]), 0, 0x8 | 0x100);
        let now = state_with_events(&[(1, 0, 8), (2, 1, 8), (3, 0, 2), (4, 0, 0x100)]);
        assert_eq!(all_events(&mut set, &now), [1, 4]);
        assert_eq!(all_events(&mut set, &now), [] as [u64; 0]);
    }

    #[test]
    fn earlier_events_are_not_returned() {
        let mut set = EventSet::default();
        let before = state_with_events(&[(5, 1, 8)]);
        register(&mut set, &before, 0, 8);
        let now = state_with_events(&[(5, 0, 8), (6, 0, 8), (7, 1, 8)]);
        assert_eq!(all_events(&mut set, &now), [6]);
        // The other GPU is registered later, after its event 7.
        register(&mut set, &now, 1, 8);
        let later = state_with_events(&[(7, 1, 8), (8, 1, 8)]);
        assert_eq!(all_events(&mut set, &later), [8]);
    }
}
