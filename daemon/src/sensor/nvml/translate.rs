//! NVML's numbers and errors as readings. Numbers that cannot be are failures,
//! not values; the words for them hold no number, for a failure that changes
//! its words at each poll would be a new fault each time.

use crate::backend::MemoryReadings;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::RecoveryAction;
use gpukill_proto::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent};
use nvml_wrapper::enums::device::SampleValue;
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
        | NvmlError::FunctionNotFound
        // Another version of the request, or a getter that is no more.
        | NvmlError::UnexpectedVariant(25 | 26) => Reading::Unsupported,
        other => Reading::Failed(explain(other)),
    }
}

/// What an error means, with the codes that the wrapper does not know by name
/// (nvml.h, return values 23 to 30).
pub(super) fn explain(error: &NvmlError) -> String {
    match error {
        NvmlError::GpuLost => "GPU_IS_LOST".into(),
        NvmlError::ResetRequired => "GPU_REQUIRES_RESET".into(),
        NvmlError::UnexpectedVariant(code) => match code {
            23 => "NVML has not enough resources (23)".into(),
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

/// A fan may turn faster than its "100 %" (nvml.h, `nvmlDeviceGetFanSpeed_v2`).
pub(super) fn fan_percent(value: u32) -> Reading<Percent> {
    if value <= 200 {
        Reading::Value(Percent(value))
    } else {
        Reading::Failed("the driver reports more than 200 %".into())
    }
}

/// Whole degrees; NVML has no way to say "none" but absurd ones.
pub(super) fn celsius(value: u32) -> Reading<Celsius> {
    match i32::try_from(value) {
        Ok(degrees) if degrees <= 250 => Reading::Value(Celsius(degrees)),
        Ok(_) | Err(_) => Reading::Failed("the driver reports more than 250 °C".into()),
    }
}

/// No board draws 100 kW.
pub(super) fn milliwatts(value: u32) -> Reading<Milliwatts> {
    if value <= 100_000_000 {
        Reading::Value(Milliwatts(value.into()))
    } else {
        Reading::Failed("the driver reports more than 100 kW".into())
    }
}

/// No clock runs at 100 GHz.
pub(super) fn megahertz(value: u32) -> Reading<Megahertz> {
    if value <= 100_000 {
        Reading::Value(Megahertz(value))
    } else {
        Reading::Failed("the driver reports more than 100 GHz".into())
    }
}

/// A PCIe generation, a number of lanes, a performance state: small numbers.
pub(super) fn small(value: u32) -> Reading<u32> {
    if value <= 64 {
        Reading::Value(value)
    } else {
        Reading::Failed("the driver reports more than 64".into())
    }
}

/// A switch that is off or on; NVML numbers them 0 and 1.
pub(super) fn switch(value: u32) -> Reading<bool> {
    match value {
        0 => Reading::Value(false),
        1 => Reading::Value(true),
        _ => Reading::Failed("the driver reports neither off nor on".into()),
    }
}

/// What field 230 advises (nvml.h, `nvmlDeviceGpuRecoveryAction_t`).
pub(super) fn recovery_action(value: u64) -> RecoveryAction {
    match value {
        0 => RecoveryAction::None,
        1 => RecoveryAction::Reset,
        2 => RecoveryAction::Reboot,
        3 => RecoveryAction::DrainPeers,
        4 => RecoveryAction::DrainAndReset,
        5 => RecoveryAction::RecoverImex,
        other => RecoveryAction::Other(other),
    }
}

/// A value of a field, which has one of several types. A negative or broken
/// number is none.
pub(super) fn number(value: &SampleValue) -> Reading<u64> {
    match value {
        SampleValue::U32(number) => Reading::Value((*number).into()),
        SampleValue::U64(number) => Reading::Value(*number),
        SampleValue::I64(number) => u64::try_from(*number).map_or_else(
            |_| Reading::Failed("the driver reports a negative number".into()),
            Reading::Value,
        ),
        SampleValue::F64(_) => Reading::Failed("the driver reports a fraction".into()),
    }
}

/// Memory as drivers since R510 tell it: used without reserved.
pub(super) fn memory_v2(total: u64, used: u64, reserved: u64) -> MemoryReadings {
    memory(total, used, Reading::Value(Bytes(reserved)))
}

/// Memory as older drivers tell it: what they reserve is part of what is used.
pub(super) fn memory_v1(total: u64, used: u64) -> MemoryReadings {
    memory(total, used, Reading::Unsupported)
}

fn memory(total: u64, used: u64, reserved: Reading<Bytes>) -> MemoryReadings {
    if total == 0 {
        // Some driver builds answer so for GPUs that share the host's memory.
        return MemoryReadings::shared_with_host();
    }
    let too_much = reserved.known().is_some_and(|reserved| reserved.0 > total);
    if used > total || too_much {
        let why = "the driver reports more memory in use than there is";
        return MemoryReadings::unknown(&Reading::Failed(why.into()));
    }
    MemoryReadings {
        total: Reading::Value(Bytes(total)),
        used: Reading::Value(Bytes(used)),
        reserved,
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
        assert_eq!(fan_percent(110), Reading::Value(Percent(110)));
        assert_eq!(fan_percent(300).known(), None);
        assert_eq!(milliwatts(u32::MAX).known(), None);
        assert_eq!(megahertz(u32::MAX).known(), None);
        assert_eq!(switch(7).known(), None);
        assert_eq!(recovery_action(77), RecoveryAction::Other(77));
        assert_eq!(number(&SampleValue::I64(-1)).known(), None);
        assert_eq!(memory_v2(8, 9, 0).used.known(), None);
        assert_eq!(memory_v2(8, 5, 9).used.known(), None);
        assert_eq!(memory_v2(8, 5, 1).used, Reading::Value(Bytes(5)));
        assert_eq!(memory_v1(8, 5).reserved, Reading::Unsupported);
        assert!(memory_v2(0, 0, 0).unified && memory_v1(0, 0).unified);
    }
}
