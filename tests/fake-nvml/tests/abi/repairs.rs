//! Tests of memory taken out of use.

use crate::loaded_library::{LoadedLibrary, number};

#[test]
fn remapped_rows_use_the_headers_order() {
    let library = LoadedLibrary::new(
        r#"{"gpus": [{"remapped_rows": {"correctable": 5, "uncorrectable": 6, "pending": true}},
            {}, {"remapped_rows": null}]}"#,
    );
    let rows = |index| {
        let (mut a, mut b, mut c, mut d) = (9, 9, 9, 9);
        let gpu = library.gpu(index);
        let code = unsafe {
            library
                .nvml
                .nvmlDeviceGetRemappedRows(gpu, &mut a, &mut b, &mut c, &mut d)
        };
        (code, [a, b, c, d])
    };
    assert_eq!([0, 1].map(rows), [(0, [5, 6, 1, 0]), (0, [0; 4])]);
    assert_eq!(rows(2).0, 3);
}

#[test]
fn retired_pages_by_count_then_address() {
    let library = LoadedLibrary::new(
        r#"{"gpus": [{"retired_pages": {"single_bit": 2, "pending": true}}, {}]}"#,
    );
    let nvml = &library.nvml;
    let gpu = library.gpu(0);
    let none = std::ptr::null_mut();
    let mut count = 0;
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetRetiredPages(gpu, 0, &mut count, none) },
        7
    );
    assert_eq!(count, 2);
    let (mut pages, mut times) = ([0; 2], [0; 2]);
    let (to, at) = (pages.as_mut_ptr(), times.as_mut_ptr());
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetRetiredPages_v2(gpu, 0, &mut count, to, at) },
        0
    );
    assert_eq!(
        (pages, times),
        ([0x10_0000, 0x10_1000], [1_700_000_000_000_000; 2])
    );
    assert_eq!(
        unsafe { nvml.nvmlDeviceGetRetiredPages(gpu, 1, &mut count, to) },
        0
    );
    assert_eq!(count, 0);
    let pending =
        |gpu| number(|to| unsafe { nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu, to) });
    assert_eq!([gpu, library.gpu(1)].map(pending), [Ok(1), Err(3)]);
}
