//! For fuzzing and for the replay of its corpus: archives from untrusted sources.

use super::super::super::copy::archive::{BLOCK_BYTES, END_BLOCKS, header, padding};
use super::super::super::database::{AUDIT, SAMPLES};
use super::{MANIFEST, MAX_HOST_BYTES, read_archive};

/// Reads the bytes as an archive, and a valid archive changed by them. Each change is three bytes:
/// a position in two bytes, the higher first, and a value. A byte left over shortens the archive by
/// its value.
pub fn copy(bytes: &[u8]) {
    assert_round_trip(bytes);
    let mut changed = valid_archive();
    let changes = bytes.chunks_exact(3);
    let rest = changes.remainder().first();
    for change in changes {
        let at = usize::from(change[0]) << 8 | usize::from(change[1]);
        let end = changed.len();
        if let Some(byte) = changed.get_mut(at % end) {
            *byte = change[2];
        }
    }
    if let Some(by) = rest {
        changed.truncate(changed.len().saturating_sub(usize::from(*by)));
    }
    assert_round_trip(&changed);
}

/// Asserts that an accepted archive is what a backup would have written.
fn assert_round_trip(bytes: &[u8]) {
    let Ok(archive) = read_archive(bytes, bytes.len() as u64) else {
        return;
    };
    assert!(archive.manifest.host.len() <= MAX_HOST_BYTES);
    let index = |at: u64| usize::try_from(at).expect("it lies in memory");
    let mut again = bytes[..index(archive.samples.offset - BLOCK_BYTES)].to_vec();
    for (kind, it) in [(&SAMPLES, archive.samples), (&AUDIT, archive.audit)] {
        again.extend(header(kind.file, it.bytes, it.seconds).expect("it was read"));
        again.extend_from_slice(&bytes[index(it.offset)..index(it.offset + it.bytes)]);
        again.resize(again.len() + index(padding(it.bytes)), 0);
    }
    again.extend_from_slice(&END_BLOCKS);
    assert_eq!(again, bytes);
}

/// A valid archive with two files of a few bytes; their contents are not checked here.
fn valid_archive() -> Vec<u8> {
    let manifest = br#"{"form":1,"gpukilld":"0.1.0","host":"box","at":"2026-11-21T14:02:31.250Z",
        "checked":"quick_check","samples.db":{"schema":2,"bytes":700},"audit.db":{"schema":3,"bytes":512}}"#;
    let mut all = Vec::new();
    let files: [(&str, &[u8]); 3] = [
        (MANIFEST, manifest),
        (SAMPLES.file, &[7; 700]),
        (AUDIT.file, &[9; 512]),
    ];
    for (name, bytes) in files {
        all.extend(header(name, bytes.len() as u64, 1_795_269_751).expect("it is short"));
        all.extend_from_slice(bytes);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.extend_from_slice(&END_BLOCKS);
    assert!(read_archive(all.as_slice(), all.len() as u64).is_ok());
    all
}
