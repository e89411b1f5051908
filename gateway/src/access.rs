//! What a caller may see: as a caller without a token, or as the owner of one.
//!
//! A token that is sent is checked even where none is needed, so that an expired token is noticed.

use crate::problem::{Problem, exit_code};
use crate::tokens::{TokenDigest, Tokens};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HeaderMap};
use gpukill_proto::units::Timestamp;

/// What a caller may see, from the least to the most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Health checks.
    #[default]
    None,
    /// Also the readings of GPUs, and the metrics without names of people and processes.
    Numbers,
    /// Also all metrics.
    Metrics,
    /// Everything that the gateway reads.
    Look,
    /// Also actions, in a gateway of one person.
    Act,
}

impl Access {
    /// The name in settings and in the tokens file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Numbers => "numbers",
            Self::Metrics => "metrics",
            Self::Look => "look",
            Self::Act => "act",
        }
    }
}

/// The sender of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// What anybody may see at the address of the request.
    pub(crate) anonymous: Access,
    pub(crate) token: Option<TokenDigest>,
}

impl Caller {
    /// The sender of a request with these headers.
    pub(crate) fn new(headers: &HeaderMap, anonymous: Access) -> Self {
        Self {
            anonymous,
            token: bearer_token(headers).map(|token| TokenDigest::new(&token)),
        }
    }

    /// What this caller may see now, if that is at least `needed`.
    ///
    /// # Errors
    /// The token is missing, unknown, expired, or not enough.
    pub(crate) fn authorize(
        &self,
        tokens: &Tokens,
        needed: Access,
        now: Timestamp,
    ) -> Result<Access, Problem> {
        if needed == Access::None {
            return Ok(self.anonymous);
        }
        // Without any token, the header is for a proxy.
        let token = self.token.filter(|_| !tokens.is_empty());
        let Some(token) = token else {
            return match self.anonymous >= needed {
                true => Ok(self.anonymous),
                false => Err(unauthorized("this needs a token")),
            };
        };
        let granted = tokens.access(&token, now);
        let granted = granted.ok_or_else(|| unauthorized("the token is unknown or has expired"))?;
        match granted.max(self.anonymous) {
            access if access >= needed => Ok(access),
            access => Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("the token is for {} only", access.name()),
            )
            .with_exit_code(exit_code::NOT_PERMITTED)
            .with_hint("ask an admin for a token with the scope \"look\"")),
        }
    }
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail)
        .with_exit_code(exit_code::NOT_PERMITTED)
        .with_hint(
            "send the header Authorization: Bearer TOKEN; gpukillctl web prints the token of your \
             own gateway after the #, and an admin makes others: gpukill-gateway token new",
        )
}

/// The token of `Authorization: Bearer`. Two tokens are as one that nobody has.
fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(AUTHORIZATION).iter();
    let tokens = all.filter_map(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    });
    let tokens: Vec<&str> = tokens.collect();
    (!tokens.is_empty()).then(|| tokens.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const NOW: Timestamp = Timestamp(1_795_269_751_250);

    fn tokens() -> Tokens {
        let digest = |secret| TokenDigest::new(secret).to_hex();
        let text = format!(
            "[[token]]\nname = \"a\"\nscope = \"look\"\nsha256 = \"{}\"\n\
             [[token]]\nname = \"b\"\nscope = \"metrics\"\nsha256 = \"{}\"\n\
             [[token]]\nname = \"c\"\nscope = \"look\"\nsha256 = \"{}\"\n\
             expires = 2026-11-20T00:00:00Z\n",
            digest("looks"),
            digest("scrapes"),
            digest("late"),
        );
        Tokens::parse(&text).unwrap()
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    /// The access, or the status of the refusal.
    fn access(
        values: &[&str],
        anonymous: Access,
        needed: Access,
        tokens: &Tokens,
    ) -> Result<Access, u16> {
        let caller = Caller::new(&headers(values), anonymous);
        let granted = caller.authorize(tokens, needed, NOW);
        granted.map_err(|problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn token_adds_to_what_anybody_may_see() {
        use Access::{Look, Metrics, None, Numbers};
        type Case<'a> = (&'a [&'a str], Access, Access, Result<Access, u16>);
        let text = format!("Bearer {}", "x".repeat(1_000));
        let long = text.as_str();
        let (looks, scrapes, late) = ("Bearer looks", "bearer  scrapes", "Bearer late");
        let cases: &[Case<'_>] = &[
            (&[], None, None, Ok(None)),
            (&[], None, Numbers, Err(401)),
            (&[], Numbers, Numbers, Ok(Numbers)),
            (&[], Numbers, Look, Err(401)),
            (&[], Look, Look, Ok(Look)),
            (&[looks], None, Look, Ok(Look)),
            (&[scrapes], None, Numbers, Ok(Metrics)),
            (&[scrapes], None, Look, Err(403)),
            (&[scrapes], Look, Look, Ok(Look)),
            (&[late], None, Look, Err(401)),
            (&[late], Look, Look, Err(401)),
            (&[late], None, None, Ok(None)),
            (&["Bearer wrong"], Look, Numbers, Err(401)),
            (&["Basic looks"], None, Look, Err(401)),
            (&["Basic eDp5"], Look, Look, Ok(Look)),
            (&[looks, looks], None, Look, Err(401)),
            (&[looks, looks], Look, Look, Err(401)),
            (&[long], Look, Look, Err(401)),
        ];
        for &(values, anonymous, needed, expected) in cases {
            let granted = access(values, anonymous, needed, &tokens());
            assert_eq!(granted, expected, "{values:?} {anonymous:?} {needed:?}");
        }
    }

    #[test]
    fn without_tokens_the_header_is_for_a_proxy() {
        let none = Tokens::default();
        let of_proxy = ["Bearer eyJhbGciOi"];
        let look = Access::Look;
        assert_eq!(access(&of_proxy, look, look, &none), Ok(look));
        assert_eq!(access(&of_proxy, Access::None, look, &none), Err(401));
    }

    #[test]
    fn malformed_header_is_no_token() {
        for value in ["", "Bearer", "Bearer ", "looks", "Bearerlooks"] {
            assert_eq!(bearer_token(&headers(&[value])), None, "{value}");
        }
        let token = bearer_token(&headers(&["BEARER x"]));
        assert_eq!(token.as_deref(), Some("x"));
    }
}
