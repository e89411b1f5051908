//! Parquet, by the program that writes it.

use crate::convert::Form;
use crate::converter::{NAME, start};
use crate::exit::Failure;
use gpukill_proto::audit::AuditRecord;
use gpukill_proto::transport::codec::encode;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::process::{Child, ChildStdin, Stdio};

/// The program at work: it reads records on its standard input, and writes the file to its
/// standard output.
pub(super) struct Writer {
    program: Child,
    records: BufWriter<ChildStdin>,
}

impl Writer {
    /// Begins a file.
    ///
    /// # Errors
    /// The program is not there, or cannot be started.
    pub(super) fn begin(file: File) -> Result<Self, Failure> {
        let mut program = start(Form::Parquet, file, Stdio::inherit())?;
        let records = program.stdin.take();
        let records = records.ok_or_else(|| Failure::System(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self {
            program,
            records: BufWriter::new(records),
        })
    }

    /// Takes a record: its length in four bytes, the highest first, and it as it travels.
    ///
    /// # Errors
    /// The program is gone; it has said why.
    pub(super) fn add(&mut self, record: &AuditRecord) -> Result<(), Failure> {
        let record = encode(record).map_err(|error| Failure::Output(io::Error::other(error)))?;
        let length = u32::try_from(record.len());
        let length = length.map_err(|error| Failure::Output(io::Error::other(error)))?;
        let taken = self.records.write_all(&length.to_be_bytes());
        taken
            .and_then(|()| self.records.write_all(&record))
            .map_err(Failure::Output)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// It is not whole.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let Self {
            mut program,
            records,
        } = self;
        let flushed = records.into_inner().map_err(io::IntoInnerError::into_error);
        // What it waits for ends here.
        drop(flushed.map_err(Failure::Output)?);
        let status = program.wait().map_err(Failure::System)?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::Output(io::Error::other(format!(
                "{NAME} ended with {status}"
            )))),
        }
    }
}
