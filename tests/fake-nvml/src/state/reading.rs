//! Parses the text of a state file into a state, or the reason why it is refused.

use super::{State, checks};

impl State {
    /// Parses the text of a state file, and refuses a state that cannot be simulated.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut state: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        for (index, gpu) in (0..).zip(&mut state.gpus) {
            gpu.index = index;
        }
        checks::check(&state)?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Gpu;

    fn refusal(text: &str) -> String {
        State::parse(text.as_bytes()).expect_err("the text is to be refused")
    }

    #[test]
    fn empty_gpu_is_idle_with_its_identity() {
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
    fn null_removes_a_sensor() {
        let state = State::parse(br#"{"gpus": [{"temperature": null}]}"#).expect("a valid state");
        assert_eq!(
            (state.gpus[0].temperature, state.gpus[0].power_mw),
            (None, Some(70_000))
        );
    }

    #[test]
    fn impossible_values_are_allowed() {
        let text = br#"{"gpus": [{"encoder": 4000, "fan": 300, "throttle": 18446744073709551615,
            "recovery_action": 77, "memory": {"total": 1, "used": 9}, "utilization": {"gpu": 4000},
            "samples": [{"pid": 4294967295, "sm": 4000, "age_us": -1}], "mig_mode_raw": 7}]}"#;
        State::parse(text).expect("a valid state");
    }

    #[test]
    fn invalid_state_is_refused() {
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
            (
                r#"{"gpus": [{"field_errors": {"230": 0}}]}"#,
                "the error of field 230 is 0, which is success",
            ),
            (
                r#"{"load_error": 0}"#,
                "the error of another load is 0, which is success",
            ),
            (
                r#"{"process_record": 28}"#,
                "a process record has 24 or 32 bytes, not 28",
            ),
            (
                r#"{"gpus": [{}], "events": [{"id": 0, "gpu": 0, "type": 8}]}"#,
                "the event 0 does not come after 0",
            ),
            (
                r#"{"gpus": [{}], "events": [{"id": 2, "gpu": 0, "type": 8}, {"id": 2, "gpu": 0, "type": 8}]}"#,
                "the event 2 does not come after 2",
            ),
            (
                r#"{"gpus": [{}], "events": [{"id": 1, "gpu": 1, "type": 8}]}"#,
                "the event 1 is of no GPU",
            ),
            (
                r#"{"gpus": [{"instances": [{"gpu_instance": 1, "compute_instance": 0}]}]}"#,
                "instances need mig to be true",
            ),
            (
                r#"{"gpus": [{"mig": true, "instances": [{"gpu_instance": 1, "compute_instance": 0, "index": 7}]}]}"#,
                "the instance index 7 is not below 7",
            ),
            (
                r#"{"gpus": [{"mig": true, "instances": [{"gpu_instance": 1, "compute_instance": 0, "index": 1},
                    {"gpu_instance": 2, "compute_instance": 0}]}]}"#,
                "two instances have the index 1",
            ),
            (
                r#"{"gpus": [{"mig": true, "instances": [{"gpu_instance": 1, "compute_instance": 0},
                    {"gpu_instance": 1, "compute_instance": 0, "uuid": "MIG-2"}]}]}"#,
                "two instances are GPU instance 1 compute instance 0",
            ),
            (
                r#"{"gpus": [{"mig": true, "instances": [{"gpu_instance": 1, "compute_instance": 0, "memory": {"total": 1}},
                    {"gpu_instance": 1, "compute_instance": 1, "memory": {"total": 2}}]}]}"#,
                "GPU instance 1 has two memories",
            ),
            (
                r#"{"gpus": [{"uuid": "GPU-1", "mig": true,
                    "instances": [{"gpu_instance": 1, "compute_instance": 0, "uuid": "GPU-1"}]}]}"#,
                "two GPUs have the UUID GPU-1",
            ),
        ] {
            let refusal = refusal(text);
            assert!(refusal.starts_with(reason), "{text}: {refusal}");
        }
    }
}
