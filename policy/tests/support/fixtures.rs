//! Fixtures for the tests of several modules.

use gpukill_proto::model::{BackendReport, BackendState};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;

/// NVIDIA's backend with one device, in this state.
pub(crate) fn nvidia_backend(state: BackendState) -> BackendReport {
    BackendReport {
        name: "nvidia".into(),
        state,
        since: Timestamp(0),
        devices: 1,
        driver: Reading::Unsupported,
        cuda: Reading::Unsupported,
        poll_cost_us: 0,
    }
}
