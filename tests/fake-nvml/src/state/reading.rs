//! From a state file's text to a state that can be played, or the reason why not.

use std::collections::BTreeSet;

use super::State;

impl State {
    /// Reads a state file's text, and refuses one that could not be played.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut state: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        for (index, gpu) in (0..).zip(&mut state.gpus) {
            gpu.index = index;
        }
        let mut uuids = BTreeSet::new();
        if let Some(twin) = state.gpus.iter().find(|gpu| !uuids.insert(gpu.uuid())) {
            return Err(format!("two GPUs have the UUID {}", twin.uuid()));
        }
        let errors = state
            .gpus
            .iter()
            .map(|gpu| &gpu.errors)
            .chain([&state.errors]);
        if let Some((function, _)) = errors.flatten().find(|(_, code)| **code == 0) {
            // The caller would take it for success and read an answer that nobody wrote.
            return Err(format!("the error of {function} is 0, which is success"));
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Gpu, Memory};

    fn refusal(text: &str) -> String {
        State::parse(text.as_bytes()).expect_err("the text is to be refused")
    }

    #[test]
    fn an_empty_gpu_is_an_idle_one_with_an_identity_of_its_own() {
        let state = State::parse(br#"{"gpus": [{}, {}]}"#).expect("a minimal state");
        let identity = |gpu: &Gpu| (gpu.uuid(), gpu.pci().to_string(), gpu.minor());
        assert_eq!(
            state.gpus.iter().map(identity).collect::<Vec<_>>(),
            [
                (
                    "GPU-00000000-0000-0000-0000-000000000000".into(),
                    "00000000:1B:00.0".into(),
                    0
                ),
                (
                    "GPU-00000000-0000-0000-0000-000000000001".into(),
                    "00000000:1C:00.0".into(),
                    1
                ),
            ]
        );
    }

    #[test]
    fn null_takes_a_sensor_away_and_leaving_it_out_does_not() {
        let state = State::parse(br#"{"gpus": [{"temperature": null}]}"#).expect("a valid state");
        assert_eq!(
            (state.gpus[0].temperature, state.gpus[0].power_mw),
            (None, Some(70_000))
        );
    }

    #[test]
    fn memory_in_use_is_by_default_what_the_processes_use() {
        let text = br#"{"gpus": [{"processes": [{"pid": 1, "memory": 5}, {"pid": 2}, {"pid": 3, "memory": 7}]}]}"#;
        let state = State::parse(text).expect("a valid state");
        assert_eq!(state.gpus[0].memory_used(&Memory::default()), 12);
    }

    #[test]
    fn a_state_that_cannot_be_played_is_refused() {
        for (text, reason) in [
            (r#"{"gpu": []}"#, "unknown field `gpu`"),
            (r#"{"gpus": [{"fans": 1}]}"#, "unknown field `fans`"),
            (r#"{"gpus": [{"index": 1}]}"#, "unknown field `index`"),
            (
                r#"{"gpus": [{"processes": [{"memory": 1}]}]}"#,
                "missing field `pid`",
            ),
            (
                r#"{"gpus": [{"pci": "1B"}]}"#,
                r#""1B" is not a PCI address"#,
            ),
            (
                r#"{"gpus": [{"uuid": "GPU-1"}, {"uuid": "GPU-1"}]}"#,
                "two GPUs have the UUID GPU-1",
            ),
            (
                r#"{"errors": {"nvmlInit_v2": 0}}"#,
                "the error of nvmlInit_v2 is 0, which is success",
            ),
        ] {
            let refusal = refusal(text);
            assert!(refusal.starts_with(reason), "{text}: {refusal}");
        }
    }
}
