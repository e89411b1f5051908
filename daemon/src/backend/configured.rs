//! Starts the configured backends, each on its thread.

use super::Roots;
use super::apple::AppleBackend;
use super::drm::family::{DrmBackend, DrmFamily};
use super::nvidia::NvidiaBackend;
use super::reader::BackendReader;
use crate::fd_scan::FdScanHandle;
use crate::quiesce::Quiesce;

/// The path on macOS, below the host's root. On Linux the program does not exist, and no thread is
/// started for it.
const IOREG_PATH: &str = "usr/sbin/ioreg";

/// Starts the backends with these names: `nvidia`, `amd`, `intel`, `drm`, `apple`; the settings
/// allow no other. `late` is called when a backend answers after a poll has timed out waiting for
/// it.
pub(crate) fn start_backends(
    names: &[String],
    nvidia_library: &str,
    roots: &Roots,
    quiesce: &Quiesce,
    holders: &FdScanHandle,
    late: impl Fn() + Clone + Send + 'static,
) -> std::io::Result<Vec<BackendReader>> {
    let drm = |family| DrmBackend::new(family, roots.clone(), holders.clone());
    let nvidia = || {
        NvidiaBackend::new(
            nvidia_library.to_owned(),
            roots.clone(),
            quiesce.clone(),
            holders.clone(),
        )
    };
    let apple = || {
        let program = roots.host.join(IOREG_PATH);
        if program.exists() {
            BackendReader::start(AppleBackend::new(program), late.clone())
        } else {
            let why = "no ioreg: Apple GPUs are read on macOS";
            Ok(BackendReader::absent("apple", why))
        }
    };
    let started = names.iter().filter_map(|name| match name.as_str() {
        "nvidia" => Some(BackendReader::start(nvidia(), late.clone())),
        "amd" => Some(BackendReader::start(drm(DrmFamily::Amd), late.clone())),
        "intel" => Some(BackendReader::start(drm(DrmFamily::Intel), late.clone())),
        "drm" => Some(BackendReader::start(drm(DrmFamily::Other), late.clone())),
        "apple" => Some(apple()),
        _ => None,
    });
    started.collect()
}
