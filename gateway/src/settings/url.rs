//! The address of a server that the gateway sends to.

use axum::http::Uri;
use std::fmt;

/// What an address looks like.
const EXAMPLES: &str = "\"http://127.0.0.1:4318\" or \"https://otel.example.org/otlp\"";

/// An address without user, password, query and fragment: it is logged, and these could be secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    is_encrypted: bool,
    /// A name or an address; IPv6 without its brackets.
    host: String,
    port: u16,
    /// Empty, or with a slash in front and none at the end.
    path: String,
}

impl HttpUrl {
    /// Parses an address such as `https://otel.example.org/otlp`.
    ///
    /// # Errors
    /// The mistake, without the text, which may contain a password.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let not_an_address = || format!("is not an address like {EXAMPLES}");
        let uri: Uri = text.parse().map_err(|_| not_an_address())?;
        let authority = uri.authority().ok_or_else(not_an_address)?;
        let (is_encrypted, usual_port) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(not_an_address()),
        };
        if authority.as_str().contains('@') || uri.query().is_some() || text.contains('#') {
            return Err(
                "has a user, a password, a query or a fragment: a secret belongs into a \
                        header"
                    .into(),
            );
        }
        let host = authority.host();
        let port = match authority.port_u16() {
            Some(port) if port > 0 => port,
            None if authority.as_str().len() == host.len() => usual_port,
            _ => return Err("has a port that is not a number from 1 to 65535".into()),
        };
        let in_brackets = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        Ok(Self {
            is_encrypted,
            host: in_brackets.unwrap_or(host).to_owned(),
            port,
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The same address with a path, which begins with a slash, after its own.
    pub(crate) fn join(&self, path: &str) -> Self {
        let mut joined = self.clone();
        joined.path.push_str(path);
        joined
    }

    pub(crate) const fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// The name or the address of the host.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The path; empty for that of the server itself.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Host and port as in the header `Host`.
    pub(crate) fn authority(&self) -> String {
        let is_usual = self.port == if self.is_encrypted { 443 } else { 80 };
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match is_usual {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_scheme_host_port_and_path() {
        for (text, host, port, shown) in [
            (
                "http://127.0.0.1:4318",
                "127.0.0.1",
                4318,
                "http://127.0.0.1:4318",
            ),
            ("http://[::1]:4318/", "::1", 4318, "http://[::1]:4318"),
            (
                "https://otel.example.org/otlp/",
                "otel.example.org",
                443,
                "https://otel.example.org/otlp",
            ),
            ("http://box:80", "box", 80, "http://box"),
        ] {
            let url = HttpUrl::parse(text).unwrap();
            assert_eq!((url.host(), url.port()), (host, port), "{text}");
            assert_eq!(url.to_string(), shown);
        }
        let url = HttpUrl::parse("https://box/otlp")
            .unwrap()
            .join("/v1/metrics");
        assert_eq!((url.path(), url.is_encrypted()), ("/otlp/v1/metrics", true));
    }

    #[test]
    fn address_that_cannot_be_used_is_refused_without_its_secrets() {
        for text in [
            "",
            "box",
            "box:4318",
            "/v1/metrics",
            "ftp://box",
            "http://",
            "http://box:0",
            "http://box:",
            "http://box:99999",
            "http://alice:secret@box",
            "http://box/?key=secret",
            "http://box/#secret",
        ] {
            let mistake = HttpUrl::parse(text).unwrap_err();
            assert!(
                !mistake.contains("secret:") && !mistake.contains("=secret"),
                "{mistake}"
            );
        }
    }
}
