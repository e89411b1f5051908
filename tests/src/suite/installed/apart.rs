//! What is the daemon's own is apart from what is root's: whoever takes the daemon over,
//! or is called as it is, gets no further through the package.

use super::Installed;
use std::os::unix::fs::MetadataExt as _;

#[test]
fn of_settings_and_system_calls_the_daemons_user_has_what_it_needs() {
    let Some(it) = Installed::with("") else {
        return;
    };
    let gpukill = it.does(&["id", "--user", "gpukill"]);
    let gpukill: u32 = gpukill.trim().parse().unwrap();
    // dpkg writes beside its conffile, by path and as root.
    for (path, owner) in [
        ("/etc/gpukill", 0),
        ("/etc/gpukill/gpukilld.toml", 0),
        ("/etc/gpukill/rules", gpukill),
        ("/var/lib/gpukill", gpukill),
    ] {
        let found = it.path(path).symlink_metadata().unwrap();
        assert_eq!(found.uid(), owner, "{path}");
        assert_eq!(found.mode() & 0o022, 0, "{path}");
    }
    // With CAP_SYS_PTRACE each of these takes over any process, or goes round a bound.
    let allowed = it.property("gpukilld", "SystemCallFilter");
    let allowed: Vec<&str> = allowed.split(' ').collect();
    assert!(allowed.contains(&"pidfd_send_signal"), "{allowed:?}");
    for call in [
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "process_madvise",
        "pidfd_getfd",
        "kcmp",
        "open_by_handle_at",
        "bpf",
        "io_uring_setup",
        "userfaultfd",
        "setuid",
        "chroot",
        "mount",
    ] {
        assert!(!allowed.contains(&call), "{call}");
    }
}

#[test]
fn a_person_of_the_daemons_name_does_not_become_the_daemon() {
    let Some(it) = Installed::bare() else { return };
    let user = "u gpukill 1500 - /home/gpukill /bin/bash";
    it.does(&["systemd-sysusers", "--inline", user]);
    it.put(&it.package.first, "/root/gpukill.deb");
    let ran = it.run("root", &["dpkg", "--install", "/root/gpukill.deb"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr
            .contains("there is a user gpukill with another home, /home/gpukill"),
        "{ran:?}"
    );
    assert!(!it.path("/usr/bin/gpukilld").exists());
}

#[test]
fn a_purge_deletes_nothing_of_what_is_mounted_there() {
    let Some(it) = Installed::with("") else {
        return;
    };
    // Below, and of the same file system, which a device's number does not tell apart.
    let [below, somebodys] = ["/var/lib/gpukill/other", "/srv/disk/somebodys"];
    it.write(somebodys, "");
    it.does(&["mkdir", below]);
    it.does(&["mount", "--bind", "/srv/disk", below]);
    it.does(&["dpkg", "--purge", "gpukill"]);
    assert!(it.path(somebodys).exists());
    assert!(!it.path("/etc/gpukill").exists());
    it.does(&["umount", below]);

    // The directory itself, and behind a link.
    it.does(&["mount", "--bind", "/srv/disk", "/var/lib/gpukill"]);
    it.install(&it.package.first);
    it.does(&["dpkg", "--purge", "gpukill"]);
    assert!(it.path(somebodys).exists());
    it.does(&["umount", "/var/lib/gpukill"]);
    it.does(&["mv", "/var/lib/gpukill", "/srv/moved"]);
    it.does(&["ln", "-s", "/srv/disk", "/var/lib/gpukill"]);
    it.install(&it.package.first);
    it.does(&["dpkg", "--purge", "gpukill"]);
    assert!(it.path(somebodys).exists());

    it.does(&["rm", "/var/lib/gpukill"]);
    it.install(&it.package.first);
    it.does(&["dpkg", "--purge", "gpukill"]);
    assert!(!it.path("/var/lib/gpukill").exists());
}
