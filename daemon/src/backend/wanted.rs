//! The backends that the settings want, each on its thread.

use super::Roots;
use super::apple::{self, Apple};
use super::drm::family::{Drm, Family};
use super::nvidia::Nvidia;
use super::reader::Reader;
use crate::holders::Holders;
use crate::quiesce::Quiesce;

/// Where macOS has it, below the host's root. On Linux there is none, and no thread
/// looks for it.
const IOREG: &str = "usr/sbin/ioreg";

/// Starts those of these names: `nvidia`, `amd`, `intel`, `drm`, `apple`; others
/// the settings do not allow. `late` is called when one answers after a poll has
/// waited for it in vain.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn start(
    names: &[String],
    nvidia_library: &str,
    roots: &Roots,
    quiesce: &Quiesce,
    holders: &Holders,
    late: impl Fn() + Clone + Send + 'static,
) -> std::io::Result<Vec<Reader>> {
    let drm = |family| Drm::new(family, roots.clone(), holders.clone());
    let nvidia = || {
        Nvidia::new(
            nvidia_library.to_owned(),
            roots.clone(),
            quiesce.clone(),
            holders.clone(),
        )
    };
    let apple = || {
        let program = roots.host.join(IOREG);
        if program.exists() {
            Reader::start(Apple::new(program), late.clone())
        } else {
            Ok(Reader::absent("apple", apple::ABSENT))
        }
    };
    let started = names.iter().filter_map(|name| match name.as_str() {
        "nvidia" => Some(Reader::start(nvidia(), late.clone())),
        "amd" => Some(Reader::start(drm(Family::Amd), late.clone())),
        "intel" => Some(Reader::start(drm(Family::Intel), late.clone())),
        "drm" => Some(Reader::start(drm(Family::Other), late.clone())),
        "apple" => Some(apple()),
        _ => None,
    });
    started.collect()
}
