//! The settings of the gateway: one table of keys, with values from defaults, file, environment and
//! command line, in this order. All mistakes are reported at once.

use crate::args::Args;
use gpukill_proto::settings::value::{boolean, number, text};
use gpukill_proto::settings::{Key, SettingMistake, apply_environment, apply_file, defaults};
use std::io::{self, Read as _};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The file that is read if it exists and no other is named.
const USUAL_FILE: &str = "/etc/gpukill/gateway.toml";

/// The longest settings file, so that another file named by mistake is not read into memory.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// All settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The addresses to listen on. Sockets that systemd passes take their place.
    pub listen: Vec<Endpoint>,
    /// Names besides those of the loopback interface that requests may give as the host.
    pub names: Vec<String>,
    /// Whether a proxy in front of the gateway encrypts and decides who may read.
    pub behind_proxy: bool,
    /// The most connections at once.
    pub max_connections: usize,
    /// The most connections of one peer: an IP address, or a user of the Unix socket.
    pub max_peer_connections: usize,
    /// The most live streams at once.
    pub max_streams: usize,
    /// The socket of the daemon.
    pub daemon_socket: PathBuf,
    /// Whether `/metrics` has series for each process.
    pub process_metrics: bool,
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

/// Every key.
pub const KEYS: &[Key<Settings>] = &[
    Key {
        section: "http",
        name: "listen",
        variable: "GPUKILL_GATEWAY_LISTEN",
        default: "[\"127.0.0.1:9836\", \"[::1]:9836\", \"unix:/run/gpukill-gateway.sock\"]",
        help: "Addresses to listen on. Where systemd passes sockets, as gpukill-gateway.socket\n\
               does, they are used instead. An address other than loopback needs behind_proxy.\n\
               [::1] is left out on a host without IPv6.",
        set: |settings, value| {
            let all = texts(value)?;
            settings.listen = all
                .iter()
                .map(|it| Endpoint::parse(it))
                .collect::<Result<_, _>>()?;
            match settings.listen.is_empty() {
                true => Err("names no address".into()),
                false => Ok(()),
            }
        },
    },
    Key {
        section: "http",
        name: "names",
        variable: "GPUKILL_GATEWAY_NAMES",
        default: "[]",
        help: "Host names besides localhost, 127.0.0.1 and [::1] under which clients may call the\n\
               gateway. Requests for other names are refused, because a web page could have made\n\
               such a name point here.",
        set: |settings, value| {
            settings.names = texts(value)?
                .iter()
                .map(|it| it.to_ascii_lowercase())
                .collect();
            match settings.names.iter().find(|name| !is_host_name(name)) {
                Some(name) => Err(format!("{name:?} is not a host name without a port")),
                None => Ok(()),
            }
        },
    },
    Key {
        section: "http",
        name: "behind_proxy",
        variable: "GPUKILL_GATEWAY_BEHIND_PROXY",
        default: "false",
        help: "Set to true to listen on addresses other than loopback. The gateway neither encrypts\n\
               nor asks who calls: a proxy in front of it must do both.",
        set: |settings, value| boolean(value).map(|it| settings.behind_proxy = it),
    },
    Key {
        section: "http",
        name: "max_connections",
        variable: "GPUKILL_GATEWAY_MAX_CONNECTIONS",
        default: "256",
        help: "The most connections at once. Further ones are answered with 503.",
        set: |settings, value| count(value).map(|it| settings.max_connections = it),
    },
    Key {
        section: "http",
        name: "max_peer_connections",
        variable: "GPUKILL_GATEWAY_MAX_PEER_CONNECTIONS",
        default: "32",
        help: "The most connections of one peer: of an IP address, or of a user of the Unix socket.\n\
               All loopback addresses are one. Raise it where many people come through one address,\n\
               as through SSH tunnels.",
        set: |settings, value| count(value).map(|it| settings.max_peer_connections = it),
    },
    Key {
        section: "http",
        name: "max_streams",
        variable: "GPUKILL_GATEWAY_MAX_STREAMS",
        default: "256",
        help: "The most live streams at once. Further ones are answered with 503.",
        set: |settings, value| count(value).map(|it| settings.max_streams = it),
    },
    Key {
        section: "daemon",
        name: "socket",
        variable: "GPUKILL_GATEWAY_DAEMON_SOCKET",
        default: "\"/run/gpukill/gpukilld.sock\"",
        help: "The socket of gpukilld.",
        set: |settings, value| text(value).map(|it| settings.daemon_socket = it.into()),
    },
    Key {
        section: "metrics",
        name: "processes",
        variable: "GPUKILL_GATEWAY_METRICS_PROCESSES",
        default: "false",
        help: "Whether /metrics has series for each process, at most 256. Each process that comes\n\
               and goes leaves series in the memory of a Prometheus server.",
        set: |settings, value| boolean(value).map(|it| settings.process_metrics = it),
    },
];

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
    /// Loads the settings of this run.
    ///
    /// # Errors
    /// All mistakes, or why the file cannot be read: one line each.
    pub fn load(args: &Args) -> Result<Self, String> {
        let named = args.config.as_deref();
        let path = named.unwrap_or(Path::new(USUAL_FILE));
        let file = match read_limited(path) {
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
        for endpoint in &settings.listen {
            if let Endpoint::Tcp(address) = endpoint
                && let Err(what) = settings.check_exposure(*address)
            {
                add(what);
            }
        }
        match mistakes.is_empty() {
            true => Ok(settings),
            false => Err(mistakes),
        }
    }

    /// Refuses an address at which other hosts can read without a proxy in between.
    ///
    /// # Errors
    /// What to set.
    pub fn check_exposure(&self, address: SocketAddr) -> Result<(), String> {
        if self.behind_proxy || address.ip().is_loopback() {
            return Ok(());
        }
        Err(format!(
            "http.listen: everybody in the network could read at {address}: listen on 127.0.0.1, \
             or set behind_proxy = true if a proxy encrypts and decides who may read"
        ))
    }
}

fn read_limited(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    let length = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

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
        assert!(!settings.behind_proxy && !settings.process_metrics);
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
    fn address_beyond_loopback_needs_a_proxy() {
        let refused = resolve("", &["--listen", "0.0.0.0:80"]).unwrap_err();
        assert!(refused[0].contains("everybody in the network could read at 0.0.0.0:80"));
        let file = "[http]\nbehind_proxy = true\nnames = [\"gpu.example.org\"]\n";
        assert!(resolve(file, &["--listen", "0.0.0.0:80"]).is_ok());
        for loopback in ["127.0.0.1:0", "[::1]:0", "unix:/run/x.sock"] {
            assert!(resolve("", &["--listen", loopback]).is_ok(), "{loopback}");
        }
    }
}
