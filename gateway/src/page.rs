//! The pages for people: HTML that is rendered from the documents of the API, style and scripts.
//!
//! A page is made from the newest snapshot and from sections. A section is a call of the daemon by the
//! function of an API route; what it renders is kept and shared like the answers of the API, under a
//! key of its own. A page does not wait long for its sections: those that are late say so, and come with
//! the next request. With `fragment=1` a page is sent without its head, for the script that keeps it
//! up to date.
//!
//! Everything that comes from outside is escaped by maud; [`maud::PreEscaped`] holds nothing but what
//! these modules rendered.

pub(crate) mod assets;
mod chart;
mod format;
mod gpu;
mod gpus;
mod guard;
mod layout;
mod overview;
mod past;
mod people;
mod processes;
mod rogue;
mod status;
mod subject;
#[cfg(test)]
mod tests;

use crate::calls::{CallFn, CallRoute};
use crate::document::{self, Document};
use crate::gateway::Gateway;
use crate::parameters::{Parameter, ParameterKind, Parameters, Place, text};
use crate::problem::Problem;
use crate::shares::Requester;
use crate::upstream::DaemonView;
use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use gpukill_proto::json::ListDocument;
use gpukill_proto::status::DaemonStatus;
use maud::{Markup, PreEscaped, html};
use people::People;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a page waits for its sections.
const SECTION_WAIT: Duration = Duration::from_millis(900);

/// The most rendered pages that are kept for other viewers of the same snapshot.
const MAX_RENDERED: usize = 32;

/// Only files of this gateway, no script or style in the page, and one named way to make HTML of text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types gpukill";

/// Whether only the part that changes is wanted.
const FRAGMENT: Parameter = Parameter {
    name: "fragment",
    place: Place::Query,
    kind: ParameterKind::Choice(&["1"]),
    summary: "without the head of the page, for its script",
};

/// The period of charts and sums.
const RANGE: Parameter = Parameter {
    name: "range",
    place: Place::Query,
    kind: ParameterKind::Choice(&["24h", "1h", "7d", "30d"]),
    summary: "the period up to now",
};

const FROM: Parameter = Parameter {
    name: "from",
    place: Place::Query,
    kind: ParameterKind::Number {
        min: 0,
        max: 1_000_000,
        default: Some(0),
    },
    summary: "the first row of the table",
};

const SORT: Parameter = Parameter {
    name: "sort",
    place: Place::Query,
    kind: ParameterKind::Choice(processes::ORDERS),
    summary: "the order of the table",
};

const QUERY: Parameter = text("q", "only processes with this text");

const fn in_path(name: &'static str, summary: &'static str) -> Parameter {
    Parameter {
        place: Place::Path,
        ..text(name, summary)
    }
}

pub(crate) const PLAIN_PARAMETERS: &[Parameter] = &[FRAGMENT];
pub(crate) const OVERVIEW_PARAMETERS: &[Parameter] = &[FRAGMENT, SORT, FROM, QUERY];
pub(crate) const GPU_PARAMETERS: &[Parameter] = &[
    in_path("gpu", "its index or UUID"),
    FRAGMENT,
    RANGE,
    SORT,
    FROM,
    QUERY,
];
pub(crate) const PERSON_PARAMETERS: &[Parameter] = &[
    in_path("user", "the name of the owner"),
    FRAGMENT,
    RANGE,
    SORT,
    FROM,
    QUERY,
];
pub(crate) const JOB_PARAMETERS: &[Parameter] = &[
    in_path("job", "the name of the job"),
    FRAGMENT,
    RANGE,
    SORT,
    FROM,
    QUERY,
];
pub(crate) const PROCESS_PARAMETERS: &[Parameter] = &[
    in_path("process", "the PID, and its start in ticks after a hyphen"),
    FRAGMENT,
];
pub(crate) const HISTORY_PARAMETERS: &[Parameter] = &[FRAGMENT, RANGE];
pub(crate) const ACTION_PARAMETERS: &[Parameter] = &[
    FRAGMENT,
    RANGE,
    text("kind", "only these kinds, separated by commas"),
    crate::routes::GPU,
    crate::routes::USER,
];

pub(crate) static OVERVIEW: Page = overview::PAGE;
pub(crate) static GPU: Page = gpu::PAGE;
pub(crate) static PERSON: Page = subject::PERSON;
pub(crate) static JOB: Page = subject::JOB;
pub(crate) static PROCESS: Page = subject::PROCESS;
pub(crate) static HISTORY: Page = past::HISTORY;
pub(crate) static GUARD: Page = guard::PAGE;
pub(crate) static ROGUE: Page = rogue::PAGE;
pub(crate) static ACTIONS: Page = past::ACTIONS;
pub(crate) static STATUS: Page = status::PAGE;

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    /// A name of its own.
    name: &'static str,
    /// Its entry in the navigation.
    entry: &'static str,
    /// Renders it.
    content: fn(&PageView<'_>) -> Result<Content, Problem>,
    /// The calls that it needs.
    sections: &'static [Section],
}

impl Page {
    const fn new(
        name: &'static str,
        entry: &'static str,
        content: fn(&PageView<'_>) -> Result<Content, Problem>,
        sections: &'static [Section],
    ) -> Self {
        Self {
            name,
            entry,
            content,
            sections,
        }
    }
}

/// A part of a page that is rendered from a call of the daemon.
#[derive(Debug)]
struct Section {
    /// A name that no section of another page has, unless it is the same.
    name: &'static str,
    /// The parameters of the page that it depends on.
    parameters: &'static [&'static str],
    /// How long it is kept, in seconds.
    keep: u64,
    /// Whether the daemon may take seconds.
    is_slow: bool,
    /// Makes the call and renders it.
    run: CallFn,
}

impl Section {
    /// A section for which the daemon may take seconds.
    const fn new(
        name: &'static str,
        parameters: &'static [&'static str],
        keep: u64,
        run: CallFn,
    ) -> Self {
        Self {
            name,
            parameters,
            keep,
            is_slow: true,
            run,
        }
    }

    /// The section, if it comes soon. A late one goes on, and is there for the next request.
    async fn answer(
        &self,
        gateway: &Gateway,
        requester: Requester,
        parameters: Parameters,
    ) -> SectionAnswer {
        // A longer period changes more slowly, and costs the daemon more.
        let factor = match parameters.text(RANGE.name) {
            Some("7d") => 4,
            Some("30d") => 20,
            Some(_) | None => 1,
        };
        let route = CallRoute {
            keep: Duration::from_secs(self.keep * factor),
            timeout: Duration::from_secs(60),
            is_slow: self.is_slow,
            run: self.run,
        };
        let name = format!("page {}", self.name);
        let calls = &gateway.calls;
        let view = gateway.view.clone();
        let answer = calls.answer(requester, &name, route, parameters, view);
        tokio::time::timeout(SECTION_WAIT, answer).await.ok()
    }
}

/// The title and the main part of a page.
struct Content {
    title: String,
    main: Markup,
}

impl Content {
    fn new(title: impl Into<String>, main: Markup) -> Result<Self, Problem> {
        let title = title.into();
        Ok(Self { title, main })
    }
}

/// The answer of a section; `None` while it is late.
type SectionAnswer = Option<Result<Arc<Document>, Problem>>;

/// What a page is rendered from.
struct PageView<'a> {
    list: &'a ListDocument,
    status: Option<&'a DaemonStatus>,
    /// Why there is no current data.
    trouble: Option<&'a Problem>,
    parameters: &'a Parameters,
    people: &'a People,
    is_personal: bool,
    sections: BTreeMap<&'static str, SectionAnswer>,
}

impl PageView<'_> {
    /// A section, why there is none, or that it is late.
    fn section(&self, name: &str) -> Markup {
        match self.sections.get(name) {
            Some(Some(Ok(document))) => html! { (PreEscaped(document.text())) },
            Some(Some(Err(problem))) => problem_text(problem),
            Some(None) | None => html! { p.busy { "One moment…" } },
        }
    }

    /// The data of a section that renders nothing itself.
    fn data<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        match self.sections.get(name)? {
            Some(Ok(document)) => serde_json::from_slice(document.line()).ok(),
            Some(Err(_)) | None => None,
        }
    }

    fn parameter(&self, name: &str) -> &str {
        self.parameters.text(name).unwrap_or_default()
    }

    /// The address of this page with these parameters changed. It begins at the first row unless it
    /// names another.
    fn link(&self, changed: &[(&str, &str)]) -> String {
        let mut link = form_urlencoded::Serializer::for_suffix(String::from("?"), 1);
        for name in ["range", "sort", "q", "from"] {
            let changed = changed.iter().find(|(it, _)| *it == name);
            let value = match changed {
                Some((_, value)) => value,
                None if name == "from" => "",
                None => self.parameter(name),
            };
            if !value.is_empty() {
                link.append_pair(name, value);
            }
        }
        link.finish()
    }
}

/// What is wrong and what to do about it.
fn problem_text(problem: &Problem) -> Markup {
    html! {
        div.panel {
            p.warn { (problem.detail()) }
            @if let Some(hint) = problem.hint() { p.soft { (hint) } }
        }
    }
}

/// The pages that were rendered last, by what they were rendered from.
#[derive(Debug, Default)]
pub(crate) struct RenderedPages(Mutex<VecDeque<(String, Arc<Document>)>>);

impl RenderedPages {
    fn find(&self, key: &str) -> Option<Arc<Document>> {
        let pages = self.lock();
        let found = pages.iter().find(|(known, _)| known == key);
        found.map(|(_, document)| Arc::clone(document))
    }

    fn keep(&self, key: String, document: &Arc<Document>) {
        let mut pages = self.lock();
        pages.push_back((key, Arc::clone(document)));
        if pages.len() > MAX_RENDERED {
            pages.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, Arc<Document>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request is for a page without its head.
pub(crate) fn is_fragment(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == FRAGMENT.name)
}

/// A query without its empty fields, which a form sends too.
pub(crate) fn without_empty_fields(query: &str) -> String {
    let fields = form_urlencoded::parse(query.as_bytes());
    let fields = fields.filter(|(_, value)| !value.is_empty());
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish()
}

/// Whether a client shows HTML.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/html"))
}

/// Answers with a page.
///
/// # Errors
/// There is no data, or no such thing.
pub(crate) async fn respond(
    gateway: &Arc<Gateway>,
    page: &'static Page,
    parameters: Parameters,
    headers: &HeaderMap,
    requester: Requester,
) -> Result<Response, Problem> {
    let view = gateway.view();
    let Some(frame) = view.frame.clone() else {
        return Err(view.current().err().unwrap_or_else(Problem::internal));
    };
    let mut calls = Vec::new();
    for section in page.sections {
        let parameters = parameters.only(section.parameters);
        calls.push(section.answer(gateway, requester, parameters));
    }
    let answers = futures::future::join_all(calls).await;
    let key = key(page, &parameters, &view, frame.sequence, &answers);
    if let Some(document) = key.as_ref().and_then(|key| gateway.rendered.find(key)) {
        return Ok(with_policy(document::respond(document, headers).await));
    }
    let snapshot_size = frame.document.size();
    let turn = gateway.parts.take_turn(requester, snapshot_size).await?;
    let of_gateway = Arc::clone(gateway);
    // A snapshot of many processes takes a while to render.
    let rendered = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        render(&of_gateway, page, &view, &parameters, answers)
    });
    let document = Arc::new(rendered.await.map_err(|_| Problem::internal())??);
    if let Some(key) = key {
        gateway.rendered.keep(key, &document);
    }
    Ok(with_policy(document::respond(document, headers).await))
}

/// What a page is rendered from as a text. `None` if it depends on more, such as the age of old data.
fn key(
    page: &Page,
    parameters: &Parameters,
    view: &DaemonView,
    sequence: u64,
    answers: &[SectionAnswer],
) -> Option<String> {
    view.current().ok()?;
    let mut key = format!("{} {} {sequence}", page.name, parameters.key());
    for answer in answers {
        match answer {
            Some(Ok(document)) => key.extend([" ", document.tag()]),
            Some(Err(problem)) => key.extend([" ", problem.detail()]),
            None => key.push_str(" late"),
        }
    }
    Some(key)
}

fn render(
    gateway: &Gateway,
    page: &'static Page,
    view: &DaemonView,
    parameters: &Parameters,
    answers: Vec<SectionAnswer>,
) -> Result<Document, Problem> {
    let Some(frame) = &view.frame else {
        return Err(Problem::internal());
    };
    let trouble = view.current().err();
    let names = page.sections.iter().map(|section| section.name);
    let page_view = PageView {
        list: &frame.list,
        status: view.status.as_deref(),
        trouble: trouble.as_ref(),
        parameters,
        people: &People::new(&frame.list),
        is_personal: gateway.settings.is_personal,
        sections: names.zip(answers).collect(),
    };
    let content = (page.content)(&page_view)?;
    let root = layout::root(&page_view, page.entry, &content, frame.age());
    let is_fragment = parameters.text(FRAGMENT.name).is_some();
    Ok(Document::html(match is_fragment {
        true => root.into_string(),
        false => layout::document(&content.title, &root).into_string(),
    }))
}

/// Answers with a page that says what is wrong. One that lacks a token has a place for it.
pub(crate) fn respond_problem(gateway: &Gateway, problem: Problem) -> Response {
    let html = layout::problem_page(&problem, gateway.settings.is_personal);
    let mut response = problem.into_response();
    *response.body_mut() = Body::from(html.into_string());
    let media_type = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    with_policy(response)
}

fn with_policy(mut response: Response) -> Response {
    let policy = HeaderValue::from_static(POLICY);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    response
}
