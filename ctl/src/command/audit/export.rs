//! `audit export`: writes records into a file page by page, newest first; all of them or no
//! file.

use super::{DEFAULT_HOURS, collect_pages, connect, no_match, now, record_filter, time_span};
use crate::args::{Export, ExportFormat};
use crate::connect::{Daemon, call};
use crate::exit::{Error, Exit};
use crate::output::audit::export::atomic_file::{AtomicFile, IfExists};
use crate::output::audit::export::{ExportTarget, RecordExport, export_progress, exported_message};
use crate::output::print;
use crate::output::spinner::Spinner;
use crate::settings::Settings;
use gpukill_proto::audit::{AuditFilter, AuditQuery};
use std::path::Path;

/// As for a new file of any program; the umask narrows it.
const FILE_MODE: u32 = 0o666;

pub(super) fn run(wanted: &Export, settings: &Settings) -> Result<Exit, Error> {
    let format = export_format(wanted).map_err(Error::Usage)?;
    let span = time_span(&wanted.period, DEFAULT_HOURS, now()).map_err(Error::Usage)?;
    let filter = record_filter(&wanted.which, span)?;
    let is_to_stdout = wanted.file == Path::new("-");
    let target = if is_to_stdout {
        ExportTarget::Stdout
    } else {
        let if_there = IfExists::from_force(wanted.force);
        ExportTarget::File(AtomicFile::create(&wanted.file, if_there, FILE_MODE)?)
    };
    let mut records = RecordExport::start(format, target)?;
    let daemon = connect(settings, settings.request_timeout())?;
    // Between records on the same terminal the progress line would be in the way.
    let line = Spinner::waiting_for("the records", settings).filter(|_| !is_to_stdout);
    request_pages(&daemon, &filter, settings, &mut records, line)?;
    if records.count() == 0 && !wanted.which.conditions().is_empty() {
        let groups = wanted.which.group.as_deref().unwrap_or_default();
        return Err(no_match("record", &wanted.which.users(), groups));
    }
    let count = records.finish()?;
    if !is_to_stdout {
        print(&exported_message(count, &wanted.file))?;
    }
    Ok(Exit::Done)
}

fn export_format(wanted: &Export) -> Result<ExportFormat, String> {
    let is_to_stdout = wanted.file == Path::new("-");
    let by_name = || ExportFormat::from_path(&wanted.file).filter(|_| !is_to_stdout);
    match wanted.format.or_else(by_name) {
        Some(ExportFormat::Parquet) if is_to_stdout => {
            Err("parquet needs a file, because its index is at the end".into())
        }
        Some(format) => Ok(format),
        None => Err(format!(
            "{} does not say in which form: end it in .csv, .jsonl or .parquet, or use --format",
            wanted.file.display()
        )),
    }
}

fn request_pages(
    daemon: &Daemon,
    filter: &AuditFilter,
    settings: &Settings,
    records: &mut RecordExport,
    mut line: Option<Spinner>,
) -> Result<(), Error> {
    collect_pages(0, &mut |before, limit| {
        let query = AuditQuery {
            filter: filter.clone(),
            before,
            limit,
        };
        let timeout = settings.request_timeout();
        let page = call!(daemon, timeout, &mut line, Audit { query })?;
        records.add(&page.records)?;
        if let (Some(line), Some(last)) = (&mut line, page.records.last()) {
            line.set_text(export_progress(records.count(), last.at, settings));
        }
        Ok((page.records.len(), page.next))
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Audit, AuditCommand, Cli, Command, Deferred};
    use clap::Parser as _;

    fn formed(typed: &[&str]) -> Result<ExportFormat, String> {
        let words = ["gpukillctl", "audit", "export"].iter().chain(typed);
        match Cli::try_parse_from(words).expect("it is right").command {
            Command::Audit(Deferred(Audit {
                command: Some(AuditCommand::Export(export)),
                ..
            })) => export_format(&export),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn form_is_typed_or_from_the_extension() {
        use ExportFormat::{Csv, Jsonl, Parquet};
        let cases: [(&[&str], ExportFormat); 7] = [
            (&["a.csv"], Csv),
            (&["/tmp/A.CSV"], Csv),
            (&["a.jsonl"], Jsonl),
            (&["a.ndjson"], Jsonl),
            (&["a.b.parquet"], Parquet),
            (&["a.csv", "--format", "jsonl"], Jsonl),
            (&["-", "--format", "csv"], Csv),
        ];
        for (typed, format) in cases {
            assert_eq!(formed(typed), Ok(format), "{typed:?}");
        }
        let unsaid = |file: &str| {
            format!(
                "{file} does not say in which form: end it in .csv, .jsonl or .parquet, or use \
                --format"
            )
        };
        for file in ["-", "records", "records.xlsx", ".csv"] {
            assert_eq!(formed(&[file]), Err(unsaid(file)));
        }
        assert_eq!(
            formed(&["-", "--format", "parquet"]),
            Err("parquet needs a file, because its index is at the end".into())
        );
    }
}
