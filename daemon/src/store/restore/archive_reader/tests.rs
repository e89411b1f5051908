//! Archives from untrusted sources.

use super::*;
use serde_json::{Value, json};

const HOST: &str = "box";

fn manifest(samples: usize, audit: usize) -> Value {
    json!({
        "form": 1,
        "gpukilld": "0.1.0",
        "host": HOST,
        "at": "2026-11-21T14:02:31.250Z",
        "checked": "quick_check",
        "samples.db": { "schema": 2, "bytes": samples },
        "audit.db": { "schema": 3, "bytes": audit },
    })
}

fn padded(into: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    into.extend(header(name, bytes.len() as u64, 1_795_269_751).unwrap());
    into.extend_from_slice(bytes);
    into.resize(into.len().next_multiple_of(512), 0);
}

type Entries<'a> = &'a [(&'a str, &'a [u8])];

/// The files of an archive, without its end.
fn files(files: Entries<'_>) -> Vec<u8> {
    let mut all = Vec::new();
    for (name, bytes) in files {
        padded(&mut all, name, bytes);
    }
    all
}

const SAMPLES_BYTES: &[u8] = &[7; 700];
const AUDIT_BYTES: &[u8] = &[9; 1_024];

fn with_manifest(manifest: &Value) -> Vec<u8> {
    let manifest = manifest.to_string();
    let mut all = files(&[
        (MANIFEST, manifest.as_bytes()),
        ("samples.db", SAMPLES_BYTES),
        ("audit.db", AUDIT_BYTES),
    ]);
    all.extend(END_BLOCKS);
    all
}

fn valid_archive() -> Vec<u8> {
    with_manifest(&manifest(700, 1_024))
}

fn refused(bytes: &[u8]) -> String {
    match read_archive(bytes, bytes.len() as u64) {
        Err(ArchiveError::Unfit(why)) => why,
        Err(ArchiveError::Disk(error)) => panic!("{error}"),
        Ok(archive) => panic!("{archive:?}"),
    }
}

#[test]
fn reads_what_a_backup_writes() {
    let bytes = valid_archive();
    let archive = read_archive(bytes.as_slice(), bytes.len() as u64).unwrap();
    let expected = Manifest {
        host: HOST.into(),
        made_at: Timestamp(1_795_269_751_250),
        samples_schema: 2,
        audit_schema: 3,
    };
    assert_eq!(archive.manifest, expected);
    for (extent, expected) in [
        (archive.samples, SAMPLES_BYTES),
        (archive.audit, AUDIT_BYTES),
    ] {
        let mut file = vec![0; usize::try_from(extent.bytes).unwrap()];
        bytes.as_slice().read_at(&mut file, extent.offset).unwrap();
        assert_eq!(file, expected);
    }
    fuzz_api::copy(&bytes);
}

#[test]
fn truncation_is_refused_with_a_reason() {
    let bytes = valid_archive();
    for length in 0..bytes.len() {
        let why = refused(&bytes[..length]);
        let said = ["it is cut short: ", "it is too short to be a copy"];
        assert!(said.iter().any(|it| why.starts_with(it)), "{length}: {why}");
    }
}

#[test]
fn changed_bytes_outside_files_are_refused() {
    let bytes = valid_archive();
    let archive = read_archive(bytes.as_slice(), bytes.len() as u64).unwrap();
    for at in 0..bytes.len() {
        let offset = at as u64;
        let in_files = [archive.samples, archive.audit]
            .iter()
            .any(|it| (it.offset..it.offset + it.bytes).contains(&offset));
        // The contents of the manifest are tested below.
        let in_manifest = (512..1_024).contains(&at);
        if in_files || in_manifest {
            continue;
        }
        let mut other = bytes.clone();
        other[at] ^= 0x15;
        refused(&other);
    }
}

#[test]
fn other_entries_are_refused() {
    let manifest = manifest(700, 1_024).to_string();
    let ours: [(&str, &[u8]); 3] = [
        (MANIFEST, manifest.as_bytes()),
        ("samples.db", SAMPLES_BYTES),
        ("audit.db", AUDIT_BYTES),
    ];
    let [first, second, third] = ours;
    let foreign = "it is not a copy of a store made by gpukillctl audit backup";
    let cases: [(Entries<'_>, &str); 7] = [
        (&[second, first, third], foreign),
        (&[("../manifest.json", first.1), second, third], foreign),
        (
            &[first, third, second],
            "samples.db is not at its place in the archive",
        ),
        (
            &[first, ("/etc/passwd", b"x"), second, third],
            "samples.db is not at its place in the archive",
        ),
        (
            &[first, second, second, third],
            "audit.db is not at its place in the archive",
        ),
        (
            &[first, second, third, ("audit.db-wal", b"x")],
            "unexpected data after its end",
        ),
        (
            &[first, second],
            "audit.db is not at its place in the archive",
        ),
    ];
    for (entries, expected) in cases {
        let mut bytes = files(entries);
        bytes.extend(END_BLOCKS);
        assert_eq!(refused(&bytes), expected);
    }
    // A link, a directory, a device, a sparse file, a long name.
    for kind in *b"1234567xgLS" {
        let mut bytes = valid_archive();
        let at = 1_024;
        bytes[at + 156] = kind;
        let sum: u32 = bytes[at..at + 512]
            .iter()
            .enumerate()
            .map(|(offset, byte)| match offset {
                148..156 => 32,
                _ => u32::from(*byte),
            })
            .sum();
        bytes[at + 148..at + 154].copy_from_slice(format!("{sum:06o}").as_bytes());
        assert_eq!(
            refused(&bytes),
            "samples.db is not at its place in the archive"
        );
    }
    let mut longer = valid_archive();
    longer.push(0);
    assert_eq!(refused(&longer), "unexpected data after its end");
}

#[test]
fn wrong_lengths_are_refused() {
    // The longest length of the format, and a manifest of that length.
    for name in [MANIFEST, "samples.db"] {
        let manifest = manifest(0o777_7777_7777, 1).to_string();
        let mut bytes = Vec::new();
        if name != MANIFEST {
            padded(&mut bytes, MANIFEST, manifest.as_bytes());
        }
        bytes.extend(header(name, 0o777_7777_7777, 0).unwrap());
        bytes.extend(END_BLOCKS);
        let why = refused(&bytes);
        assert!(why.contains("short"), "{why}");
    }
    let archive = with_manifest(&manifest(701, 1_024));
    assert_eq!(
        refused(&archive),
        "its samples.db has 700 bytes where its manifest.json says 701"
    );
    let long = vec![b' '; 20_000];
    let mut bytes = files(&[(MANIFEST, long.as_slice())]);
    bytes.extend(END_BLOCKS);
    assert_eq!(refused(&bytes), "its manifest.json is too long");
}

#[test]
fn manifest_must_have_exactly_our_fields() {
    let ours = "its manifest.json is not one of ours";
    let another = |form: u64| {
        format!(
            "it was made by another version of gpukilld (form {form}, this one knows 1): \
             restore it with that version"
        )
    };
    let (older, newer) = (another(0), another(2));
    let cases = [
        ("form", json!(0), older.as_str()),
        ("form", json!(2), newer.as_str()),
        ("form", json!("1"), ours),
        ("at", json!("yesterday"), "its manifest.json has no time"),
        ("host", Value::Null, ours),
        ("more", json!(1), ours),
        ("samples.db", json!({"schema": 2}), ours),
    ];
    for (key, value, expected) in cases {
        let mut manifest = manifest(700, 1_024);
        manifest[key] = value;
        assert_eq!(refused(&with_manifest(&manifest)), expected, "{key}");
    }
    let mut manifest = manifest(700, 1_024);
    manifest["host"] = json!("\u{1b}[2Jbox\u{202e}");
    let bytes = with_manifest(&manifest);
    let archive = read_archive(bytes.as_slice(), bytes.len() as u64).unwrap();
    assert_eq!(archive.manifest.host, "\\x1b[2Jbox\\u{202e}");
}
