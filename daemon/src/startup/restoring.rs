//! `gpukilld restore FILE`: root, or with `--user` the person whose store it is, replaces
//! the store by a backup while no daemon runs.

use crate::args::Restore;
use crate::audit::PreparedRestore;
use crate::config::{Config, OTHERS_WRITE, is_others};
use crate::server::listener::lock;
use gpukill_proto::units::Timestamp;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid, geteuid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// Does it, and prints what was done.
pub(super) fn restore(wanted: &Restore, config: &Config) -> Result<(), String> {
    if !config.personal && !geteuid().is_root() {
        return Err("only root restores a backup".to_owned());
    }
    let (who, file) = (getuid().as_raw(), &wanted.file);
    let source = opened(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let directory = &config.daemon.state_dir;
    become_owner_of(directory).map_err(|why| format!("{}: {why}", directory.display()))?;
    let lock = lock(&directory.join("lock"));
    let lock = lock.map_err(|error| format!("{}: {error}", directory.join("lock").display()))?;
    let Some(_lock) = lock else {
        let directory = directory.display();
        return Err(format!(
            "a gpukilld runs that stores in {directory}: stop it first (systemctl stop gpukilld)"
        ));
    };
    let prepared = PreparedRestore::make(directory, &source)?;
    say(&prepared.describe().join("\n"))?;
    if wanted.dry_run {
        return say("dry run: nothing is changed");
    }
    let now = Timestamp::from(SystemTime::now());
    let replaced = prepared.put_in_place(who, file, now)?;
    say(&format!(
        "restored; the store that was there is in {}",
        replaced.display()
    ))
}

fn say(lines: &str) -> Result<(), String> {
    super::print(&format!("{lines}\n")).map_err(|error| error.to_string())
}

/// A backup says what others did: nobody but root, or the person whose store it is, may
/// have written it.
fn opened(path: &Path) -> Result<File, String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => return Err("it is a symbolic link".to_owned()),
        Err(error) => return Err(std::io::Error::from(error).to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    match is_others(&metadata, OTHERS_WRITE) {
        // Its writer may have it open still: a copy is nobody else's.
        Some(why) => Err(format!(
            "{why}, or restore a copy that is root's (install -m 600 FILE COPY)"
        )),
        None => Ok(file),
    }
}

/// Goes on as the user of the store: what is made is theirs, and in a directory that they
/// may write nothing is done with root's rights.
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
    // Of the only thread there is.
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user))
        .map_err(|error| format!("cannot become its owner, uid {uid}: {error}"))
}
