//! NVML's numbers and errors as readings. Numbers that cannot be are failures,
//! not values; the words for them hold no number, for a failure that changes
//! its words at each poll would be a new fault each time.

use crate::backend::MemoryReadings;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Celsius, Percent};
use nvml_wrapper::error::NvmlError;

/// A call's result as a reading.
pub(super) fn reading<T, U>(
    result: Result<T, NvmlError>,
    value: impl FnOnce(T) -> Reading<U>,
) -> Reading<U> {
    match result {
        Ok(read) => value(read),
        Err(error) => failure(&error),
    }
}

/// An error as a reading. A symbol that an older driver lacks is as unsupported
/// as a getter that says so; the wrapper names both differently.
pub(super) fn failure<T>(error: &NvmlError) -> Reading<T> {
    match error {
        NvmlError::NotSupported
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::FunctionNotFound => Reading::Unsupported,
        other => Reading::Failed(explain(other)),
    }
}

/// What an error means, with the codes that the wrapper does not know by name
/// (nvml.h, return values 23 to 30).
pub(super) fn explain(error: &NvmlError) -> String {
    match error {
        NvmlError::GpuLost => "GPU_IS_LOST".into(),
        NvmlError::UnexpectedVariant(code) => match code {
            23 => "NVML has not enough resources (23)".into(),
            25 => "NVML does not know this version of a request (25)".into(),
            27 => "the GPU is not ready (27)".into(),
            28 => "the GPU is not there any more (28)".into(),
            29 => "the GPU is in an invalid state (29)".into(),
            other => format!("NVML answered with an unknown code ({other})"),
        },
        NvmlError::Unknown => "NVML reports an unknown error (999)".into(),
        other => other.to_string(),
    }
}

/// Whether the library must be loaded anew before anything can work: the driver
/// was unloaded, or replaced by one of another version.
pub(super) fn needs_restart(error: &NvmlError) -> bool {
    match error {
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch => {
            true
        }
        // NVML_ERROR_GPU_NOT_FOUND, unknown to the wrapper.
        NvmlError::UnexpectedVariant(code) => *code == 28,
        _ => false,
    }
}

/// A share of 100; more is garbage.
pub(super) fn percent(value: u32) -> Reading<Percent> {
    if value <= 100 {
        Reading::Value(Percent(value))
    } else {
        Reading::Failed("the driver reports more than 100 %".into())
    }
}

/// Whole degrees; NVML has no way to say "none" but absurd ones.
pub(super) fn celsius(value: u32) -> Reading<Celsius> {
    match i32::try_from(value) {
        Ok(degrees) if degrees <= 250 => Reading::Value(Celsius(degrees)),
        Ok(_) | Err(_) => Reading::Failed("the driver reports more than 250 °C".into()),
    }
}

/// Memory as `nvmlDeviceGetMemoryInfo_v2` gives it: used without reserved.
pub(super) fn memory(total: u64, used: u64, reserved: u64) -> MemoryReadings {
    if total == 0 {
        // Some driver builds answer so for GPUs that share the host's memory.
        return MemoryReadings::unknown(&Reading::Unsupported);
    }
    if used > total || reserved > total {
        let why = "the driver reports more memory in use than there is";
        return MemoryReadings::unknown(&Reading::Failed(why.into()));
    }
    MemoryReadings {
        total: Reading::Value(Bytes(total)),
        used: Reading::Value(Bytes(used)),
        reserved: Reading::Value(Bytes(reserved)),
        unified: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_missing_and_broken_stay_apart() {
        assert_eq!(
            failure::<u32>(&NvmlError::NotSupported),
            Reading::Unsupported
        );
        assert_eq!(
            failure::<u32>(&NvmlError::FailedToLoadSymbol("x".into())),
            Reading::Unsupported
        );
        let lost = failure::<u32>(&NvmlError::GpuLost);
        assert_eq!(lost.reason().as_deref(), Some("failed: GPU_IS_LOST"));
    }

    #[test]
    fn numbers_that_cannot_be_are_failures() {
        assert_eq!(percent(100), Reading::Value(Percent(100)));
        assert_eq!(percent(0), Reading::Value(Percent(0)));
        assert_eq!(percent(255).known(), None);
        assert_eq!(celsius(u32::MAX).known(), None);
        assert_eq!(memory(8, 9, 0).used.known(), None);
        assert_eq!(memory(0, 0, 0).total, Reading::Unsupported);
        assert_eq!(memory(8, 5, 1).used, Reading::Value(Bytes(5)));
    }
}
