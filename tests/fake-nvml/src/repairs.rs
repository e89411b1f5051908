//! Memory taken out of use: rows replaced by spare rows (Ampere and newer), and before that pages.

use std::ffi::{c_uint, c_ulonglong};

use crate::code::Code;
use crate::export::gpu_functions;
use crate::out::{Out, put, put_known, put_list};
use crate::state::Gpu;

/// The addresses are invented, a page apart, and not zero; those of each cause have their own
/// range.
const PAGE: u64 = 0x1000;
const FIRST_SINGLE_BIT: u64 = 0x10_0000;
const FIRST_DOUBLE_BIT: u64 = 0x8000_0000;

/// When every page was retired, in microseconds: a day in 2023.
const RETIRED_AT: u64 = 1_700_000_000_000_000;

gpu_functions! {
    fn nvmlDeviceGetRemappedRows(
        gpu; correctable: Out<c_uint>, uncorrectable: Out<c_uint>, pending: Out<c_uint>,
        failure: Out<c_uint>
    ) {
        let rows = gpu.undivided()?.remapped_rows.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        put(rows.correctable, correctable)?;
        put(rows.uncorrectable, uncorrectable)?;
        put(rows.pending.into(), pending)?;
        put(rows.failure.into(), failure)
    }

    fn nvmlDeviceGetRetiredPages(
        gpu; cause: c_uint, count: Option<&mut c_uint>, addresses: *mut c_ulonglong
    ) {
        // SAFETY: nvml.h requires the caller to pass room for `count` items at `addresses`.
        unsafe { put_list(&pages(gpu, cause)?, count, addresses) }
    }

    fn nvmlDeviceGetRetiredPages_v2(
        gpu; cause: c_uint, count: Option<&mut c_uint>, addresses: *mut c_ulonglong,
        times: *mut c_ulonglong
    ) {
        let pages = pages(gpu, cause)?;
        let count = count.ok_or(Code::INVALID_ARGUMENT)?;
        // SAFETY: nvml.h requires the caller to pass room for `count` items at `addresses`.
        unsafe { put_list(&pages, Some(&mut *count), addresses) }?;
        // SAFETY: the same applies to `times`, and the previous list had the same length.
        unsafe { put_list(&vec![RETIRED_AT; pages.len()], Some(count), times) }
    }

    fn nvmlDeviceGetRetiredPagesPendingStatus(gpu; pending: Out<c_uint>) {
        put_known(gpu.retired_pages.as_ref().map(|pages| pages.pending.into()), pending)
    }
}

/// The addresses of the pages retired for a cause.
fn pages(gpu: &Gpu, cause: c_uint) -> Result<Vec<u64>, Code> {
    let retired = gpu.retired_pages.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    let (first, count) = match cause {
        0 => (FIRST_SINGLE_BIT, retired.single_bit),
        1 => (FIRST_DOUBLE_BIT, retired.double_bit),
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    Ok((0..u64::from(count))
        .map(|page| first + page * PAGE)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_pages() {
        let gpu: Gpu =
            serde_json::from_str(r#"{"retired_pages": {"single_bit": 2, "double_bit": 1}}"#)
                .expect("a GPU");
        assert_eq!(pages(&gpu, 0), Ok(vec![0x10_0000, 0x10_1000]));
        assert_eq!(pages(&gpu, 1), Ok(vec![0x8000_0000]));
        assert_eq!(pages(&gpu, 2), Err(Code::INVALID_ARGUMENT));
    }
}
