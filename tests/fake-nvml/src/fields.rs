//! Field values: many in one call, each with a return code of its own.

use std::ffi::c_int;

use crate::clock::microseconds_now;
use crate::code::Code;
use crate::export::gpu_functions;
use crate::layout::FieldValue;
use crate::state::Gpu;

gpu_functions! {
    fn nvmlDeviceGetFieldValues(gpu; count: c_int, fields: *mut FieldValue) {
        let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
        if count == 0 || fields.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        for place in 0..count {
            // SAFETY: nvml.h requires the caller to pass `count` items at `fields`, each with its
            // field set.
            unsafe { fill_in(gpu, fields.add(place)) };
        }
        Ok(())
    }
}

/// The value of a field, in its NVML type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldNumber {
    Int(u32),
    LongLong(u64),
}

/// Answers one field. The value of a failed field is left unchanged.
///
/// # Safety
/// `place` must be writable, and its field readable.
unsafe fn fill_in(gpu: &Gpu, place: *mut FieldValue) {
    // SAFETY: the caller guarantees it for `place`; parts that the caller need not set are not
    // read.
    unsafe {
        let answer = value_of(gpu, (&raw const (*place).field).read());
        (&raw mut (*place).timestamp).write(microseconds_now().cast_signed());
        (&raw mut (*place).latency).write(0);
        let code = &raw mut (*place).code;
        match answer {
            Ok(value) => {
                let (value_type, bits) = to_c_value(value);
                (&raw mut (*place).value_type).write(value_type);
                (&raw mut (*place).value).write(bits);
                code.write(Code::SUCCESS);
            }
            Err(error) => code.write(error),
        }
    }
}

fn value_of(gpu: &Gpu, field: u32) -> Result<FieldNumber, Code> {
    if let Some(code) = gpu.field_errors.get(&field) {
        return Err(Code(*code));
    }
    let ecc = || gpu.ecc.as_ref().filter(|ecc| ecc.enabled);
    let rows = || gpu.undivided().ok()?.remapped_rows.as_ref();
    let known = match field {
        3 => ecc().map(|ecc| FieldNumber::LongLong(ecc.volatile_corrected)),
        4 => ecc().map(|ecc| FieldNumber::LongLong(ecc.volatile_uncorrected)),
        5 => ecc().map(|ecc| FieldNumber::LongLong(ecc.aggregate_corrected)),
        6 => ecc().map(|ecc| FieldNumber::LongLong(ecc.aggregate_uncorrected)),
        82 => gpu.memory_temperature.map(FieldNumber::Int),
        83 => gpu.energy_mj.map(FieldNumber::LongLong),
        142 => rows().map(|rows| FieldNumber::Int(rows.correctable)),
        143 => rows().map(|rows| FieldNumber::Int(rows.uncorrectable)),
        144 => rows().map(|rows| FieldNumber::Int(rows.pending.into())),
        145 => rows().map(|rows| FieldNumber::Int(rows.failure.into())),
        185 | 186 => gpu.power_mw.map(FieldNumber::Int),
        230 => gpu.recovery_action.map(FieldNumber::Int),
        _ => None,
    };
    known.ok_or(Code::NOT_SUPPORTED)
}

/// The `nvmlValueType_t` of a value, and the eight bytes of its union (on a little-endian machine).
fn to_c_value(value: FieldNumber) -> (u32, u64) {
    match value {
        FieldNumber::Int(value) => (1, value.into()),
        FieldNumber::LongLong(value) => (3, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [u32; 14] = [3, 4, 5, 6, 82, 83, 142, 143, 144, 145, 185, 186, 230, 231];

    fn values(text: &str) -> Vec<Result<FieldNumber, u32>> {
        let gpu: Gpu = serde_json::from_str(text).expect("a GPU");
        FIELDS
            .map(|field| value_of(&gpu, field).map_err(|code| code.0))
            .to_vec()
    }

    #[test]
    fn each_field_has_its_own_value_and_type() {
        let values = values(
            r#"{"ecc": {"volatile_corrected": 1, "volatile_uncorrected": 2,
                    "aggregate_corrected": 3, "aggregate_uncorrected": 4},
                "memory_temperature": 5, "energy_mj": 6, "power_mw": 9, "recovery_action": 77,
                "remapped_rows": {"correctable": 7, "uncorrectable": 8, "pending": true}}"#,
        );
        let long = |value| Ok(FieldNumber::LongLong(value));
        let int = |value| Ok(FieldNumber::Int(value));
        let mut expected: Vec<_> = [1, 2, 3, 4].map(long).to_vec();
        expected.extend([int(5), long(6)]);
        expected.extend([7, 8, 1, 0, 9, 9, 77].map(int));
        expected.push(Err(3));
        assert_eq!(values, expected);
    }

    #[test]
    fn gpu_without_features_has_no_fields() {
        let values = values(
            r#"{"ecc": {"enabled": false}, "memory_temperature": null, "power_mw": null,
                "remapped_rows": null, "recovery_action": null}"#,
        );
        assert_eq!(values, [Err(3); FIELDS.len()]);
    }

    #[test]
    fn field_fails_alone_with_its_code() {
        let values = values(r#"{"energy_mj": 1, "field_errors": {"4": 999, "231": 15}}"#);
        let failed: Vec<_> = FIELDS
            .into_iter()
            .zip(values)
            .filter_map(|(field, value)| Some((field, value.err()?)))
            .collect();
        assert_eq!(failed, [(4, 999), (231, 15)]);
    }

    #[test]
    fn divided_gpu_has_no_remapped_rows() {
        let values = values(r#"{"mig": true, "remapped_rows": {"correctable": 1}}"#);
        assert_eq!(values[6..10], [Err(3); 4]);
        assert_eq!(values[12], Ok(FieldNumber::Int(0)));
    }
}
