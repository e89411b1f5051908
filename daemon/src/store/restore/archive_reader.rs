//! Reads the archive of a backup as untrusted data: it is accepted only if it is, byte for byte,
//! what a backup writes. The contents of the two files are checked in `check`.

use super::super::copy::archive::{BLOCK_BYTES, END_BLOCKS, header, padding};
use super::super::database::{AUDIT, DatabaseKind, SAMPLES};
use gpukill_proto::text::sanitize;
use gpukill_proto::units::Timestamp;
use serde::Deserialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

pub(super) trait ArchiveSource {
    /// Fills `into` with the bytes at `offset`.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ArchiveSource for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }
}

impl ArchiveSource for [u8] {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let part = rest.and_then(|rest| rest.get(..into.len()));
        let part = part.ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(part);
        Ok(())
    }
}

/// Why an archive cannot be read.
#[derive(Debug)]
pub(super) enum ArchiveError {
    /// The archive is not a complete copy of a store; holds the reason, for the caller.
    Unfit(String),
    /// The disk of the archive failed.
    Disk(io::Error),
}

impl From<io::Error> for ArchiveError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

fn unfit_error(why: impl Into<String>) -> ArchiveError {
    ArchiveError::Unfit(why.into())
}

#[derive(Debug)]
pub(super) struct BackupArchive {
    pub(super) manifest: Manifest,
    pub(super) samples: FileExtent,
    pub(super) audit: FileExtent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileExtent {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Its time, in seconds since 1970: needed only to check that the header is what a backup
    /// writes.
    seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The host that made the backup, by its own name, escaped for a screen.
    pub(super) host: String,
    pub(super) made_at: Timestamp,
    /// The schema versions of the files.
    pub(super) samples_schema: i64,
    pub(super) audit_schema: i64,
}

/// A manifest of ours has about 400 bytes.
const MAX_MANIFEST_BYTES: u64 = 16 << 10;

/// A host name has at most 64 bytes, and may grow by escaping.
const MAX_HOST_BYTES: usize = 256;

/// The format version of the archives that we write.
const FORMAT_VERSION: u64 = 1;

const MANIFEST: &str = "manifest.json";

pub(super) fn read_archive(
    source: &(impl ArchiveSource + ?Sized),
    length: u64,
) -> Result<BackupArchive, ArchiveError> {
    let mut at = 0;
    let text = read_file_header(source, &mut at, length, MANIFEST)?;
    if text.bytes > MAX_MANIFEST_BYTES {
        return Err(unfit_error(format!("its {MANIFEST} is too long")));
    }
    let mut manifest = vec![0; usize::try_from(text.bytes).unwrap_or(0)];
    source.read_at(&mut manifest, text.offset)?;
    let manifest: ManifestText = parse_manifest(&manifest)?;
    let samples = read_file_header(source, &mut at, length, SAMPLES.file)?;
    let audit = read_file_header(source, &mut at, length, AUDIT.file)?;
    check_end(source, at, length)?;
    for (kind, extent, expected) in [
        (&SAMPLES, samples, &manifest.samples),
        (&AUDIT, audit, &manifest.audit),
    ] {
        check_length(kind, extent, expected)?;
    }
    Ok(BackupArchive {
        manifest: manifest.to_manifest()?,
        samples,
        audit,
    })
}

/// Reads the next file, which must have this name and the header that a backup writes.
fn read_file_header(
    source: &(impl ArchiveSource + ?Sized),
    at: &mut u64,
    length: u64,
    name: &str,
) -> Result<FileExtent, ArchiveError> {
    let begin = at.saturating_add(BLOCK_BYTES);
    if begin > length {
        return Err(truncated_error(*at, name));
    }
    let mut block = [0; BLOCK_BYTES as usize];
    source.read_at(&mut block, *at)?;
    // Any other header field (links, owners, other names) makes the block differ from ours.
    let ours = |bytes, seconds| header(name, bytes, seconds).is_ok_and(|it| it == block);
    let (bytes, seconds) = match (parse_octal(&block, 124), parse_octal(&block, 136)) {
        (Some(bytes), Some(seconds)) if ours(bytes, seconds) => (bytes, seconds),
        _ if *at == 0 => {
            let why = "it is not a copy of a store made by gpukillctl audit backup";
            return Err(unfit_error(why));
        }
        _ => {
            return Err(unfit_error(format!(
                "{name} is not at its place in the archive"
            )));
        }
    };
    let end = begin.saturating_add(bytes);
    let next = end.saturating_add(padding(bytes));
    if next > length {
        return Err(truncated_error(*at, name));
    }
    let mut zeros = vec![0; usize::try_from(next - end).unwrap_or(0)];
    source.read_at(&mut zeros, end)?;
    if zeros.iter().any(|byte| *byte != 0) {
        return Err(unfit_error(format!("unexpected data after {name}")));
    }
    *at = next;
    Ok(FileExtent {
        offset: begin,
        bytes,
        seconds,
    })
}

fn truncated_error(at: u64, name: &str) -> ArchiveError {
    if at == 0 {
        return unfit_error("it is too short to be a copy of a store");
    }
    unfit_error(format!("it is cut short: {name} is incomplete"))
}

/// Parses eleven octal digits.
fn parse_octal(block: &[u8], at: usize) -> Option<u64> {
    let digits = block.get(at..at + 11)?;
    let is_octal = digits.iter().all(|byte| (b'0'..=b'7').contains(byte));
    let text = std::str::from_utf8(digits).ok().filter(|_| is_octal)?;
    u64::from_str_radix(text, 8).ok()
}

fn check_end(
    source: &(impl ArchiveSource + ?Sized),
    at: u64,
    length: u64,
) -> Result<(), ArchiveError> {
    let mut block = END_BLOCKS;
    let after = at.saturating_add(block.len() as u64);
    if after > length {
        return Err(unfit_error("it is cut short: its end is missing"));
    }
    source.read_at(&mut block, at)?;
    if block != END_BLOCKS || after < length {
        return Err(unfit_error("unexpected data after its end"));
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "all that we write must be there")]
struct ManifestText {
    form: u64,
    gpukilld: String,
    host: String,
    at: String,
    checked: String,
    #[serde(rename = "samples.db")]
    samples: ManifestFile,
    #[serde(rename = "audit.db")]
    audit: ManifestFile,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFile {
    schema: i64,
    bytes: u64,
}

fn parse_manifest(text: &[u8]) -> Result<ManifestText, ArchiveError> {
    #[derive(Deserialize)]
    struct ManifestForm {
        form: u64,
    }
    let wrong = |_| unfit_error(format!("its {MANIFEST} is not one of ours"));
    let ManifestForm { form } = serde_json::from_slice(text).map_err(wrong)?;
    if form != FORMAT_VERSION {
        return Err(unfit_error(format!(
            "it was made by another version of gpukilld (form {form}, this one knows \
             {FORMAT_VERSION}): restore it with that version"
        )));
    }
    serde_json::from_slice(text).map_err(wrong)
}

fn check_length(
    kind: &DatabaseKind,
    extent: FileExtent,
    expected: &ManifestFile,
) -> Result<(), ArchiveError> {
    if extent.bytes == expected.bytes {
        return Ok(());
    }
    Err(unfit_error(format!(
        "its {} has {} bytes where its {MANIFEST} says {}",
        kind.file, extent.bytes, expected.bytes
    )))
}

impl ManifestText {
    fn to_manifest(&self) -> Result<Manifest, ArchiveError> {
        let made_at = chrono::DateTime::parse_from_rfc3339(&self.at);
        let made_at = made_at.map_err(|_| unfit_error(format!("its {MANIFEST} has no time")))?;
        Ok(Manifest {
            host: sanitize(self.host.as_bytes(), MAX_HOST_BYTES),
            made_at: Timestamp(made_at.timestamp_millis()),
            samples_schema: self.samples.schema,
            audit_schema: self.audit.schema,
        })
    }
}

pub(super) mod fuzz_api;
#[cfg(test)]
mod tests;
