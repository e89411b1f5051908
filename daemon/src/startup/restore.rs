//! `gpukilld restore FILE`: root, or with `--user` the owner of the store, replaces the store with
//! a backup while no daemon runs.

use crate::args::RestoreArgs;
use crate::config::{Config, OTHERS_WRITE, foreign_writer_reason};
use crate::server::listener::lock_file;
use crate::store::PreparedRestore;
use gpukill_proto::units::Timestamp;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid, geteuid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// Restores the backup, and prints what was done.
pub(super) fn restore(wanted: &RestoreArgs, config: &Config) -> Result<(), String> {
    if !config.personal && !geteuid().is_root() {
        return Err("only root may restore a backup".to_owned());
    }
    let (caller, file) = (getuid().as_raw(), &wanted.file);
    let source = open_backup(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let directory = &config.daemon.state_dir;
    become_owner_of(directory).map_err(|why| format!("{}: {why}", directory.display()))?;
    let lock = lock_file(&directory.join("lock"));
    let lock = lock.map_err(|error| format!("{}: {error}", directory.join("lock").display()))?;
    let Some(_lock) = lock else {
        let directory = directory.display();
        return Err(format!(
            "a running gpukilld uses the store in {directory}: stop it first (systemctl stop \
             gpukilld)"
        ));
    };
    let prepared = PreparedRestore::prepare(directory, &source)?;
    print_line(&prepared.describe().join("\n"))?;
    if wanted.dry_run {
        return print_line("dry run: nothing is changed");
    }
    let now = Timestamp::from(SystemTime::now());
    let replaced = prepared.put_in_place(caller, file, now)?;
    print_line(&format!(
        "restored; the previous store is in {}",
        replaced.display()
    ))
}

fn print_line(lines: &str) -> Result<(), String> {
    super::print(&format!("{lines}\n")).map_err(|error| error.to_string())
}

/// Opens the backup. A backup records what others did, so only root, or the owner of the store, may
/// have written it.
fn open_backup(path: &Path) -> Result<File, String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => return Err("it is a symbolic link".to_owned()),
        Err(error) => return Err(std::io::Error::from(error).to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    match foreign_writer_reason(&metadata, OTHERS_WRITE) {
        // The writer may still have the file open; a copy belongs only to its owner.
        Some(why) => Err(format!(
            "{why}, or restore a copy owned by root (install -m 600 FILE COPY)"
        )),
        None => Ok(file),
    }
}

/// Continues as the user of the store: new files belong to that user, and nothing is done with the
/// rights of root in a directory that the user may write.
fn become_owner_of(directory: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(directory).map_err(|error| error.to_string())?;
    let (uid, gid) = (metadata.uid(), metadata.gid());
    if uid == geteuid().as_raw() {
        return Ok(());
    }
    if !geteuid().is_root() {
        return Err(format!("it belongs to uid {uid}"));
    }
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    // The process has only this thread.
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user))
        .map_err(|error| format!("cannot become its owner, uid {uid}: {error}"))
}
