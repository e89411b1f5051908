//! What all requests share, and the way of a request: checks, route, answer, protecting headers.

use crate::calls::Calls;
use crate::connections::ConnectionSlots;
use crate::metrics::traffic::Traffic;
use crate::problem::Problem;
use crate::request_check::{check, protect};
use crate::routes;
use crate::settings::Settings;
use crate::upstream::DaemonView;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::{Semaphore, watch};
use tower_service::Service as _;

/// The most parts of the snapshot that are made at once, each on a thread of its own.
const MAX_PARTS: usize = 4;

/// What all requests share.
pub(crate) struct Gateway {
    /// The settings.
    pub(crate) settings: Settings,
    /// What is known of the daemon.
    pub(crate) view: watch::Receiver<Arc<DaemonView>>,
    /// Calls to the daemon on request.
    pub(crate) calls: Calls,
    /// The connections.
    pub(crate) slots: Arc<ConnectionSlots>,
    /// The turns of requests for parts of the snapshot.
    pub(crate) part_turns: Arc<Semaphore>,
    /// The free places of live streams.
    pub(crate) streams: Arc<Semaphore>,
    /// Counts of requests.
    pub(crate) traffic: Traffic,
    /// Becomes true when the gateway stops.
    pub(crate) stop: watch::Receiver<bool>,
    router: OnceLock<Router>,
}

/// The pattern of the route that answered a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchedRoute(pub(crate) &'static str);

impl Gateway {
    /// A gateway with its routes.
    pub(crate) fn new(
        settings: Settings,
        view: watch::Receiver<Arc<DaemonView>>,
        stop: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let gateway = Arc::new(Self {
            view,
            calls: Calls::new(settings.daemon_socket.clone()),
            slots: Arc::new(ConnectionSlots::new(&settings)),
            part_turns: Arc::new(Semaphore::new(MAX_PARTS)),
            streams: Arc::new(Semaphore::new(settings.max_streams)),
            traffic: Traffic::default(),
            stop,
            router: OnceLock::new(),
            settings,
        });
        let router = routes::router(&gateway);
        let _ = gateway.router.set(router);
        gateway
    }

    /// What is known of the daemon now.
    pub(crate) fn view(&self) -> Arc<DaemonView> {
        Arc::clone(&self.view.borrow())
    }

    /// Counts a connection that was one too many.
    pub(crate) fn count_refused_connection(&self) {
        self.traffic.count_refused_connection();
    }

    /// Answers a request.
    pub(crate) async fn respond(&self, request: hyper::Request<Incoming>) -> Response {
        let began = Instant::now();
        let (parts, body) = request.into_parts();
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
        response
    }
}
