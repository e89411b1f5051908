//! Tests with real processes below `/proc`, and with fake ones that hang.

use super::super::test_process::{TestProcess, sleep_in_memory, sleep_path};
use super::*;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use std::fs::{File, create_dir, metadata, read as bytes_of, write};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::process::Command;
use std::time::{Instant, SystemTime};
use tempfile::TempDir;

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn sha256_of(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

fn started() -> ExecutableHashes {
    ExecutableHashes::new("/proc".into())
}

/// The hash once it is read.
fn settled(hashes: &ExecutableHashes, process: ProcessKey) -> HashResult {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(hash) = hashes.get(process, Some(process.pid)) {
            return hash;
        }
        assert!(Instant::now() < until, "it is not read");
        std::thread::yield_now();
    }
}

/// A copy of `sleep` with a unique hash.
fn worker(directory: &TempDir) -> PathBuf {
    let copy = directory.path().join("worker");
    // Another process writes the file. A descriptor that is open for writing here would be
    // inherited by children of other tests, and executing the copy would fail with ETXTBSY.
    let script = r#"cp -- "$0" "$1" && printf 'our own' >> "$1""#;
    let copied = Command::new("sh")
        .args(["-c", script])
        .arg(sleep_path())
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    copy
}

fn nothing() -> Mutex<HashCache> {
    Mutex::default()
}

#[test]
fn hash_matches_the_standard() {
    for (bytes, expected) in [
        (
            Vec::new(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        (b"abc".to_vec(), ABC),
        // Sixteen chunks.
        (
            vec![b'a'; 1_000_000],
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        ),
    ] {
        let read = file::sha256(&*bytes, bytes.len() as u64, file::HASH_TIMEOUT);
        assert_eq!(read.as_deref(), Ok(expected));
    }
}

#[test]
fn hashes_the_file_that_the_process_executes() {
    let directory = tempfile::tempdir().unwrap();
    let copy = worker(&directory);
    let sleeper = TestProcess::start(&copy, &["600"]);
    let hashes = started();
    let expected = sha256_of(&bytes_of(&copy).unwrap());
    assert_eq!(settled(&hashes, sleeper.key()), Ok(expected.clone()));
    // Another file is at its path.
    std::fs::remove_file(&copy).unwrap();
    write(&copy, "abc").unwrap();
    hashes.forget(sleeper.key());
    assert_eq!(settled(&hashes, sleeper.key()), Ok(expected));
}

#[test]
fn memory_file_is_hashed() {
    let (_memory, path) = sleep_in_memory();
    let sleeper = TestProcess::start(&path, &["600"]);
    let expected = sha256_of(&bytes_of(sleep_path()).unwrap());
    assert_eq!(settled(&started(), sleeper.key()), Ok(expected));
}

#[test]
fn file_is_read_again_only_when_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    write(&path, "abc").unwrap();
    let identity = || cache::FileVersion::from_metadata(&metadata(&path).unwrap());
    let known = nothing();
    known.lock().unwrap().insert(identity(), "as before".into());
    assert_eq!(file::hash_file(&path, &known).as_deref(), Ok("as before"));
    let was = identity();
    let modified = metadata(&path).unwrap().modified().unwrap();
    // With the same length and the same modification time.
    let until = Instant::now() + Duration::from_secs(20);
    while identity() == was {
        assert!(Instant::now() < until, "it is the same for us");
        let mut file = File::options().write(true).open(&path).unwrap();
        file.write_all(b"abc").unwrap();
        file.set_modified(modified).unwrap();
    }
    assert_eq!(file::hash_file(&path, &known).as_deref(), Ok(ABC));
    // The new hash is kept as well.
    let read = |_| panic!("it is read again");
    assert_eq!(
        file::hash_file_with(read, &path, &known).as_deref(),
        Ok(ABC)
    );
}

#[test]
fn rewritten_file_has_two_hashes() {
    let directory = tempfile::tempdir().unwrap();
    let copy = worker(&directory);
    let hashes = started();
    let hash = || {
        let sleeper = TestProcess::start(&copy, &["600"]);
        settled(&hashes, sleeper.key()).unwrap()
    };
    let first = bytes_of(&copy).unwrap();
    assert_eq!([hash(), hash()], [sha256_of(&first), sha256_of(&first)]);
    let inode = |path| std::os::unix::fs::MetadataExt::ino(&metadata(path).unwrap());
    let before = inode(&copy);
    let second = [&first[..first.len() - 1], b"!"].concat();
    write(&copy, &second).unwrap();
    // By the clock of the file system.
    let file = File::options().write(true).open(&copy).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    drop(file);
    assert_eq!(hash(), sha256_of(&second));
    assert_eq!(inode(&copy), before);
}

#[test]
fn cache_keeps_the_recently_used() {
    let directory = tempfile::tempdir().unwrap();
    let identities: Vec<_> = (0..=cache::MAX_HASHES)
        .map(|number| {
            let path = directory.path().join(number.to_string());
            write(&path, "").unwrap();
            cache::FileVersion::from_metadata(&metadata(path).unwrap())
        })
        .collect();
    let mut known = HashCache::default();
    for (number, identity) in identities.iter().enumerate() {
        known.insert(identity.clone(), number.to_string());
        // Used all the time.
        assert_eq!(known.get(&identities[0]).as_deref(), Some("0"));
    }
    assert_eq!(known.len(), cache::MAX_HASHES);
    assert_eq!(known.get(&identities[1]), None);
    assert_eq!(known.get(&identities[2]).as_deref(), Some("2"));
}

#[test]
fn failure_has_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    create_dir(path("directory")).unwrap();
    fifo(&path("fifo"));
    for (name, why) in [
        ("directory", "it is not a regular file"),
        ("fifo", "it is not a regular file"),
        ("none", "the file cannot be read: it does not exist"),
    ] {
        let hash = file::hash_file(&path(name), &nothing());
        assert_eq!(hash, Err(why.to_owned()), "{name}");
    }
    let slow = file::sha256(&b"abc"[..], 3, Duration::ZERO);
    let why = "reading it takes longer than a minute";
    assert_eq!(slow, Err(why.to_owned()));
}

#[test]
fn too_long_executable_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let copy = worker(&directory);
    let file = File::options().write(true).open(&copy).unwrap();
    if let Err(error) = file.set_len(600 << 20) {
        eprintln!("skipped: no file of 600 MiB may be made here: {error}");
        return;
    }
    drop(file);
    let sleeper = TestProcess::start(&copy, &["600"]);
    let why = "it is longer than 512 MiB".to_owned();
    assert_eq!(settled(&started(), sleeper.key()), Err(why));
    // A file that reports a shorter length.
    let endless = file::sha256(std::io::repeat(0), 1 << 20, file::HASH_TIMEOUT);
    assert_eq!(endless, Err("it is longer than 1 MiB".to_owned()));
}

#[test]
fn file_changed_during_read_has_no_hash() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["one", "two"] {
        write(path(name), "abc").unwrap();
    }
    symlink("one", path("exe")).unwrap();
    let changed: HashResult = Err("it changed while it was read".into());
    let known = nothing();
    let executes_another = |_| {
        std::fs::remove_file(path("exe")).unwrap();
        symlink("two", path("exe")).unwrap();
        Ok("of the first".into())
    };
    let hash = file::hash_file_with(executes_another, &path("exe"), &known);
    assert_eq!(hash, changed);
    let is_written_to = |_| {
        write(path("two"), "abcd").unwrap();
        Ok("of some of both".into())
    };
    let hash = file::hash_file_with(is_written_to, &path("exe"), &known);
    assert_eq!(hash, changed);
    assert_eq!(known.lock().unwrap().len(), 0);
}

#[test]
fn ended_or_reused_process_has_no_hash() {
    let sleeper = TestProcess::start("sleep", &["600"]);
    let key = sleeper.key();
    let other = ProcessKey {
        start_ticks: key.start_ticks + 1,
        ..key
    };
    let root = Path::new("/proc");
    let ended: Result<HashResult, String> = Err("it has ended".into());
    assert!(read_hash(key, root, &nothing()).unwrap().is_ok());
    assert_eq!(read_hash(other, root, &nothing()), ended);
    drop(sleeper);
    assert_eq!(read_hash(key, root, &nothing()), ended);
}

#[test]
fn reading_thread_has_lowest_priority() {
    let priority = || rustix::process::getpriority_process(None).unwrap();
    let before = priority();
    let own = std::thread::spawn(move || {
        lower_thread_priority();
        priority()
    });
    assert_eq!(own.join().unwrap(), 19);
    assert_eq!(priority(), before);
}

/// Opening a FIFO without a writer blocks forever, like a file on a dead disk, unless it is opened
/// as non-blocking.
fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn persons_take_turns() {
    let hashes = ExecutableHashes::new(tempfile::tempdir().unwrap().path().to_owned());
    let key = |pid| ProcessKey::new(pid, 100);
    // None of these processes exists: the thread answers, and nothing is known.
    let asked = |hashes: &ExecutableHashes| hashes.waiting().len();
    let mut waiting = hashes.waiting();
    waiting.extend((1..=2).map(|pid| (key(pid), Some(1001))));
    drop(waiting);
    for pid in 3..=40 {
        assert_eq!(hashes.get(key(pid), Some(1001)), None);
        assert!(!hashes.cache.is_in_flight(&key(pid)));
    }
    assert_eq!(asked(&hashes), 2);
    assert_eq!(hashes.get(key(50), Some(1002)), None);
    assert_eq!(asked(&hashes), 3);
    // A process that no longer waits makes room for others of the same person.
    hashes.forget(key(1));
    assert_eq!(hashes.get(key(3), Some(1001)), None);
    assert_eq!(asked(&hashes), 3);
    hashes.keep_only(|_| false);
    assert_eq!(asked(&hashes), 0);
}

#[test]
fn hung_file_delays_no_caller() {
    let directory = tempfile::tempdir().unwrap();
    let key = |pid| ProcessKey::new(pid, 100);
    let rest = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 100 0 0 0 0 0 7000";
    let stat = format!("9 (x) S 1 {rest}");
    for pid in [9, 10, 11] {
        let of_process = directory.path().join(pid.to_string());
        create_dir(&of_process).unwrap();
        write(of_process.join("exe"), "abc").unwrap();
        fifo(&of_process.join("stat"));
    }
    let hashes = ExecutableHashes::new(directory.path().to_owned());
    // As soon as the file has a reader.
    let open = |pid: u32| {
        let path = directory.path().join(format!("{pid}/stat"));
        let until = Instant::now() + Duration::from_secs(20);
        let mut options = File::options();
        options.write(true);
        options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        loop {
            match options.open(&path) {
                Ok(file) => return file,
                Err(error) => assert!(Instant::now() < until, "{pid}: {error}"),
            }
            std::thread::yield_now();
        }
    };
    assert_eq!(hashes.get(key(9), Some(9)), None);
    // It waits for the test by now.
    let mut stuck = open(9);
    for pid in [10, 11] {
        assert_eq!(hashes.get(key(pid), Some(pid)), None);
    }
    // The file is no longer wanted and so is not read: the read would hang forever.
    hashes.forget(key(10));
    stuck.write_all(stat.as_bytes()).unwrap();
    drop(stuck);
    let mut last = open(11);
    last.write_all(stat.as_bytes()).unwrap();
    drop(last);
    for pid in [9, 11] {
        assert_eq!(settled(&hashes, key(pid)), Ok(ABC.to_owned()));
    }
}
