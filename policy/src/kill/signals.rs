//! The sequence of signals for a process.

use gpukill_proto::kill::{KillRequest, KillSignal};
use gpukill_proto::model::Vendor;

/// Returns the signals for a process that holds devices of these vendors. Each is sent
/// after the timeout of the one before. SIGKILL is last, and only present with
/// [`KillRequest::force`].
#[must_use]
pub fn signal_sequence(request: &KillRequest, vendors: &[Vendor]) -> Vec<KillSignal> {
    let mut signals = match request.signal {
        Some(signal) => vec![signal],
        // ROCm releases its queues on SIGINT, as on Ctrl-C. SIGKILL during a kernel
        // leaves KFD contexts behind (ROCm/mori, 473).
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
    fn sigkill_is_last_and_needs_force() {
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
                signal_sequence(&request, &vendors),
                expected,
                "{signal:?} {force} {vendors:?}"
            );
        }
    }
}
