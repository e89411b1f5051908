//! Tests of field values, and of other health values that have a function of their own.

use nvml_wrapper_sys::bindings::nvmlFieldValue_t;

use crate::loaded_library::{LoadedLibrary, number};

#[test]
fn each_field_has_its_type_and_code() {
    let library = LoadedLibrary::new(
        r#"{"gpus": [{"ecc": {"volatile_uncorrected": 5000000000}, "memory_temperature": 71,
            "remapped_rows": {"correctable": 1, "uncorrectable": 2, "failure": true},
            "recovery_action": 77, "field_errors": {"143": 999}}]}"#,
    );
    let mut fields = [4, 82, 142, 143, 144, 145, 230, 9999].map(|id| {
        let mut field = unsafe { std::mem::zeroed::<nvmlFieldValue_t>() };
        field.fieldId = id;
        // A careless caller would read this where no value is written.
        field.value.ullVal = u64::MAX;
        field
    });
    let gpu = library.gpu(0);
    let nvml = &library.nvml;
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetFieldValues(gpu, 8, fields.as_mut_ptr()) },
        0
    );
    let answers = fields.map(|field| match (field.nvmlReturn, field.valueType) {
        (0, 1) => Ok((1, u64::from(unsafe { field.value.uiVal }))),
        (0, 3) => Ok((3, unsafe { field.value.ullVal })),
        (code, _) => Err(code),
    });
    assert_eq!(
        answers,
        [
            Ok((3, 5_000_000_000)),
            Ok((1, 71)),
            Ok((1, 1)),
            Err(999),
            Ok((1, 0)),
            Ok((1, 1)),
            Ok((1, 77)),
            Err(3)
        ]
    );
    assert!(fields.iter().all(|field| field.timestamp > 0));
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetFieldValues(gpu, 0, fields.as_mut_ptr()) },
        2
    );
}

#[test]
fn throttle_reasons_under_both_names() {
    let library =
        LoadedLibrary::new(r#"{"gpus": [{"throttle": 9223372036854775880}, {"throttle": null}]}"#);
    let nvml = &library.nvml;
    let (reporting, silent) = (library.gpu(0), library.gpu(1));
    for ask in [
        &nvml.nvmlDeviceGetCurrentClocksEventReasons,
        &nvml.nvmlDeviceGetCurrentClocksThrottleReasons,
    ] {
        let ask = ask.as_ref().expect("a symbol");
        assert_eq!(
            number(|to| unsafe { ask(reporting, to) }),
            Ok(1 << 63 | 0x48)
        );
        assert_eq!(number(|to| unsafe { ask(silent, to) }), Err(3));
    }
    for ask in [
        &nvml.nvmlDeviceGetSupportedClocksEventReasons,
        &nvml.nvmlDeviceGetSupportedClocksThrottleReasons,
    ] {
        let ask = ask.as_ref().expect("a symbol");
        assert_eq!(number(|to| unsafe { ask(reporting, to) }), Ok(0x1ff));
    }
}

#[test]
fn current_and_maximum_pcie_link() {
    let library = LoadedLibrary::new(
        r#"{"gpus": [{"pcie": {"generation": 1, "width": 8, "max_generation": 4}}, {"pcie": null}]}"#,
    );
    let nvml = &library.nvml;
    let functions = [
        &nvml.nvmlDeviceGetCurrPcieLinkGeneration,
        &nvml.nvmlDeviceGetCurrPcieLinkWidth,
        &nvml.nvmlDeviceGetMaxPcieLinkGeneration,
        &nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration,
        &nvml.nvmlDeviceGetMaxPcieLinkWidth,
    ];
    let link_of = |gpu| {
        functions.map(|ask| {
            let ask = ask.as_ref().expect("a symbol");
            number(|to| unsafe { ask(gpu, to) })
        })
    };
    assert_eq!(link_of(library.gpu(0)), [1, 8, 4, 4, 16].map(Ok));
    assert_eq!(link_of(library.gpu(1)), [Err(3); 5]);
}
