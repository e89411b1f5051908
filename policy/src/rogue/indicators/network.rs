//! Indicators from the network peers of a process. Host names are never resolved,
//! because that would reveal the observer to the pool's name server. Addresses of pools
//! are not listed, because many services share an address.

use super::{IndicatorMatch, load};
use crate::rogue::rules::RogueRules;
use crate::rogue::suspect::{SentTraffic, Suspect};
use core::net::{IpAddr, SocketAddr};
use gpukill_proto::collect::SortIndirect as _;

/// Default ports of miners' control interfaces: T-Rex serves HTTP on the first and
/// telnet on the second.
const MINER_API_PORTS: [u16; 2] = [4_067, 4_068];

/// The control interface of a miner.
pub(super) fn miner_api(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let listens = suspect.listens.as_ref()?;
    let port = MINER_API_PORTS.iter().find(|port| listens.contains(port))?;
    Some(IndicatorMatch::new(
        650,
        format!("it listens on port {port}, as a miner's control interface does"),
    ))
}

/// Ports of mining pools, without ports that other services use as often: 80, 443, 8080
/// and 8888.
const POOL_PORTS: [u16; 15] = [
    3_333, 3_334, 3_335, 3_336, 3_357, 4_444, 5_555, 5_556, 5_588, 9_332, 9_999, 14_433, 14_444,
    45_560, 45_700,
];

/// A connection to a pool's port.
pub(super) fn pool_port(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    let peers = suspect.peers.as_ref()?;
    let of_admin = &rules.patterns.ports;
    let is_pools =
        |peer: &&SocketAddr| POOL_PORTS.contains(&peer.port()) || of_admin.contains(&peer.port());
    let mut to_pools: Vec<&SocketAddr> = peers.iter().filter(is_pools).collect();
    to_pools.sort_indirect_by_key(|peer| !is_outside(peer.ip()));
    let peer = to_pools.first()?;
    // In local networks, queues and workers of all kinds use some of these ports.
    let weight = if is_outside(peer.ip()) { 550 } else { 200 };
    Some(IndicatorMatch::new(weight, format!("connected to {peer}")))
}

/// A connection to the outside, of a process with a miner's load that listens on no
/// port.
pub(super) fn lasting_connection(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    let listens = suspect.listens.as_ref()?;
    load::mining_load(suspect, rules).filter(|indicator| indicator.weight >= load::FULL_WEIGHT)?;
    let peers = suspect.peers.as_ref().filter(|_| listens.is_empty())?;
    let peer = peers.iter().find(|peer| is_outside(peer.ip()))?;
    Some(IndicatorMatch::new(
        250,
        format!("connected to {peer} during this load"),
    ))
}

/// Ports of Tor's proxy.
const TOR_PORTS: [u16; 2] = [9_050, 9_150];

pub(super) fn through_tor(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let is_tor = |peer: &SocketAddr| {
        peer.ip().to_canonical().is_loopback() && TOR_PORTS.contains(&peer.port())
    };
    let by_port = suspect.peers.iter().flatten().any(is_tor);
    let mut libraries = suspect.libraries.iter().flatten();
    let by_library =
        libraries.any(|it| it.starts_with("libtorsocks") || it.starts_with("libproxychains"));
    (by_port || by_library)
        .then(|| IndicatorMatch::new(300, "it connects through Tor or a chain of proxies"))
}

/// Whether an address is outside of private networks.
fn is_outside(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_multicast()
                || is_shared)
        }
        IpAddr::V6(v6) => {
            !(v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local())
        }
    }
}

/// A network namespace of its own that sent more than the limit.
pub(super) fn sent_much(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    let SentTraffic::OwnNamespace(bytes) = suspect.sent else {
        return None;
    };
    let max_sent = rules.detection.max_sent.0.max(1);
    let weight = match bytes / max_sent {
        0 => return None,
        1..=3 => 550,
        _ => 700,
    };
    let gib = bytes >> 30;
    Some(IndicatorMatch::new(
        weight,
        format!("its network namespace has sent {gib} GiB"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::units::Bytes;

    fn connected_to(peers: &[&str]) -> Suspect {
        Suspect {
            peers: Some(peers.iter().map(|it| it.parse().unwrap()).collect()),
            listens: Some([].into()),
            ..Suspect::default()
        }
    }

    #[test]
    fn pool_ports_weigh_more_outside() {
        let weight = |peers: &[&str]| {
            pool_port(&connected_to(peers), &RogueRules::default()).map(|it| it.weight)
        };
        for (peers, expected) in [
            (&["203.0.113.7:4444"][..], Some(550)),
            (&["127.0.0.1:5555", "203.0.113.7:3333"], Some(550)),
            (&["[2001:db8::1]:14444"], Some(550)),
            (&["[::ffff:10.0.0.1]:5555"], Some(200)),
            (&["10.0.0.1:5555"], Some(200)),
            (
                &["203.0.113.7:443", "203.0.113.7:80", "203.0.113.7:8888"],
                None,
            ),
            (&[], None),
        ] {
            assert_eq!(weight(peers), expected, "{peers:?}");
        }
        let mut rules = RogueRules::default();
        rules.patterns.ports = vec![7_777];
        assert!(pool_port(&connected_to(&["203.0.113.7:7777"]), &rules).is_some());
    }

    #[test]
    fn miner_control_port_is_recognized() {
        let sees = |port: u16| {
            let suspect = Suspect {
                listens: Some([port].into()),
                ..Suspect::default()
            };
            miner_api(&suspect, &RogueRules::default()).is_some()
        };
        assert_eq!(
            [4_067, 4_068, 8_888, 22].map(sees),
            [true, true, false, false]
        );
    }

    #[test]
    fn tor_and_proxies_are_recognized() {
        let sees = |suspect: &Suspect| through_tor(suspect, &RogueRules::default()).is_some();
        assert!(sees(&connected_to(&["127.0.0.1:9050"])) && sees(&connected_to(&["[::1]:9150"])));
        assert!(!sees(&connected_to(&[
            "203.0.113.7:9050",
            "127.0.0.1:8888"
        ])));
        let wrapped = Suspect {
            libraries: Some(["libtorsocks.so.0.0.0".to_owned()].into()),
            ..Suspect::default()
        };
        assert!(sees(&wrapped));
    }

    #[test]
    fn only_own_namespace_traffic_counts() {
        let mut rules = RogueRules::default();
        rules.detection.max_sent = Bytes(10);
        let weight = |sent| {
            let suspect = Suspect {
                sent,
                ..Suspect::default()
            };
            sent_much(&suspect, &rules).map(|it| it.weight)
        };
        let actual = [
            SentTraffic::Unknown,
            SentTraffic::Shared,
            SentTraffic::OwnNamespace(9),
            SentTraffic::OwnNamespace(10),
            SentTraffic::OwnNamespace(40),
        ];
        assert_eq!(actual.map(weight), [None, None, None, Some(550), Some(700)]);
        // A limit of 0 does not report zero bytes.
        rules.detection.max_sent = Bytes(0);
        let suspect = Suspect {
            sent: SentTraffic::OwnNamespace(0),
            ..Suspect::default()
        };
        assert_eq!(sent_much(&suspect, &rules), None);
    }
}
