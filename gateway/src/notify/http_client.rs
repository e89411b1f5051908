//! Requests to a server that an admin named: bounded in time and size, over HTTP or HTTPS, without
//! redirects and proxies.

use crate::settings::HttpUrl;
use axum::body::{Body, to_bytes};
use axum::http::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long a request may take, from the lookup of the name to the last byte of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest head of an answer, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// The longest body of an answer, in bytes: what the specification of OTLP recommends.
const MAX_BODY: usize = 4 << 20;

/// The name under which this program introduces itself.
const OWN_NAME: &str = concat!("gpukill-notify/", env!("CARGO_PKG_VERSION"));

/// An answer, whatever its status.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Sends requests. Each has a connection of its own: they are seconds apart.
pub(crate) struct HttpClient {
    /// `None` if all servers are reached without encryption.
    tls: Option<TlsConnector>,
}

impl HttpClient {
    /// A client for this address. It trusts the authorities that the system trusts.
    ///
    /// # Errors
    /// The address needs encryption, and the system trusts no authority.
    pub(crate) fn new(url: &HttpUrl) -> Result<Self, String> {
        let tls = url.is_encrypted().then(tls_connector).transpose()?;
        Ok(Self { tls })
    }

    /// Posts a body with these headers.
    ///
    /// # Errors
    /// There is no answer: why.
    pub(crate) async fn post(
        &self,
        url: &HttpUrl,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<HttpAnswer, String> {
        let request = request(url, headers, body)?;
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.send(url, request)).await;
        answer.unwrap_or_else(|_| Err(format!("no answer in {} s", REQUEST_TIMEOUT.as_secs())))
    }

    async fn send(&self, url: &HttpUrl, request: Request<Body>) -> Result<HttpAnswer, String> {
        let stream = TcpStream::connect((url.host(), url.port()))
            .await
            .map_err(|error| format!("cannot connect: {error}"))?;
        let Some(tls) = &self.tls else {
            return exchange(stream, request).await;
        };
        let name = ServerName::try_from(url.host().to_owned())
            .map_err(|_| "its name cannot be in a certificate".to_owned())?;
        let stream = tls
            .connect(name, stream)
            .await
            .map_err(|error| format!("cannot encrypt the connection: {error}"))?;
        exchange(stream, request).await
    }
}

fn tls_connector() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be read are left out, as other programs do.
    let (trusted, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if trusted == 0 {
        return Err(
            "the system trusts no certificate authority: install ca-certificates, or set \
             SSL_CERT_FILE"
                .into(),
        );
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot use TLS: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn request(url: &HttpUrl, headers: &HeaderMap, body: Bytes) -> Result<Request<Body>, String> {
    let invalid = |_| "the request cannot be written".to_owned();
    let path = if url.path().is_empty() {
        "/"
    } else {
        url.path()
    };
    let mut request = Request::post(path)
        .body(Body::from(body))
        .map_err(invalid)?;
    let host = HeaderValue::from_str(&url.authority())
        .map_err(|_| "its name cannot be in a request".to_owned())?;
    let own = request.headers_mut();
    own.insert(HOST, host);
    own.insert(USER_AGENT, HeaderValue::from_static(OWN_NAME));
    own.extend(headers.clone());
    Ok(request)
}

/// Sends a request over a new connection, and reads the whole answer.
async fn exchange<S>(stream: S, request: Request<Body>) -> Result<HttpAnswer, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| describe(&error))?;
    // It moves the bytes, and ends with this function.
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| describe(&error))?;
    let (parts, body) = response.into_parts();
    let body = to_bytes(Body::new(body), MAX_BODY)
        .await
        .map_err(|error| format!("its answer cannot be read: {}", describe(&error)))?;
    Ok(HttpAnswer {
        status: parts.status,
        headers: parts.headers,
        body,
    })
}

/// An error with its causes.
fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        // Some errors repeat their cause.
        if !text.contains(&reason) {
            text.push_str(&format!(": {reason}"));
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_headers_take_the_place_of_default_ones() {
        let url = HttpUrl::parse("https://otel.example.org:8443/otlp").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("own"));
        let request = request(&url, &headers, Bytes::from_static(b"x")).unwrap();
        assert_eq!(request.uri(), "/otlp");
        assert_eq!(request.headers()[HOST], "otel.example.org:8443");
        assert_eq!(request.headers().get_all(USER_AGENT).iter().count(), 1);
        assert_eq!(request.headers()[USER_AGENT], "own");
    }

    #[test]
    fn error_has_its_causes_once() {
        let error = axum::Error::new(std::io::Error::other("refused"));
        assert_eq!(describe(&error), "refused");
    }
}
