//! Which signals a process gets, one after the other.

use gpukill_proto::kill::{KillRequest, KillSignal};
use gpukill_proto::snapshot::Vendor;

/// The signals of one process that holds devices of these vendors, each sent when
/// the one before had its time. SIGKILL is the last, and there only with
/// [`KillRequest::force`].
#[must_use]
pub fn signals(request: &KillRequest, vendors: &[Vendor]) -> Vec<KillSignal> {
    let mut signals = match request.signal {
        Some(signal) => vec![signal],
        // ROCm lets go of its queues on SIGINT, as on Ctrl-C; SIGKILL in the
        // middle of a kernel leaves contexts of KFD behind (ROCm/mori, 473).
        None if vendors.contains(&Vendor::Amd) => {
            vec![KillSignal::Interrupt, KillSignal::Terminate]
        }
        None => vec![KillSignal::Terminate],
    };
    signals.retain(|signal| *signal != KillSignal::Kill);
    if request.force {
        signals.push(KillSignal::Kill);
    }
    signals
}

#[cfg(test)]
mod tests {
    use super::*;
    use KillSignal::{Interrupt, Kill, Terminate};

    #[test]
    fn a_process_gets_the_gentlest_signal_first_and_sigkill_last_and_only_by_force() {
        let cases = [
            (None, false, vec![], vec![Terminate]),
            (None, true, vec![Vendor::Nvidia], vec![Terminate, Kill]),
            (
                None,
                false,
                vec![Vendor::Nvidia, Vendor::Amd],
                vec![Interrupt, Terminate],
            ),
            (
                None,
                true,
                vec![Vendor::Amd],
                vec![Interrupt, Terminate, Kill],
            ),
            (Some(Interrupt), false, vec![], vec![Interrupt]),
            (Some(Terminate), false, vec![Vendor::Amd], vec![Terminate]),
            (Some(Interrupt), true, vec![], vec![Interrupt, Kill]),
            (Some(Kill), true, vec![Vendor::Amd], vec![Kill]),
            (Some(Kill), false, vec![], vec![]),
        ];
        for (signal, force, vendors, expected) in cases {
            let request = KillRequest {
                signal,
                force,
                ..KillRequest::default()
            };
            assert_eq!(
                signals(&request, &vendors),
                expected,
                "{signal:?} {force} {vendors:?}"
            );
        }
    }
}
