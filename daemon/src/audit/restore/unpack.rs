//! Reads a copy as strangers may have made it: it is taken only when it is, byte by
//! byte, what a backup writes. What is in the two files is looked at elsewhere.

use super::super::copy::archive::{BLOCK, END, header, padding};
use super::super::database::{AUDIT, Kind, SAMPLES};
use gpukill_proto::text::visible;
use gpukill_proto::units::Timestamp;
use serde::Deserialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// What an archive is read from.
pub(super) trait Source {
    /// Fills `into` with what begins at `offset`.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }
}

impl Source for [u8] {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let there = rest.and_then(|rest| rest.get(..into.len()));
        let there = there.ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(there);
        Ok(())
    }
}

/// Why there is nothing to be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// It is no copy of a store, or no whole one: in words for whoever sent it.
    Unfit(String),
    /// The disk that it lies on fails.
    Disk(io::Error),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

fn unfit(why: impl Into<String>) -> Unreadable {
    Unreadable::Unfit(why.into())
}

/// What a copy consists of.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) manifest: Manifest,
    pub(super) samples: Extent,
    pub(super) audit: Extent,
}

/// Where a file lies in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Its time, in seconds since 1970: of no use but to find it written alike.
    seconds: u64,
}

/// What a copy says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The box it was made on, as that calls itself; fit for a screen.
    pub(super) host: String,
    pub(super) made_at: Timestamp,
    /// The versions of the files' schemas.
    pub(super) samples_schema: i64,
    pub(super) audit_schema: i64,
}

/// Ours has some 400 bytes.
const LONGEST_MANIFEST: u64 = 16 << 10;

/// A host's name has 64 bytes at most, and may have to be shown escaped.
const LONGEST_HOST: usize = 256;

/// The form of what we write.
const FORM: u64 = 1;

const MANIFEST: &str = "manifest.json";

/// Reads an archive of so many bytes.
pub(super) fn read(source: &(impl Source + ?Sized), length: u64) -> Result<Archive, Unreadable> {
    let mut at = 0;
    let text = file(source, &mut at, length, MANIFEST)?;
    if text.bytes > LONGEST_MANIFEST {
        return Err(unfit(format!("its {MANIFEST} is too long to be one")));
    }
    let mut manifest = vec![0; usize::try_from(text.bytes).unwrap_or(0)];
    source.read_at(&mut manifest, text.offset)?;
    let manifest: Written = written(&manifest)?;
    let samples = file(source, &mut at, length, SAMPLES.file)?;
    let audit = file(source, &mut at, length, AUDIT.file)?;
    end(source, at, length)?;
    for (kind, extent, about) in [
        (&SAMPLES, samples, &manifest.samples),
        (&AUDIT, audit, &manifest.audit),
    ] {
        is_as_told(kind, extent, about)?;
    }
    Ok(Archive {
        manifest: manifest.understood()?,
        samples,
        audit,
    })
}

/// The next file, which must have this name and nothing unusual about it.
fn file(
    source: &(impl Source + ?Sized),
    at: &mut u64,
    length: u64,
    name: &str,
) -> Result<Extent, Unreadable> {
    let begin = at.saturating_add(BLOCK);
    if begin > length {
        return Err(cut_short(*at, name));
    }
    let mut block = [0; BLOCK as usize];
    source.read_at(&mut block, *at)?;
    // Whatever else a header can say (links, owners, other names) makes it another
    // one than we write.
    let ours = |bytes, seconds| header(name, bytes, seconds).is_ok_and(|it| it == block);
    let (bytes, seconds) = match (octal(&block, 124), octal(&block, 136)) {
        (Some(bytes), Some(seconds)) if ours(bytes, seconds) => (bytes, seconds),
        _ if *at == 0 => {
            let why = "it is no copy of a store, as gpukillctl audit backup makes them";
            return Err(unfit(why));
        }
        _ => return Err(unfit(format!("{name} is not where it must be in it"))),
    };
    let end = begin.saturating_add(bytes);
    let next = end.saturating_add(padding(bytes));
    if next > length {
        return Err(cut_short(*at, name));
    }
    let mut zeros = vec![0; usize::try_from(next - end).unwrap_or(0)];
    source.read_at(&mut zeros, end)?;
    if zeros.iter().any(|byte| *byte != 0) {
        return Err(unfit(format!("something stands behind {name} in it")));
    }
    *at = next;
    Ok(Extent {
        offset: begin,
        bytes,
        seconds,
    })
}

fn cut_short(at: u64, name: &str) -> Unreadable {
    if at == 0 {
        return unfit("it is too short to be a copy of a store");
    }
    unfit(format!("it is cut short: {name} is not whole"))
}

/// Eleven octal digits.
fn octal(block: &[u8], at: usize) -> Option<u64> {
    let digits = block.get(at..at + 11)?;
    let is_octal = digits.iter().all(|byte| (b'0'..=b'7').contains(byte));
    let text = std::str::from_utf8(digits).ok().filter(|_| is_octal)?;
    u64::from_str_radix(text, 8).ok()
}

fn end(source: &(impl Source + ?Sized), at: u64, length: u64) -> Result<(), Unreadable> {
    let mut block = END;
    let after = at.saturating_add(block.len() as u64);
    if after > length {
        return Err(unfit("it is cut short: its end is missing"));
    }
    source.read_at(&mut block, at)?;
    if block != END || after < length {
        return Err(unfit("something stands behind its end"));
    }
    Ok(())
}

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "all that we write must be there")]
struct Written {
    form: u64,
    gpukilld: String,
    host: String,
    at: String,
    checked: String,
    #[serde(rename = "samples.db")]
    samples: About,
    #[serde(rename = "audit.db")]
    audit: About,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    schema: i64,
    bytes: u64,
}

fn written(text: &[u8]) -> Result<Written, Unreadable> {
    #[derive(Deserialize)]
    struct Form {
        form: u64,
    }
    let wrong = |_| unfit(format!("its {MANIFEST} is not one of ours"));
    let Form { form } = serde_json::from_slice(text).map_err(wrong)?;
    if form != FORM {
        return Err(unfit(format!(
            "it was made by another version of gpukilld (form {form}, this one knows {FORM}): \
             restore it with that version"
        )));
    }
    serde_json::from_slice(text).map_err(wrong)
}

fn is_as_told(kind: &Kind, extent: Extent, about: &About) -> Result<(), Unreadable> {
    if extent.bytes == about.bytes {
        return Ok(());
    }
    Err(unfit(format!(
        "its {} has {} bytes where its {MANIFEST} says {}",
        kind.file, extent.bytes, about.bytes
    )))
}

impl Written {
    fn understood(&self) -> Result<Manifest, Unreadable> {
        let made_at = chrono::DateTime::parse_from_rfc3339(&self.at);
        let made_at = made_at.map_err(|_| unfit(format!("its {MANIFEST} has no time")))?;
        Ok(Manifest {
            host: visible(self.host.as_bytes(), LONGEST_HOST),
            made_at: Timestamp(made_at.timestamp_millis()),
            samples_schema: self.samples.schema,
            audit_schema: self.audit.schema,
        })
    }
}

pub(super) mod untrusted;

#[cfg(test)]
mod tests;
