//! The program `gpukill-convert`, which gpukillctl starts for the forms that are seldom wanted:
//! Parquet and YAML. What reads and writes them is a fifth of the client, and Parquet takes a
//! library that nothing else there needs, at each start.

mod columns;

pub(crate) use columns::Columns;

use crate::output::message::of_a_part;
use crate::output::{print, stdout_file};
use crate::rules_files::{NotConverted, Yaml};
use gpukill_proto::audit::AuditRecord;
use gpukill_proto::document::AuditDocument;
use gpukill_proto::transport::codec::decode;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

/// What is converted into what: the program's second argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Records to a Parquet file, which is standard output.
    Parquet,
    /// YAML to JSON.
    FromYaml,
    /// JSON to YAML.
    ToYaml,
}

impl Form {
    const ALL: [Self; 3] = [Self::Parquet, Self::FromYaml, Self::ToYaml];

    /// As it is typed.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::FromYaml => "from-yaml",
            Self::ToYaml => "to-yaml",
        }
    }
}

/// The longest record that is read, in bytes: a page of the daemon's has no more.
const LONGEST: u32 = 1 << 20;

/// Converts standard input to standard output. The arguments are the version of the program
/// that gives it, for records of another cannot be read, and the form.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match convert(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            of_a_part(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn convert(arguments: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    let mut arguments = arguments.into_iter().skip(1);
    let version = arguments.next().unwrap_or_default();
    let form = arguments.next().unwrap_or_default();
    let form = Form::ALL.into_iter().find(|it| form == it.name());
    let Some(form) = form.filter(|_| version == env!("CARGO_PKG_VERSION")) else {
        let why = concat!(
            "gpukill-convert is a part of gpukillctl ",
            env!("CARGO_PKG_VERSION"),
            ", which starts it: gpukillctl audit export FILE.parquet"
        );
        return Err(io::Error::other(why));
    };
    match form {
        Form::Parquet => records_to_parquet(),
        Form::FromYaml => {
            let text = io::read_to_string(io::stdin())?;
            let json = InProcess.read(&text).map_err(not_converted)?;
            printed(&json.to_string())
        }
        Form::ToYaml => {
            let json: Value = serde_json::from_reader(io::stdin())?;
            let yaml = InProcess.write(&json).map_err(not_converted)?;
            printed(&yaml)
        }
    }
}

fn printed(text: &str) -> io::Result<()> {
    print(text).map_err(|failure| io::Error::other(failure.to_string()))
}

fn not_converted(why: NotConverted) -> io::Error {
    match why {
        NotConverted::Wrong(why) | NotConverted::Unable(why) => io::Error::other(why),
    }
}

/// YAML by the library that the program has.
#[derive(Debug)]
pub struct InProcess;

impl Yaml for InProcess {
    fn read(&self, text: &str) -> Result<Value, NotConverted> {
        serde_saphyr::from_str(text).map_err(|error| NotConverted::Wrong(error.to_string()))
    }

    fn write(&self, json: &Value) -> Result<String, NotConverted> {
        serde_saphyr::to_string(json).map_err(|error| NotConverted::Wrong(error.to_string()))
    }
}

fn records_to_parquet() -> io::Result<()> {
    let mut columns = Columns::begin(stdout_file()?)?;
    let mut records = io::stdin().lock();
    while let Some(record) = next(&mut records)? {
        columns.add(record.at, &AuditDocument::from(&record))?;
    }
    columns.finish()
}

/// The next record, behind its length in four bytes, the highest first; `None` at the end.
fn next(records: &mut impl Read) -> io::Result<Option<AuditRecord>> {
    let mut length = [0; 4];
    match records.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_be_bytes(length);
    if length > LONGEST {
        return Err(io::Error::other("a record is too long"));
    }
    let mut record = vec![0; length as usize];
    records.read_exact(&mut record)?;
    decode(&record).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::sample::records;
    use gpukill_proto::transport::codec::encode;

    #[test]
    fn records_are_read_one_after_another_and_nothing_else_is() {
        let all = records();
        let mut bytes = Vec::new();
        for record in &all {
            let record = encode(record).unwrap();
            bytes.extend(u32::try_from(record.len()).unwrap().to_be_bytes());
            bytes.extend(record);
        }
        let mut rest = bytes.as_slice();
        for record in &all {
            assert_eq!(next(&mut rest).unwrap().as_ref(), Some(record));
        }
        assert!(next(&mut rest).unwrap().is_none());
        assert!(next(&mut &bytes[..bytes.len() - 1][4..]).is_err());
        assert!(next(&mut [255; 8].as_slice()).is_err());
    }

    #[test]
    fn the_program_is_for_gpukillctl_of_its_version() {
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
