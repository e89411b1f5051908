//! Hashes of executables.

use super::*;

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Whether process 1 is found by its hash, and the report on the hash.
fn hash_result(status: &RogueStatus) -> (bool, Option<String>) {
    let assessment = &status.assessments[&key_of(1)];
    let is_known = assessment
        .indicators
        .iter()
        .any(|indicator| indicator.kind == "miner_hash");
    let mut missing = assessment
        .missing_evidence
        .iter()
        .filter(|it| it.contains("the hash"));
    (is_known, missing.next().cloned())
}

#[test]
fn hashes_are_read_only_if_rules_list_some() {
    let mut fixture = WatchFixture::new();
    fixture.set_arguments(1, &["python3"]);
    fixture.set_hash(1, Ok(HASH));
    let python = [process(1, "python3")];
    for second in 0..10 {
        assert_eq!(hash_result(&fixture.poll(second, &python)), (false, None));
    }
    assert_eq!(fixture.hash_requests(1), 0);
    fixture.set_miner_hashes(&[HASH]);
    assert_eq!(hash_result(&fixture.poll(12, &python)), (true, None));
    for second in 13..20 {
        fixture.poll(second, &python);
    }
    // Once, and again after each of the two times that the rest was read.
    let asked = fixture.hash_requests(1);
    assert!((1..=3).contains(&asked), "{asked}");
    fixture.set_miner_hashes(&[]);
    for second in 20..1_000 {
        assert_eq!(hash_result(&fixture.poll(second, &python)), (false, None));
    }
    assert_eq!(fixture.hash_requests(1), asked);
}

#[test]
fn unreadable_hash_is_reported_with_reason() {
    let mut fixture = WatchFixture::new();
    fixture.set_arguments(1, &["python3"]);
    fixture.set_miner_hashes(&[HASH]);
    let python = [process(1, "python3")];
    let missing = |why: &str| (false, Some(format!("the hash of its executable: {why}")));
    for second in 0..2 {
        let status = fixture.poll(second, &python);
        assert_eq!(hash_result(&status), missing("not read yet"));
    }
    let why = "the file cannot be read: not permitted";
    fixture.set_hash(1, Err(why));
    assert_eq!(hash_result(&fixture.poll(2, &python)), missing(why));
    // It is requested again with the rest, and can be read then.
    fixture.set_hash(1, Ok(HASH));
    assert_eq!(hash_result(&fixture.poll(600, &python)), (true, None));
}

#[test]
fn new_executable_is_known_by_its_hash() {
    let mut fixture = WatchFixture::new();
    fixture.set_arguments(1, &["python3"]);
    fixture.set_miner_hashes(&[HASH]);
    let honest = "0".repeat(64);
    fixture.set_hash(1, Ok(&honest));
    let python = [process(1, "python3")];
    for second in 0..100 {
        assert_eq!(hash_result(&fixture.poll(second, &python)), (false, None));
    }
    fixture.set_hash(1, Ok(HASH));
    assert_eq!(hash_result(&fixture.poll(100, &python)), (false, None));
    let other = GpuProcess {
        executable: Reading::Value("/tmp/python3".into()),
        ..process(1, "python3")
    };
    assert_eq!(
        hash_result(&fixture.poll(102, std::slice::from_ref(&other))),
        (true, None)
    );
    // A process that changes before each answer is known by its earlier hash.
    fixture.script.lock().unwrap().hashes.clear();
    for (second, name) in [(104, "a"), (106, "b"), (108, "c")] {
        let renamed = GpuProcess {
            name: Reading::Value(name.into()),
            ..other.clone()
        };
        assert_eq!(hash_result(&fixture.poll(second, &[renamed])), (true, None));
    }
    fixture.set_hash(1, Ok(&honest));
    assert_eq!(
        hash_result(&fixture.poll(110, std::slice::from_ref(&other))),
        (false, None)
    );
    // The answer may concern the previous executable: it is requested once more.
    fixture.set_hash(1, Ok(HASH));
    assert_eq!(hash_result(&fixture.poll(111, &[other])), (true, None));
}
