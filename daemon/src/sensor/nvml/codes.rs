//! NVML's return codes (nvml.h, `nvmlReturn_t`): what each one says, and about what. One table
//! for all getters, so that no getter reads a code in its own way.

use crate::backend::LossCause;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::LossKind;
use gpukill_proto::text::visible;
use nvml_wrapper::error::NvmlError;

/// The longest text taken from the wrapper or the dynamic linker, in bytes.
const TEXT_MAX: usize = 300;

/// How a GPU that cannot be reached is called by NVML. The words are also how a loss that only
/// one getter reports is found (see [`loss_among`]).
const GPU_IS_LOST: &str = "GPU_IS_LOST";
const GPU_REQUIRES_RESET: &str = "GPU_REQUIRES_RESET";

/// What an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The GPU or the driver does not have what was asked for.
    Unsupported,
    /// The GPU cannot be reached until it is reset.
    Lost,
    /// The system denies access to the GPU.
    NotPermitted,
    /// The library cannot speak to the driver. From the handle of one GPU it concerns that GPU;
    /// from every handle it concerns the library, which must be loaded anew.
    Library,
    /// Anything else that failed.
    Failed,
}

/// What an error is about, and its words. The words hold nothing that changes while the error
/// lasts.
fn describe(error: &NvmlError) -> (Class, String) {
    let unusable = |what: &str| (Class::Failed, format!("NVML answered with {what}"));
    let code = match error {
        // The wrapper's name for a function that this driver does not have.
        NvmlError::FailedToLoadSymbol(_) => 13,
        NvmlError::LibloadingError(error) => {
            return (
                Class::Failed,
                visible(error.to_string().as_bytes(), TEXT_MAX),
            );
        }
        NvmlError::Utf8Error(_) => return unusable("a text that is not UTF-8"),
        NvmlError::NulError(_) | NvmlError::StringTooLong { .. } => {
            return unusable("a text that is too long or cut");
        }
        NvmlError::IncorrectBits(_) => return unusable("bits that are not known"),
        NvmlError::SetReleaseFailed | NvmlError::GetPciInfoFailed | NvmlError::PciInfoToCFailed => {
            return unusable("something that cannot be used");
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
    of_code(code)
}

fn of_code(code: u32) -> (Class, String) {
    use Class::{Failed, Library, Lost, NotPermitted, Unsupported};
    let (class, words) = match code {
        1 => (Library, "NVML says that it was not started"),
        2 => (Failed, "NVML refuses the request"),
        3 => (Unsupported, "NVML does not support this"),
        4 => (NotPermitted, "the driver denies access"),
        5 => (Failed, "NVML says that it was started already"),
        6 => (Failed, "NVML does not find it"),
        7 => (Failed, "NVML has more to tell than there was room for"),
        8 => (
            Failed,
            "the power cables of the GPU are not attached properly",
        ),
        9 => (Library, "NVML says that the driver is not loaded"),
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
        // A version of the request that this driver does not know, and a getter that is no more.
        25 => (
            Unsupported,
            "NVML does not know this version of the request",
        ),
        26 => (Unsupported, "NVML has given this function up"),
        27 => (Failed, "the GPU is not ready"),
        // After a reload of the driver an old library finds none of them.
        28 => (Library, "the driver does not find the GPU"),
        29 => (Failed, "the GPU is in an invalid state"),
        30 => (Unsupported, "the GPU does not have this kind of reset"),
        999 => (Failed, "NVML reports an unknown error"),
        _ => (Failed, "NVML answered with an unknown code"),
    };
    (class, format!("{words} ({code})"))
}

/// What an error is about.
pub(super) fn class(error: &NvmlError) -> Class {
    describe(error).0
}

/// What an error means, in words.
pub(super) fn explain(error: &NvmlError) -> String {
    describe(error).1
}

/// An error as a reading: a value that the GPU or the driver does not have, or one that it
/// should have and could not be read.
pub(super) fn failure<T>(error: &NvmlError) -> Reading<T> {
    match describe(error) {
        (Class::Unsupported, _) => Reading::Unsupported,
        (Class::Lost | Class::NotPermitted | Class::Library | Class::Failed, why) => {
            Reading::Failed(why)
        }
    }
}

/// Why a GPU cannot be read, when its handle or its name could not be had.
pub(super) fn loss(error: &NvmlError) -> LossCause {
    let (class, why) = describe(error);
    let kind = match class {
        Class::Lost => LossKind::Lost,
        Class::NotPermitted => LossKind::NotPermitted,
        Class::Unsupported | Class::Library | Class::Failed => LossKind::Unknown,
    };
    LossCause { kind, why }
}

/// Why a GPU is lost, where any of these failures says so: a GPU that one getter cannot reach
/// is lost, whichever getter it is.
pub(super) fn loss_among<'a>(failures: impl IntoIterator<Item = &'a str>) -> Option<LossCause> {
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
    fn every_code_of_nvml_is_about_what_the_header_says() {
        for code in (1..=30).chain([77, 999, u32::MAX]) {
            let expected = match code {
                15 | 16 => Class::Lost,
                4 | 17 => Class::NotPermitted,
                _ if UNSUPPORTED.contains(&code) => Class::Unsupported,
                _ if LIBRARY.contains(&code) => Class::Library,
                _ => Class::Failed,
            };
            let error = error(code);
            assert_eq!(class(&error), expected, "{code}");
            let reading = failure::<u32>(&error);
            let unsupported = expected == Class::Unsupported;
            assert_eq!(reading == Reading::Unsupported, unsupported, "{code}");
            let kind = match expected {
                Class::Lost => LossKind::Lost,
                Class::NotPermitted => LossKind::NotPermitted,
                _ => LossKind::Unknown,
            };
            assert_eq!(loss(&error).kind, kind, "{code}");
            let is_lost = loss_among([explain(&error).as_str()]).is_some();
            assert_eq!(is_lost, expected == Class::Lost, "{code}");
        }
    }

    #[test]
    fn every_code_has_words_of_its_own_with_its_number_and_nothing_of_rust() {
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
