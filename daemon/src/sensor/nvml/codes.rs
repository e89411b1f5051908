//! NVML's return codes (nvml.h, `nvmlReturn_t`): the class and the words of each. One table for all
//! getters, so that no getter interprets a code in its own way.

use crate::backend::LossCause;
use gpukill_proto::model::LossKind;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use nvml_wrapper::error::NvmlError;

/// The longest text taken from the wrapper or the dynamic linker, in bytes.
const TEXT_MAX: usize = 300;

/// NVML's names for a GPU that cannot be reached. [`find_loss`] also recognizes by these words a
/// loss that only one getter reports.
const GPU_IS_LOST: &str = "GPU_IS_LOST";
const GPU_REQUIRES_RESET: &str = "GPU_REQUIRES_RESET";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// The GPU or the driver does not have the requested value.
    Unsupported,
    /// The GPU cannot be reached until it is reset.
    Lost,
    /// The system denies access to the GPU.
    NotPermitted,
    /// The library cannot communicate with the driver. From the handle of one GPU this concerns
    /// that GPU; from every handle it concerns the library, which must be loaded again.
    Library,
    /// Any other failure.
    Failed,
}

/// The class of an error, and its words. The words do not change while the error lasts.
fn describe(error: &NvmlError) -> (ErrorClass, String) {
    let unusable = |what: &str| (ErrorClass::Failed, format!("NVML answered with {what}"));
    let code = match error {
        // The wrapper's name for a function that this driver does not have.
        NvmlError::FailedToLoadSymbol(_) => 13,
        NvmlError::LibloadingError(error) => {
            return (
                ErrorClass::Failed,
                sanitize(error.to_string().as_bytes(), TEXT_MAX),
            );
        }
        NvmlError::Utf8Error(_) => return unusable("a text that is not UTF-8"),
        NvmlError::NulError(_) | NvmlError::StringTooLong { .. } => {
            return unusable("a text that is too long or cut");
        }
        NvmlError::IncorrectBits(_) => return unusable("unknown bits"),
        NvmlError::SetReleaseFailed | NvmlError::GetPciInfoFailed | NvmlError::PciInfoToCFailed => {
            return unusable("an unusable value");
        }
        NvmlError::UnexpectedVariant(code) => *code,
        NvmlError::Uninitialized => 1,
        NvmlError::InvalidArg => 2,
        NvmlError::NotSupported => 3,
        NvmlError::NoPermission => 4,
        #[expect(deprecated, reason = "a driver may still answer so")]
        NvmlError::AlreadyInitialized => 5,
        NvmlError::NotFound => 6,
        NvmlError::InsufficientSize(_) => 7,
        NvmlError::InsufficientPower => 8,
        NvmlError::DriverNotLoaded => 9,
        NvmlError::Timeout => 10,
        NvmlError::IrqIssue => 11,
        NvmlError::LibraryNotFound => 12,
        NvmlError::FunctionNotFound => 13,
        NvmlError::CorruptedInfoROM => 14,
        NvmlError::GpuLost => 15,
        NvmlError::ResetRequired => 16,
        NvmlError::OperatingSystem => 17,
        NvmlError::LibRmVersionMismatch => 18,
        NvmlError::InUse => 19,
        NvmlError::InsufficientMemory => 20,
        NvmlError::NoData => 21,
        NvmlError::VgpuEccNotSupported => 22,
        NvmlError::Unknown => 999,
    };
    describe_code(code)
}

fn describe_code(code: u32) -> (ErrorClass, String) {
    use ErrorClass::{Failed, Library, Lost, NotPermitted, Unsupported};
    let (class, words) = match code {
        1 => (Library, "NVML reports that it is not initialized"),
        2 => (Failed, "NVML refuses the request"),
        3 => (Unsupported, "NVML does not support this"),
        4 => (NotPermitted, "the driver denies access"),
        5 => (Failed, "NVML reports that it is already initialized"),
        6 => (Failed, "NVML does not find it"),
        7 => (Failed, "NVML needs a larger buffer"),
        8 => (
            Failed,
            "the power cables of the GPU are not attached properly",
        ),
        9 => (Library, "NVML reports that the driver is not loaded"),
        10 => (Failed, "NVML gave up waiting for the driver"),
        11 => (
            Failed,
            "the driver has a problem with the interrupts of the GPU",
        ),
        12 => (Failed, "NVML does not find a library that it needs"),
        13 => (Unsupported, "NVML does not have this function"),
        14 => (Failed, "the infoROM of the GPU is corrupted"),
        15 => return (Lost, GPU_IS_LOST.into()),
        16 => return (Lost, GPU_REQUIRES_RESET.into()),
        17 => (NotPermitted, "the system or a cgroup blocks access"),
        18 => (Library, "library and driver are of different versions"),
        19 => (Failed, "the GPU is in use by another client"),
        20 => (Failed, "NVML has not enough memory"),
        21 => (Failed, "NVML has no data"),
        22 => (Failed, "NVML does not support this while ECC is on"),
        23 => (Failed, "NVML has not enough resources"),
        24 => (Failed, "the GPU does not have this frequency"),
        // A request version that this driver does not know, and a getter that was removed.
        25 => (
            Unsupported,
            "NVML does not know this version of the request",
        ),
        26 => (Unsupported, "NVML has removed this function"),
        27 => (Failed, "the GPU is not ready"),
        // After a reload of the driver an old library finds no GPU.
        28 => (Library, "the driver does not find the GPU"),
        29 => (Failed, "the GPU is in an invalid state"),
        30 => (Unsupported, "the GPU does not have this kind of reset"),
        999 => (Failed, "NVML reports an unknown error"),
        _ => (Failed, "NVML answered with an unknown code"),
    };
    (class, format!("{words} ({code})"))
}

pub(super) fn error_class(error: &NvmlError) -> ErrorClass {
    describe(error).0
}

pub(super) fn explain(error: &NvmlError) -> String {
    describe(error).1
}

/// An error as a reading: unsupported if the GPU or the driver does not have the value, else
/// failed.
pub(super) fn failed_reading<T>(error: &NvmlError) -> Reading<T> {
    match describe(error) {
        (ErrorClass::Unsupported, _) => Reading::Unsupported,
        (
            ErrorClass::Lost | ErrorClass::NotPermitted | ErrorClass::Library | ErrorClass::Failed,
            why,
        ) => Reading::Failed(why),
    }
}

/// Why a GPU without a handle or name cannot be read.
pub(super) fn loss_cause(error: &NvmlError) -> LossCause {
    let (class, why) = describe(error);
    let kind = match class {
        ErrorClass::Lost => LossKind::Lost,
        ErrorClass::NotPermitted => LossKind::NotPermitted,
        ErrorClass::Unsupported | ErrorClass::Library | ErrorClass::Failed => LossKind::Unknown,
    };
    LossCause { kind, why }
}

/// The loss of a GPU, if any of these failures reports it: a GPU that one getter cannot reach is
/// lost, whichever getter it is.
pub(super) fn find_loss<'a>(failures: impl IntoIterator<Item = &'a str>) -> Option<LossCause> {
    let says_so = |why: &&str| [GPU_IS_LOST, GPU_REQUIRES_RESET].contains(why);
    let why = failures.into_iter().find(says_so)?.to_owned();
    let kind = LossKind::Lost;
    Some(LossCause { kind, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_wrapper::error::nvml_try;

    const UNSUPPORTED: [u32; 5] = [3, 13, 25, 26, 30];
    const LIBRARY: [u32; 4] = [1, 9, 18, 28];

    fn error(code: u32) -> NvmlError {
        nvml_try(code).unwrap_err()
    }

    #[test]
    fn every_code_has_the_headers_class() {
        for code in (1..=30).chain([77, 999, u32::MAX]) {
            let expected = match code {
                15 | 16 => ErrorClass::Lost,
                4 | 17 => ErrorClass::NotPermitted,
                _ if UNSUPPORTED.contains(&code) => ErrorClass::Unsupported,
                _ if LIBRARY.contains(&code) => ErrorClass::Library,
                _ => ErrorClass::Failed,
            };
            let error = error(code);
            assert_eq!(error_class(&error), expected, "{code}");
            let reading = failed_reading::<u32>(&error);
            let unsupported = expected == ErrorClass::Unsupported;
            assert_eq!(reading == Reading::Unsupported, unsupported, "{code}");
            let kind = match expected {
                ErrorClass::Lost => LossKind::Lost,
                ErrorClass::NotPermitted => LossKind::NotPermitted,
                _ => LossKind::Unknown,
            };
            assert_eq!(loss_cause(&error).kind, kind, "{code}");
            let is_lost = find_loss([explain(&error).as_str()]).is_some();
            assert_eq!(is_lost, expected == ErrorClass::Lost, "{code}");
        }
    }

    #[test]
    fn every_code_has_its_own_words() {
        let mut all = std::collections::BTreeSet::new();
        for code in (1..=30).chain([77, 999]) {
            let words = explain(&error(code));
            let is_name = [GPU_IS_LOST, GPU_REQUIRES_RESET].contains(&words.as_str());
            assert!(is_name || words.ends_with(&format!(" ({code})")), "{words}");
            assert!(
                !words.contains(['`', '"']) && !words.contains("::"),
                "{words}"
            );
            assert!(all.insert(words));
        }
        for internal in [
            NvmlError::SetReleaseFailed,
            NvmlError::GetPciInfoFailed,
            NvmlError::PciInfoToCFailed,
            NvmlError::FailedToLoadSymbol("/lib/x: undefined symbol: y".into()),
        ] {
            assert!(!explain(&internal).contains(['`', '/']), "{internal:?}");
        }
    }
}
