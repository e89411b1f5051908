//! Writes Parquet through the program gpukill-convert.

use crate::convert::Conversion;
use crate::convert_program::{PROGRAM_NAME, start_converter};
use crate::exit::Error;
use gpukill_proto::transport::codec::encode;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::process::{Child, ChildStdin, Stdio};

/// The running program: it reads records on its standard input and writes the file to its
/// standard output.
pub(crate) struct ParquetWriter {
    program: Child,
    records: BufWriter<ChildStdin>,
}

impl ParquetWriter {
    /// Starts a file.
    ///
    /// # Errors
    /// The program is not installed or cannot be started.
    pub(crate) fn start(form: Conversion, file: File) -> Result<Self, Error> {
        let mut program = start_converter(form, file, Stdio::inherit())?;
        let records = program.stdin.take();
        let records = records.ok_or_else(|| Error::System(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self {
            program,
            records: BufWriter::new(records),
        })
    }

    /// Adds a record: its length in four bytes, big-endian, then its wire encoding.
    ///
    /// # Errors
    /// The program is gone; it has printed the reason.
    pub(crate) fn add(&mut self, record: &impl Serialize) -> Result<(), Error> {
        let record = encode(record).map_err(|error| Error::Output(io::Error::other(error)))?;
        let length = u32::try_from(record.len());
        let length = length.map_err(|error| Error::Output(io::Error::other(error)))?;
        let taken = self.records.write_all(&length.to_be_bytes());
        taken
            .and_then(|()| self.records.write_all(&record))
            .map_err(Error::Output)
    }

    /// Finishes the file.
    ///
    /// # Errors
    /// The file is not complete.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let Self {
            mut program,
            records,
        } = self;
        let flushed = records.into_inner().map_err(io::IntoInnerError::into_error);
        // Dropping the pipe ends the program's input.
        drop(flushed.map_err(Error::Output)?);
        let status = program.wait().map_err(Error::System)?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::Output(io::Error::other(format!(
                "{PROGRAM_NAME} ended with {status}"
            )))),
        }
    }
}
