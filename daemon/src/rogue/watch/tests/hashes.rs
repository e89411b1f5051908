//! Hashes of what processes execute.

use super::*;

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// What is said of the hash of process 1, and whether it is known by it.
fn by_hash(standing: &Standing) -> (bool, Option<String>) {
    let looked = &standing.looked[&key_of(1)];
    let is_known = looked.signs.iter().any(|sign| sign.kind == "miner_hash");
    let mut unseen = looked.unseen.iter().filter(|it| it.contains("the hash"));
    (is_known, unseen.next().cloned())
}

#[test]
fn hashes_are_asked_for_only_where_the_rules_have_some() {
    let mut stage = Stage::new();
    stage.says(1, &["python3"]);
    stage.has_hash(1, Ok(HASH));
    let python = [process(1, "python3")];
    for second in 0..10 {
        assert_eq!(by_hash(&stage.poll(second, &python)), (false, None));
    }
    assert_eq!(stage.asked(1), 0);
    stage.looks_for(&[HASH]);
    assert_eq!(by_hash(&stage.poll(12, &python)), (true, None));
    for second in 13..20 {
        stage.poll(second, &python);
    }
    // Once, and again after each of the two times that the rest was read.
    let asked = stage.asked(1);
    assert!((1..=3).contains(&asked), "{asked}");
    stage.looks_for(&[]);
    for second in 20..1_000 {
        assert_eq!(by_hash(&stage.poll(second, &python)), (false, None));
    }
    assert_eq!(stage.asked(1), asked);
}

#[test]
fn a_hash_that_is_not_read_is_told_with_its_reason() {
    let mut stage = Stage::new();
    stage.says(1, &["python3"]);
    stage.looks_for(&[HASH]);
    let python = [process(1, "python3")];
    let unseen = |why: &str| (false, Some(format!("the hash of its executable: {why}")));
    for second in 0..2 {
        let standing = stage.poll(second, &python);
        assert_eq!(by_hash(&standing), unseen("not read yet"));
    }
    let why = "the file cannot be read: not permitted";
    stage.has_hash(1, Err(why));
    assert_eq!(by_hash(&stage.poll(2, &python)), unseen(why));
    // It is asked for again with the rest, and then it can be read.
    stage.has_hash(1, Ok(HASH));
    assert_eq!(by_hash(&stage.poll(600, &python)), (true, None));
}

#[test]
fn who_executes_something_else_is_known_by_that_one() {
    let mut stage = Stage::new();
    stage.says(1, &["python3"]);
    stage.looks_for(&[HASH]);
    let honest = "0".repeat(64);
    stage.has_hash(1, Ok(&honest));
    let python = [process(1, "python3")];
    for second in 0..100 {
        assert_eq!(by_hash(&stage.poll(second, &python)), (false, None));
    }
    stage.has_hash(1, Ok(HASH));
    assert_eq!(by_hash(&stage.poll(100, &python)), (false, None));
    let other = GpuProcess {
        executable: Reading::Value("/tmp/python3".into()),
        ..process(1, "python3")
    };
    assert_eq!(
        by_hash(&stage.poll(102, std::slice::from_ref(&other))),
        (true, None)
    );
    // One that becomes another before each answer is known by the one it was.
    stage.script.lock().unwrap().hashes.clear();
    for (second, name) in [(104, "a"), (106, "b"), (108, "c")] {
        let renamed = GpuProcess {
            name: Reading::Value(name.into()),
            ..other.clone()
        };
        assert_eq!(by_hash(&stage.poll(second, &[renamed])), (true, None));
    }
    stage.has_hash(1, Ok(&honest));
    assert_eq!(
        by_hash(&stage.poll(110, std::slice::from_ref(&other))),
        (false, None)
    );
    // The answer may have been of the one before: it is asked for once more.
    stage.has_hash(1, Ok(HASH));
    assert_eq!(by_hash(&stage.poll(111, &[other])), (true, None));
}
