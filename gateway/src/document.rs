//! A document that is ready to be sent: serialized once, with its entity tag, and compressed once
//! when a client first wants that.

use crate::problem::Problem;
use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};

/// Shorter documents are sent as they are: they fit one packet.
const MIN_COMPRESSED: usize = 1_400;

/// A longer document is compressed on a thread of its own, so that other clients do not wait.
const MAX_COMPRESSED_INLINE: usize = 64 << 10;

/// What a route answers.
pub(crate) type RouteAnswer = Result<Document, Problem>;

#[derive(Debug)]
pub(crate) struct Document {
    media_type: &'static str,
    body: Bytes,
    /// Identifies the content: a part of its digest as hexadecimal digits.
    tag: String,
    gzip: OnceLock<Bytes>,
}

impl Document {
    /// Serializes a document on one line.
    ///
    /// # Errors
    /// It cannot be serialized, which is a bug.
    pub(crate) fn json(value: &impl Serialize) -> RouteAnswer {
        let mut body = serde_json::to_vec(value).map_err(|_| Problem::internal())?;
        body.push(b'\n');
        Ok(Self::new("application/json", body))
    }

    /// A page of HTML, or a part of one.
    pub(crate) fn html(page: String) -> Self {
        Self::new("text/html; charset=utf-8", page.into_bytes())
    }

    /// A file that never changes.
    pub(crate) fn file(media_type: &'static str, text: &str) -> Self {
        Self::new(media_type, text.as_bytes().to_vec())
    }

    fn new(media_type: &'static str, body: Vec<u8>) -> Self {
        let digest = Sha256::digest(&body);
        let tag = digest.iter().take(12).fold(String::new(), |mut tag, byte| {
            let _ = write!(tag, "{byte:02x}");
            tag
        });
        Self {
            media_type,
            body: body.into(),
            tag,
            gzip: OnceLock::new(),
        }
    }

    /// The content without the end of its last line: of JSON its only line.
    pub(crate) fn line(&self) -> &[u8] {
        self.body.strip_suffix(b"\n").unwrap_or(&self.body)
    }

    /// The content as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Identifies the content.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// The bytes that the document takes in memory.
    pub(crate) fn size(&self) -> usize {
        self.body.len() + self.gzip.get().map_or(0, Bytes::len)
    }

    fn is_sent_compressed(&self, headers: &HeaderMap) -> bool {
        self.body.len() >= MIN_COMPRESSED && accepts_gzip(headers)
    }

    fn compressed(&self) -> &Bytes {
        self.gzip.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(4));
            // Writing to memory does not fail.
            let _ = encoder.write_all(&self.body);
            encoder.finish().unwrap_or_default().into()
        })
    }
}

/// Answers with the document: 304 if the client has it, compressed if the client wants that.
pub(crate) async fn respond(document: Arc<Document>, headers: &HeaderMap) -> Response {
    // Weak, because the compressed form has other bytes.
    let tag = format!("W/\"{}\"", document.tag);
    let is_known = has_tag(headers, &tag);
    let is_compressed = document.is_sent_compressed(headers);
    let is_long = document.body.len() > MAX_COMPRESSED_INLINE;
    if is_compressed && is_long && !is_known && document.gzip.get().is_none() {
        let shared = Arc::clone(&document);
        // If the thread fails, it is compressed below.
        let _ = tokio::task::spawn_blocking(move || shared.compressed().len()).await;
    }
    response(&document, &tag, is_known, is_compressed)
}

/// Answers with a file that gets another name when its content changes, so that a browser may keep it
/// for ever.
pub(crate) fn respond_immutable(document: &Document, headers: &HeaderMap) -> Response {
    let is_compressed = document.is_sent_compressed(headers);
    // Strong: each form has its own.
    let form = if is_compressed { "-gzip" } else { "" };
    let tag = format!("\"{}{form}\"", document.tag);
    let mut response = response(document, &tag, has_tag(headers, &tag), is_compressed);
    let for_ever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, for_ever);
    response
}

fn response(document: &Document, tag: &str, is_known: bool, is_compressed: bool) -> Response {
    let body = match (is_known, is_compressed) {
        (true, _) => Bytes::new(),
        (false, false) => document.body.clone(),
        (false, true) => document.compressed().clone(),
    };
    let mut response = Response::new(Body::from(body));
    let own = response.headers_mut();
    let mut add = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            own.insert(name, value);
        }
    };
    add(ETAG, tag);
    add(VARY, "Accept-Encoding");
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    add(CONTENT_TYPE, document.media_type);
    if is_compressed {
        add(CONTENT_ENCODING, "gzip");
    }
    response
}

/// Whether `If-None-Match` names this tag.
fn has_tag(headers: &HeaderMap, tag: &str) -> bool {
    let opaque = tag.trim_start_matches("W/");
    let named = headers.get_all(IF_NONE_MATCH).iter();
    named
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|one| one == "*" || one.trim_start_matches("W/") == opaque)
}

/// Whether `Accept-Encoding` allows gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let named = headers.get_all(ACCEPT_ENCODING).iter();
    // A star is about the codings that are not named.
    let (mut gzip, mut others) = (None, None);
    for coding in named
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
    {
        match weighted(coding) {
            ("*", weight) => others = Some(weight),
            (name, weight) if name.eq_ignore_ascii_case("gzip") => gzip = Some(weight),
            _ => {}
        }
    }
    gzip.or(others).is_some_and(|weight| weight > 0.0)
}

/// An item of a list such as `Accept`, and its weight: `gzip;q=0.5`.
pub(crate) fn weighted(item: &str) -> (&str, f32) {
    let mut parts = item.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts
        .filter_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")))
        .find_map(|weight| weight.trim().parse().ok());
    (name, weight.unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read as _;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn tag_follows_the_content() {
        let one = Document::json(&[1, 2]).unwrap();
        let same = Document::json(&[1, 2]).unwrap();
        let other = Document::json(&[1, 3]).unwrap();
        assert_eq!(one.line(), b"[1,2]");
        assert_eq!(one.tag(), same.tag());
        assert_ne!(one.tag(), other.tag());
        assert_eq!(one.tag().len(), 24);
    }

    #[test]
    fn compressed_form_is_the_same_document() {
        let document = Document::json(&"x".repeat(5_000)).unwrap();
        let mut text = String::new();
        GzDecoder::new(&document.compressed()[..])
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text.as_bytes(), &document.body[..]);
    }

    #[test]
    fn immutable_file_has_a_strong_tag_for_each_form() {
        let file = Document::file("text/css; charset=utf-8", &"a { color: red }\n".repeat(200));
        let plain = respond_immutable(&file, &HeaderMap::new());
        let packed = respond_immutable(&file, &headers(ACCEPT_ENCODING, "gzip"));
        let tag = |response: &Response| response.headers()[ETAG].to_str().unwrap().to_owned();
        assert_eq!(tag(&plain), format!("\"{}\"", file.tag()));
        assert_eq!(tag(&packed), format!("\"{}-gzip\"", file.tag()));
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
        let kept = plain.headers()[CACHE_CONTROL].to_str().unwrap();
        assert!(kept.ends_with("immutable"), "{kept}");
        let known = respond_immutable(&file, &headers(IF_NONE_MATCH, &tag(&plain)));
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn known_tag_is_found_in_every_form() {
        for value in ["\"ab\"", "W/\"ab\"", "\"x\", W/\"ab\"", "*"] {
            assert!(
                has_tag(&headers(IF_NONE_MATCH, value), "W/\"ab\""),
                "{value}"
            );
        }
        for value in ["\"abc\"", "ab", ""] {
            assert!(
                !has_tag(&headers(IF_NONE_MATCH, value), "W/\"ab\""),
                "{value}"
            );
        }
    }

    #[test]
    fn gzip_is_sent_only_where_it_is_accepted() {
        for (value, expected) in [
            ("gzip", true),
            ("br, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip;Q=0", false),
            ("gzip;q=0, *", false),
            ("*;q=0, GZIP", true),
            ("br, *;q=0", false),
            ("br", false),
            ("identity", false),
        ] {
            assert_eq!(
                accepts_gzip(&headers(ACCEPT_ENCODING, value)),
                expected,
                "{value}"
            );
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
