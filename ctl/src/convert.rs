//! The program `gpukill-convert`, which gpukillctl starts for the rarely used formats Parquet
//! and YAML. The code for them is a fifth of the client, and Parquet needs a library that
//! nothing else in the client needs and that would be loaded at each start.

mod archived_rows;
mod columns;

pub(crate) use columns::ParquetColumns;

use crate::archive::{ArchiveKind, CommandLines};
use crate::exit::system_error_reason;
use crate::output::csv::column_names;
use crate::output::message::program_error;
use crate::output::{print, stdout_file};
use crate::rules_files::{ConversionError, Yaml};
use columns::count_checked_rows;
use gpukill_proto::audit::AuditRecord;
use gpukill_proto::json::AuditDocument;
use gpukill_proto::transport::codec::decode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

/// The conversion: the program's second argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Records to a Parquet file on standard output.
    Parquet,
    /// Rows of an archive to a Parquet file on standard output.
    Archive(ArchiveKind, CommandLines),
    /// A Parquet file on standard input to the number of its rows, which are checked.
    CheckRows,
    /// YAML to JSON.
    FromYaml,
    /// JSON to YAML.
    ToYaml,
}

impl Conversion {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Parquet => "parquet".to_owned(),
            Self::Archive(kind, CommandLines::Removed) => format!("archive-{}", kind.name()),
            Self::Archive(kind, CommandLines::Kept) => format!("archive-{}-commands", kind.name()),
            Self::CheckRows => "check-rows".to_owned(),
            Self::FromYaml => "from-yaml".to_owned(),
            Self::ToYaml => "to-yaml".to_owned(),
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let archives = [CommandLines::Kept, CommandLines::Removed]
            .into_iter()
            .flat_map(|commands| ArchiveKind::ALL.map(|kind| Self::Archive(kind, commands)));
        let others = [Self::Parquet, Self::CheckRows, Self::FromYaml, Self::ToYaml];
        let mut all = others.into_iter().chain(archives);
        all.find(|it| it.name() == name)
    }
}

/// Maximum length of a record, in bytes: a page of the daemon is no longer.
const MAX_RECORD_BYTES: u32 = 1 << 20;

/// Converts standard input to standard output. The arguments are the version of the calling
/// program, because records of another version cannot be read, and the form.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match convert(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            program_error(&system_error_reason(&error));
            ExitCode::FAILURE
        }
    }
}

fn convert(arguments: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    let mut arguments = arguments.into_iter().skip(1);
    let version = arguments.next().unwrap_or_default();
    let form = arguments.next().unwrap_or_default();
    let form = form.to_str().and_then(Conversion::from_name);
    let Some(form) = form.filter(|_| version == env!("CARGO_PKG_VERSION")) else {
        let why = concat!(
            "gpukill-convert is a part of gpukillctl ",
            env!("CARGO_PKG_VERSION"),
            ", which starts it: gpukillctl audit export FILE.parquet"
        );
        return Err(io::Error::other(why));
    };
    match form {
        Conversion::Parquet => {
            let columns = column_names(AuditDocument::FIELDS);
            rows_to_parquet(&columns, |record: AuditRecord| {
                serde_json::to_value(AuditDocument::from(&record))
            })
        }
        Conversion::Archive(kind, commands) => archived_rows::write(kind, commands),
        Conversion::CheckRows => {
            let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            print_stdout(&format!("{}\n", count_checked_rows(file)?))
        }
        Conversion::FromYaml => {
            let text = io::read_to_string(io::stdin())?;
            let json = InProcessYaml.read(&text).map_err(into_io_error)?;
            print_stdout(&json.to_string())
        }
        Conversion::ToYaml => {
            let json: Value = serde_json::from_reader(io::stdin())?;
            let yaml = InProcessYaml.write(&json).map_err(into_io_error)?;
            print_stdout(&yaml)
        }
    }
}

fn print_stdout(text: &str) -> io::Result<()> {
    print(text).map_err(|failure| io::Error::other(failure.to_string()))
}

fn into_io_error(why: ConversionError) -> io::Error {
    match why {
        ConversionError::Invalid(why) | ConversionError::Unavailable(why) => io::Error::other(why),
    }
}

/// YAML by the linked library.
#[derive(Debug)]
pub struct InProcessYaml;

impl Yaml for InProcessYaml {
    fn read(&self, text: &str) -> Result<Value, ConversionError> {
        serde_saphyr::from_str(text).map_err(|error| ConversionError::Invalid(error.to_string()))
    }

    fn write(&self, json: &Value) -> Result<String, ConversionError> {
        serde_saphyr::to_string(json).map_err(|error| ConversionError::Invalid(error.to_string()))
    }
}

/// Writes the records on standard input as rows with these columns.
fn rows_to_parquet<R: DeserializeOwned>(
    columns: &[&'static str],
    document: impl Fn(R) -> serde_json::Result<Value>,
) -> io::Result<()> {
    let mut rows = ParquetColumns::create(stdout_file()?, columns)?;
    let mut records = io::stdin().lock();
    while let Some(record) = next_record(&mut records)? {
        rows.add(&document(record)?)?;
    }
    rows.finish()
}

/// The next record: its length in four bytes, big-endian, then the record; `None` at the end.
fn next_record<R: DeserializeOwned>(records: &mut impl Read) -> io::Result<Option<R>> {
    let mut length = [0; 4];
    match records.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_be_bytes(length);
    if length > MAX_RECORD_BYTES {
        return Err(io::Error::other("a record is too long"));
    }
    let mut record = vec![0; length as usize];
    records.read_exact(&mut record)?;
    decode(&record).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::records;
    use gpukill_proto::transport::codec::encode;

    #[test]
    fn records_are_read_until_the_end() {
        let all = records();
        let mut bytes = Vec::new();
        for record in &all {
            let record = encode(record).unwrap();
            bytes.extend(u32::try_from(record.len()).unwrap().to_be_bytes());
            bytes.extend(record);
        }
        let mut rest = bytes.as_slice();
        for record in &all {
            assert_eq!(next_record(&mut rest).unwrap().as_ref(), Some(record));
        }
        let next = |mut rest: &[u8]| next_record::<AuditRecord>(&mut rest);
        assert!(next(rest).unwrap().is_none());
        assert!(next(&bytes[..bytes.len() - 1][4..]).is_err());
        assert!(next(&[255; 8]).is_err());
    }

    #[test]
    fn version_of_the_caller_must_match() {
        for arguments in [
            &["gpukill-convert"][..],
            &["gpukill-convert", "0.0.0", "parquet"],
            &["gpukill-convert", env!("CARGO_PKG_VERSION"), "csv"],
        ] {
            let refused = convert(arguments.iter().map(OsString::from));
            let why = refused.unwrap_err().to_string();
            assert!(why.contains("a part of gpukillctl"), "{why}");
        }
    }
}
