//! Client and daemon of different versions: which is older, and what to do.

use crate::exit::DaemonKind;
use gpukill_proto::ProtocolVersion;
use std::cmp::Ordering;

/// The hint for an older client.
pub(crate) const UPGRADE_CLIENT: &str = "upgrade the package gpukill here; if it is new, another \
gpukillctl is found first: type -a gpukillctl";

/// The hint for an older daemon.
pub(crate) const fn upgrade_daemon(runs: DaemonKind) -> &'static str {
    match runs {
        DaemonKind::Service => {
            "after an upgrade the old one runs on: systemctl restart gpukilld; else upgrade the \
            package gpukill"
        }
        DaemonKind::Manual => "upgrade gpukilld where it runs, and restart it",
    }
}

/// The message about a daemon and a client that speak different protocols.
pub(crate) fn protocol_mismatch(daemon: ProtocolVersion, client: ProtocolVersion) -> String {
    match daemon.cmp(&client) {
        Ordering::Less => format!(
            "gpukilld is older than this gpukillctl: it speaks protocol {daemon}, gpukillctl {client}"
        ),
        Ordering::Greater => format!(
            "this gpukillctl is older than gpukilld: it speaks protocol {client}, gpukilld {daemon}"
        ),
        Ordering::Equal => format!("gpukilld and gpukillctl both speak protocol {client}"),
    }
}

/// The message about a daemon and a client of different releases; `None` when the releases are
/// equal.
pub(crate) fn release_mismatch(daemon: &str, client: &str, runs: DaemonKind) -> Option<String> {
    if daemon == client {
        return None;
    }
    let restart = match runs {
        DaemonKind::Service => "systemctl restart gpukilld",
        DaemonKind::Manual => "restart gpukilld",
    };
    let order = release_numbers(daemon).zip(release_numbers(client));
    Some(match order.map(|(daemon, client)| daemon.cmp(&client)) {
        Some(Ordering::Less) => {
            format!("gpukilld {daemon} is older than this gpukillctl, {client}: {restart}")
        }
        Some(Ordering::Greater) => format!(
            "this gpukillctl, {client}, is older than gpukilld {daemon}: upgrade the package \
            gpukill here"
        ),
        Some(Ordering::Equal) | None => format!(
            "gpukilld {daemon} and this gpukillctl, {client}, are of different releases: {restart}"
        ),
    })
}

/// The numbers of a release: `1.4.0`, also of `1.4.0-rc.1`. The order of releases with equal
/// numbers is not known.
fn release_numbers(version: &str) -> Option<[u64; 3]> {
    let release = version.split(['-', '+']).next()?;
    let numbers: Option<Vec<u64>> = release.split('.').map(|it| it.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_release_is_named() {
        let mismatch = |daemon, client| release_mismatch(daemon, client, DaemonKind::Service);
        assert_eq!(mismatch("1.2.0", "1.2.0"), None);
        let cases = [
            (
                "1.9.0",
                "1.10.0",
                "gpukilld 1.9.0 is older than this gpukillctl, 1.10.0: systemctl restart gpukilld",
            ),
            (
                "2.0.0",
                "1.10.0",
                "this gpukillctl, 1.10.0, is older than gpukilld 2.0.0: upgrade the package \
                gpukill here",
            ),
            (
                "1.2.0-rc.1",
                "1.2.0",
                "gpukilld 1.2.0-rc.1 and this gpukillctl, 1.2.0, are of different releases: \
                systemctl restart gpukilld",
            ),
            (
                "1.2",
                "1.2.0",
                "gpukilld 1.2 and this gpukillctl, 1.2.0, are of different releases: systemctl \
                restart gpukilld",
            ),
        ];
        for (daemon, client, expected) in cases {
            assert_eq!(mismatch(daemon, client).as_deref(), Some(expected));
        }
        assert_eq!(
            release_mismatch("1.0.0", "1.1.0", DaemonKind::Manual).as_deref(),
            Some("gpukilld 1.0.0 is older than this gpukillctl, 1.1.0: restart gpukilld")
        );
    }
}
