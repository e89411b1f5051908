//! The page of suspicious processes: each with the evidence and what can be done.

use super::format::{moment, segment, thousands};
use super::processes::path;
use super::subject::end_button;
use super::{Content, Page, PageView, Section};
use crate::calls::CallContext;
use crate::document::Document;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::routes::now;
use gpukill_proto::json::{IndicatorDocument, RogueFindingDocument};
use maud::{Markup, html};

pub(super) const PAGE: Page = Page::new("rogue", "Rogue", content, &[FINDINGS]);

/// A scan of a day, for all viewers once a minute.
const FINDINGS: Section = Section::new("rogue findings", &[], 60, findings);

fn content(view: &PageView<'_>) -> Result<Content, Problem> {
    let main = html! {
        div.head { h1 { "Suspicious processes" } small { "of the last 24 hours" } }
        (view.section(FINDINGS.name))
    };
    Content::new("Rogue", main)
}

fn findings(context: &mut CallContext, _: &Parameters) -> Result<Document, Problem> {
    let asked = Parameters::of(SCAN_PARAMETERS, &[(now::SCAN_HOURS.name, "24")])?;
    let scan = now::rogue(context, &asked)?;
    let html = html! {
        p.soft { (thousands(u64::from(scan.evaluated))) " processes were assessed." }
        @if scan.findings.is_empty() { p.panel.empty { "Nothing was found." } }
        @for finding in &scan.findings { (finding_panel(finding)) }
        @if scan.more > 0 { p.soft { (scan.more) " more, none of them worse." } }
    };
    Ok(Document::html(html.into_string()))
}

const SCAN_PARAMETERS: &[crate::parameters::Parameter] = &[now::SCAN_HOURS];

fn finding_panel(finding: &RogueFindingDocument) -> Markup {
    let gpus: Vec<String> = finding.gpu_indices.iter().map(u32::to_string).collect();
    let name = finding.proc_name.as_deref().unwrap_or("?");
    html! {
        article.panel.stack data-key={ (finding.pid) "-" (finding.start_ticks) } {
            div.head {
                h2 { a href=(path(finding.pid, Some(finding.start_ticks))) { (finding.pid) " " bdi { (name) } } }
                @for verdict in &finding.verdicts {
                    @let class = if matches!(verdict.risk, "critical" | "high") { "chip bad" } else { "chip warn" };
                    span class=(class) { (verdict.risk) ": " (verdict.threat.replace('_', " ")) ", " (format!("{:.2}", verdict.score)) }
                }
                @if finding.present { (end_button(&[finding.pid], "job")) } @else { span.chip { "uses no GPU now" } }
            }
            p {
                @if let Some(owner) = &finding.owner { "of " a.link href={ "/person/" (segment(owner)) } { bdi { (owner) } } ", " }
                @if !gpus.is_empty() { "on GPU " (gpus.join(", ")) ", " }
                "since " (moment(&finding.since)) ", last seen " (moment(&finding.last_seen))
            }
            @if let Some(executable) = &finding.executable { p { code { bdi { (executable) } } } }
            @for verdict in &finding.verdicts { (indicator_rows(&verdict.indicators)) }
            @if !finding.recommendations.is_empty() {
                ul.stack { @for advice in &finding.recommendations {
                    li { bdi { (advice.text) } @if let Some(command) = &advice.command { " " code { bdi { (command) } } } }
                } }
            }
        }
    }
}

/// Pieces of evidence, the weightiest first.
pub(super) fn indicator_rows(indicators: &[IndicatorDocument]) -> Markup {
    html! {
        @if !indicators.is_empty() {
            ul.evidence { @for it in indicators {
                li { span.soft title=(it.kind.replace('_', " ")) { (it.family) " " (format!("{:.2}", it.weight)) } span { bdi { (it.evidence) } } }
            } }
        }
    }
}
