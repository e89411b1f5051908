//! What all requests share, and the way of a request: checks, route, answer, protecting headers.

use crate::access::{Access, Caller};
use crate::calls::Calls;
use crate::connections::{Busy, Connection, ConnectionSlots};
use crate::held_answers::{HeldAnswers, HeldBody};
use crate::metrics::traffic::Traffic;
use crate::page::RenderedPages;
use crate::parts::Parts;
use crate::problem::Problem;
use crate::request_check::{check, protect};
use crate::routes::{self, KnownKills};
use crate::settings::Settings;
use crate::tokens::Tokens;
use crate::upstream::DaemonView;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Semaphore, watch};
use tower_service::Service as _;

/// The most acts at once. The daemon grants a user 8 connections, also for other clients.
const MAX_ACTS: usize = 2;

/// What all requests share.
pub(crate) struct Gateway {
    pub(crate) settings: Settings,
    pub(crate) tokens: Tokens,
    /// What is known of the daemon.
    pub(crate) view: watch::Receiver<Arc<DaemonView>>,
    /// Calls to the daemon on request.
    pub(crate) calls: Calls,
    pub(crate) slots: Arc<ConnectionSlots>,
    /// The answers that clients have not read yet.
    pub(crate) held: Arc<HeldAnswers>,
    /// The parts of the newest snapshot, and the turns of requests for them.
    pub(crate) parts: Parts,
    /// The turns of requests that act.
    pub(crate) act_turns: Arc<Semaphore>,
    /// The plans of kills that were shown.
    pub(crate) known_kills: KnownKills,
    /// The pages of the newest snapshots.
    pub(crate) rendered: RenderedPages,
    /// The free places of live streams.
    pub(crate) streams: Arc<Semaphore>,
    /// Counts of requests.
    pub(crate) traffic: Traffic,
    /// Becomes true when the gateway stops.
    pub(crate) stop: watch::Receiver<bool>,
    /// When a token was last used.
    last_use: Mutex<Instant>,
    router: OnceLock<Router>,
}

/// The pattern of the route that answered a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchedRoute(pub(crate) &'static str);

impl Gateway {
    /// A gateway with its routes, and without tokens.
    pub(crate) fn new(
        settings: Settings,
        view: watch::Receiver<Arc<DaemonView>>,
        stop: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let gateway = Arc::new(Self {
            view,
            tokens: Tokens::default(),
            calls: Calls::new(settings.daemon_socket.clone()),
            slots: Arc::new(ConnectionSlots::new(&settings)),
            held: Arc::default(),
            parts: Parts::default(),
            act_turns: Arc::new(Semaphore::new(MAX_ACTS)),
            known_kills: KnownKills::default(),
            rendered: RenderedPages::default(),
            streams: Arc::new(Semaphore::new(settings.max_streams)),
            traffic: Traffic::default(),
            stop,
            last_use: Mutex::new(Instant::now()),
            router: OnceLock::new(),
            settings,
        });
        let router = routes::router(&gateway);
        let _ = gateway.router.set(router);
        gateway
    }

    /// What the caller may see now, if that is at least `needed`.
    ///
    /// # Errors
    /// The token is missing, unknown, expired, or not enough.
    pub(crate) fn authorize(&self, caller: &Caller, needed: Access) -> Result<Access, Problem> {
        let access = caller.authorize(&self.tokens, needed, SystemTime::now().into())?;
        // Without a needed access, nobody has looked at the token.
        if caller.token.is_some() && needed > Access::None {
            // A live stream asks at each event, so that it counts as use.
            *self.last_use() = Instant::now();
        }
        Ok(access)
    }

    /// The time since a token was last used.
    pub(crate) fn idle_time(&self) -> Duration {
        self.last_use().elapsed()
    }

    fn last_use(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.last_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the daemon now.
    pub(crate) fn view(&self) -> Arc<DaemonView> {
        Arc::clone(&self.view.borrow())
    }

    /// Answers a request that came to an address where anybody has the access `anonymous`.
    pub(crate) async fn respond(
        &self,
        request: hyper::Request<Incoming>,
        anonymous: Access,
    ) -> Response {
        let began = Instant::now();
        let (mut parts, body) = request.into_parts();
        let caller = Caller::new(&parts.headers, anonymous);
        parts.extensions.insert(caller);
        let connection = parts.extensions.get::<Arc<Connection>>().cloned();
        let _busy = connection.as_ref().map(Busy::new);
        let method = parts.method.clone();
        let mut response = match check(&parts, &self.settings.names) {
            Err(problem) => problem.into_response(),
            Ok(()) => match self.router.get().cloned() {
                None => Problem::internal().into_response(),
                Some(mut router) => {
                    let request = hyper::Request::from_parts(parts, Body::new(body));
                    // The router fails never, and is ready at any time.
                    let Ok(response) = router.call(request).await;
                    response
                }
            },
        };
        protect(response.headers_mut());
        let route = response.extensions().get::<MatchedRoute>();
        let route = route.map_or("none", |route| route.0);
        let status = response.status().as_u16();
        self.traffic
            .count_request(route, &method, status, began.elapsed());
        match connection {
            Some(connection) => {
                response.map(|body| Body::new(HeldBody::new(body, &self.held, connection)))
            }
            None => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::TokenDigest;

    #[test]
    fn only_a_valid_token_counts_as_use() {
        let (_sender, view) = watch::channel(Arc::default());
        let (_stop, stopped) = watch::channel(false);
        let gateway = Gateway::new(Settings::default(), view, stopped);
        gateway.tokens.replace(Tokens::personal("secret"));
        let minute = Duration::from_secs(60);
        *gateway.last_use() = Instant::now().checked_sub(minute).unwrap();
        let authorize = |token: &str, needed| {
            let caller = Caller {
                anonymous: Access::None,
                token: Some(TokenDigest::new(token)),
            };
            gateway.authorize(&caller, needed)
        };
        assert!(authorize("other", Access::Look).is_err());
        assert!(authorize("other", Access::None).is_ok());
        assert!(gateway.idle_time() >= minute);
        assert!(authorize("secret", Access::Act).is_ok());
        assert!(gateway.idle_time() < minute);
    }
}
