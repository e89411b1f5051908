//! Client and daemon of different versions: who is older, and what to do.

use crate::exit::Runs;
use gpukill_proto::ProtocolVersion;
use std::cmp::Ordering;

/// What to do with an older client.
pub(crate) const RENEW_CLIENT: &str = "upgrade the package gpukill here; if it is new, another gpukillctl is found first: type -a gpukillctl";

/// What to do with an older daemon.
pub(crate) const fn renew_daemon(runs: Runs) -> &'static str {
    match runs {
        Runs::AsService => {
            "after an upgrade the old one runs on: systemctl restart gpukilld; else upgrade the package gpukill"
        }
        Runs::ByHand => "upgrade gpukilld where it runs, and start it anew",
    }
}

/// Who is older, of a daemon and a client that speak these wires.
pub(crate) fn of_wires(daemon: ProtocolVersion, ours: ProtocolVersion) -> String {
    match daemon.cmp(&ours) {
        Ordering::Less => format!(
            "gpukilld is older than this gpukillctl: it speaks protocol {daemon}, gpukillctl {ours}"
        ),
        Ordering::Greater => format!(
            "this gpukillctl is older than gpukilld: it speaks protocol {ours}, gpukilld {daemon}"
        ),
        Ordering::Equal => format!("gpukilld and gpukillctl both speak protocol {ours}"),
    }
}

/// What to say where daemon and client are of different releases; `None` where they are
/// of the same.
pub(crate) fn of_releases(daemon: &str, ours: &str, runs: Runs) -> Option<String> {
    if daemon == ours {
        return None;
    }
    let restart = match runs {
        Runs::AsService => "systemctl restart gpukilld",
        Runs::ByHand => "start gpukilld anew",
    };
    let order = numbers(daemon).zip(numbers(ours));
    Some(match order.map(|(daemon, ours)| daemon.cmp(&ours)) {
        Some(Ordering::Less) => {
            format!("gpukilld {daemon} is older than this gpukillctl, {ours}: {restart}")
        }
        Some(Ordering::Greater) => format!(
            "this gpukillctl, {ours}, is older than gpukilld {daemon}: upgrade the package gpukill here"
        ),
        Some(Ordering::Equal) | None => format!(
            "gpukilld {daemon} and this gpukillctl, {ours}, are of different releases: {restart}"
        ),
    })
}

/// The numbers of a release: `1.4.0`, also of `1.4.0-rc.1`. What comes before what of
/// those with the same numbers is not known.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let release = version.split(['-', '+']).next()?;
    let numbers: Option<Vec<u64>> = release.split('.').map(|it| it.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_releases_the_older_is_named_and_what_to_do() {
        let told = |daemon, ours| of_releases(daemon, ours, Runs::AsService);
        assert_eq!(told("1.2.0", "1.2.0"), None);
        let cases = [
            (
                "1.9.0",
                "1.10.0",
                "gpukilld 1.9.0 is older than this gpukillctl, 1.10.0: systemctl restart gpukilld",
            ),
            (
                "2.0.0",
                "1.10.0",
                "this gpukillctl, 1.10.0, is older than gpukilld 2.0.0: upgrade the package gpukill here",
            ),
            (
                "1.2.0-rc.1",
                "1.2.0",
                "gpukilld 1.2.0-rc.1 and this gpukillctl, 1.2.0, are of different releases: systemctl restart gpukilld",
            ),
            (
                "1.2",
                "1.2.0",
                "gpukilld 1.2 and this gpukillctl, 1.2.0, are of different releases: systemctl restart gpukilld",
            ),
        ];
        for (daemon, ours, expected) in cases {
            assert_eq!(told(daemon, ours).as_deref(), Some(expected));
        }
        assert_eq!(
            of_releases("1.0.0", "1.1.0", Runs::ByHand).as_deref(),
            Some("gpukilld 1.0.0 is older than this gpukillctl, 1.1.0: start gpukilld anew")
        );
    }
}
