//! Reads the corpus of the fuzz targets (`fuzz/`) with the same functions, so that inputs
//! found once stay fixed.

#[path = "../../../fuzz/targets.rs"]
#[allow(unreachable_pub, reason = "elsewhere it is a library")]
mod targets;

use gpukill_proto::transport::codec::encode;
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use targets::{TARGETS, Target};

/// Limits for the corpus of a target: each test run reads it, and it is kept for ever.
const MAX_FILES: usize = 200;
const MAX_BYTES: usize = 200_000;

/// Each file is also read cut off at this many places.
const PREFIXES: usize = 16;

fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

/// The files of a directory, by name.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Runs a target on bytes; a failure names the file.
fn run_target(target: Target, bytes: &[u8], what: &str) {
    let done = catch_unwind(|| target(bytes));
    assert!(done.is_ok(), "{what}: {:?}", String::from_utf8_lossy(bytes));
}

#[test]
fn every_input_and_its_prefixes_are_harmless() {
    for (name, target) in TARGETS {
        for (file, bytes) in files(&fuzz_directory().join("corpus").join(name)) {
            let what = format!("{name}/{file}");
            for part in 0..=PREFIXES {
                let end = bytes.len() * part / PREFIXES;
                run_target(*target, &bytes[..end], &what);
            }
        }
    }
}

#[test]
fn every_target_has_a_corpus_and_program() {
    let manifest = std::fs::read_to_string(fuzz_directory().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let programs = manifest["bin"].as_array().unwrap().iter();
    let programs: BTreeSet<&str> = programs.filter_map(|bin| bin["name"].as_str()).collect();
    let names: BTreeSet<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, programs);
    let corpora = std::fs::read_dir(fuzz_directory().join("corpus")).unwrap();
    let corpora: Vec<_> = corpora.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(corpora.len(), names.len(), "{corpora:?}");
    for name in names {
        let program = fuzz_directory().join(format!("fuzz_targets/{name}.rs"));
        let program = std::fs::read_to_string(program).unwrap();
        assert!(program.contains(&format!("gpukill_fuzz::{name}(bytes)")));
        let files = files(&fuzz_directory().join("corpus").join(name));
        let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!((1..=MAX_FILES).contains(&files.len()), "{name}");
        assert!(bytes <= MAX_BYTES, "{name}: {bytes} bytes");
    }
}

/// The corpus may hold messages of an older protocol version; the golden file never does.
#[test]
fn every_golden_response_is_read() {
    let version = gpukill_proto::PROTOCOL_VERSION;
    let golden = format!("../proto/testdata/wire-{version}.golden");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(golden);
    let golden = std::fs::read_to_string(golden).unwrap();
    let lines: Vec<&str> = golden.lines().collect();
    let answers = lines
        .chunks(2)
        .filter(|pair| pair[0].starts_with("response"));
    let mut read_well = 0;
    for pair in answers {
        // The beginning of tarpc's `Response`: the id, then the variant index of a
        // successful answer.
        let mut answer = encode(&(1u64, 0u32)).unwrap();
        let hex = pair[1].trim().as_bytes().chunks(2);
        answer.extend(hex.map(|digits| {
            let digits = std::str::from_utf8(digits).unwrap();
            u8::from_str_radix(digits, 16).unwrap()
        }));
        let decoded = gpukill_proto::transport::codec::decode::<
            tarpc::Response<gpukill_proto::service::GpukillResponse>,
        >(&answer);
        assert!(decoded.is_ok(), "{}", pair[0]);
        run_target(targets::response, &answer, pair[0]);
        for at in 0..answer.len() {
            let mut changed = answer.clone();
            changed[at] ^= 0xff;
            run_target(targets::response, &changed, pair[0]);
        }
        read_well += 1;
    }
    assert!(read_well >= 4, "{read_well}");
}
