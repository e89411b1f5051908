//! The listening sockets and the connections: how many at once, how slow, and how they end.
//!
//! A connection is new until it has sent a request that its caller may make. New connections, also
//! those with a TLS handshake in progress, have places of their own, and the oldest of them make room
//! for others. So a client that sends nothing, or that has no token where one is needed, takes no
//! place from callers. When callers have all places, one that has fewer connections takes a place of
//! the one that has the most.

use crate::access::Access;
use crate::gateway::Gateway;
use crate::log;
use crate::problem::Problem;
use crate::request_check::MAX_HEAD;
use crate::settings::{Endpoint, Settings};
use crate::tls::Tls;
use crate::websocket::AfterUpgrade;
use gpukill_policy::subordinate::parse_lines;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use listenfd::ListenFd;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;

/// How long the head of a request may take, a TLS handshake, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take to read a part of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long connections may take to end when the gateway stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be accepted, as for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The most new connections at once. Far more than arrive before the first of them is read, so that
/// all clients may connect again at once after a restart.
const MAX_NEW_CONNECTIONS: usize = 128;

/// The bits of an IPv6 address that name its network. A host has as many addresses in it as it likes.
const IPV6_NETWORK: u128 = u128::MAX << 64;

/// The file of the ranges of user ids that people have for their containers, see subuid(5).
const SUBORDINATE_FILE: &str = "/etc/subuid";

/// A longer file is read up to here.
const MAX_SUBORDINATE_FILE: u64 = 256 << 10;

/// A listening socket.
pub(crate) enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A socket in the file system.
    Unix(UnixListener),
}

/// The other side of a connection, as far as limits tell clients apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// A client over TCP.
    Address(IpAddr),
    /// A user of this host, over the Unix socket. The ids of a range in /etc/subuid, which all are of
    /// one person, are as the first of them.
    User(u32),
    /// A user that the kernel does not name.
    Unknown,
}

impl Peer {
    /// The client at this address. A user of the host can call from any loopback address: they all
    /// are one peer. So are all addresses of an IPv6 network of 64 bits.
    fn of_address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK).into(),
            address => address,
        })
    }

    /// The user with this id, where people have these ranges of ids.
    fn of_user(uid: u32, ranges: &[(u32, u32)]) -> Self {
        let mut ranges = ranges.iter();
        let range = ranges.find(|(first, last)| (*first..=*last).contains(&uid));
        Self::User(range.map_or(uid, |(first, _)| *first))
    }
}

/// The first and the last id of each range in /etc/subuid. Without the file, or for ids that it does
/// not name, each user is one peer.
fn subordinate_ranges() -> Vec<(u32, u32)> {
    let mut text = Vec::new();
    let file = std::fs::File::open(SUBORDINATE_FILE);
    let read = file.and_then(|file| file.take(MAX_SUBORDINATE_FILE).read_to_end(&mut text));
    match read {
        Ok(_) => parse_ranges(&String::from_utf8_lossy(&text)),
        Err(_) => Vec::new(),
    }
}

fn parse_ranges(text: &str) -> Vec<(u32, u32)> {
    parse_lines(text).map(|line| line.ids).collect()
}

/// The sockets that systemd passes, or else those of the settings.
///
/// # Errors
/// A socket cannot be used, with the reason.
pub(crate) fn listeners(settings: &Settings) -> Result<Vec<Listener>, String> {
    let mut passed = ListenFd::from_env();
    if passed.len() > 0 && !settings.is_personal {
        return (0..passed.len())
            .map(|at| take_passed(&mut passed, at, settings))
            .collect();
    }
    let mut bound = Vec::new();
    for endpoint in &settings.listen {
        match bind(endpoint) {
            Ok(listener) => bound.push(listener),
            Err(error) if is_left_out(endpoint, &error) => {
                log::warn(&format!("not listening on {endpoint}: {error}"));
            }
            Err(error) => return Err(listen_error(endpoint, &error, settings.is_personal)),
        }
    }
    match bound.is_empty() {
        true => Err("cannot listen: the host has none of the addresses of http.listen".into()),
        false => Ok(bound),
    }
}

/// Why the gateway cannot listen there, and what to do.
fn listen_error(endpoint: &Endpoint, error: &io::Error, is_personal: bool) -> String {
    let (what, remedy) = match (error.kind(), endpoint) {
        (io::ErrorKind::AddrInUse, Endpoint::Tcp(address)) => {
            let port = address.port();
            let remedy = "end that program, or choose another address with --listen or http.listen";
            (format!("another program uses port {port}"), remedy)
        }
        (io::ErrorKind::AddrInUse, Endpoint::Unix(_)) => {
            let remedy = "end that program, or choose another path with --listen or http.listen";
            ("another program uses this socket".to_owned(), remedy)
        }
        (io::ErrorKind::PermissionDenied, Endpoint::Tcp(address)) if address.port() < 1_024 => {
            let port = address.port();
            let remedy = "choose a port from 1024 on with --listen or http.listen";
            (format!("only root may use port {port}"), remedy)
        }
        _ => return format!("cannot listen on {endpoint}: {error}"),
    };
    let remedy = match is_personal {
        true => "choose another port with --port, or leave --port out for a free one",
        false => remedy,
    };
    format!("cannot listen on {endpoint}: {what}: {remedy}")
}

/// Whether the address is that of the loopback interface in IPv6, on a host without IPv6.
fn is_left_out(endpoint: &Endpoint, error: &io::Error) -> bool {
    let no_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    let is_missing =
        error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(no_family);
    let is_loopback =
        matches!(endpoint, Endpoint::Tcp(SocketAddr::V6(it)) if it.ip().is_loopback());
    is_missing && is_loopback
}

fn take_passed(passed: &mut ListenFd, at: usize, settings: &Settings) -> Result<Listener, String> {
    let failed = |error: io::Error| format!("cannot use socket {at} of systemd: {error}");
    if let Ok(Some(listener)) = passed.take_tcp_listener(at) {
        let address = listener.local_addr().map_err(failed)?;
        settings.check_exposure(address)?;
        return listener
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(listener))
            .map(Listener::Tcp)
            .map_err(failed);
    }
    let listener = passed.take_unix_listener(at).map_err(failed)?;
    let listener = listener.ok_or_else(|| format!("socket {at} of systemd was closed"))?;
    listener
        .set_nonblocking(true)
        .and_then(|()| UnixListener::from_std(listener))
        .map(Listener::Unix)
        .map_err(failed)
}

fn bind(endpoint: &Endpoint) -> io::Result<Listener> {
    match endpoint {
        Endpoint::Tcp(address) => {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener).map(Listener::Tcp)
        }
        Endpoint::Unix(path) => {
            remove_dead_socket(path)?;
            let listener = UnixListener::bind(path)?;
            // The daemon shows every user the same as the gateway does.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
            Ok(Listener::Unix(listener))
        }
    }
}

/// Removes a socket that no program listens on any more.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|it| it.file_type().is_socket());
    let refused = || {
        let error = std::os::unix::net::UnixStream::connect(path).err();
        error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    match is_socket && refused() {
        true => std::fs::remove_file(path),
        false => Ok(()),
    }
}

impl Listener {
    /// The address and the port of TCP.
    pub(crate) fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Whether other hosts may reach it.
    pub(crate) fn is_exposed(&self) -> bool {
        match self {
            Self::Tcp(_) => !self
                .socket_address()
                .is_some_and(|it| it.ip().is_loopback()),
            Self::Unix(_) => false,
        }
    }

    /// The address in words.
    fn address(&self, policy: &ListenerPolicy) -> String {
        let scheme = policy.tls.as_ref().map_or("http", |_| "https");
        match self {
            Self::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| "TCP".into(), |address| format!("{scheme}://{address}")),
            Self::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(
                    || "a Unix socket".into(),
                    |path| format!("unix:{}", path.display()),
                )
            }
        }
    }
}

/// What holds for every connection of one listener.
#[derive(Clone)]
struct ListenerPolicy {
    /// What a caller without a token may see.
    anonymous: Access,
    /// Encrypts the connections.
    tls: Option<Arc<Tls>>,
}

impl ListenerPolicy {
    /// Beyond loopback, connections are encrypted and need a token, unless a proxy does that.
    fn new(listener: &Listener, settings: &Settings, tls: Option<Arc<Tls>>) -> Self {
        let is_exposed = listener.is_exposed();
        Self {
            anonymous: match is_exposed && !settings.behind_proxy {
                true => Access::None,
                false => settings.anonymous,
            },
            tls: tls.filter(|_| is_exposed),
        }
    }
}

/// Accepts connections until `stop` is true, then lets them end.
pub(crate) async fn serve(
    listener: Listener,
    gateway: Arc<Gateway>,
    tls: Option<Arc<Tls>>,
    mut stop: watch::Receiver<bool>,
) {
    let policy = ListenerPolicy::new(&listener, &gateway.settings, tls);
    // A person gets the address with the token.
    if !gateway.settings.is_personal {
        log::info(&format!("listening on {}", listener.address(&policy)));
    }
    let mut connections = JoinSet::new();
    let ranges = subordinate_ranges();
    // A lack of descriptors lasts, and one message says it.
    let mut is_failing = false;
    loop {
        // Ended connections are forgotten.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            _ = stop.changed() => break,
            accepted = accept(&listener, &ranges) => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => {
                is_failing = false;
                accepted
            }
            Err(error) => {
                if !is_failing {
                    log::warn(&format!("cannot accept a connection: {error}"));
                }
                is_failing = true;
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = Connection::open(&gateway.slots, peer);
        let (gateway, policy, stop) = (Arc::clone(&gateway), policy.clone(), stop.clone());
        connections.spawn(run(stream, gateway, policy, connection, stop));
        // The connections that are open already come before those that wait.
        tokio::task::yield_now().await;
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
}

/// A connected stream of either kind.
trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

type BoxedStream = Box<dyn Stream + Unpin>;

async fn accept(listener: &Listener, ranges: &[(u32, u32)]) -> io::Result<(BoxedStream, Peer)> {
    let (stream, peer): (BoxedStream, Peer) = match listener {
        Listener::Tcp(listener) => {
            let (stream, address) = listener.accept().await?;
            // An event is one small packet that should not wait for the next one.
            let _ = stream.set_nodelay(true);
            (Box::new(stream), Peer::of_address(address.ip()))
        }
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            let peer = stream
                .peer_cred()
                .map_or(Peer::Unknown, |it| Peer::of_user(it.uid(), ranges));
            (Box::new(stream), peer)
        }
    };
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    Ok((Box::new(Box::pin(stream)), peer))
}

/// Makes the TLS handshake.
async fn encrypt(stream: BoxedStream, tls: &Tls) -> io::Result<BoxedStream> {
    let handshake = tls.acceptor().accept(stream);
    let stream = tokio::time::timeout(HEAD_TIMEOUT, handshake).await??;
    Ok(Box::new(stream))
}

/// Serves one connection to its end.
async fn run(
    mut stream: BoxedStream,
    gateway: Arc<Gateway>,
    policy: ListenerPolicy,
    connection: Arc<Connection>,
    mut stop: watch::Receiver<bool>,
) {
    if let Some(tls) = &policy.tls {
        stream = tokio::select! {
            encrypted = encrypt(stream, tls) => match encrypted {
                Ok(encrypted) => encrypted,
                // As below, it is no message.
                Err(_) => return,
            },
            () = connection.closed() => return,
            _ = stop.changed() => return,
        };
    }
    let anonymous = policy.anonymous;
    tokio::select! {
        () = answer_requests(stream, gateway, anonymous, Arc::clone(&connection), stop) => {}
        () = connection.closed() => {}
    }
}

/// Answers the requests of a connection until it ends or the gateway stops.
async fn answer_requests(
    stream: BoxedStream,
    gateway: Arc<Gateway>,
    anonymous: Access,
    own: Arc<Connection>,
    mut stop: watch::Receiver<bool>,
) {
    let after = AfterUpgrade::default();
    let in_request = after.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let extensions = request.extensions_mut();
        extensions.insert(in_request.clone());
        extensions.insert(Arc::clone(&own));
        let gateway = Arc::clone(&gateway);
        async move { Ok::<_, Infallible>(gateway.respond(request, anonymous).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD);
    let connection = builder
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    // An error is the end of this connection alone, and clients cause it at will: it is no message.
    let is_over = tokio::select! {
        _ = connection.as_mut() => true,
        _ = stop.changed() => false,
    };
    if !is_over {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
    // It ends by itself when the gateway stops.
    if let Some(upgraded) = after.take() {
        upgraded.await;
    }
}

/// All connections: new ones, and those of callers, in all and of each peer.
pub(crate) struct ConnectionSlots {
    max: usize,
    max_per_peer: usize,
    open: Mutex<OpenConnections>,
    /// The connections that were one too many, and those that were closed for others.
    refused: AtomicU64,
}

#[derive(Default)]
struct OpenConnections {
    /// In the order in which they began.
    all: BTreeMap<u64, OpenConnection>,
    next: u64,
}

struct OpenConnection {
    peer: Peer,
    is_new: bool,
    /// The requests that are not answered to their end, and the streams.
    requests: usize,
    closing: Arc<Notify>,
}

/// A connection that is counted until this is dropped. Its requests have it.
pub(crate) struct Connection {
    slots: Arc<ConnectionSlots>,
    number: u64,
    peer: Peer,
    closing: Arc<Notify>,
}

/// A request that is not answered to its end, or a stream: its connection is not idle until this is
/// dropped.
pub(crate) struct Busy(Arc<Connection>);

impl Busy {
    pub(crate) fn new(connection: &Arc<Connection>) -> Self {
        connection.change_requests(|count| count.saturating_add(1));
        Self(Arc::clone(connection))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change_requests(|count| count.saturating_sub(1));
    }
}

impl ConnectionSlots {
    /// Slots for the connections that the settings allow.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            max: settings.max_connections,
            max_per_peer: settings.max_peer_connections,
            open: Mutex::default(),
            refused: AtomicU64::default(),
        }
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.lock().all.len()
    }

    /// The number of connections that were one too many, or closed for others, since the start.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Closes a new connection if there are too many: the oldest of the peer that has the most.
    /// Returns whether there were.
    fn make_room(&mut self) -> bool {
        let of_peers = self.count_by_peer(true);
        if of_peers.values().sum::<usize>() <= MAX_NEW_CONNECTIONS {
            return false;
        }
        let most = of_peers.values().max();
        let mut all = self.all.iter();
        let oldest = all.find(|(_, it)| it.is_new && of_peers.get(&it.peer) == most);
        let oldest = oldest.map(|(number, _)| *number);
        self.remove(oldest);
        true
    }

    /// The connections of each peer: the new ones, or those of callers.
    fn count_by_peer(&self, are_new: bool) -> BTreeMap<Peer, usize> {
        let mut of_peers: BTreeMap<Peer, usize> = BTreeMap::new();
        for connection in self.all.values().filter(|it| it.is_new == are_new) {
            *of_peers.entry(connection.peer).or_default() += 1;
        }
        of_peers
    }

    /// Closes a connection of the caller that has the most, for one that has fewer: an idle one if there
    /// is one, else the oldest. Returns whether it did. The other keeps no fewer than the one gets.
    fn take_place(&mut self, of_peers: &BTreeMap<Peer, usize>, own: usize) -> bool {
        let most = of_peers.values().max().copied().unwrap_or_default();
        if most < own + 2 {
            return false;
        }
        let all = self.all.iter();
        let of_largest = all.filter(|(_, it)| !it.is_new && of_peers.get(&it.peer) == Some(&most));
        let first = of_largest.min_by_key(|(number, it)| (it.requests > 0, **number));
        let first = first.map(|(number, _)| *number);
        self.remove(first)
    }

    /// Closes a connection, and returns whether there was one.
    fn remove(&mut self, number: Option<u64>) -> bool {
        let closed = number.and_then(|number| self.all.remove(&number));
        if let Some(closed) = &closed {
            closed.closing.notify_one();
        }
        closed.is_some()
    }
}

impl Connection {
    /// Counts a new connection of this peer, and closes another if there are too many.
    pub(crate) fn open(slots: &Arc<ConnectionSlots>, peer: Peer) -> Arc<Self> {
        let closing = Arc::new(Notify::new());
        let mut open = slots.lock();
        let number = open.next;
        open.next += 1;
        let opened = OpenConnection {
            peer,
            is_new: true,
            requests: 0,
            closing: Arc::clone(&closing),
        };
        open.all.insert(number, opened);
        let has_closed = open.make_room();
        drop(open);
        if has_closed {
            slots.count_refused();
        }
        Arc::new(Self {
            slots: Arc::clone(slots),
            number,
            peer,
            closing,
        })
    }

    /// The other side.
    pub(crate) const fn peer(&self) -> Peer {
        self.peer
    }

    /// Counts the connection as one of a caller, because it has sent a request that the caller may
    /// make.
    ///
    /// # Errors
    /// There are too many connections of callers, in all or of this peer.
    pub(crate) fn admit(&self) -> Result<(), Problem> {
        let mut open = self.slots.lock();
        let is_new = open.all.get(&self.number).map(|own| own.is_new);
        if is_new == Some(false) {
            return Ok(());
        }
        let of_peers = open.count_by_peer(false);
        let of_peer = of_peers.get(&self.peer).copied().unwrap_or_default();
        let is_full = of_peers.values().sum::<usize>() >= self.slots.max;
        // Without an entry it has been closed.
        let mut has_room = is_new.is_some() && of_peer < self.slots.max_per_peer;
        if has_room && is_full {
            has_room = open.take_place(&of_peers, of_peer);
            if has_room {
                self.slots.count_refused();
            }
        }
        match open.all.get_mut(&self.number).filter(|_| has_room) {
            Some(own) => {
                own.is_new = false;
                Ok(())
            }
            None => {
                self.slots.count_refused();
                Err(Problem::busy("the gateway has too many connections", 5))
            }
        }
    }

    fn change_requests(&self, change: fn(usize) -> usize) {
        let mut open = self.slots.lock();
        if let Some(own) = open.all.get_mut(&self.number) {
            own.requests = change(own.requests);
        }
    }

    /// Ends the connection at once, for others.
    pub(crate) fn close(&self) {
        self.slots.count_refused();
        self.closing.notify_one();
    }

    /// Waits until the connection has to end.
    pub(crate) async fn closed(&self) {
        self.closing.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.slots.lock().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn loopback_addresses_are_one_peer() {
        let of = |text: &str| Peer::of_address(text.parse().unwrap());
        for loopback in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(of(loopback), of("127.0.0.1"), "{loopback}");
        }
    }

    #[test]
    fn addresses_of_a_network_of_64_bits_are_one_peer() {
        let of = |text: &str| Peer::of_address(text.parse().unwrap());
        for (one, other, is_same) in [
            ("2001:db8::1", "2001:db8::ffff:1:2:3", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
            ("2001:db8::1", "2001:db8::192.0.2.1", true),
            ("fe80::1", "2001:db8::1", false),
            ("::2", "::1", false),
            ("192.0.2.1", "192.0.2.2", false),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false),
            ("192.0.2.1", "127.0.0.1", false),
        ] {
            assert_eq!(of(one) == of(other), is_same, "{one} {other}");
        }
    }

    #[test]
    fn address_that_the_host_lacks_is_left_out_only_for_loopback() {
        let missing = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let in_use = io::Error::from(io::ErrorKind::AddrInUse);
        let tcp = |text: &str| Endpoint::Tcp(text.parse().unwrap());
        assert!(is_left_out(&tcp("[::1]:80"), &missing));
        assert!(!is_left_out(&tcp("[::1]:80"), &in_use));
        assert!(!is_left_out(&tcp("[2001:db8::1]:80"), &missing));
        assert!(!is_left_out(&tcp("192.0.2.1:80"), &missing));
    }

    #[test]
    fn address_in_use_is_explained() {
        let in_use = io::Error::from(io::ErrorKind::AddrInUse);
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let tcp = Endpoint::Tcp("127.0.0.1:80".parse().unwrap());
        let unix = Endpoint::Unix("/run/x.sock".into());
        let start = "cannot listen on http://127.0.0.1:80: ";
        for (endpoint, error, is_personal, expected) in [
            (
                &tcp,
                &in_use,
                true,
                "another program uses port 80: choose another port with --port, or leave --port out \
                 for a free one",
            ),
            (
                &tcp,
                &in_use,
                false,
                "another program uses port 80: end that program, or choose another address with \
                 --listen or http.listen",
            ),
            (
                &tcp,
                &denied,
                true,
                "only root may use port 80: choose another port with --port, or leave --port out for \
                 a free one",
            ),
        ] {
            let why = listen_error(endpoint, error, is_personal);
            assert_eq!(why, format!("{start}{expected}"));
        }
        let why = listen_error(&unix, &in_use, false);
        let expected = "cannot listen on unix:/run/x.sock: another program uses this socket: end \
                        that program, or choose another path with --listen or http.listen";
        assert_eq!(why, expected);
    }

    fn slots(max: usize, max_per_peer: usize) -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots::new(&Settings {
            max_connections: max,
            max_peer_connections: max_per_peer,
            ..Settings::default()
        }))
    }

    /// Whether the connection was asked to end.
    fn is_closed(connection: &Connection) -> bool {
        connection.closed().now_or_never().is_some()
    }

    #[test]
    fn callers_are_limited_in_all_and_for_each_peer() {
        let slots = slots(3, 2);
        let open = |uid| Connection::open(&slots, Peer::User(uid));
        let admit = |uid| {
            let connection = open(uid);
            connection.admit().is_ok().then_some(connection)
        };
        let (first, second) = (admit(1), admit(1));
        assert!(first.is_some() && second.is_some() && admit(1).is_none());
        let third = admit(2);
        assert!(third.is_some() && admit(2).is_none());
        // The next request of a caller takes no further place.
        assert!(third.as_ref().is_some_and(|it| it.admit().is_ok()));
        assert_eq!(slots.refused(), 2);
        drop(first);
        let fourth = admit(3);
        assert!(fourth.is_some());
        assert_eq!(slots.count(), 3);
        drop((second, third, fourth));
        assert_eq!(slots.count(), 0);
    }

    #[test]
    fn caller_takes_a_place_of_the_one_with_the_most() {
        let slots = slots(4, 3);
        let admit = |uid| {
            let connection = Connection::open(&slots, Peer::User(uid));
            connection.admit().is_ok().then_some(connection)
        };
        let large: Vec<_> = (0..3).filter_map(|_| admit(1)).collect();
        let _second = admit(2).unwrap();
        // The oldest has a request.
        let busy = Busy::new(&large[0]);
        let _third = admit(3).unwrap();
        let closed = large.iter().map(|it| is_closed(it)).collect::<Vec<_>>();
        assert_eq!(closed, [false, true, false]);
        // One that is closed comes not back, and takes nothing from others.
        assert!(large[1].admit().is_err());
        let _fourth = admit(4).unwrap();
        assert!(is_closed(&large[2]) && !is_closed(&large[0]));
        // All have one, and nobody is left with none.
        assert!(admit(5).is_none() && admit(1).is_none());
        drop(busy);
        assert!(large[0].admit().is_ok());
    }

    #[test]
    fn streams_make_room_where_nothing_is_idle() {
        let slots = slots(2, 2);
        let open = |uid| Connection::open(&slots, Peer::User(uid));
        let large = [open(1), open(1)];
        let _busy = large.each_ref().map(|it| {
            assert!(it.admit().is_ok());
            Busy::new(it)
        });
        assert!(open(2).admit().is_ok());
        assert!(is_closed(&large[0]) && !is_closed(&large[1]));
    }

    #[test]
    fn ids_of_a_range_are_one_peer() {
        let ranges = parse_ranges("ada:100000:65536\nbroken\ngrace:165536:65536\n");
        let of = |uid| Peer::of_user(uid, &ranges);
        for (one, other, is_same) in [
            (100_000, 165_535, true),
            (165_535, 165_536, false),
            (165_536, 231_071, true),
            (231_071, 231_072, false),
            (1_000, 1_001, false),
            (0, 100_000, false),
        ] {
            assert_eq!(of(one) == of(other), is_same, "{one} {other}");
        }
    }

    #[test]
    fn new_connections_never_take_the_place_of_callers() {
        let slots = slots(10, 10);
        let owner = Connection::open(&slots, Peer::User(1));
        assert!(owner.admit().is_ok());
        let silent: Vec<_> = (0..1_000)
            .map(|_| Connection::open(&slots, Peer::User(1)))
            .collect();
        assert!(!is_closed(&owner));
        assert_eq!(slots.count(), 1 + MAX_NEW_CONNECTIONS);
        // The oldest made room.
        let closed = silent.iter().filter(|it| is_closed(it)).count();
        assert_eq!(closed, 1_000 - MAX_NEW_CONNECTIONS);
        assert!(silent[0].admit().is_err() && silent[999].admit().is_ok());
        let another = Connection::open(&slots, Peer::User(1));
        assert!(another.admit().is_ok());
        assert!(owner.admit().is_ok());
    }

    #[test]
    fn peer_with_the_most_new_connections_makes_room() {
        let slots = slots(10, 10);
        let honest = Connection::open(&slots, Peer::User(2));
        let _flood: Vec<_> = (0..1_000)
            .map(|_| Connection::open(&slots, Peer::User(1)))
            .collect();
        assert!(!is_closed(&honest));
        assert!(honest.admit().is_ok());
        // Many peers with one connection each are as one: the oldest makes room.
        let first = Connection::open(&slots, Peer::User(3));
        let _peers: Vec<_> = (100..1_100)
            .map(|uid| Connection::open(&slots, Peer::User(uid)))
            .collect();
        assert!(is_closed(&first));
        assert!(!is_closed(&honest));
    }
}
