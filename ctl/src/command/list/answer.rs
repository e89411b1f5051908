//! What a selection leaves of a snapshot, and whether that is an answer.

use crate::exit::Failure;
use gpukill_policy::select::{NoSuchDevice, Selection, narrow};
use gpukill_proto::snapshot::{BackendReport, BackendState, Device, Snapshot, Vendor};

/// What is left to show.
#[derive(Debug)]
pub(super) struct Answer {
    /// The chosen part; without devices and processes where nothing is chosen.
    pub snapshot: Snapshot,
    /// Why that is no answer, if it is none.
    pub verdict: Option<Failure>,
}

/// The part of a snapshot that is asked for.
pub(super) fn answer(snapshot: Snapshot, selection: &Selection) -> Answer {
    let nothing = Snapshot {
        host: snapshot.host.clone(),
        backends: snapshot.backends.clone(),
        faults: snapshot.faults.clone(),
        devices: Vec::new(),
        processes: Vec::new(),
        ..snapshot
    };
    match narrow(snapshot, selection) {
        Ok(snapshot) => Answer {
            verdict: verdict(&snapshot, selection),
            snapshot,
        },
        Err(error) => Answer {
            verdict: Some(no_such_device(error, &nothing.backends, selection)),
            snapshot: nothing,
        },
    }
}

fn verdict(chosen: &Snapshot, selection: &Selection) -> Option<Failure> {
    if chosen.devices.is_empty() {
        let failed = failed_backend(&chosen.backends, selection.vendor);
        let vendor = selection.vendor.map(Vendor::name);
        let unmatched = || Some(Failure::NoMatch(format!("no {} GPU here", vendor?)));
        return failed.or_else(unmatched);
    }
    let unknown = |device: &&Device| device.process_count.last_known().is_none();
    // Named by the kernel driver alone.
    if chosen.devices.iter().all(|device| unknown(&device))
        && let Some(failed) = failed_backend(&chosen.backends, selection.vendor)
    {
        return Some(failed);
    }
    let nobody = chosen.processes.is_empty();
    let whose = processes_in_words(selection).filter(|_| nobody)?;
    // One whose list could not be had may be in use by them; a lost one is in
    // use by nobody's will.
    let mut reachable = chosen.devices.iter().filter(|device| device.lost.is_none());
    Some(match reachable.find(unknown) {
        Some(device) => {
            let why = device.process_count.reason().unwrap_or_default();
            let index = device.index;
            Failure::Vendor(format!(
                "whether GPU {index} is used by {whose} is not known: {why}"
            ))
        }
        None => Failure::NoMatch(format!("no GPU here is used by {whose}")),
    })
}

fn no_such_device(
    error: NoSuchDevice,
    backends: &[BackendReport],
    selection: &Selection,
) -> Failure {
    match &error {
        NoSuchDevice::Unknown { known, .. } if known.is_empty() => {
            failed_backend(backends, selection.vendor).unwrap_or(error.into())
        }
        NoSuchDevice::Unknown { .. } | NoSuchDevice::Ambiguous { .. } => error.into(),
    }
}

/// The failure of a backend that could have had what is missing, or its silence.
fn failed_backend(backends: &[BackendReport], vendor: Option<Vendor>) -> Option<Failure> {
    backends
        .iter()
        .filter(|backend| vendor.is_none_or(|vendor| reads(&backend.name, vendor)))
        .find_map(|backend| match &backend.state {
            BackendState::Failed(why) => {
                Some(Failure::Vendor(format!("{} failed: {why}", backend.name)))
            }
            BackendState::Starting => Some(Failure::Vendor(format!(
                "{} has not answered yet",
                backend.name
            ))),
            BackendState::Ready | BackendState::Absent(_) | BackendState::Quiesced(_) => None,
        })
}

/// Whether there is no device, and a backend that may still find some.
pub(super) fn is_starting(snapshot: &Snapshot) -> bool {
    let mut backends = snapshot.backends.iter();
    snapshot.devices.is_empty() && backends.any(|backend| backend.state == BackendState::Starting)
}

/// Backends are named as the vendors; all that is not one of those reads others.
fn reads(backend: &str, vendor: Vendor) -> bool {
    const NAMED: [Vendor; 4] = [Vendor::Nvidia, Vendor::Amd, Vendor::Intel, Vendor::Apple];
    match vendor {
        Vendor::Other => NAMED.iter().all(|named| named.name() != backend),
        Vendor::Nvidia | Vendor::Amd | Vendor::Intel | Vendor::Apple => vendor.name() == backend,
    }
}

/// Which processes a selection takes, in words; `None` where it takes all.
pub(super) fn processes_in_words(selection: &Selection) -> Option<String> {
    match (&selection.user, &selection.name) {
        (None, None) => None,
        (Some(user), None) => Some(format!("processes of {user}")),
        (None, Some(name)) => Some(format!("processes like {name}")),
        (Some(user), Some(name)) => Some(format!("processes of {user} like {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::sample;
    use gpukill_policy::select::pattern;

    fn said(snapshot: Snapshot, selection: &Selection) -> (usize, usize, Option<(u8, String)>) {
        let Answer { snapshot, verdict } = answer(snapshot, selection);
        let verdict = verdict.map(|failure| (failure.exit() as u8, failure.to_string()));
        (snapshot.devices.len(), snapshot.processes.len(), verdict)
    }

    fn without_devices(state: BackendState) -> Snapshot {
        let mut snapshot = sample::snapshot();
        snapshot.devices.clear();
        snapshot.processes.clear();
        snapshot.backends.truncate(1);
        snapshot.backends[0].state = state;
        snapshot
    }

    fn gpu(typed: &str) -> Selection {
        Selection {
            gpu: Some(typed.into()),
            ..Selection::default()
        }
    }

    #[test]
    fn all_is_an_answer_even_when_it_is_nothing() {
        let all = Selection::default();
        let none = without_devices(BackendState::Absent("no library".into()));
        assert_eq!(said(none, &all), (0, 0, None));
        let (devices, _, verdict) = said(sample::snapshot(), &all);
        assert_eq!((devices, verdict), (10, None));
    }

    #[test]
    fn what_matches_nothing_is_no_answer_and_still_a_document() {
        let amd = Selection {
            vendor: Some(Vendor::Amd),
            ..Selection::default()
        };
        let verdict = Some((8, "no amd GPU here".to_owned()));
        assert_eq!(said(sample::snapshot(), &amd), (0, 0, verdict));
        let (devices, processes, verdict) = said(sample::snapshot(), &gpu("99"));
        assert_eq!((devices, processes), (0, 0));
        assert_eq!(verdict.map(|(code, _)| code), Some(8));
        let nobody = Selection {
            user: Some("zoe".into()),
            name: pattern("^x").ok(),
            ..Selection::default()
        };
        let text = "no GPU here is used by processes of zoe like ^x".to_owned();
        assert_eq!(said(sample::snapshot(), &nobody), (10, 0, Some((8, text))));
    }

    #[test]
    fn a_failed_vendor_is_the_reason_when_there_is_nothing_to_show() {
        let failed = || without_devices(BackendState::Failed("version mismatch".into()));
        let text = "nvidia failed: version mismatch".to_owned();
        let verdict = Some((2, text));
        for selection in [Selection::default(), gpu("0")] {
            assert_eq!(said(failed(), &selection), (0, 0, verdict.clone()));
        }
        let amd = Selection {
            vendor: Some(Vendor::Amd),
            ..Selection::default()
        };
        let unmatched = Some((8, "no amd GPU here".to_owned()));
        assert_eq!(said(failed(), &amd), (0, 0, unmatched));
    }
}
