//! The listening sockets and the connections: how many at once, how slow, and how they end.

use crate::access::Access;
use crate::gateway::Gateway;
use crate::log;
use crate::problem::Problem;
use crate::request_check::protect;
use crate::settings::{Endpoint, Settings};
use crate::tls::Tls;
use crate::websocket::AfterUpgrade;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use listenfd::ListenFd;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;

/// How long the head of a request may take, a TLS handshake, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take to read a part of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 32 << 10;

/// How long connections may take to end when the gateway stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be accepted, as for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    /// A user of this host, over the Unix socket.
    User(u32),
    /// A user that the kernel does not name.
    Unknown,
}

impl Peer {
    /// The client at this address. A user of the host can call from any loopback address: they all
    /// are one peer.
    fn of_address(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::Address(match address.is_loopback() {
            true => Ipv4Addr::LOCALHOST.into(),
            false => address,
        })
    }
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
            Err(error) => return Err(format!("cannot listen on {endpoint}: {error}")),
        }
    }
    match bound.is_empty() {
        true => Err("cannot listen: the host has none of the addresses of http.listen".into()),
        false => Ok(bound),
    }
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
    // A lack of descriptors lasts, and one message says it.
    let mut is_failing = false;
    loop {
        // Ended connections are forgotten.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            _ = stop.changed() => break,
            accepted = accept(&listener) => accepted,
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
        match ConnectionSlots::take(&gateway.slots, peer) {
            Some(slot) => {
                let (gateway, policy) = (Arc::clone(&gateway), policy.clone());
                let stop = stop.clone();
                connections.spawn(async move {
                    let _slot = slot;
                    run(stream, gateway, policy, stop).await;
                });
            }
            None => {
                gateway.count_refused_connection();
                // Before a handshake, an answer would be no TLS.
                if policy.tls.is_none() {
                    refuse(stream).await;
                }
            }
        }
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
}

/// A connected stream of either kind.
trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

type BoxedStream = Box<dyn Stream + Unpin>;

async fn accept(listener: &Listener) -> io::Result<(BoxedStream, Peer)> {
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
                .map_or(Peer::Unknown, |it| Peer::User(it.uid()));
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
    mut stop: watch::Receiver<bool>,
) {
    if let Some(tls) = &policy.tls {
        stream = tokio::select! {
            encrypted = encrypt(stream, tls) => match encrypted {
                Ok(encrypted) => encrypted,
                // As below, it is no message.
                Err(_) => return,
            },
            _ = stop.changed() => return,
        };
    }
    let anonymous = policy.anonymous;
    let after = AfterUpgrade::default();
    let in_request = after.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(in_request.clone());
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

/// Answers a connection that is one too many, as far as its buffer takes it at once.
async fn refuse(mut stream: BoxedStream) {
    let answer = refusal();
    let sent = async {
        stream.write_all(&answer).await?;
        stream.shutdown().await
    };
    // The buffer of a new connection has room: this waits for nobody.
    let _ = tokio::time::timeout(Duration::from_millis(50), sent).await;
}

/// The answer to a connection that is one too many, with the headers of every answer.
fn refusal() -> Vec<u8> {
    let problem = Problem::busy("the gateway has too many connections", 5);
    let body = problem.body();
    let mut response = problem.into_response();
    protect(response.headers_mut());
    let mut answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    )
    .into_bytes();
    for (name, value) in response.headers() {
        let line: [&[u8]; 4] = [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"];
        answer.extend(line.concat());
    }
    answer.extend_from_slice(b"\r\n");
    answer.extend(body);
    answer
}

/// Counts the connections, in all and of each peer.
pub(crate) struct ConnectionSlots {
    max: usize,
    max_per_peer: usize,
    taken: Mutex<BTreeMap<Peer, usize>>,
}

/// A connection that is counted until this is dropped.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    peer: Peer,
}

impl ConnectionSlots {
    /// Slots for the connections that the settings allow.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            max: settings.max_connections,
            max_per_peer: settings.max_peer_connections,
            taken: Mutex::default(),
        }
    }

    /// A slot for another connection of this peer, if one is free.
    fn take(slots: &Arc<Self>, peer: Peer) -> Option<ConnectionSlot> {
        let mut taken = slots.lock();
        let of_peer = taken.get(&peer).copied().unwrap_or_default();
        let all: usize = taken.values().sum();
        if all >= slots.max || of_peer >= slots.max_per_peer {
            return None;
        }
        taken.insert(peer, of_peer + 1);
        drop(taken);
        Some(ConnectionSlot {
            slots: Arc::clone(slots),
            peer,
        })
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Peer, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        match taken.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => {
                taken.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_one_peer() {
        let of = |text: &str| Peer::of_address(text.parse().unwrap());
        for loopback in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(of(loopback), of("127.0.0.1"), "{loopback}");
        }
        assert_ne!(of("192.0.2.1"), of("127.0.0.1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
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
    fn refused_connection_gets_a_protected_answer() {
        let answer = String::from_utf8(refusal()).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        for line in [
            "connection: close".to_owned(),
            format!("content-length: {}", body.len()),
            "content-type: application/problem+json".to_owned(),
            "retry-after: 5".to_owned(),
            "cache-control: no-store".to_owned(),
            "x-content-type-options: nosniff".to_owned(),
        ] {
            assert!(head.lines().any(|it| it == line), "{line}\n{head}");
        }
        assert!(body.contains("too many connections"));
    }

    #[test]
    fn slots_are_limited_in_all_and_for_each_peer() {
        let settings = Settings {
            max_connections: 3,
            max_peer_connections: 2,
            ..Settings::default()
        };
        let slots = Arc::new(ConnectionSlots::new(&settings));
        let take = |uid| ConnectionSlots::take(&slots, Peer::User(uid));
        let (first, second) = (take(1), take(1));
        assert!(first.is_some() && second.is_some() && take(1).is_none());
        let third = take(2);
        assert!(third.is_some() && take(3).is_none());
        drop(first);
        assert!(take(3).is_some());
        assert_eq!(slots.count(), 2);
        drop((second, third));
        assert_eq!(slots.count(), 0);
        assert!(slots.lock().is_empty());
    }
}
