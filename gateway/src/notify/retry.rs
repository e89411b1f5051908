//! When a request that failed is sent again: after a pause that grows, is partly random, and is
//! never shorter than the server asked for.

use axum::http::StatusCode;
use axum::http::header::{HeaderMap, RETRY_AFTER};
use chrono::{DateTime, Utc};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The first pause; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, but for what a server asks for and the random part.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause that a server can ask for, so that a wrong header stops nothing for a day.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Whether a request with this answer may be sent again: the statuses that the specification of
/// OTLP lists.
pub(crate) fn is_retryable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// The pause that an answer asks for, in seconds or until a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = DateTime::parse_from_rfc2822(value).ok()?;
            until.signed_duration_since(now).to_std().ok()?
        }
    };
    Some(pause.min(MAX_RETRY_AFTER))
}

/// The pauses between the attempts of one sender.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Attempts in a row that failed.
    failures: u32,
}

impl Backoff {
    /// The pause after an attempt that failed, if the server asked for `retry_after`.
    pub(crate) fn next_pause(&mut self, retry_after: Option<Duration>) -> Duration {
        self.pause(retry_after, random_share())
    }

    /// The same with a random part between 0 and 1.
    fn pause(&mut self, retry_after: Option<Duration>, random: f64) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(8));
        self.failures = self.failures.saturating_add(1);
        let shortest = doubled.min(MAX_PAUSE).max(retry_after.unwrap_or_default());
        // Hosts that failed together, or got the same answer, must not come back together.
        shortest.mul_f64(1.0 + random / 2.0)
    }

    /// An attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A random number between 0 and 1. It decides nothing that must not be guessed.
fn random_share() -> f64 {
    let random = u32::try_from(RandomState::new().hash_one(()) >> 32);
    f64::from(random.unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use chrono::TimeZone as _;

    #[test]
    fn only_listed_statuses_are_retried() {
        let retried = (100..600).filter(|code| is_retryable(StatusCode::from_u16(*code).unwrap()));
        assert_eq!(retried.collect::<Vec<u16>>(), [429, 502, 503, 504]);
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_begin_again() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..8).map(|_| backoff.pause(None, 0.0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        backoff.reset();
        assert_eq!(backoff.pause(None, 1.0), Duration::from_millis(1_500));
        let shares: Vec<f64> = (0..64).map(|_| random_share()).collect();
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
        assert!(shares.iter().any(|share| *share < 0.5));
        assert!(shares.iter().any(|share| *share > 0.5));
    }

    #[test]
    fn server_decides_the_shortest_pause() {
        let now = Utc.with_ymd_and_hms(2026, 11, 23, 12, 0, 0).unwrap();
        let asked = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            retry_after(&headers, now).map(|pause| pause.as_secs())
        };
        assert_eq!(asked("7"), Some(7));
        assert_eq!(asked("Mon, 23 Nov 2026 12:00:30 GMT"), Some(30));
        assert_eq!(asked("Mon, 23 Nov 2026 11:00:00 GMT"), None);
        assert_eq!(asked("99999999"), Some(600));
        for value in ["-1", "soon", ""] {
            assert_eq!(asked(value), None, "{value}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
        let mut backoff = Backoff::default();
        let pause = backoff.pause(Some(Duration::from_secs(30)), 0.0);
        assert_eq!(pause, Duration::from_secs(30));
    }
}
