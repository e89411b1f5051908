//! A copy on its way in: parts in their order, in a file without a name, which goes
//! with whoever holds this.

use super::super::copy::{self, LeftOver};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::LONGEST_PART;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use tokio::sync::OwnedSemaphorePermit;

/// The longest copy that is taken: some twenty times the 200 MB that a month of a
/// large box is to take. What is longer is unpacked by hand, in more time than a
/// call has.
const LONGEST: u64 = 4 << 30;

/// A copy, as far as it has come.
#[derive(Debug)]
pub(crate) struct Taken {
    file: File,
    bytes: u64,
    have: u64,
    _place: OwnedSemaphorePermit,
}

impl Taken {
    /// Begins to take one of so many bytes, where there is room for it.
    pub(in super::super) fn begin(
        directory: &Path,
        bytes: u64,
        place: OwnedSemaphorePermit,
    ) -> Result<Self, Refusal> {
        if bytes > LONGEST {
            return Err(Refusal::Invalid(format!(
                "the copy is too long: {bytes} bytes, and {LONGEST} are taken at most"
            )));
        }
        // Once as it comes, and once unpacked.
        let needed = bytes
            .saturating_mul(2)
            .saturating_add(size_of_record(directory));
        copy::leave_room(directory, needed, "a restore").map_err(Refusal::Unavailable)?;
        let file = nameless(directory)
            .map_err(|error| Refusal::Unavailable(format!("{}: {error}", directory.display())))?;
        Ok(Self {
            file,
            bytes,
            have: 0,
            _place: place,
        })
    }

    /// Takes the next part.
    ///
    /// # Errors
    /// When it is not the next one, or the disk does not take it.
    pub(crate) fn add(&mut self, offset: u64, part: &[u8]) -> Result<(), Refusal> {
        if offset != self.have {
            return Err(Refusal::Invalid(format!(
                "the next part of the copy begins at {}, not at {offset}",
                self.have
            )));
        }
        let length = part.len() as u64;
        if part.is_empty() || part.len() > LONGEST_PART || length > self.bytes - self.have {
            return Err(Refusal::Invalid(format!(
                "a part of {length} bytes at {offset} is none of a copy of {}",
                self.bytes
            )));
        }
        let written = self.file.write_all_at(part, offset);
        written.map_err(|error| Refusal::Unavailable(format!("the copy is not taken: {error}")))?;
        self.have += length;
        Ok(())
    }

    /// How long it is to be.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The whole of it.
    ///
    /// # Errors
    /// When it is not whole yet.
    pub(super) fn whole(&self) -> Result<&File, Refusal> {
        if self.have == self.bytes {
            return Ok(&self.file);
        }
        Err(Refusal::Invalid(format!(
            "the copy is not whole: {} of {} bytes have come",
            self.have, self.bytes
        )))
    }
}

/// What may be carried over.
fn size_of_record(directory: &Path) -> u64 {
    let of = |name: &str| std::fs::metadata(directory.join(name)).map_or(0, |it| it.len());
    of("audit.db") + of("audit.db-wal")
}

/// A file that is gone as soon as nobody has it open.
fn nameless(directory: &Path) -> std::io::Result<File> {
    let there = copy::workplace(directory);
    std::fs::DirBuilder::new().mode(0o700).create(&there)?;
    let _goes = LeftOver(there.clone());
    let mut create = File::options();
    create.read(true).write(true).create_new(true).mode(0o600);
    create.open(there.join("taken"))
}
