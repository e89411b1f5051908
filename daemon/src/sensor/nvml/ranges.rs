//! The possible ranges of NVML's numbers. Each kind of value has one bound here, with its source; a
//! number beyond it is a failed reading that quotes the number.

use super::codes::failed_reading;
use crate::backend::{InstanceReadings, MemoryReadings, ProcessReadings};
use gpukill_proto::model::{InstanceId, RecoveryAction};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use std::fmt::Display;
use std::ops::RangeInclusive;

pub(super) fn to_reading<T, U>(
    result: Result<T, NvmlError>,
    value: impl FnOnce(T) -> Reading<U>,
) -> Reading<U> {
    match result {
        Ok(read) => value(read),
        Err(error) => failed_reading(&error),
    }
}

/// A number within this range, both ends included.
fn in_range<T: PartialOrd + Display>(value: T, range: RangeInclusive<T>, unit: &str) -> Reading<T> {
    if range.contains(&value) {
        Reading::Value(value)
    } else {
        Reading::impossible(format_args!("{value}{unit}"))
    }
}

/// A percentage (nvml.h, `nvmlUtilization_t`).
pub(super) fn percent(value: u32) -> Reading<Percent> {
    in_range(value, 0..=100, " %").map(Percent)
}

/// A fan may turn faster than its "100 %" (nvml.h, `nvmlDeviceGetFanSpeed_v2`).
pub(super) fn fan_percent(value: u32) -> Reading<Percent> {
    in_range(value, 0..=200, " %").map(Percent)
}

/// Whole degrees. The getter fills an unsigned number with a signed one. Chips are made for -40 to
/// 125 °C and switch off before they reach 150; -1 is NVML's mark for "not available" (nvml.h,
/// `NVML_VALUE_NOT_AVAILABLE`).
pub(super) fn celsius(value: i64) -> Reading<Celsius> {
    match i32::try_from(value) {
        Ok(degrees @ (-40..=-2 | 0..=150)) => Reading::Value(Celsius(degrees)),
        Ok(_) | Err(_) => Reading::impossible(format_args!("{value} °C")),
    }
}

/// The greatest power of any board is rated below 2 kW.
const POWER: RangeInclusive<u32> = 0..=10_000_000;

/// The power that a board draws.
pub(super) fn power(value: u32) -> Reading<Milliwatts> {
    in_range(value, POWER, " mW").map(|it| Milliwatts(it.into()))
}

/// The power limit of a board. No board works with 0: some drivers report 0 where there is no
/// limit.
pub(super) fn power_limit(value: u32) -> Reading<Milliwatts> {
    if value == 0 {
        return Reading::Unsupported;
    }
    power(value)
}

/// The fastest memory clock that NVML reports is about 15 GHz (GDDR7).
const CLOCK: RangeInclusive<u32> = 0..=50_000;

/// A clock; 0 while its domain is switched off.
pub(super) fn clock(value: u32) -> Reading<Megahertz> {
    in_range(value, CLOCK, " MHz").map(Megahertz)
}

/// The maximum clock; 0 means unknown.
pub(super) fn greatest_clock(value: u32) -> Reading<Megahertz> {
    if value == 0 {
        return Reading::Unsupported;
    }
    clock(value)
}

/// PCIe counts its generations from 1; the newest is 7. A GPU that is not on PCIe has 0.
pub(super) fn pcie_generation(value: u32) -> Reading<u32> {
    link_number(value, 15)
}

/// A link has at most 32 lanes (PCI Express Base Specification); a GPU that is not on PCIe has 0.
pub(super) fn pcie_width(value: u32) -> Reading<u32> {
    link_number(value, 32)
}

fn link_number(value: u32, max: u32) -> Reading<u32> {
    if value == 0 {
        return Reading::Unsupported;
    }
    in_range(value, 1..=max, "")
}

/// nvml.h, `nvmlPstates_t`: 0, the fastest, to 15.
pub(super) fn performance_state(value: u32) -> Reading<u32> {
    in_range(value, 0..=15, "")
}

/// A switch that is off or on (nvml.h, `NVML_DEVICE_MIG_DISABLE` and `_ENABLE`).
pub(super) fn switch(value: u32) -> Reading<bool> {
    in_range(value, 0..=1, "").map(|it| it == 1)
}

/// A counter. All bits set is NVML's mark for "not available".
pub(super) fn count(value: u64) -> Reading<u64> {
    in_range(value, 0..=u64::MAX - 1, "")
}

/// The N of `/dev/nvidiaN`. The driver has 255 minors; 254 and 255 are not GPUs (`nv.h`).
pub(super) fn minor(value: u32) -> Reading<u32> {
    in_range(value, 0..=253, "")
}

/// The advice of field 230 (nvml.h, `nvmlDeviceGpuRecoveryAction_t`).
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

/// The value of a field, which has one of several types. The requested fields are whole numbers
/// and, except for degrees, not negative.
pub(super) fn field_number(value: &SampleValue) -> Reading<i128> {
    match value {
        SampleValue::U32(number) => Reading::Value((*number).into()),
        SampleValue::U64(number) => Reading::Value((*number).into()),
        SampleValue::I64(number) => Reading::Value((*number).into()),
        SampleValue::F64(number) => Reading::impossible(number),
    }
}

/// The value of a field that cannot be negative.
pub(super) fn non_negative(value: i128) -> Reading<u64> {
    u64::try_from(value).map_or_else(|_| Reading::impossible(value), count)
}

/// No GPU has 64 TiB.
const MAX_MEMORY: u64 = 64 << 40;

/// Memory as reported since R510: used excludes reserved.
pub(super) fn memory_v2(total: u64, used: u64, reserved: u64, unified: bool) -> MemoryReadings {
    memory(total, used, Reading::Value(Bytes(reserved)), unified)
}

/// Memory as reported by older drivers: used includes reserved.
pub(super) fn memory_v1(total: u64, used: u64, unified: bool) -> MemoryReadings {
    memory(total, used, Reading::Unsupported, unified)
}

fn memory(total: u64, used: u64, reserved: Reading<Bytes>, unified: bool) -> MemoryReadings {
    if total == 0 {
        // Some driver builds report 0 for a GPU without memory of its own.
        return unknown_memory(&Reading::Unsupported, unified);
    }
    let reserved_is_too_much = reserved.known().is_some_and(|reserved| reserved.0 > total);
    if total > MAX_MEMORY || used > total || reserved_is_too_much {
        let reserved = reserved.known().map_or(0, |reserved| reserved.0);
        let [total, used, reserved] = [total, used, reserved].map(mib);
        let why = Reading::impossible(format_args!(
            "{used} MiB used and {reserved} MiB reserved of {total} MiB"
        ));
        return unknown_memory(&why, unified);
    }
    MemoryReadings {
        total: Reading::Value(Bytes(total)),
        used: Reading::Value(Bytes(used)),
        reserved,
        unified,
    }
}

pub(super) fn unknown_memory(why: &Reading<()>, unified: bool) -> MemoryReadings {
    MemoryReadings {
        unified,
        ..MemoryReadings::unknown(why)
    }
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// The total memory of a GPU, even if its other memory values are impossible.
pub(super) fn valid_total(total: u64) -> Option<Bytes> {
    (1..=MAX_MEMORY).contains(&total).then_some(Bytes(total))
}

/// Checks the memory of processes: no process holds more than the GPU or its instance has, and all
/// together not more than the GPU. If the sum is too great all values fail, because the wrong one
/// is unknown.
pub(super) fn check_process_memory(
    processes: &mut [ProcessReadings],
    total: Bytes,
    parts: &[InstanceReadings],
) {
    let of_part = |id: InstanceId| {
        let part = parts.iter().find(|part| part.id == id)?;
        part.memory.total.known().copied()
    };
    let mut sum: u64 = 0;
    for process in &mut *processes {
        let total = process.instance.and_then(of_part).unwrap_or(total);
        let Reading::Value(held) = process.memory else {
            continue;
        };
        if held > total {
            process.memory = impossible_memory(held.0, total);
        } else {
            sum = sum.saturating_add(held.0);
        }
    }
    if sum > total.0 {
        for process in processes {
            if process.memory.known().is_some() {
                process.memory = impossible_memory(sum, total);
            }
        }
    }
}

fn impossible_memory(held: u64, total: Bytes) -> Reading<Bytes> {
    let (held, total) = (mib(held), mib(total.0));
    Reading::impossible(format_args!("{held} MiB of {total} MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Utilization;
    use gpukill_proto::model::{DeviceId, GpuUse};

    fn impossible<T>(reading: &Reading<T>) -> Option<&str> {
        let why = reading.failure()?;
        why.strip_prefix("the driver reports an impossible value: ")
    }

    #[test]
    fn values_beyond_their_bound_fail() {
        let all = u32::MAX;
        let cases: [(Reading<i64>, Option<i64>, &str); 24] = [
            (percent(0).map(|it| it.0.into()), Some(0), ""),
            (percent(100).map(|it| it.0.into()), Some(100), ""),
            (percent(101).map(|it| it.0.into()), None, "101 %"),
            (percent(all).map(|it| it.0.into()), None, "4294967295 %"),
            (fan_percent(200).map(|it| it.0.into()), Some(200), ""),
            (fan_percent(201).map(|it| it.0.into()), None, "201 %"),
            (celsius(-40).map(|it| it.0.into()), Some(-40), ""),
            (celsius(0).map(|it| it.0.into()), Some(0), ""),
            (celsius(-1).map(|it| it.0.into()), None, "-1 °C"),
            (celsius(151).map(|it| it.0.into()), None, "151 °C"),
            (celsius(-41).map(|it| it.0.into()), None, "-41 °C"),
            (power(0).map(|_| 0), Some(0), ""),
            (power(10_000_001).map(|_| 0), None, "10000001 mW"),
            (power_limit(all).map(|_| 0), None, "4294967295 mW"),
            (clock(0).map(|it| it.0.into()), Some(0), ""),
            (clock(50_001).map(|it| it.0.into()), None, "50001 MHz"),
            (pcie_generation(16).map(Into::into), None, "16"),
            (pcie_width(32).map(Into::into), Some(32), ""),
            (pcie_width(33).map(Into::into), None, "33"),
            (performance_state(15).map(Into::into), Some(15), ""),
            (performance_state(32).map(Into::into), None, "32"),
            (switch(7).map(Into::into), None, "7"),
            (minor(254).map(Into::into), None, "254"),
            (count(u64::MAX).map(|_| 0), None, "18446744073709551615"),
        ];
        for (index, (reading, value, expected)) in cases.into_iter().enumerate() {
            assert_eq!(reading.known().copied(), value, "case {index}");
            let expected = (!expected.is_empty()).then_some(expected);
            assert_eq!(impossible(&reading), expected, "case {index}");
        }
    }

    #[test]
    fn zero_as_none_is_unsupported() {
        assert_eq!(power_limit(0), Reading::Unsupported);
        assert_eq!(pcie_generation(0), Reading::Unsupported);
        assert_eq!(pcie_width(0), Reading::Unsupported);
        assert_eq!(greatest_clock(0), Reading::Unsupported);
    }

    #[test]
    fn field_values_of_any_type() {
        assert_eq!(field_number(&SampleValue::I64(-1)), Reading::Value(-1));
        assert_eq!(impossible(&non_negative(-1)), Some("-1"));
        assert_eq!(
            impossible(&field_number(&SampleValue::F64(0.5))),
            Some("0.5")
        );
        assert_eq!(recovery_action(77), RecoveryAction::Other(77));
    }

    #[test]
    fn used_memory_is_within_total() {
        let own = |total, used, reserved| memory_v2(total, used, reserved, false);
        assert_eq!(own(8, 5, 1).used, Reading::Value(Bytes(5)));
        assert_eq!(memory_v1(8, 5, false).reserved, Reading::Unsupported);
        let gib = |count: u64| count << 30;
        let too_much = own(gib(8), gib(9), 0);
        assert_eq!(
            impossible(&too_much.total),
            Some("9216 MiB used and 0 MiB reserved of 8192 MiB")
        );
        assert!(impossible(&own(8, 5, 9).used).is_some());
        assert!(impossible(&own(u64::MAX, 5, 0).total).is_some());
        // A total of 0 means host memory only where the product is known to share it.
        for unified in [false, true] {
            let nothing = memory_v2(0, 0, 0, unified);
            assert_eq!(nothing.total, Reading::Unsupported);
            assert_eq!(nothing.unified, unified);
        }
    }

    const INSTANCE: InstanceId = InstanceId { gpu: 2, compute: 0 };

    fn check_held_bytes(held: &[(u64, Option<InstanceId>)]) -> Vec<Option<u64>> {
        let of = |total| memory_v2(total, 0, 0, false);
        let process = |(held, instance): &(u64, Option<InstanceId>)| ProcessReadings {
            pid: 7,
            start_ticks: None,
            instance: *instance,
            used_for: GpuUse::default(),
            memory: Reading::Value(Bytes(*held)),
            utilization: Utilization::unknown(&Reading::Unsupported),
        };
        let mut processes: Vec<_> = held.iter().map(process).collect();
        let part = InstanceReadings {
            id: INSTANCE,
            uuid: DeviceId("MIG-a".into()),
            profile: Reading::Unsupported,
            memory: of(10),
        };
        check_process_memory(&mut processes, Bytes(80), &[part]);
        let held = processes.iter().map(|it| it.memory.known());
        held.map(|it| it.map(|it| it.0)).collect()
    }

    #[test]
    fn process_memory_is_bounded() {
        assert_eq!(check_held_bytes(&[(80, None)]), [Some(80)]);
        assert_eq!(check_held_bytes(&[(81, None), (7, None)]), [None, Some(7)]);
        let part = Some(INSTANCE);
        assert_eq!(
            check_held_bytes(&[(10, part), (11, part)]),
            [Some(10), None]
        );
        assert_eq!(check_held_bytes(&[(50, None), (31, None)]), [None, None]);
        assert_eq!(
            check_held_bytes(&[(u64::MAX - 1, None), (1, None)]),
            [None, Some(1)]
        );
    }
}
