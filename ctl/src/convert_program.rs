//! Starts `gpukill-convert`, which has the rarely used formats.

use crate::convert::Conversion;
use crate::exit::{Error, Exit, system_error_reason};
use crate::rules_files::{ConversionError, Yaml};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub(crate) const PROGRAM_NAME: &str = "gpukill-convert";

/// Where packages install it.
const INSTALL_DIR: &str = "/usr/libexec/gpukill";

/// Starts the program. It reads its standard input from a pipe and writes to `output`.
///
/// # Errors
/// It is not installed or cannot be started.
pub(crate) fn start_converter(
    form: Conversion,
    output: impl Into<Stdio>,
    errors: Stdio,
) -> Result<Child, Error> {
    start(form, [Stdio::piped(), output.into(), errors])
}

/// Counts the rows of a Parquet file, and checks that they are those that were written.
///
/// # Errors
/// They are others, or the file cannot be read; the program has printed the reason.
pub(crate) fn count_checked_rows(file: File) -> Result<u64, Error> {
    let streams = [file.into(), Stdio::piped(), Stdio::inherit()];
    let program = start(Conversion::CheckRows, streams)?;
    let output = program.wait_with_output().map_err(Error::System)?;
    let count = String::from_utf8_lossy(&output.stdout);
    let count = count.trim_end().parse().ok();
    count.filter(|_| output.status.success()).ok_or_else(|| {
        let why = format!("{PROGRAM_NAME} ended with {}", output.status);
        Error::Output(io::Error::other(why))
    })
}

fn start(form: Conversion, [input, output, errors]: [Stdio; 3]) -> Result<Child, Error> {
    let path = find_program(PROGRAM_NAME).ok_or_else(|| Error::NotDone {
        what: format!(
            "{PROGRAM_NAME} is not installed, which has the form {}",
            form.name()
        ),
        hint: Some("install it beside gpukillctl, or choose another form".to_owned()),
        exit: Exit::NotSupported,
    })?;
    let mut command = Command::new(&path);
    command.arg(env!("CARGO_PKG_VERSION")).arg(form.name());
    command.stdin(input).stdout(output).stderr(errors);
    command.spawn().map_err(|error| Error::NotDone {
        what: format!(
            "cannot start {}: {}",
            path.display(),
            system_error_reason(&error)
        ),
        hint: None,
        exit: Exit::Failed,
    })
}

/// The path of a program of gpukill: in the directory of this program, else where packages install
/// what only programs start.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok();
    let program = program.map(|this| this.with_file_name(name));
    let installed = PathBuf::from(INSTALL_DIR).join(name);
    let mut places = program.into_iter().chain([installed]);
    places.find(|path| path.is_file())
}

/// YAML by the external program.
#[derive(Debug)]
pub(crate) struct ProgramYaml;

impl Yaml for ProgramYaml {
    fn read(&self, text: &str) -> Result<Value, ConversionError> {
        let json = convert_text(Conversion::FromYaml, text)?;
        serde_json::from_str(&json).map_err(|error| ConversionError::Unavailable(error.to_string()))
    }

    fn write(&self, json: &Value) -> Result<String, ConversionError> {
        convert_text(Conversion::ToYaml, &json.to_string())
    }
}

fn convert_text(form: Conversion, text: &str) -> Result<String, ConversionError> {
    let program = start_converter(form, Stdio::piped(), Stdio::piped());
    let mut program =
        program.map_err(|failure| ConversionError::Unavailable(failure.to_string()))?;
    // The program reads its whole input before it writes, so that neither side waits for the
    // other. When it has ended, it has printed the reason.
    if let Some(mut input) = program.stdin.take() {
        let _ = input.write_all(text.as_bytes());
    }
    let output = program.wait_with_output();
    let output =
        output.map_err(|error| ConversionError::Unavailable(system_error_reason(&error)))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(ConversionError::Invalid(text(output.stderr))),
    }
}
