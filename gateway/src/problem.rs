//! Errors as problem documents (RFC 9457): the client's message, its hint, and the exit code with
//! which `gpukillctl` would end.

use axum::body::Body;
use axum::http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use gpukill_proto::refusal::Refusal;
use serde::Serialize;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    hint: Option<String>,
    exit_code: Option<u8>,
    /// Seconds after which another attempt may succeed.
    retry_after: Option<u32>,
    /// The age of the newest data in seconds, where the daemon does not answer.
    data_age: Option<f64>,
    /// The methods that the path has.
    allow: Option<&'static str>,
}

#[derive(Serialize)]
struct ProblemDocument<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    hint: Option<&'a str>,
    exit_code: Option<u8>,
    data_age_seconds: Option<f64>,
}

/// The exit codes of `gpukillctl` that answers name.
pub(crate) mod exit_code {
    pub(crate) const DONE: u8 = 0;
    pub(crate) const FAILED: u8 = 1;
    pub(crate) const BAD_USAGE: u8 = 3;
    pub(crate) const NOT_PERMITTED: u8 = 4;
    pub(crate) const UNREACHABLE: u8 = 6;
    pub(crate) const PARTLY_DONE: u8 = 7;
    pub(crate) const NO_MATCH: u8 = 8;
}

impl Problem {
    /// A problem with its HTTP status, and what is wrong.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            hint: None,
            exit_code: None,
            retry_after: None,
            data_age: None,
            allow: None,
        }
    }

    /// A wrong parameter.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail).with_exit_code(exit_code::BAD_USAGE)
    }

    /// A bug in the gateway.
    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the gateway had an internal error",
        )
    }

    /// Too much at once: try again after this many seconds.
    pub(crate) fn busy(detail: impl Into<String>, retry_after: u32) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            .with_exit_code(exit_code::UNREACHABLE)
            .with_retry_after(retry_after)
    }

    /// A method that the path does not have.
    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        let mut problem = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("this path has only {allow}"),
        );
        problem.allow = Some(allow);
        problem
    }

    /// A path that only answers a WebSocket handshake.
    pub(crate) fn upgrade_required() -> Self {
        Self::new(
            StatusCode::UPGRADE_REQUIRED,
            "this path takes only WebSocket connections of version 13",
        )
        .with_hint("/api/v1/live has the same events without a WebSocket")
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_exit_code(mut self, exit_code: u8) -> Self {
        self.exit_code = Some(exit_code);
        self
    }

    pub(crate) fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn with_data_age(mut self, seconds: Option<f64>) -> Self {
        self.data_age = seconds;
        self
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// What is wrong.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let document = ProblemDocument {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            hint: self.hint.as_deref(),
            exit_code: self.exit_code,
            data_age_seconds: self.data_age,
        };
        let mut body = serde_json::to_vec(&document).unwrap_or_default();
        body.push(b'\n');
        body
    }

    pub(crate) fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let media_type = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, media_type);
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        if self.status == StatusCode::UPGRADE_REQUIRED {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"gpukill\"");
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (status, code) = match &refusal {
            Refusal::Denied { .. } => (StatusCode::FORBIDDEN, exit_code::NOT_PERMITTED),
            Refusal::Invalid(_) => (StatusCode::BAD_REQUEST, exit_code::BAD_USAGE),
            Refusal::NoMatch(_) => (StatusCode::NOT_FOUND, exit_code::NO_MATCH),
            Refusal::Busy => (StatusCode::SERVICE_UNAVAILABLE, exit_code::UNREACHABLE),
            Refusal::Unavailable(_) | Refusal::Expired => {
                (StatusCode::SERVICE_UNAVAILABLE, exit_code::FAILED)
            }
            Refusal::TooSlow(_) => (StatusCode::GATEWAY_TIMEOUT, exit_code::FAILED),
            Refusal::Internal => (StatusCode::BAD_GATEWAY, exit_code::FAILED),
        };
        let mut problem = Self::new(status, refusal.to_string()).with_exit_code(code);
        problem.hint = refusal.hint();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            problem = problem.with_retry_after(1);
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_has_message_hint_and_exit_code() {
        let problem = Problem::from(Refusal::Denied {
            asked: "see the rules".into(),
            ask: "an admin".into(),
        });
        let document: serde_json::Value = serde_json::from_slice(&problem.body()).unwrap();
        assert_eq!(
            document,
            serde_json::json!({
                "type": "about:blank",
                "title": "Forbidden",
                "status": 403,
                "detail": "cannot see the rules",
                "hint": "ask an admin",
                "exit_code": 4,
                "data_age_seconds": null,
            })
        );
        let response = problem.into_response();
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    }

    #[test]
    fn busy_daemon_says_when_to_try_again() {
        let response = Problem::from(Refusal::Busy).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }
}
