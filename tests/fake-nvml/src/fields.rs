//! Field values, asked for many at a time and each with a return code of its own.

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
            // SAFETY: nvml.h has the caller pass `count` items at `fields`, each with its field set.
            unsafe { fill_in(gpu, fields.add(place)) };
        }
        Ok(())
    }
}

/// The value of a field, in the type that NVML gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Int(u32),
    LongLong(u64),
}

/// Answers one field; the value of one that fails is left as it was.
///
/// # Safety
/// `place` may be written, and its field be read.
unsafe fn fill_in(gpu: &Gpu, place: *mut FieldValue) {
    // SAFETY: the caller vouches for the place; what need not be set is not read.
    unsafe {
        let answer = value_of(gpu, (&raw const (*place).field).read());
        (&raw mut (*place).timestamp).write(microseconds_now().cast_signed());
        (&raw mut (*place).latency).write(0);
        let code = &raw mut (*place).code;
        match answer {
            Ok(value) => {
                let (value_type, bits) = in_c(value);
                (&raw mut (*place).value_type).write(value_type);
                (&raw mut (*place).value).write(bits);
                code.write(Code::SUCCESS);
            }
            Err(error) => code.write(error),
        }
    }
}

fn value_of(gpu: &Gpu, field: u32) -> Result<Value, Code> {
    if let Some(code) = gpu.field_errors.get(&field) {
        return Err(Code(*code));
    }
    let ecc = || gpu.ecc.as_ref().filter(|ecc| ecc.enabled);
    let rows = || gpu.undivided().ok()?.remapped_rows.as_ref();
    let known = match field {
        3 => ecc().map(|ecc| Value::LongLong(ecc.volatile_corrected)),
        4 => ecc().map(|ecc| Value::LongLong(ecc.volatile_uncorrected)),
        5 => ecc().map(|ecc| Value::LongLong(ecc.aggregate_corrected)),
        6 => ecc().map(|ecc| Value::LongLong(ecc.aggregate_uncorrected)),
        82 => gpu.memory_temperature.map(Value::Int),
        83 => gpu.energy_mj.map(Value::LongLong),
        142 => rows().map(|rows| Value::Int(rows.correctable)),
        143 => rows().map(|rows| Value::Int(rows.uncorrectable)),
        144 => rows().map(|rows| Value::Int(rows.pending.into())),
        145 => rows().map(|rows| Value::Int(rows.failure.into())),
        185 | 186 => gpu.power_mw.map(Value::Int),
        230 => gpu.recovery_action.map(Value::Int),
        _ => None,
    };
    known.ok_or(Code::NOT_SUPPORTED)
}

/// The `nvmlValueType_t` of a value, and the eight bytes of its union (on a little-endian machine).
fn in_c(value: Value) -> (u32, u64) {
    match value {
        Value::Int(value) => (1, value.into()),
        Value::LongLong(value) => (3, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [u32; 14] = [3, 4, 5, 6, 82, 83, 142, 143, 144, 145, 185, 186, 230, 231];

    fn values(text: &str) -> Vec<Result<Value, u32>> {
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
        let long = |value| Ok(Value::LongLong(value));
        let int = |value| Ok(Value::Int(value));
        let mut expected: Vec<_> = [1, 2, 3, 4].map(long).to_vec();
        expected.extend([int(5), long(6)]);
        expected.extend([7, 8, 1, 0, 9, 9, 77].map(int));
        expected.push(Err(3));
        assert_eq!(values, expected);
    }

    #[test]
    fn a_gpu_without_the_parts_supports_none_of_the_fields() {
        let values = values(
            r#"{"ecc": {"enabled": false}, "memory_temperature": null, "power_mw": null,
                "remapped_rows": null, "recovery_action": null}"#,
        );
        assert_eq!(values, [Err(3); FIELDS.len()]);
    }

    #[test]
    fn a_field_fails_alone_with_the_code_it_is_given() {
        let values = values(r#"{"energy_mj": 1, "field_errors": {"4": 999, "231": 15}}"#);
        let failed: Vec<_> = FIELDS
            .into_iter()
            .zip(values)
            .filter_map(|(field, value)| Some((field, value.err()?)))
            .collect();
        assert_eq!(failed, [(4, 999), (231, 15)]);
    }

    #[test]
    fn a_divided_gpu_tells_no_remapped_rows() {
        let values = values(r#"{"mig": true, "remapped_rows": {"correctable": 1}}"#);
        assert_eq!(values[6..10], [Err(3); 4]);
        assert_eq!(values[12], Ok(Value::Int(0)));
    }
}
