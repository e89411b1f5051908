//! `audit export`: records into a file, page by page, newest first; the whole of
//! them or no file.

use super::{DEFAULT_HOURS, PAGE, connect, filter, now, span};
use crate::args::{Export, ExportFormat};
use crate::connect::{Daemon, Patience};
use crate::exit::{Exit, Failure};
use crate::output::export::partial::{IfThere, Partial};
use crate::output::export::{Exported, Target, exported, reached};
use crate::output::message::Messages;
use crate::output::passing::Passing;
use crate::output::print;
use crate::settings::Settings;
use gpukill_proto::audit::{AuditFilter, AuditQuery};
use std::path::Path;

/// As a new file of any program: the umask has the last word.
const MODE: u32 = 0o666;

/// Exports.
pub(super) fn run(
    wanted: &Export,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let format = form(wanted).map_err(Failure::Usage)?;
    let span = span(&wanted.period, DEFAULT_HOURS, now()).map_err(Failure::Usage)?;
    let filter = filter(&wanted.which, span)?;
    let is_to_stdout = wanted.file == Path::new("-");
    let target = if is_to_stdout {
        Target::Stdout
    } else {
        let if_there = IfThere::with(wanted.force);
        Target::File(Partial::create(&wanted.file, if_there, MODE)?)
    };
    let mut records = Exported::begin(format, target)?;
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    // Between records on the same terminal it would be in the way.
    let line = Passing::on_stderr(settings).filter(|_| !is_to_stdout);
    pages(&daemon, &filter, settings, &mut records, line)?;
    if records.count() == 0 && !wanted.which.typed().is_empty() {
        return Err(Failure::NoMatch("no record matches".into()));
    }
    let count = records.finish()?;
    if !is_to_stdout {
        print(&exported(count, &wanted.file))?;
    }
    Ok(Exit::Done)
}

/// In which form.
fn form(wanted: &Export) -> Result<ExportFormat, String> {
    let is_to_stdout = wanted.file == Path::new("-");
    let by_name = || ExportFormat::of(&wanted.file).filter(|_| !is_to_stdout);
    match wanted.format.or_else(by_name) {
        Some(ExportFormat::Parquet) if is_to_stdout => {
            Err("parquet needs a file: its end says where everything is".into())
        }
        Some(format) => Ok(format),
        None => Err(format!(
            "{} does not say in which form: end it in .csv, .jsonl or .parquet, or use --format",
            wanted.file.display()
        )),
    }
}

fn pages(
    daemon: &Daemon,
    filter: &AuditFilter,
    settings: &Settings,
    records: &mut Exported,
    mut line: Option<Passing>,
) -> Result<(), Failure> {
    let mut before = None;
    loop {
        let query = AuditQuery {
            filter: filter.clone(),
            before,
            limit: PAGE,
        };
        let patience = Patience::lasting(settings.timeout);
        let page = daemon.audit(&query, patience)?;
        records.add(&page.records)?;
        if let (Some(line), Some(last)) = (&mut line, page.records.last()) {
            line.say(reached(records.count(), last.at, settings));
        }
        match page.next {
            None => return Ok(()),
            Some(next) if before.is_some_and(|before| next >= before) => {
                return Err(Failure::Broken("its pages do not advance".into()));
            }
            Some(next) => before = Some(next),
        }
    }
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
            })) => form(&export),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_form_is_typed_or_the_files_ending() {
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
                "{file} does not say in which form: end it in .csv, .jsonl or .parquet, or use --format"
            )
        };
        for file in ["-", "records", "records.xlsx", ".csv"] {
            assert_eq!(formed(&[file]), Err(unsaid(file)));
        }
        assert_eq!(
            formed(&["-", "--format", "parquet"]),
            Err("parquet needs a file: its end says where everything is".into())
        );
    }
}
