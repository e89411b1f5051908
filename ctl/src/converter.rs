//! Starts `gpukill-convert`, which has the forms that are seldom wanted.

use crate::convert::Form;
use crate::exit::{Exit, Failure};
use crate::rules_files::{NotConverted, Yaml};
use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The program.
pub(crate) const NAME: &str = "gpukill-convert";

/// Where packages put it.
const INSTALLED: &str = "/usr/libexec/gpukill";

/// Starts it: it reads its standard input, and writes to `output`.
///
/// # Errors
/// It is not there, or cannot be started.
pub(crate) fn start(form: Form, output: impl Into<Stdio>, errors: Stdio) -> Result<Child, Failure> {
    let path = found().ok_or_else(|| Failure::NotDone {
        what: format!(
            "{NAME} is not installed, which has the form {}",
            form.name()
        ),
        hint: Some("install it beside gpukillctl, or choose another form".to_owned()),
        exit: Exit::NotSupported,
    })?;
    let mut command = Command::new(path);
    command.arg(env!("CARGO_PKG_VERSION")).arg(form.name());
    command.stdin(Stdio::piped()).stdout(output).stderr(errors);
    command.spawn().map_err(Failure::System)
}

/// The program: beside this one, else where packages put it.
fn found() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok();
    let beside = beside.map(|this| this.with_file_name(NAME));
    let installed = PathBuf::from(INSTALLED).join(NAME);
    let mut places = beside.into_iter().chain([installed]);
    places.find(|path| path.is_file())
}

/// YAML by the program.
#[derive(Debug)]
pub(crate) struct ByProgram;

impl Yaml for ByProgram {
    fn read(&self, text: &str) -> Result<Value, NotConverted> {
        let json = converted(Form::FromYaml, text)?;
        serde_json::from_str(&json).map_err(|error| NotConverted::Unable(error.to_string()))
    }

    fn write(&self, json: &Value) -> Result<String, NotConverted> {
        converted(Form::ToYaml, &json.to_string())
    }
}

/// What the program makes of a text.
fn converted(form: Form, text: &str) -> Result<String, NotConverted> {
    let program = start(form, Stdio::piped(), Stdio::piped());
    let mut program = program.map_err(|failure| NotConverted::Unable(failure.to_string()))?;
    // It reads the whole before it writes, so that neither waits for the other. Where it has
    // ended, it says why.
    if let Some(mut input) = program.stdin.take() {
        let _ = input.write_all(text.as_bytes());
    }
    let output = program.wait_with_output();
    let output = output.map_err(|error| NotConverted::Unable(error.to_string()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(NotConverted::Wrong(text(output.stderr))),
    }
}
