//! Rows for spreadsheets and scripts. An unknown value is an empty field, and
//! the last column says why.

use crate::exit::Failure;
use gpukill_proto::document::{AuditDocument, GpuDocument, ListDocument, ProcessDocument};
use gpukill_proto::text::visible;
use std::collections::BTreeMap;

/// A column: its name, and its field in a row.
type Field<T> = (&'static str, fn(&T) -> String);

const GPU_FIELDS: &[Field<GpuDocument>] = &[
    ("gpu_index", |gpu| gpu.gpu_index.to_string()),
    ("id", |gpu| gpu.id.clone()),
    ("pci", |gpu| text(&gpu.pci)),
    ("name", |gpu| text(&gpu.name)),
    ("vendor", |gpu| gpu.vendor.into()),
    ("state", |gpu| gpu.state.into()),
    ("lost_since", |gpu| text(&gpu.lost_since)),
    ("lost_reason", |gpu| text(&gpu.lost_reason)),
    ("mem_used_mb", |gpu| text(&gpu.mem_used_mb)),
    ("mem_total_mb", |gpu| text(&gpu.mem_total_mb)),
    ("mem_used_bytes", |gpu| text(&gpu.mem_used_bytes)),
    ("mem_total_bytes", |gpu| text(&gpu.mem_total_bytes)),
    ("mem_reserved_bytes", |gpu| text(&gpu.mem_reserved_bytes)),
    ("mem_unattributed_bytes", |gpu| {
        text(&gpu.mem_unattributed_bytes)
    }),
    ("mem_unified", |gpu| gpu.mem_unified.to_string()),
    ("util_pct", |gpu| text(&gpu.util_pct)),
    ("temp_c", |gpu| text(&gpu.temp_c)),
    ("power_w", |gpu| text(&gpu.power_w)),
    ("power_limit_w", |gpu| text(&gpu.power_limit_w)),
    ("ecc_volatile", |gpu| text(&gpu.ecc_volatile)),
    ("pids", |gpu| text(&gpu.pids)),
    ("top_pid", |gpu| {
        text(&top(gpu, |process| Some(process.pid)))
    }),
    ("top_user", |gpu| {
        text(&top(gpu, |process| process.user.clone()))
    }),
    ("top_proc_name", |gpu| {
        text(&top(gpu, |process| process.proc_name.clone()))
    }),
    ("top_used_mem_mb", |gpu| {
        text(&top(gpu, |process| process.used_mem_mb))
    }),
    ("top_used_mem_bytes", |gpu| {
        text(&top(gpu, |process| process.used_mem_bytes))
    }),
    ("reasons", |gpu| reasons(&gpu.reasons)),
];

const PROCESS_FIELDS: &[Field<ProcessDocument>] = &[
    ("gpu_index", |process| process.gpu_index.to_string()),
    ("gpu_id", |process| process.gpu_id.clone()),
    ("pid", |process| process.pid.to_string()),
    ("uid", |process| text(&process.uid)),
    ("user", |process| text(&process.user)),
    ("proc_name", |process| text(&process.proc_name)),
    ("executable", |process| text(&process.executable)),
    ("command", |process| text(&process.command)),
    ("used_mem_mb", |process| text(&process.used_mem_mb)),
    ("used_mem_bytes", |process| text(&process.used_mem_bytes)),
    ("util_pct", |process| text(&process.util_pct)),
    ("start_time", |process| text(&process.start_time)),
    ("started_at", |process| text(&process.started_at)),
    ("start_ticks", |process| text(&process.start_ticks)),
    ("first_seen", |process| process.first_seen.clone()),
    ("used_for", |process| process.used_for.join("+")),
    ("container", |process| text(&process.container)),
    ("container_id", |process| text(&process.container_id)),
    ("reasons", |process| reasons(&process.reasons)),
];

const AUDIT_FIELDS: &[Field<AuditDocument>] = &[
    ("id", |record| record.id.to_string()),
    ("timestamp", |record| record.timestamp.clone()),
    ("gpu_index", |record| record.gpu_index.to_string()),
    ("gpu_id", |record| record.gpu_id.clone()),
    ("gpu_name", |record| text(&record.gpu_name)),
    ("pid", |record| text(&record.pid)),
    ("uid", |record| text(&record.uid)),
    ("user", |record| text(&record.user)),
    ("process_name", |record| text(&record.process_name)),
    ("command", |record| text(&record.command)),
    ("memory_used_mb", |record| text(&record.memory_used_mb)),
    ("memory_used_bytes", |record| {
        text(&record.memory_used_bytes)
    }),
    ("utilization_pct", |record| text(&record.utilization_pct)),
    ("temperature_c", |record| text(&record.temperature_c)),
    ("power_w", |record| text(&record.power_w)),
    ("container", |record| text(&record.container)),
    ("reasons", |record| reasons(&record.reasons)),
];

fn text<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn top<T>(gpu: &GpuDocument, field: impl Fn(&ProcessDocument) -> Option<T>) -> Option<T> {
    gpu.top_proc.as_ref().and_then(field)
}

fn reasons(reasons: &BTreeMap<&'static str, String>) -> String {
    let reasons = reasons.iter().map(|(field, why)| format!("{field}: {why}"));
    reasons.collect::<Vec<_>>().join("; ")
}

/// Whether the names of the columns come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// They do.
    First,
    /// They were printed before.
    Printed,
}

/// A row for each GPU, with the time of the snapshot, which `--watch` repeats.
pub(crate) fn gpus(list: &ListDocument, header: Header) -> Result<String, Failure> {
    rows(GPU_FIELDS, &list.gpus, Some(&list.ts), header)
}

/// A row for each process on each GPU, with the time of the snapshot.
pub(crate) fn processes(list: &ListDocument, header: Header) -> Result<String, Failure> {
    rows(PROCESS_FIELDS, &list.procs, Some(&list.ts), header)
}

/// A row for each record.
pub(crate) fn records(records: &[AuditDocument], header: Header) -> Result<String, Failure> {
    rows(AUDIT_FIELDS, records, None, header)
}

fn rows<T>(
    fields: &[Field<T>],
    rows: &[T],
    ts: Option<&str>,
    header: Header,
) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Failure::Output(error.into());
    if header == Header::First {
        let names = fields.iter().map(|(name, _)| *name);
        let names = ts.map(|_| "ts").into_iter().chain(names);
        writer.write_record(names).map_err(failed)?;
    }
    for row in rows {
        // A field may reach a terminal; the daemon's texts are not relied on.
        let texts = ts.map(str::to_owned).into_iter();
        let texts = texts.chain(fields.iter().map(|(_, field)| field(row)));
        let texts = texts.map(|text| visible(text.as_bytes(), usize::MAX));
        writer.write_record(texts).map_err(failed)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| Failure::Output(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
