//! The page of a GPU: its readings, charts, processes, and the processes that have it open.

use super::format::{columns, fact, model, number, size, thousands, value};
use super::gpus::{TRACES, rows};
use super::layout::range_tabs;
use super::past::charts;
use super::processes::{path, table};
use super::subject::end_button;
use super::{Content, Page, PageView, Section};
use crate::calls::CallContext;
use crate::document::Document;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::routes::{GPU, now};
use axum::http::StatusCode;
use gpukill_policy::health::xid_meaning;
use gpukill_proto::json::{DeviceHoldersDocument, GpuDocument, HolderFindingDocument};
use maud::{Markup, html};

pub(super) const PAGE: Page = Page::new("gpu", "Overview", content, &[TRACES, CHARTS, HOLDERS]);

const CHARTS: Section = Section::new(
    "gpu charts",
    &["gpu", "range"],
    30,
    |context, parameters| charts(context, parameters, &["gpu"]),
);

/// A scan costs the daemon more than a look at its memory.
const HOLDERS: Section = Section::new("gpu holders", &["gpu"], 15, holders);

fn content(view: &PageView<'_>) -> Result<Content, Problem> {
    let wanted = view.parameter("gpu");
    let mut gpus = view.list.gpus.iter();
    let gpu = gpus.find(|gpu| gpu.id == wanted || gpu.gpu_index.to_string() == wanted);
    let Some(gpu) = gpu else {
        let problem = Problem::new(StatusCode::NOT_FOUND, "there is no such GPU");
        return Err(problem.with_hint("the overview lists all GPUs"));
    };
    let processes = view.list.procs.iter().filter(|it| it.gpu_id == gpu.id);
    let title = format!("GPU {}", gpu.gpu_index);
    let name = gpu.name.as_deref().map_or("?", model);
    let main = html! {
        div.head { h1 { (title) " " small { bdi { (name) } } } (range_tabs(view)) }
        (rows(view, &[gpu]))
        section.stack { h2 .hidden { "Charts" } (view.section(CHARTS.name)) }
        (table(view, processes.collect(), "Processes"))
        section #holders .stack { h2 { "Processes that have it open" } (view.section(HOLDERS.name)) }
        section.stack { h2 { "Details" } (details(gpu)) }
    };
    Content::new(title, main)
}

fn details(gpu: &GpuDocument) -> Markup {
    let reasons = &gpu.reasons;
    let clock = |value: Option<u32>, field| number(value, "MHz", (reasons, field));
    html! {
        dl.facts.panel {
            (fact("Id", &html! { code { (gpu.id) } }))
            (fact("PCI", &value(gpu.pci.as_deref(), (reasons, "pci"), |pci| html! { code { (pci) } })))
            (fact("Vendor", &html! { (gpu.vendor) }))
            (fact("Reserved memory", &value(gpu.mem_reserved_bytes, (reasons, "mem_reserved_bytes"), |bytes| html! { (size(bytes)) })))
            (fact("Memory controller", &number(gpu.mem_util_pct, "%", (reasons, "mem_util_pct"))))
            (fact("Clocks", &html! {
                "SM " (clock(gpu.clock_sm_mhz, "clock_sm_mhz")) " of " (clock(gpu.clock_sm_max_mhz, "clock_sm_max_mhz"))
                ", memory " (clock(gpu.clock_mem_mhz, "clock_mem_mhz"))
            }))
            (fact("Reduced clocks", &value(gpu.throttle_reasons.as_ref(), (reasons, "throttle_reasons"), |all| html! {
                @if all.is_empty() { "no" } @else { (all.join(", ").replace('_', " ")) }
            })))
            (fact("Fan", &number(gpu.fan_pct, "%", (reasons, "fan_pct"))))
            (fact("Memory errors", &value(gpu.ecc_volatile, (reasons, "ecc_volatile"), |errors| html! {
                (thousands(errors)) " uncorrected since the driver was loaded"
            })))
            (fact("Advice of the driver", &value(gpu.recovery_action.as_deref(), (reasons, "recovery_action"), |advice| html! { (advice.replace('_', " ")) })))
            @if let Some(xid) = &gpu.last_xid {
                (fact("Last XID", &html! { (xid.xid) ", " (super::format::moment(&xid.at)) ": " (xid_meaning(xid.xid)) }))
            }
            (fact("PCIe", &value(gpu.pcie_gen.zip(gpu.pcie_width), (reasons, "pcie_gen"), |(generation, width)| html! {
                "generation " (generation) ", " (width) " lanes"
            })))
        }
    }
}

fn holders(context: &mut CallContext, parameters: &Parameters) -> Result<Document, Problem> {
    let gpu = parameters.text(GPU.name).unwrap_or_default();
    let asked = Parameters::of(HOLDER_PARAMETERS, &[(GPU.name, gpu)])?;
    let holders = now::holders(context, &asked)?;
    let device = holders.held_gpus.first();
    let html = device.map_or_else(
        || html! { p.panel.empty { "No process has it open." } },
        device_holders,
    );
    Ok(Document::html(html.into_string()))
}

const HOLDER_PARAMETERS: &[crate::parameters::Parameter] = &[GPU];

fn device_holders(device: &DeviceHoldersDocument) -> Markup {
    html! {
        @for finding in &device.findings { (finding_panel(finding)) }
        @if let Some(why) = &device.incomplete_reason { p.soft { "There may be others: " (why) } }
        @if device.holders.is_empty() {
            p.panel.empty { "No process has it open." }
        } @else {
            div.panel.scroll { table {
                (columns(&[("PID", "num"), ("Process", ""), ("User", ""), ("Role", ""), ("State", "lesser"), ("Has open", "lesser"), ("Memory", "num")]))
                tbody { @for holder in &device.holders {
                    @let name = holder.command.as_deref().or(holder.proc_name.as_deref()).unwrap_or("?");
                    tr data-key=(holder.pid) {
                        td.num { a href=(path(holder.pid, holder.start_ticks)) { (holder.pid) } }
                        td.what { span.cut { bdi { (name) } } }
                        td { bdi { (holder.owner.as_deref().or(holder.user.as_deref()).unwrap_or("?")) } }
                        td { (holder.role.replace('_', " ")) }
                        td.lesser { (holder.state.unwrap_or("?")) }
                        td.lesser { (holder.holds.join(", ")) }
                        td.num { (value(holder.used_mem_bytes, (&holder.reasons, "used_mem_bytes"), |bytes| html! { (size(bytes)) })) }
                    }
                } }
            } }
        }
    }
}

/// Why memory is unattributed, and what to do.
pub(super) fn finding_panel(finding: &HolderFindingDocument) -> Markup {
    html! {
        div.panel.stack {
            p { b { (finding.cause.replace('_', " ")) } }
            ul { @for line in &finding.evidence { li { bdi { (line) } } } }
            @match finding.remedy {
                Some("end") => { (end_button(&finding.remedy_pids, "process")) },
                Some(remedy) => { p.soft { "What helps: " (remedy) } },
                None => {},
            }
        }
    }
}
