//! The corpus of the fuzzing (`fuzz/`), read again by the same functions: what
//! was once found stays found.

#[path = "../../../fuzz/targets.rs"]
#[allow(unreachable_pub, reason = "elsewhere it is a library")]
mod targets;

use gpukill_proto::transport::codec::encode;
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use targets::{TARGETS, Target};

/// What a target's corpus may take: it is read in each test run, and kept for ever.
const MOST_FILES: usize = 200;
const MOST_BYTES: usize = 200_000;

/// So many beginnings of each file are tried besides.
const BEGINNINGS: usize = 16;

fn fuzz() -> PathBuf {
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

/// Lets a target read; a failure names what it read.
fn read(target: Target, bytes: &[u8], what: &str) {
    let done = catch_unwind(|| target(bytes));
    assert!(done.is_ok(), "{what}: {:?}", String::from_utf8_lossy(bytes));
}

#[test]
fn every_file_of_the_corpus_is_read_without_harm_and_so_are_its_beginnings() {
    for (name, target) in TARGETS {
        for (file, bytes) in files(&fuzz().join("corpus").join(name)) {
            let what = format!("{name}/{file}");
            for part in 0..=BEGINNINGS {
                let end = bytes.len() * part / BEGINNINGS;
                read(*target, &bytes[..end], &what);
            }
        }
    }
}

#[test]
fn each_target_has_a_small_corpus_and_a_program() {
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let programs = manifest["bin"].as_array().unwrap().iter();
    let programs: BTreeSet<&str> = programs.filter_map(|bin| bin["name"].as_str()).collect();
    let names: BTreeSet<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, programs);
    let corpora = std::fs::read_dir(fuzz().join("corpus")).unwrap();
    let corpora: Vec<_> = corpora.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(corpora.len(), names.len(), "{corpora:?}");
    for name in names {
        let program = fuzz().join(format!("fuzz_targets/{name}.rs"));
        let program = std::fs::read_to_string(program).unwrap();
        assert!(program.contains(&format!("gpukill_fuzz::{name}(bytes)")));
        let files = files(&fuzz().join("corpus").join(name));
        let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!((1..=MOST_FILES).contains(&files.len()), "{name}");
        assert!(bytes <= MOST_BYTES, "{name}: {bytes} bytes");
    }
}

/// The corpus may be of an older wire; the golden file never is.
#[test]
fn every_answer_of_this_wire_is_read() {
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
        // Of tarpc's `Response`: the id, then that there is an answer.
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
        read(targets::response, &answer, pair[0]);
        for at in 0..answer.len() {
            let mut changed = answer.clone();
            changed[at] ^= 0xff;
            read(targets::response, &changed, pair[0]);
        }
        read_well += 1;
    }
    assert!(read_well >= 4, "{read_well}");
}
