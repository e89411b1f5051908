//! The frame of all pages: head, navigation, what is known of the daemon, and foot.

use super::assets::assets;
use super::format::{local, moment};
use super::{Content, PageView};
use crate::problem::Problem;
use axum::http::StatusCode;
use gpukill_proto::status::{DaemonStatus, Right};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::time::Duration;

/// The pages of the navigation.
const ENTRIES: [(&str, &str); 6] = [
    ("Overview", "/"),
    ("History", "/history"),
    ("Guard", "/guard"),
    ("Rogue", "/rogue"),
    ("Actions", "/actions"),
    ("Status", "/status"),
];

/// The patterns that `page.css` fills bars and charts with.
const PATTERNS: PreEscaped<&str> = PreEscaped(
    "<svg id=\"patterns\" class=\"hidden\" aria-hidden=\"true\"><defs>\
     <pattern id=\"stripes\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
     patternTransform=\"rotate(45)\"><rect width=\"2\" height=\"5\" fill=\"#fff\" \
     fill-opacity=\".45\"></rect></pattern>\
     <pattern id=\"dots\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">\
     <circle cx=\"2\" cy=\"2\" r=\".9\" fill=\"#fff\" fill-opacity=\".75\"></circle></pattern>\
     <pattern id=\"unknown\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
     patternTransform=\"rotate(45)\"><rect width=\"1\" height=\"6\" fill=\"#888\" \
     fill-opacity=\".4\"></rect></pattern></defs></svg>",
);

/// A whole page around what changes.
pub(super) fn document(title: &str, root: &Markup) -> Markup {
    let files = assets();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · gpukill" }
                link rel="icon" type="image/svg+xml" href=(files.icon.path);
                link rel="stylesheet" href=(files.style.path);
                script type="module" src=(files.script.path) {}
                noscript { meta http-equiv="refresh" content="30"; }
            }
            body {
                (PATTERNS)
                div #say .hidden role="status" {}
                (root)
            }
        }
    }
}

/// What changes: the fragment.
pub(super) fn root(view: &PageView<'_>, entry: &str, content: &Content, age: Duration) -> Markup {
    let list = view.list;
    let clock = local(&list.ts).map(|at| at.format("%H:%M:%S").to_string());
    let clock = clock.unwrap_or_default();
    let zone = local(&list.ts).map(|at| at.format("%:z").to_string());
    let acts = view.is_personal.then_some("");
    let title = format!("{} · {} · gpukill", content.title, list.host);
    html! {
        div #page data-title=(title) data-clock=(clock) data-age=(age.as_secs()) data-acts=[acts] {
            (header(entry, Some(list.host.as_str()), &html! {
                span #live .live data-own="" { (clock) }
                (guard_chip(view))
                @if let Some(status) = view.status { (rights_chip(status, view.is_personal)) }
            }))
            main #main tabindex="-1" {
                @if let Some(problem) = view.trouble {
                    div.banner role="alert" {
                        p { (problem.detail()) }
                        @if let Some(hint) = problem.hint() { p { (hint) } }
                    }
                }
                (content.main)
            }
            footer {
                @if let Some(status) = view.status { span { "gpukilld " (status.version) } }
                @if !view.is_personal {
                    // A link sends no token.
                    a.link href="/api/v1/reference" { "API" }
                    a.link href="/metrics" { "Metrics" }
                }
                span { "Times are those of " bdi { (list.host) } " (" (zone.unwrap_or_default()) ")" }
            }
        }
    }
}

fn header(entry: &str, host: Option<&str>, now: &Markup) -> Markup {
    html! {
        a.skip href="#main" { "Skip to the content" }
        header.top {
            div {
                a.brand href="/" {
                    svg viewBox="0 0 20 20" aria-hidden="true" {
                        path fill="currentColor" d="M5 2h10a3 3 0 0 1 3 3v10a3 3 0 0 1-3 3H5a3 3 0 0 1-3-3V5a3 3 0 0 1 3-3Zm1 9v4h2v-4Zm3-5v9h2V6Zm3 3v6h2V9Z" {}
                    }
                    "gpukill"
                    @if let Some(host) = host { bdi { (host) } }
                }
                nav aria-label="Pages" {
                    @for (name, path) in ENTRIES {
                        @let current = (name == entry).then_some("page");
                        a href=(path) aria-current=[current] { (name) }
                    }
                }
                div.now { (now) }
            }
        }
    }
}

/// The mode of the guard, and the number of open violations.
fn guard_chip(view: &PageView<'_>) -> Markup {
    let guard = &view.list.guard;
    let (class, text) = match (guard.stopped, guard.open) {
        (true, _) => ("chip bad", format!("guard {}, stopped", guard.mode)),
        (false, 0) => ("chip", format!("guard {}", guard.mode)),
        (false, open) => ("chip warn", format!("guard {}, {open} open", guard.mode)),
    };
    html! { a class=(class) href="/guard" { (text) } }
}

/// What the viewer may do here.
fn rights_chip(status: &DaemonStatus, is_personal: bool) -> Markup {
    let text = match is_personal {
        true => {
            let user = status.caller.user.last_known().cloned();
            let user = user.unwrap_or_else(|| status.caller.uid.to_string());
            format!("{user}: {}", rights_text(&status.caller.rights))
        }
        false => "looks only".to_owned(),
    };
    html! { a.chip href="/status" { bdi { (text) } } }
}

/// What these rights allow.
pub(super) fn rights_text(rights: &[Right]) -> &'static str {
    let has = |right| rights.contains(&right);
    match (
        has(Right::EndAny),
        has(Right::EditRules),
        has(Right::EndOwn),
    ) {
        (true, true, _) => "may end any process and edit rules",
        (true, false, _) => "may end any process",
        (false, true, _) => "may edit rules",
        (false, false, true) => "may end own processes",
        (false, false, false) => "may look",
    }
}

/// A page that says what is wrong.
pub(super) fn problem_page(problem: &Problem, is_personal: bool) -> Markup {
    let is_locked = problem.status() == StatusCode::UNAUTHORIZED;
    let locked = is_locked.then_some("");
    let title = match is_locked {
        true => "Token",
        false => "Problem",
    };
    let root = html! {
        div #page data-title={ (title) " · gpukill" } data-clock="" data-age="0" data-locked=[locked] {
            (header("", None, &html! { span #live .live data-own="" { } }))
            main #main tabindex="-1" {
                @if is_locked {
                    noscript { (problem_message(problem)) }
                    // The script shows it if it has no token: else there is a page at once.
                    section #unlock .panel.stack hidden {
                        h1 { "This page needs its token" }
                        p { @if is_personal {
                            "Open the address that " code { "gpukillctl web" } " printed, with all that follows the #."
                        } @else {
                            "An admin makes tokens: " code { "gpukill-gateway token new NAME" } "."
                        } }
                        form #unlock-form {
                            label { "Token " input type="password" name="token" autocomplete="off" required; }
                            button.primary { "Open" }
                        }
                    }
                } @else {
                    (problem_message(problem))
                }
            }
        }
    };
    document(title, &root)
}

fn problem_message(problem: &Problem) -> Markup {
    html! {
        section.panel.stack {
            h1 { (problem.detail()) }
            @if let Some(hint) = problem.hint() { p.soft { (hint) } }
            p { a.link href="/" { "Overview" } }
        }
    }
}

/// The periods of a page with charts, as links.
pub(super) fn range_tabs(view: &PageView<'_>) -> Markup {
    let current = view.parameter("range");
    html! {
        nav.tabs aria-label="Period" {
            @for (name, label) in [("1h", "1 h"), ("24h", "24 h"), ("7d", "7 d"), ("30d", "30 d")] {
                @let is_current = name == current || current.is_empty() && name == "24h";
                a href=(view.link(&[("range", name)])) aria-current=[is_current.then_some("true")] { (label) }
            }
        }
    }
}

/// The hours of a period.
pub(super) fn range_hours(range: &str) -> u32 {
    match range {
        "1h" => 1,
        "7d" => 168,
        "30d" => 720,
        _ => 24,
    }
}

/// Since when something is, in the middle of a text.
pub(super) fn since(at: &str) -> Markup {
    html! { "since " (moment(at)) }
}
