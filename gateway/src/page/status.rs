//! The page of gpukilld: its parts, faults, rights, and where programs find the same.

use super::format::{between, columns, moment, seconds, size, thousands, value};
use super::layout::rights_text;
use super::{Content, Page, PageView};
use crate::problem::Problem;
use gpukill_proto::json::StatusDocument;
use gpukill_proto::status::DaemonStatus;
use maud::{Markup, html};

pub(super) const PAGE: Page = Page::new("status", "Status", content, &[]);

fn content(view: &PageView<'_>) -> Result<Content, Problem> {
    let main = html! {
        div.head { h1 { "Status" } }
        @match view.status {
            Some(status) => { (daemon(status, &StatusDocument::from(status))) },
            None => { p.panel.empty { "gpukilld has not answered yet." } },
        }
        section.stack {
            h2 { "For programs" }
            ul.panel.stack {
                li { code { "/api/v1/openapi.json" } " describes every path; " code { "/api/v1/reference" } " is the same for people" }
                li { code { "/metrics" } " is for Prometheus; " code { "/api/v1/live" } " has each snapshot as an event" }
                @if view.is_personal {
                    li { "Send the token of this gateway: " code { "Authorization: Bearer TOKEN" } }
                }
            }
        }
    };
    Content::new("Status", main)
}

fn daemon(status: &DaemonStatus, document: &StatusDocument) -> Markup {
    let reasons = &document.reasons;
    let interval = document.poll_interval_ms as f64 / 1_000.0;
    html! {
        section.stack {
            h2 { "gpukilld" }
            dl.facts.panel {
                dt { "Version" } dd { (document.version) ", protocol " (document.protocol) }
                dt { "Running" } dd { (seconds(document.uptime_seconds as f64)) ", since " (moment(&document.started_at)) }
                dt { "This gateway" } dd {
                    "is " bdi { (document.user.clone().unwrap_or_else(|| document.uid.to_string())) } ": "
                    (rights_text(&status.caller.rights))
                    @if let Some(group) = &document.log_in_again_for { "; the group " (group) " gives rights after the next login" }
                }
                @if let Some(why) = &document.will_not_act { dt { "Acting" } dd.warn { bdi { (why) } } }
                dt { "Polling" } dd {
                    "every " (format!("{interval}")) " s"
                    @if let Some(at) = &document.last_poll_at { ", last " (between(at, &document.ts)) " before this" }
                    ", " (thousands(document.polls_late)) " late of " (thousands(document.polls))
                }
                dt { "Store" } dd {
                    (size(document.store_samples_bytes)) " samples, " (size(document.store_audit_bytes)) " records"
                    @if let Some(at) = &document.store_written_at { ", written " (moment(at)) }
                    @if document.store_dropped > 0 { span.warn { ", " (thousands(document.store_dropped)) " dropped" } }
                }
                dt { "Guard" } dd { (document.guard.mode) ", " (document.guard.rules) " rules, " (document.guard.open) " open violations" }
                dt { "Rogue" } dd { "watches " (document.rogue.watched) " processes, " (document.rogue.findings) " findings"
                    @if let Some(worst) = document.rogue.worst { ", the worst " (worst) }
                    @for mistake in &document.rogue.mistakes { br; span.warn { bdi { (mistake) } } }
                }
            }
        }
        section.stack {
            h2 { "Drivers" }
            div.panel.scroll { table {
                (columns(&[("Backend", ""), ("State", ""), ("GPUs", "num"), ("Driver", ""), ("Cost of a poll", "num"), ("Since", "")]))
                tbody { @for backend in &document.backends {
                    tr data-key=(backend.name) {
                        td { (backend.name) }
                        td { (backend.state) @if let Some(why) = &backend.why { small { ": " bdi { (why) } } } }
                        td.num { (value(backend.gpus, (&backend.reasons, "gpus"), |gpus| html! { (gpus) })) }
                        td { (backend.driver.as_deref().unwrap_or("–")) @if let Some(cuda) = &backend.cuda { ", CUDA " (cuda) } }
                        td.num { (value(backend.poll_cost_us, (&backend.reasons, "poll_cost_us"), |cost| html! { (format!("{:.1}", cost as f64 / 1_000.0)) " ms" })) }
                        td { (moment(&backend.since)) }
                    }
                } }
            } }
        }
        section.stack {
            h2 { "Faults and alerts" }
            @if document.faults.is_empty() && document.alerts.is_empty() { p.panel.empty { "None." } }
            @else {
                ul.look {
                    @for fault in &document.faults { li.bad { span { b { (fault.part) } ": " bdi { (fault.what) } ", since " (moment(&fault.since)) } } }
                    @for alert in &document.alerts { li { span { b { (alert.part) } ": " bdi { (alert.what) } ", since " (moment(&alert.since)) } } }
                }
            }
            @for (field, why) in reasons { p.soft { (field.replace('_', " ")) ": " (why) } }
        }
    }
}
