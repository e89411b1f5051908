//! True processes below the real `/proc`, and made-up ones that hang.

use super::super::sleeper::{Sleeper, in_memory, sleep};
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

fn started() -> Hashes {
    Hashes::new("/proc".into())
}

/// Its hash, once it is read.
fn settled(hashes: &Hashes, process: ProcessKey) -> Hash {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(hash) = hashes.of(process, Some(process.pid)) {
            return hash;
        }
        assert!(Instant::now() < until, "it is not read");
        std::thread::yield_now();
    }
}

/// A copy of `sleep` that has no other's hash.
fn worker(directory: &TempDir) -> PathBuf {
    let copy = directory.path().join("worker");
    // A descriptor that this process had open for writing would be inherited by children that
    // other tests fork, and executing the copy would fail with ETXTBSY.
    let script = r#"cp -- "$0" "$1" && printf 'our own' >> "$1""#;
    let copied = Command::new("sh")
        .args(["-c", script])
        .arg(sleep())
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    copy
}

fn nothing() -> Mutex<Before> {
    Mutex::default()
}

#[test]
fn the_hash_is_the_standards_whatever_the_length() {
    for (bytes, expected) in [
        (
            Vec::new(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        (b"abc".to_vec(), ABC),
        // Sixteen pieces.
        (
            vec![b'a'; 1_000_000],
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        ),
    ] {
        let read = file::sha256(&*bytes, bytes.len() as u64, file::PATIENCE);
        assert_eq!(read.as_deref(), Ok(expected));
    }
}

#[test]
fn of_a_process_the_file_is_read_that_it_executes() {
    let directory = tempfile::tempdir().unwrap();
    let copy = worker(&directory);
    let sleeper = Sleeper::start(&copy, &["600"]);
    let hashes = started();
    let expected = sha256_of(&bytes_of(&copy).unwrap());
    assert_eq!(settled(&hashes, sleeper.key()), Ok(expected.clone()));
    // Another lies in its place.
    std::fs::remove_file(&copy).unwrap();
    write(&copy, "abc").unwrap();
    hashes.forget(sleeper.key());
    assert_eq!(settled(&hashes, sleeper.key()), Ok(expected));
}

#[test]
fn a_file_in_memory_is_read() {
    let (_memory, path) = in_memory();
    let sleeper = Sleeper::start(&path, &["600"]);
    let expected = sha256_of(&bytes_of(sleep()).unwrap());
    assert_eq!(settled(&started(), sleeper.key()), Ok(expected));
}

#[test]
fn what_was_read_is_not_read_again_until_somebody_writes_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    write(&path, "abc").unwrap();
    let identity = || before::Identity::of(&metadata(&path).unwrap());
    let known = nothing();
    known.lock().unwrap().keep(identity(), "as before".into());
    assert_eq!(file::hash(&path, &known).as_deref(), Ok("as before"));
    let was = identity();
    let modified = metadata(&path).unwrap().modified().unwrap();
    // As long as before, and with the time that it had.
    let until = Instant::now() + Duration::from_secs(20);
    while identity() == was {
        assert!(Instant::now() < until, "it is the same for us");
        let mut file = File::options().write(true).open(&path).unwrap();
        file.write_all(b"abc").unwrap();
        file.set_modified(modified).unwrap();
    }
    assert_eq!(file::hash(&path, &known).as_deref(), Ok(ABC));
    // That was kept in its turn.
    let read = |_| panic!("it is read again");
    assert_eq!(file::hash_by(read, &path, &known).as_deref(), Ok(ABC));
}

#[test]
fn two_processes_of_one_file_that_was_written_to_meanwhile_have_two_hashes() {
    let directory = tempfile::tempdir().unwrap();
    let copy = worker(&directory);
    let hashes = started();
    let hash = || {
        let sleeper = Sleeper::start(&copy, &["600"]);
        settled(&hashes, sleeper.key()).unwrap()
    };
    let first = bytes_of(&copy).unwrap();
    assert_eq!([hash(), hash()], [sha256_of(&first), sha256_of(&first)]);
    let inode = |path| std::os::unix::fs::MetadataExt::ino(&metadata(path).unwrap());
    let before = inode(&copy);
    let second = [&first[..first.len() - 1], b"!"].concat();
    write(&copy, &second).unwrap();
    // By whatever clock the file system has.
    let file = File::options().write(true).open(&copy).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    drop(file);
    assert_eq!(hash(), sha256_of(&second));
    assert_eq!(inode(&copy), before);
}

#[test]
fn as_many_as_there_is_room_for_are_remembered_and_those_of_late() {
    let directory = tempfile::tempdir().unwrap();
    let identities: Vec<_> = (0..=before::MOST)
        .map(|number| {
            let path = directory.path().join(number.to_string());
            write(&path, "").unwrap();
            before::Identity::of(&metadata(path).unwrap())
        })
        .collect();
    let mut known = Before::default();
    for (number, identity) in identities.iter().enumerate() {
        known.keep(identity.clone(), number.to_string());
        // Asked for all the time.
        assert_eq!(known.of(&identities[0]).as_deref(), Some("0"));
    }
    assert_eq!(known.len(), before::MOST);
    assert_eq!(known.of(&identities[1]), None);
    assert_eq!(known.of(&identities[2]).as_deref(), Some("2"));
}

#[test]
fn what_cannot_be_hashed_is_told_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    create_dir(path("directory")).unwrap();
    fifo(&path("fifo"));
    for (name, why) in [
        ("directory", "it is no regular file"),
        ("fifo", "it is no regular file"),
        ("none", "the file cannot be read: there is none"),
    ] {
        let hash = file::hash(&path(name), &nothing());
        assert_eq!(hash, Err(why.to_owned()), "{name}");
    }
    let slow = file::sha256(&b"abc"[..], 3, Duration::ZERO);
    let why = "to read it takes longer than a minute";
    assert_eq!(slow, Err(why.to_owned()));
}

#[test]
fn too_long_an_executable_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let copy = worker(&directory);
    let file = File::options().write(true).open(&copy).unwrap();
    if let Err(error) = file.set_len(600 << 20) {
        eprintln!("skipped: no file of 600 MiB may be made here: {error}");
        return;
    }
    drop(file);
    let sleeper = Sleeper::start(&copy, &["600"]);
    let why = "it is longer than 512 MiB".to_owned();
    assert_eq!(settled(&started(), sleeper.key()), Err(why));
    // One that says it is shorter.
    let endless = file::sha256(std::io::repeat(0), 1 << 20, file::PATIENCE);
    assert_eq!(endless, Err("it is longer than 1 MiB".to_owned()));
}

#[test]
fn a_file_that_became_another_while_it_was_read_has_no_hash() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["one", "two"] {
        write(path(name), "abc").unwrap();
    }
    symlink("one", path("exe")).unwrap();
    let changed: Hash = Err("it changed while it was read".into());
    let known = nothing();
    let executes_another = |_| {
        std::fs::remove_file(path("exe")).unwrap();
        symlink("two", path("exe")).unwrap();
        Ok("of the first".into())
    };
    let hash = file::hash_by(executes_another, &path("exe"), &known);
    assert_eq!(hash, changed);
    let is_written_to = |_| {
        write(path("two"), "abcd").unwrap();
        Ok("of some of both".into())
    };
    let hash = file::hash_by(is_written_to, &path("exe"), &known);
    assert_eq!(hash, changed);
    assert_eq!(known.lock().unwrap().len(), 0);
}

#[test]
fn of_a_process_that_has_ended_or_is_another_by_now_nothing_is_told() {
    let sleeper = Sleeper::start("sleep", &["600"]);
    let key = sleeper.key();
    let other = ProcessKey {
        start_ticks: key.start_ticks + 1,
        ..key
    };
    let root = Path::new("/proc");
    let ended: Result<Hash, String> = Err("it has ended".into());
    assert!(read(key, root, &nothing()).unwrap().is_ok());
    assert_eq!(read(other, root, &nothing()), ended);
    drop(sleeper);
    assert_eq!(read(key, root, &nothing()), ended);
}

#[test]
fn the_thread_that_reads_makes_way_for_all_others_alone() {
    let priority = || rustix::process::getpriority_process(None).unwrap();
    let before = priority();
    let own = std::thread::spawn(move || {
        yield_to_others();
        priority()
    });
    assert_eq!(own.join().unwrap(), 19);
    assert_eq!(priority(), before);
}

/// To open one that nobody writes to waits for ever, as a file on a dead disk does; but
/// where it is opened so as not to wait.
fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn one_persons_many_files_let_anothers_be_read_between_them() {
    let hashes = Hashes::new(tempfile::tempdir().unwrap().path().to_owned());
    let key = |pid| ProcessKey {
        pid,
        start_ticks: 100,
    };
    // Nobody of them is there: the thread answers, and nothing is known.
    let asked = |hashes: &Hashes| hashes.waiting().len();
    let mut waiting = hashes.waiting();
    waiting.extend((1..=2).map(|pid| (key(pid), Some(1001))));
    drop(waiting);
    for pid in 3..=40 {
        assert_eq!(hashes.of(key(pid), Some(1001)), None);
        assert!(!hashes.asked.is_on_its_way(&key(pid)));
    }
    assert_eq!(asked(&hashes), 2);
    assert_eq!(hashes.of(key(50), Some(1002)), None);
    assert_eq!(asked(&hashes), 3);
    // Whose wait no more make room for others of theirs.
    hashes.forget(key(1));
    assert_eq!(hashes.of(key(3), Some(1001)), None);
    assert_eq!(asked(&hashes), 3);
    hashes.keep_only(|_| false);
    assert_eq!(asked(&hashes), 0);
}

#[test]
fn one_that_hangs_delays_nobody_who_asks_and_the_next_is_read_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let key = |pid| ProcessKey {
        pid,
        start_ticks: 100,
    };
    let rest = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 100 0 0 0 0 0 7000";
    let stat = format!("9 (x) S 1 {rest}");
    for pid in [9, 10, 11] {
        let of_process = directory.path().join(pid.to_string());
        create_dir(&of_process).unwrap();
        write(of_process.join("exe"), "abc").unwrap();
        fifo(&of_process.join("stat"));
    }
    let hashes = Hashes::new(directory.path().to_owned());
    // Once somebody reads from it.
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
    assert_eq!(hashes.of(key(9), Some(9)), None);
    // It waits for us by now.
    let mut stuck = open(9);
    for pid in [10, 11] {
        assert_eq!(hashes.of(key(pid), Some(pid)), None);
    }
    // Nobody wants the one any more, and so it is not read: that would hang for ever.
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
