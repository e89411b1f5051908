//! The settings of the gateway: one table of keys, with values from defaults, file, environment and
//! command line, in this order. All mistakes are reported at once.

mod url;

pub use url::HttpUrl;

use crate::access::Access;
use crate::args::{Args, Command};
use crate::trusted_file::{Secrecy, read_text};
use gpukill_proto::setting_keys;
use gpukill_proto::settings::value::{boolean, choice_error, duration, number, text};
use gpukill_proto::settings::{SettingMistake, apply_environment, apply_file, defaults};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that is read if it exists and no other is named.
const USUAL_FILE: &str = "/etc/gpukill/gateway.toml";

/// All settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The addresses to listen on. Sockets that systemd passes take their place.
    pub listen: Vec<Endpoint>,
    /// Names besides those of the loopback interface that requests may give as the host.
    pub names: Vec<String>,
    /// Whether a proxy in front of the gateway encrypts and decides who may read.
    pub behind_proxy: bool,
    /// Whether it is the gateway of one person, which acts with their rights.
    pub is_personal: bool,
    /// What a caller without a token may see.
    pub anonymous: Access,
    /// The file of the tokens.
    pub tokens: PathBuf,
    /// The file of the certificate, or of a chain of them. With [`Self::key`] or not at all.
    pub certificate: Option<PathBuf>,
    /// The file of its private key.
    pub key: Option<PathBuf>,
    /// The most connections of callers at once.
    pub max_connections: usize,
    /// The most connections of one peer: an IPv4 address, an IPv6 network, or a user of the Unix
    /// socket.
    pub max_peer_connections: usize,
    /// The most live streams at once.
    pub max_streams: usize,
    /// The socket of the daemon.
    pub daemon_socket: PathBuf,
    /// Whether `/metrics` has series for each process.
    pub process_metrics: bool,
    /// Whether `/metrics` has series for each job of a batch scheduler.
    pub job_metrics: bool,
    /// The server that gpukill-notify pushes metrics to.
    pub otlp_endpoint: Option<HttpUrl>,
    /// The file with the headers of these pushes: a path, or the name of a credential of systemd.
    pub otlp_headers_file: Option<String>,
    /// The time from one push to the next.
    pub otlp_interval: Duration,
    /// Attributes of the box beside those that gpukill-notify knows: names and values.
    pub otlp_attributes: Vec<(String, String)>,
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Endpoint {
    /// Parses `127.0.0.1:9836`, `[::1]:9836` or `unix:/run/gateway.sock`.
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match Path::new(path) {
                path if path.is_absolute() => Ok(Self::Unix(path.to_owned())),
                _ => Err(format!("{text:?} is not an absolute path after unix:")),
            };
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!(
                "{text:?} is not an address like \"127.0.0.1:9836\" or \"unix:/run/gateway.sock\""
            )
        })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

setting_keys! {
    /// Every key.
    pub const KEYS: Settings;

    ["http"]
    listen GPUKILL_GATEWAY_LISTEN = "[\"127.0.0.1:9836\", \"[::1]:9836\", \"unix:/run/gpukill-gateway.sock\"]",
        "Addresses to listen on. Where systemd passes sockets, as gpukill-gateway.socket\n\
         does, they are used instead. An address other than loopback needs [tls] and a\n\
         token for each request, or behind_proxy. [::1] is left out on a host without IPv6.",
        |settings, value| {
            let all = texts(value)?;
            settings.listen = all
                .iter()
                .map(|it| Endpoint::parse(it))
                .collect::<Result<_, _>>()?;
            match settings.listen.is_empty() {
                true => Err("names no address".into()),
                false => Ok(()),
            }
        };
    names GPUKILL_GATEWAY_NAMES = "[]",
        "Host names besides localhost, 127.0.0.1 and [::1] under which clients may call the\n\
         gateway. Requests for other names are refused, because a web page could have made\n\
         such a name point here.",
        |settings, value| {
            settings.names = texts(value)?
                .iter()
                .map(|it| it.to_ascii_lowercase())
                .collect();
            match settings.names.iter().find(|name| !is_host_name(name)) {
                Some(name) => Err(format!("{name:?} is not a host name without a port")),
                None => Ok(()),
            }
        };
    behind_proxy GPUKILL_GATEWAY_BEHIND_PROXY = "false",
        "Set to true to listen on addresses other than loopback without TLS and tokens: a\n\
         proxy in front of the gateway encrypts and asks who calls.",
        |settings, value| boolean(value).map(|it| settings.behind_proxy = it);
    max_connections GPUKILL_GATEWAY_MAX_CONNECTIONS = "256",
        "The most connections of callers at once. A request on a further one is answered with\n\
         503. A connection counts from its first request that the caller may make. Before\n\
         that it is new: there are at most 128 new ones, and the oldest make room.",
        |settings, value| count(value).map(|it| settings.max_connections = it);
    max_peer_connections GPUKILL_GATEWAY_MAX_PEER_CONNECTIONS = "32",
        "The most of them of one peer: of an IPv4 address, of an IPv6 network of 64 bits, or of\n\
         a user of the Unix socket. All loopback addresses are one. Raise it where many people\n\
         come through one address, as through SSH tunnels.",
        |settings, value| count(value).map(|it| settings.max_peer_connections = it);
    max_streams GPUKILL_GATEWAY_MAX_STREAMS = "256",
        "The most live streams at once. Further ones are answered with 503.",
        |settings, value| count(value).map(|it| settings.max_streams = it);

    ["access"]
    anonymous GPUKILL_GATEWAY_ANONYMOUS = "\"look\"",
        "What a caller without a token may see. \"look\": everything. \"numbers\": the readings\n\
         of GPUs, and metrics without names of people and processes. \"none\": whether the\n\
         gateway runs.",
        |settings, value| {
            const LEVELS: [Access; 3] = [Access::Look, Access::Numbers, Access::None];
            let name = text(value)?;
            let found = LEVELS.into_iter().find(|level| level.name() == name);
            let level = found.ok_or_else(|| choice_error(value, &LEVELS.map(Access::name)))?;
            settings.anonymous = level;
            Ok(())
        };
    tokens GPUKILL_GATEWAY_TOKENS = "\"/etc/gpukill/tokens.toml\"",
        "The tokens that callers may send, if this file exists. It is read again when it\n\
         changes. gpukill-gateway token new NAME makes one.",
        |settings, value| text(value).map(|it| settings.tokens = it.into());

    ["tls"]
    certificate GPUKILL_GATEWAY_TLS_CERTIFICATE = "",
        "The file of the certificate in PEM, with those between it and the authority. Addresses\n\
         other than loopback use it. It is read again when it changes.",
        |settings, value| text(value).map(|it| settings.certificate = Some(it.into()));
    key GPUKILL_GATEWAY_TLS_KEY = "",
        "The file of its private key in PEM, that not every user may read.",
        |settings, value| text(value).map(|it| settings.key = Some(it.into()));

    ["daemon"]
    socket GPUKILL_GATEWAY_DAEMON_SOCKET = "\"/run/gpukill/gpukilld.sock\"",
        "The socket of gpukilld.",
        |settings, value| text(value).map(|it| settings.daemon_socket = it.into());

    ["metrics"]
    processes GPUKILL_GATEWAY_METRICS_PROCESSES = "false",
        "Whether /metrics has series for each process, at most 256. Each process that comes\n\
         and goes leaves series in the memory of a Prometheus server.",
        |settings, value| boolean(value).map(|it| settings.process_metrics = it);
    jobs GPUKILL_GATEWAY_METRICS_JOBS = "false",
        "Whether /metrics has series for each job of Slurm, PBS, LSF or HTCondor on a GPU, at\n\
         most 256.",
        |settings, value| boolean(value).map(|it| settings.job_metrics = it);

    ["otlp"]
    endpoint GPUKILL_GATEWAY_OTLP_ENDPOINT = "",
        "The server to which gpukill-notify.service pushes the metrics by OTLP over HTTP, for\n\
         example \"http://127.0.0.1:4318\" or \"https://otel.example.org\". The path\n\
         /v1/metrics is added.",
        |settings, value| {
            let url = HttpUrl::parse(&text(value)?)?;
            if url.path().ends_with(METRICS_PATH) {
                return Err(format!(
                    "ends with {METRICS_PATH}, which is added: leave it out"
                ));
            }
            settings.otlp_endpoint = Some(url);
            Ok(())
        };
    headers_file GPUKILL_GATEWAY_OTLP_HEADERS_FILE = "",
        "A file with headers of each push, one \"Name: value\" a line. It belongs to root or to\n\
         the user of the unit, only its owner may write it, and not every user may read it. A\n\
         name without a slash is that of a credential of systemd: \"otlp-headers\".",
        |settings, value| text(value).map(|it| settings.otlp_headers_file = Some(it));
    interval GPUKILL_GATEWAY_OTLP_INTERVAL = "\"15s\"",
        "The time from one push to the next.",
        |settings, value| {
            let (min, max) = (Duration::from_secs(1), Duration::from_secs(3_600));
            duration(value, min, max).map(|it| settings.otlp_interval = it)
        };
    attributes GPUKILL_GATEWAY_OTLP_ATTRIBUTES = "[]",
        "Resource attributes beside host.name, service.name, service.version and\n\
         service.instance.id, or in place of them: \"deployment.environment.name=lab\".",
        |settings, value| {
            let all = texts(value)?;
            settings.otlp_attributes = all
                .iter()
                .map(|it| parse_attribute(it))
                .collect::<Result<_, _>>()?;
            Ok(())
        };
}

/// The path of metrics below that of an OTLP server.
pub(crate) const METRICS_PATH: &str = "/v1/metrics";

/// Parses `name=value`.
fn parse_attribute(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        !name.is_empty() && name.chars().all(is_allowed)
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not an attribute like \"name=value\"")),
    }
}

fn texts(value: &toml::Value) -> Result<Vec<String>, String> {
    let all = value.as_array().ok_or("is not a list of texts")?;
    all.iter().map(text).collect()
}

fn count(value: &toml::Value) -> Result<usize, String> {
    number(value, 1, 65_536).map(|it| usize::try_from(it).unwrap_or(usize::MAX))
}

/// Whether a client can name this host: a name, an IPv4 address, or an IPv6 address in brackets.
fn is_host_name(name: &str) -> bool {
    let in_brackets = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    if let Some(address) = in_brackets {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    !name.is_empty() && name.len() <= 253 && name.chars().all(is_allowed)
}

impl Settings {
    /// The settings of the gateway of one person: no file, one port of the loopback interface, and
    /// nothing without the token.
    #[must_use]
    pub fn personal(args: &Args) -> Self {
        // The tests show that the defaults have no mistakes.
        let (settings, _) = defaults(KEYS);
        let socket = args.socket.clone();
        let port = args.port.unwrap_or_default();
        Self {
            is_personal: true,
            anonymous: Access::None,
            listen: vec![Endpoint::Tcp((Ipv4Addr::LOCALHOST, port).into())],
            daemon_socket: socket.unwrap_or(settings.daemon_socket),
            ..settings
        }
    }

    /// Loads the settings of this run.
    ///
    /// # Errors
    /// All mistakes, or why the file cannot be read: one line each.
    pub fn load(args: &Args) -> Result<Self, String> {
        let named = args.config.as_deref();
        let path = named.unwrap_or(Path::new(USUAL_FILE));
        let file = match read_text(path, Secrecy::Public) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {
                String::new()
            }
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        // Only variables of the gateway's own keys: systemd and shells set others.
        let variables = KEYS.iter().filter_map(|key| {
            let value = std::env::var(key.variable).ok()?;
            (!value.is_empty()).then(|| (key.variable.to_owned(), value))
        });
        Self::resolve(&file, variables, args).map_err(|mistakes| {
            let lines = mistakes.iter().map(|mistake| match mistake.line {
                Some(_) => format!("{}, {mistake}", path.display()),
                None => mistake.to_string(),
            });
            lines.collect::<Vec<_>>().join("\n")
        })
    }

    fn resolve(
        file: &str,
        variables: impl IntoIterator<Item = (String, String)>,
        args: &Args,
    ) -> Result<Self, Vec<SettingMistake>> {
        let (mut settings, mut mistakes) = defaults(KEYS);
        mistakes.extend(apply_file(KEYS, file, &mut settings));
        mistakes.extend(apply_environment(KEYS, None, variables, &mut settings));
        let mut add = |what| mistakes.push(SettingMistake { line: None, what });
        if !args.listen.is_empty() {
            let typed = args.listen.iter().map(|it| Endpoint::parse(it));
            match typed.collect() {
                Ok(listen) => settings.listen = listen,
                Err(what) => add(format!("--listen: {what}")),
            }
        }
        if let Some(socket) = &args.socket {
            settings.daemon_socket.clone_from(socket);
        }
        if settings.certificate.is_some() != settings.key.is_some() {
            add("tls.certificate and tls.key belong together: set both or none".into());
        }
        for endpoint in &settings.listen {
            if let Endpoint::Tcp(address) = endpoint
                && let Err(what) = settings.check_exposure(*address)
            {
                add(what);
            }
        }
        if matches!(args.command, Some(Command::Notify)) && settings.otlp_endpoint.is_none() {
            add("otlp.endpoint: is not set, so that there is nothing to push".into());
        }
        match mistakes.is_empty() {
            true => Ok(settings),
            false => Err(mistakes),
        }
    }

    /// Refuses an address at which other hosts can read, without TLS and without a proxy.
    ///
    /// # Errors
    /// What to set.
    pub fn check_exposure(&self, address: SocketAddr) -> Result<(), String> {
        if self.behind_proxy || self.certificate.is_some() || address.ip().is_loopback() {
            return Ok(());
        }
        Err(format!(
            "http.listen: everybody in the network could read at {address}: listen on 127.0.0.1, \
             set certificate and key in [tls], or set behind_proxy = true if a proxy encrypts and \
             decides who may read"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    fn resolve(file: &str, words: &[&str]) -> Result<Settings, Vec<String>> {
        let words = ["gpukill-gateway"].iter().chain(words);
        let args = Args::try_parse_from(words).unwrap();
        let resolved = Settings::resolve(file, [], &args);
        resolved.map_err(|all| all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_default_is_accepted() {
        let settings = resolve("", &[]).unwrap();
        let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
        assert_eq!(
            listen,
            [
                "http://127.0.0.1:9836",
                "http://[::1]:9836",
                "unix:/run/gpukill-gateway.sock"
            ]
        );
        assert_eq!(
            (settings.max_connections, settings.max_peer_connections),
            (256, 32)
        );
        assert!(!settings.behind_proxy && !settings.process_metrics && !settings.job_metrics);
        assert_eq!(settings.otlp_endpoint, None);
        assert_eq!(settings.otlp_interval, Duration::from_secs(15));
    }

    #[test]
    fn notify_needs_a_server_and_listens_nowhere() {
        let missing = resolve("", &["notify"]).unwrap_err();
        assert_eq!(
            missing,
            ["otlp.endpoint: is not set, so that there is nothing to push"]
        );
        let file =
            "[otlp]\nendpoint = \"https://otel.example.org/otlp\"\nattributes = [\"a.b=c=d\"]\n";
        let settings = resolve(file, &["notify", "--socket", "/run/x.sock"]).unwrap();
        let endpoint = settings.otlp_endpoint.map(|it| it.to_string());
        assert_eq!(endpoint.as_deref(), Some("https://otel.example.org/otlp"));
        assert_eq!(
            settings.otlp_attributes,
            [("a.b".to_owned(), "c=d".to_owned())]
        );
        assert_eq!(settings.daemon_socket, Path::new("/run/x.sock"));
        let listens = ["gpukill-gateway", "notify", "--listen", "127.0.0.1:0"];
        assert!(Args::try_parse_from(listens).is_err());
    }

    #[test]
    fn mistakes_in_pushes_are_reported_without_secrets() {
        let file = "[otlp]\nendpoint = \"https://alice:secret@box\"\ninterval = \"1ms\"\n\
                    attributes = [\"=x\"]\nheaders = \"x\"\n";
        let mistakes = resolve(file, &[]).unwrap_err();
        assert!(!mistakes.concat().contains("alice"), "{mistakes:?}");
        assert_eq!(mistakes.len(), 4, "{mistakes:?}");
        assert!(mistakes[1].contains("\"1s\" to \"1h\""), "{mistakes:?}");
        assert!(mistakes[2].contains("is not an attribute"), "{mistakes:?}");
        assert!(mistakes[3].contains("otlp.headers"), "{mistakes:?}");
        let twice = resolve("[otlp]\nendpoint = \"http://box/v1/metrics\"\n", &[]);
        assert!(twice.unwrap_err()[0].contains("leave it out"));
    }

    #[test]
    fn personal_gateway_has_one_port_and_no_anonymous_callers() {
        let words = [
            "gpukill-gateway",
            "--personal",
            "--port",
            "7",
            "--socket",
            "/s",
        ];
        let settings = Settings::personal(&Args::try_parse_from(words).unwrap());
        assert!(settings.is_personal);
        assert_eq!(settings.anonymous, Access::None);
        assert_eq!(settings.listen, [Endpoint::parse("127.0.0.1:7").unwrap()]);
        assert_eq!(settings.daemon_socket, Path::new("/s"));
        for words in [
            &["--port", "7"][..],
            &["--open"],
            &["--personal", "--listen", "127.0.0.1:7"],
            &["--personal", "--config", "/c"],
        ] {
            let words = ["gpukill-gateway"].iter().chain(words);
            assert!(Args::try_parse_from(words).is_err());
        }
    }

    #[test]
    fn names_that_no_request_can_have_are_refused() {
        for name in ["gpu.example.org", "box", "192.0.2.7", "[2001:db8::7]"] {
            assert!(is_host_name(name), "{name}");
        }
        for name in [
            "",
            "box:80",
            "[::1]:80",
            "[::1",
            "::1",
            "[box]",
            "b]x",
            "http://box",
            "*.example.org",
        ] {
            assert!(!is_host_name(name), "{name}");
        }
    }

    #[test]
    fn file_that_others_may_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gateway.toml");
        std::fs::write(&path, "[http]\nmax_streams = 7\n").unwrap();
        let load = |mode| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let words = ["gpukill-gateway", "--config", path.to_str().unwrap()];
            let loaded = Settings::load(&Args::try_parse_from(words).unwrap());
            loaded.map(|settings| settings.max_streams)
        };
        assert_eq!((load(0o600), load(0o644)), (Ok(7), Ok(7)));
        for mode in [0o664, 0o646, 0o666] {
            let why = load(mode).unwrap_err();
            let expected = "gateway.toml: users other than its owner may write it: chmod go-w FILE";
            assert!(why.ends_with(expected), "{mode:o}: {why}");
        }
        std::fs::write(&path, vec![b'#'; 300 << 10]).unwrap();
        assert!(load(0o600).unwrap_err().contains("too large"));
    }

    #[test]
    fn all_mistakes_are_reported() {
        let file = "[http]\nlisten = [\"localhost\"]\nnames = [\"a b\", \"box:80\"]\nport = 1\n\
                    max_connections = 0\n";
        assert_eq!(
            resolve(file, &[]).unwrap_err(),
            [
                "line 2: http.listen: \"localhost\" is not an address like \"127.0.0.1:9836\" or \
                 \"unix:/run/gateway.sock\"",
                "line 3: http.names: \"a b\" is not a host name without a port",
                "line 4: unknown key http.port",
                "line 5: http.max_connections: 0 is not a whole number from 1 to 65536",
            ]
        );
    }

    #[test]
    fn address_beyond_loopback_needs_tls_or_a_proxy() {
        let refused = resolve("", &["--listen", "0.0.0.0:80"]).unwrap_err();
        assert!(refused[0].contains("everybody in the network could read at 0.0.0.0:80"));
        let file = "[http]\nbehind_proxy = true\nnames = [\"gpu.example.org\"]\n";
        assert!(resolve(file, &["--listen", "0.0.0.0:80"]).is_ok());
        let file = "[tls]\ncertificate = \"/c\"\nkey = \"/k\"\n";
        assert!(resolve(file, &["--listen", "0.0.0.0:80"]).is_ok());
        assert_eq!(
            resolve("[tls]\nkey = \"/k\"\n", &[]).unwrap_err(),
            ["tls.certificate and tls.key belong together: set both or none"]
        );
        for loopback in ["127.0.0.1:0", "[::1]:0", "unix:/run/x.sock"] {
            assert!(resolve("", &["--listen", loopback]).is_ok(), "{loopback}");
        }
    }
}
