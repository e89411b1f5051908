//! Collects the sockets of a network namespace while its lists are read: all of them while there is
//! room. Beyond that, sockets of the owners with the most are dropped: a user with very many
//! sockets hides no sockets of others.

use super::table::{LISTEN, Socket, SocketListError};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use gpukill_policy::access::Uids;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::collect::SortIndirect as _;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy)]
pub(super) struct CollectorLimits {
    /// Longer lists are unknown.
    pub(super) lines: usize,
    /// How many sockets are kept: about 10 MiB during a read.
    pub(super) sockets: usize,
}

pub(super) const LIMITS: CollectorLimits = CollectorLimits {
    lines: 1_000_000,
    sockets: 1 << 17,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SocketOwner {
    /// The user of the socket.
    Open(u32),
    /// For a socket without a process, closed or not accepted yet: the user who listens at one of
    /// its ends. Any user can cause many of these.
    Closed(u32),
    /// The same where no socket listens.
    Nowhere,
}

pub(super) struct SocketCollector {
    limits: CollectorLimits,
    lines: usize,
    sockets: Vec<Socket>,
    /// The users who listen at these addresses, without dropped ones.
    listeners: BTreeMap<SocketAddr, u32>,
    ports: BTreeSet<u16>,
    dropped: BTreeSet<SocketOwner>,
}

/// Owners with dropped sockets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DroppedOwners(BTreeSet<SocketOwner>);

impl DroppedOwners {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether sockets of a process with these uids may have been dropped.
    pub(super) fn may_include(&self, uids: Uids) -> bool {
        let of = |uid: u32| {
            self.0.contains(&SocketOwner::Open(uid)) || self.0.contains(&SocketOwner::Closed(uid))
        };
        // A process that started as root may have created its sockets before it changed its user.
        let by_root = self.0.contains(&SocketOwner::Open(0));
        by_root || of(uids.real) || of(uids.effective) || of(uids.saved)
    }
}

impl SocketCollector {
    pub(super) const fn new(limits: CollectorLimits) -> Self {
        Self {
            limits,
            lines: 0,
            sockets: Vec::new(),
            listeners: BTreeMap::new(),
            ports: BTreeSet::new(),
            dropped: BTreeSet::new(),
        }
    }

    /// Takes a socket. Listening sockets should come first, since other sockets are counted by
    /// them.
    pub(super) fn add(&mut self, socket: Socket) -> Result<(), SocketListError> {
        self.lines += 1;
        if self.lines > self.limits.lines {
            return Err(SocketListError::TooLong);
        }
        if !socket.is_relevant() {
            return Ok(());
        }
        let share = self.owner_of(&socket);
        if socket.state == LISTEN {
            self.ports.insert(socket.local.port());
        }
        if self.dropped.contains(&share) {
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

    /// How many sockets were read.
    pub(super) const fn lines(&self) -> usize {
        self.lines
    }

    /// The kept sockets, the listening ports, and the owners with dropped sockets.
    pub(super) fn finish(self) -> (Vec<Socket>, BTreeSet<u16>, DroppedOwners) {
        (self.sockets, self.ports, DroppedOwners(self.dropped))
    }

    fn owner_of(&self, socket: &Socket) -> SocketOwner {
        if socket.inode != 0 {
            return SocketOwner::Open(socket.uid);
        }
        let at = |end| self.listener_at(end);
        let listener = at(socket.local).or_else(|| at(socket.peer));
        listener.map_or(SocketOwner::Nowhere, SocketOwner::Closed)
    }

    /// The user who listens at this address, or at the wildcard address of its port.
    fn listener_at(&self, end: SocketAddr) -> Option<u32> {
        let on = |ip: IpAddr| self.listeners.get(&SocketAddr::new(ip, end.port()));
        let any_four = || on(Ipv4Addr::UNSPECIFIED.into()).filter(|_| end.is_ipv4());
        let uid = on(end.ip()).or_else(any_four);
        uid.or_else(|| on(Ipv6Addr::UNSPECIFIED.into())).copied()
    }

    /// Drops the owners with the most sockets until half of the room is free, so that this happens
    /// only a few times, however long the lists are.
    fn make_room(&mut self) {
        let mut counts: BTreeMap<SocketOwner, usize> = BTreeMap::new();
        for socket in &self.sockets {
            *counts.entry(self.owner_of(socket)).or_default() += 1;
        }
        let mut counts: Vec<(usize, SocketOwner)> =
            counts.into_iter().map(|(s, n)| (n, s)).collect();
        counts.sort_indirect();
        let mut freed = 0;
        let mut left_out = BTreeSet::new();
        while let Some((count, share)) = counts.pop()
            && freed < self.limits.sockets / 2
        {
            freed += count;
            left_out.insert(share);
        }
        let mut sockets = std::mem::take(&mut self.sockets);
        sockets.retain(|socket| !left_out.contains(&self.owner_of(socket)));
        self.sockets = sockets;
        self.dropped.extend(left_out);
        // Sockets that no user listens to are not needed.
        self.dropped.remove(&SocketOwner::Nowhere);
        let left_out = &self.dropped;
        self.listeners
            .retain_entries(|_, uid| !left_out.contains(&SocketOwner::Open(*uid)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::ESTABLISHED;
    use super::*;

    const TIME_WAIT: u8 = 6;

    const LIMITS: CollectorLimits = CollectorLimits {
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

    #[test]
    fn drops_only_the_largest_owner() {
        let mut collector = SocketCollector::new(LIMITS);
        let mut most = 0;
        let mut add = |collector: &mut SocketCollector, socket| {
            collector.add(socket).unwrap();
            most = most.max(collector.sockets.len());
        };
        let (alices, bobs) = (end(1, 8000), end(2, 7777));
        add(&mut collector, listener(1000, alices, 1));
        add(&mut collector, listener(1001, bobs, 2));
        for port in 10_000..14_000 {
            // A connection inside bob's own, and a closed one.
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
        let (sockets, ports, left_out) = collector.finish();
        let includes = |uid| left_out.may_include(Uids::from_single(uid));
        assert!(includes(1001) && !includes(1000) && !includes(0));
        let alices = sockets
            .iter()
            .filter(|it| it.local == alices || it.peer == alices);
        assert_eq!(alices.count(), 9);
        assert_eq!(ports, [7777, 8000].into());
    }

    #[test]
    fn closed_at_root_drops_no_other() {
        let mut collector = SocketCollector::new(LIMITS);
        let ssh = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 22);
        collector.add(listener(0, ssh, 1)).unwrap();
        for port in 10_000..11_000 {
            let closed = socket(0, TIME_WAIT, (end(3, port), end(1, 22)), 0);
            collector.add(closed).unwrap();
            let nowhere = socket(0, TIME_WAIT, (end(3, port), end(1, 23)), 0);
            collector.add(nowhere).unwrap();
        }
        let (sockets, _, left_out) = collector.finish();
        assert!(sockets.iter().any(|it| it.state == LISTEN));
        let includes = |uid| left_out.may_include(Uids::from_single(uid));
        assert!(includes(0) && !includes(1000));
    }

    #[test]
    fn too_long_lists_are_unknown() {
        let mut collector = SocketCollector::new(LIMITS);
        let listener = || listener(1000, end(1, 8000), 1);
        for _ in 0..LIMITS.lines {
            collector.add(listener()).unwrap();
        }
        assert_eq!(collector.add(listener()), Err(SocketListError::TooLong));
    }
}
