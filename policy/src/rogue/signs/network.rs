//! Whom a process speaks with. Names are never asked for: that would tell the pool's name
//! server who looks; nor is an address known as a pool's, since many share one.

use super::{Seen, load};
use crate::rogue::rules::Rules;
use crate::rogue::suspect::{Sent, Suspect};
use core::net::{IpAddr, SocketAddr};
use gpukill_proto::collect::SortIndirect as _;

/// Where miners' own controls listen by default: T-Rex serves HTTP on the first of these
/// and telnet on the second.
const API: [u16; 2] = [4_067, 4_068];

/// The control of a miner.
pub(super) fn api(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let listens = suspect.listens.as_ref()?;
    let port = API.iter().find(|port| listens.contains(port))?;
    Some(Seen::new(
        650,
        format!("it listens on port {port}, as a miner's control does"),
    ))
}

/// Ports that pools use. What others use as often, as 80, 443, 8080 and 8888, is not
/// among them.
const POOLS: [u16; 15] = [
    3_333, 3_334, 3_335, 3_336, 3_357, 4_444, 5_555, 5_556, 5_588, 9_332, 9_999, 14_433, 14_444,
    45_560, 45_700,
];

/// A connection to a pool's port.
pub(super) fn pool_port(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let peers = suspect.peers.as_ref()?;
    let of_admin = &rules.patterns.ports;
    let is_pools =
        |peer: &&SocketAddr| POOLS.contains(&peer.port()) || of_admin.contains(&peer.port());
    let mut to_pools: Vec<&SocketAddr> = peers.iter().filter(is_pools).collect();
    to_pools.sort_indirect_by_key(|peer| !is_outside(peer.ip()));
    let peer = to_pools.first()?;
    // Inside, queues and workers of all kinds use some of these.
    let weight = if is_outside(peer.ip()) { 550 } else { 200 };
    Some(Seen::new(weight, format!("connected to {peer}")))
}

/// A connection to the outside, of what works as miners do and serves nobody.
pub(super) fn outside(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let listens = suspect.listens.as_ref()?;
    load::mining(suspect, rules).filter(|seen| seen.weight >= load::WHOLE)?;
    let peers = suspect.peers.as_ref().filter(|_| listens.is_empty())?;
    let peer = peers.iter().find(|peer| is_outside(peer.ip()))?;
    Some(Seen::new(
        250,
        format!("connected to {peer} while it works so"),
    ))
}

/// Ports of Tor's proxy.
const TOR: [u16; 2] = [9_050, 9_150];

/// A connection through Tor.
pub(super) fn tor(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let is_tor =
        |peer: &SocketAddr| peer.ip().to_canonical().is_loopback() && TOR.contains(&peer.port());
    let by_port = suspect.peers.iter().flatten().any(is_tor);
    let mut libraries = suspect.libraries.iter().flatten();
    let by_library =
        libraries.any(|it| it.starts_with("libtorsocks") || it.starts_with("libproxychains"));
    (by_port || by_library).then(|| {
        Seen::new(
            300,
            "it speaks with others through Tor or a chain of proxies",
        )
    })
}

/// Whether an address is not of a network of one's own.
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

/// More bytes out of a namespace of its own than is usual.
pub(super) fn sent_much(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let Sent::Own(bytes) = suspect.sent else {
        return None;
    };
    let most = rules.detection.max_sent.0.max(1);
    let weight = match bytes / most {
        0 => return None,
        1..=3 => 550,
        _ => 700,
    };
    let gib = bytes >> 30;
    Some(Seen::new(
        weight,
        format!("its network namespace has sent {gib} GiB"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::units::Bytes;

    fn to(peers: &[&str]) -> Suspect {
        Suspect {
            peers: Some(peers.iter().map(|it| it.parse().unwrap()).collect()),
            listens: Some([].into()),
            ..Suspect::default()
        }
    }

    #[test]
    fn ports_of_pools_weigh_outside_and_little_inside() {
        let weight = |peers: &[&str]| pool_port(&to(peers), &Rules::default()).map(|it| it.weight);
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
        let mut rules = Rules::default();
        rules.patterns.ports = vec![7_777];
        assert!(pool_port(&to(&["203.0.113.7:7777"]), &rules).is_some());
    }

    #[test]
    fn the_control_of_a_miner_is_known_by_its_port() {
        let sees = |port: u16| {
            let suspect = Suspect {
                listens: Some([port].into()),
                ..Suspect::default()
            };
            api(&suspect, &Rules::default()).is_some()
        };
        assert_eq!(
            [4_067, 4_068, 8_888, 22].map(sees),
            [true, true, false, false]
        );
    }

    #[test]
    fn who_hides_whom_they_speak_with_is_seen() {
        let sees = |suspect: &Suspect| tor(suspect, &Rules::default()).is_some();
        assert!(sees(&to(&["127.0.0.1:9050"])) && sees(&to(&["[::1]:9150"])));
        assert!(!sees(&to(&["203.0.113.7:9050", "127.0.0.1:8888"])));
        let wrapped = Suspect {
            libraries: Some(["libtorsocks.so.0.0.0".to_owned()].into()),
            ..Suspect::default()
        };
        assert!(sees(&wrapped));
    }

    #[test]
    fn bytes_are_counted_where_they_are_its_own() {
        let mut rules = Rules::default();
        rules.detection.max_sent = Bytes(10);
        let weight = |sent| {
            let suspect = Suspect {
                sent,
                ..Suspect::default()
            };
            sent_much(&suspect, &rules).map(|it| it.weight)
        };
        let told = [
            Sent::Unknown,
            Sent::Shared,
            Sent::Own(9),
            Sent::Own(10),
            Sent::Own(40),
        ];
        assert_eq!(told.map(weight), [None, None, None, Some(550), Some(700)]);
        // Nothing is much where the admin says that nothing may be sent.
        rules.detection.max_sent = Bytes(0);
        let suspect = Suspect {
            sent: Sent::Own(0),
            ..Suspect::default()
        };
        assert_eq!(sent_much(&suspect, &rules), None);
    }
}
