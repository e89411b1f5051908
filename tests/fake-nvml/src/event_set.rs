//! What one event set is to be told of, and what it was told.

use crate::device::Device;
use crate::state::{Event, State};

#[derive(Default)]
pub(crate) struct EventSet {
    registered: Vec<Registration>,
    /// The last event told. They are told by growing id, so one of a smaller id never comes due.
    told: u64,
}

struct Registration {
    uuid: String,
    types: u64,
    /// The last event there was at the time, which is not told of any more.
    since: u64,
}

impl EventSet {
    /// Asks to be told from now on of a device's events of these types, besides what was asked for.
    pub(crate) fn register(&mut self, device: Device<'_>, types: u64) {
        self.registered.push(Registration {
            uuid: device.uuid(),
            types,
            since: device.state.events.last().map_or(0, |event| event.id),
        });
    }

    /// The next event to tell, which is told with this.
    pub(crate) fn next<'a>(&mut self, state: &'a State) -> Option<&'a Event> {
        let event = state
            .events
            .iter()
            .find(|event| self.is_due(event, state))?;
        self.told = event.id;
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
        event.id > self.told && self.registered.iter().any(asks_for_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two GPUs, and these events: id, GPU and type.
    fn state(events: &[(u64, usize, u64)]) -> State {
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

    fn all(set: &mut EventSet, state: &State) -> Vec<u64> {
        std::iter::from_fn(|| set.next(state).map(|event| event.id)).collect()
    }

    #[test]
    fn a_set_is_told_once_of_each_event_of_its_gpu_and_types() {
        let mut set = EventSet::default();
        register(&mut set, &state(&[]), 0, 0x8 | 0x100);
        let now = state(&[(1, 0, 8), (2, 1, 8), (3, 0, 2), (4, 0, 0x100)]);
        assert_eq!(all(&mut set, &now), [1, 4]);
        assert_eq!(all(&mut set, &now), [] as [u64; 0]);
    }

    #[test]
    fn what_was_there_when_a_gpu_was_registered_is_not_told() {
        let mut set = EventSet::default();
        let before = state(&[(5, 1, 8)]);
        register(&mut set, &before, 0, 8);
        let now = state(&[(5, 0, 8), (6, 0, 8), (7, 1, 8)]);
        assert_eq!(all(&mut set, &now), [6]);
        // The other GPU is registered later, and its event 7 lies before that.
        register(&mut set, &now, 1, 8);
        let later = state(&[(7, 1, 8), (8, 1, 8)]);
        assert_eq!(all(&mut set, &later), [8]);
    }
}
