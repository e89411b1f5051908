//! Which sockets of a network namespace are kept while its lists are read: all of them, as
//! far as there is room. Where there is none, those of whoever has most are left out: a user
//! with very many sockets hides nobody else's.

use super::table::{Broken, LISTEN, Socket};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use gpukill_policy::access::Uids;
use std::collections::{BTreeMap, BTreeSet};

/// How much is read and kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Of longer lists nothing is known.
    pub(super) lines: usize,
    /// So many sockets are kept: about 10 MiB while they are read.
    pub(super) sockets: usize,
}

pub(super) const LIMITS: Limits = Limits {
    lines: 1_000_000,
    sockets: 1 << 17,
};

/// In whose share of the room a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    /// Of the user whose socket it is.
    Open(u32),
    /// It is no process's, closed or not accepted yet: of the user who listens at one of its
    /// ends. Anybody makes many of these.
    Closed(u32),
    /// Likewise, and nobody listens there.
    Nowhere,
}

/// Takes sockets one by one.
pub(super) struct Collector {
    limits: Limits,
    lines: usize,
    sockets: Vec<Socket>,
    /// The users who listen at these addresses, but those who are left out.
    listeners: BTreeMap<SocketAddr, u32>,
    /// The ports on which anybody listens.
    ports: BTreeSet<u16>,
    left_out: BTreeSet<Share>,
}

/// Users of whom not all sockets were kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut(BTreeSet<Share>);

impl LeftOut {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether sockets of a process that runs as these may be among them.
    pub(super) fn has(&self, uids: Uids) -> bool {
        let of =
            |uid: u32| self.0.contains(&Share::Open(uid)) || self.0.contains(&Share::Closed(uid));
        // What was started as root may have made its sockets before it became another.
        let by_root = self.0.contains(&Share::Open(0));
        by_root || of(uids.real) || of(uids.effective) || of(uids.saved)
    }
}

impl Collector {
    pub(super) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            lines: 0,
            sockets: Vec::new(),
            listeners: BTreeMap::new(),
            ports: BTreeSet::new(),
            left_out: BTreeSet::new(),
        }
    }

    /// Takes one. Those that listen should come first: others are in their shares.
    pub(super) fn add(&mut self, socket: Socket) -> Result<(), Broken> {
        self.lines += 1;
        if self.lines > self.limits.lines {
            return Err(Broken::TooLong);
        }
        if !socket.matters() {
            return Ok(());
        }
        let share = self.share(&socket);
        if socket.state == LISTEN {
            self.ports.insert(socket.local.port());
        }
        if self.left_out.contains(&share) {
            return Ok(());
        }
        if socket.state == LISTEN {
            self.listeners.insert(socket.local, socket.uid);
        }
        self.sockets.push(socket);
        if self.sockets.len() > self.limits.sockets {
            self.make_room();
        }
        Ok(())
    }

    /// How many were taken or not.
    pub(super) const fn lines(&self) -> usize {
        self.lines
    }

    /// What was kept, the ports on which anybody listens, and of whom something was left out.
    pub(super) fn end(self) -> (Vec<Socket>, BTreeSet<u16>, LeftOut) {
        (self.sockets, self.ports, LeftOut(self.left_out))
    }

    fn share(&self, socket: &Socket) -> Share {
        if socket.inode != 0 {
            return Share::Open(socket.uid);
        }
        let at = |end| self.listener_at(end);
        let listener = at(socket.local).or_else(|| at(socket.peer));
        listener.map_or(Share::Nowhere, Share::Closed)
    }

    /// Who listens there, on that address alone or on all.
    fn listener_at(&self, end: SocketAddr) -> Option<u32> {
        let on = |ip: IpAddr| self.listeners.get(&SocketAddr::new(ip, end.port()));
        let any_four = || on(Ipv4Addr::UNSPECIFIED.into()).filter(|_| end.is_ipv4());
        let uid = on(end.ip()).or_else(any_four);
        uid.or_else(|| on(Ipv6Addr::UNSPECIFIED.into())).copied()
    }

    /// Leaves out the largest shares, until half of the room is free: so it is made a few
    /// times at most, however long the lists are.
    fn make_room(&mut self) {
        let mut counts: BTreeMap<Share, usize> = BTreeMap::new();
        for socket in &self.sockets {
            *counts.entry(self.share(socket)).or_default() += 1;
        }
        let mut counts: Vec<(usize, Share)> = counts.into_iter().map(|(s, n)| (n, s)).collect();
        counts.sort_unstable();
        let mut freed = 0;
        let mut left_out = BTreeSet::new();
        while let Some((count, share)) = counts.pop()
            && freed < self.limits.sockets / 2
        {
            freed += count;
            left_out.insert(share);
        }
        let mut sockets = std::mem::take(&mut self.sockets);
        sockets.retain(|socket| !left_out.contains(&self.share(socket)));
        self.sockets = sockets;
        self.left_out.extend(left_out);
        // Nobody looks for what nobody listens to.
        self.left_out.remove(&Share::Nowhere);
        let left_out = &self.left_out;
        self.listeners
            .retain(|_, uid| !left_out.contains(&Share::Open(*uid)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::ESTABLISHED;
    use super::*;

    const TIME_WAIT: u8 = 6;

    const LIMITS: Limits = Limits {
        lines: 10_000,
        sockets: 100,
    };

    fn end(last: u8, port: u16) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), port)
    }

    fn socket(uid: u32, state: u8, (local, peer): (SocketAddr, SocketAddr), inode: u64) -> Socket {
        Socket {
            local,
            peer,
            state,
            uid,
            inode,
        }
    }

    fn listener(uid: u32, local: SocketAddr, inode: u64) -> Socket {
        socket(uid, LISTEN, (local, end(0, 0)), inode)
    }

    const fn runs_as(uid: u32) -> Uids {
        Uids {
            real: uid,
            effective: uid,
            saved: uid,
        }
    }

    #[test]
    fn of_whoever_has_most_sockets_some_are_left_out_and_of_nobody_else() {
        let mut collector = Collector::new(LIMITS);
        let mut most = 0;
        let mut add = |collector: &mut Collector, socket| {
            collector.add(socket).unwrap();
            most = most.max(collector.sockets.len());
        };
        let (alices, bobs) = (end(1, 8000), end(2, 7777));
        add(&mut collector, listener(1000, alices, 1));
        add(&mut collector, listener(1001, bobs, 2));
        for port in 10_000..14_000 {
            // A connection within bob's own, and one that he has closed.
            let peer = end(2, port);
            add(
                &mut collector,
                socket(1001, ESTABLISHED, (bobs, peer), u64::from(port)),
            );
            add(&mut collector, socket(0, TIME_WAIT, (peer, bobs), 0));
            if port % 1_000 == 0 {
                let peer = end(1, port);
                add(
                    &mut collector,
                    socket(1000, ESTABLISHED, (alices, peer), u64::from(port)),
                );
                add(&mut collector, socket(0, TIME_WAIT, (peer, alices), 0));
            }
        }
        assert_eq!(most, LIMITS.sockets);
        let (sockets, ports, left_out) = collector.end();
        assert!(left_out.has(runs_as(1001)));
        assert!(!left_out.has(runs_as(1000)) && !left_out.has(runs_as(0)));
        let alices = sockets
            .iter()
            .filter(|it| it.local == alices || it.peer == alices);
        assert_eq!(alices.count(), 9);
        assert_eq!(ports, [7777, 8000].into());
    }

    #[test]
    fn what_was_closed_where_root_listens_leaves_nobody_elses_out() {
        let mut collector = Collector::new(LIMITS);
        let ssh = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 22);
        collector.add(listener(0, ssh, 1)).unwrap();
        for port in 10_000..11_000 {
            let closed = socket(0, TIME_WAIT, (end(3, port), end(1, 22)), 0);
            collector.add(closed).unwrap();
            let nowhere = socket(0, TIME_WAIT, (end(3, port), end(1, 23)), 0);
            collector.add(nowhere).unwrap();
        }
        let (sockets, _, left_out) = collector.end();
        assert!(sockets.iter().any(|it| it.state == LISTEN));
        assert!(left_out.has(runs_as(0)) && !left_out.has(runs_as(1000)));
    }

    #[test]
    fn longer_lists_tell_nothing() {
        let mut collector = Collector::new(LIMITS);
        let listener = || listener(1000, end(1, 8000), 1);
        for _ in 0..LIMITS.lines {
            collector.add(listener()).unwrap();
        }
        assert_eq!(collector.add(listener()), Err(Broken::TooLong));
    }
}
