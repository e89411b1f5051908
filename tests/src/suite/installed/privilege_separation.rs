//! Privilege separation of the package: taking over the daemon, or having its user name,
//! gives no further rights through the package.

use super::InstalledBox;
use std::os::unix::fs::MetadataExt as _;

#[test]
fn daemon_user_owns_only_its_own_files() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    let gpukill = it.run_as_root(&["id", "--user", "gpukill"]);
    let gpukill: u32 = gpukill.trim().parse().unwrap();
    // dpkg writes beside its configuration file, by path and as root.
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
    // An upgrade takes back files there that the daemon owns, from an older build or
    // otherwise.
    it.run_as_root(&["chown", "--recursive", "gpukill", "/etc/gpukill"]);
    it.install(&it.package.second);
    for path in ["/etc/gpukill", "/etc/gpukill/gpukilld.toml"] {
        assert_eq!(it.path(path).symlink_metadata().unwrap().uid(), 0, "{path}");
    }
    // With CAP_SYS_PTRACE each of these calls takes over a process or bypasses a
    // restriction.
    let allowed = it.unit_property("gpukilld", "SystemCallFilter");
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
fn existing_user_does_not_become_the_daemon() {
    let Some(it) = InstalledBox::without_package() else {
        return;
    };
    it.copy_into_box(&it.package.first, "/root/gpukill.deb");
    let daemon = "u gpukill 990 - /var/lib/gpukill";
    for (users, why) in [
        (
            &["u gpukill 990 - /home/gpukill"][..],
            "there is a user gpukill with another home, /home/gpukill",
        ),
        (
            &["u gpukill 990 - /var/lib/gpukill /bin/bash"],
            "there is a user gpukill who can log in, with /bin/bash",
        ),
        (
            &["u gpukill 1500 - /var/lib/gpukill"],
            "the user gpukill has the uid 1500, which is in the range of people",
        ),
        (
            &[daemon, "u alice 1500", "m alice gpukill"],
            "alice is in the group gpukill, which belongs to the daemon",
        ),
        (
            &["g gpukill 990", "u alice 1500:990"],
            "alice has the group gpukill",
        ),
    ] {
        replace_users(&it, users);
        assert_install_is_refused(&it, why);
    }
    // Entries that systemd-sysusers does not create.
    replace_users(&it, &[daemon]);
    let passwd = it.path("/etc/passwd");
    let text = std::fs::read_to_string(&passwd).unwrap();
    for (from, to, why) in [
        (
            ":/var/lib/gpukill:",
            "::",
            "there is a user gpukill with another home, none",
        ),
        (
            ":/usr/sbin/nologin",
            ":",
            "there is a user gpukill who can log in, with /bin/sh",
        ),
        (
            ":990:990:",
            ":0:990:",
            "the user root has the same uid as the user gpukill, 0",
        ),
    ] {
        let (others, line) = text.trim_end().rsplit_once('\n').unwrap();
        assert!(line.starts_with("gpukill:"), "{line}");
        let edited = line.replace(from, to);
        it.write("/etc/passwd", &format!("{others}\n{edited}\n"));
        assert_install_is_refused(&it, why);
    }
    // A correct user that an admin created is accepted, also where UID_MIN is set twice.
    it.write("/etc/passwd", &text);
    let defaults = std::fs::read_to_string(it.path("/etc/login.defs")).unwrap();
    let twice = format!("{defaults}\nUID_MIN 1500\nUID_MIN 1000\n");
    it.write("/etc/login.defs", &twice);
    it.install(&it.package.first);
    // After the installation the admin may change the users.
    it.run_as_root(&[
        "systemd-sysusers",
        "--inline",
        "u alice 1500",
        "m alice gpukill",
    ]);
    it.install(&it.package.second);
}

/// Replaces all users and groups of these names by those of the sysusers.d lines.
fn replace_users(it: &InstalledBox, lines: &[&str]) {
    for file in ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"] {
        let path = it.path(file);
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let lines = text.lines();
        let others =
            lines.filter(|line| !line.starts_with("gpukill:") && !line.starts_with("alice:"));
        let others: Vec<&str> = others.collect();
        std::fs::write(&path, others.join("\n") + "\n").unwrap();
    }
    it.run_as_root(&[&["systemd-sysusers", "--inline"][..], lines].concat());
}

fn assert_install_is_refused(it: &InstalledBox, why: &str) {
    let ran = it.run("root", &["dpkg", "--install", "/root/gpukill.deb"]);
    assert_ne!(ran.code, 0, "{why}: {ran:?}");
    let message = ran
        .stderr
        .lines()
        .find(|line| line.starts_with("gpukill: "));
    assert_eq!(message, Some(format!("gpukill: {why}").as_str()), "{ran:?}");
    assert!(!it.path("/usr/bin/gpukilld").exists(), "{why}");
}

#[test]
fn purge_spares_mounted_files() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    // A bind mount below the directory, from the same file system: its device number does
    // not differ.
    let [below, somebodys] = ["/var/lib/gpukill/other", "/srv/disk/somebodys"];
    it.write(somebodys, "");
    it.run_as_root(&["mkdir", below]);
    it.run_as_root(&["mount", "--bind", "/srv/disk", below]);
    it.run_as_root(&["dpkg", "--purge", "gpukill"]);
    assert!(it.path(somebodys).exists());
    assert!(!it.path("/etc/gpukill").exists());
    it.run_as_root(&["umount", below]);

    // The directory itself is a mount point, and then a symbolic link.
    it.run_as_root(&["mount", "--bind", "/srv/disk", "/var/lib/gpukill"]);
    it.install(&it.package.first);
    it.run_as_root(&["dpkg", "--purge", "gpukill"]);
    assert!(it.path(somebodys).exists());
    it.run_as_root(&["umount", "/var/lib/gpukill"]);
    it.run_as_root(&["mv", "/var/lib/gpukill", "/srv/moved"]);
    it.run_as_root(&["ln", "-s", "/srv/disk", "/var/lib/gpukill"]);
    it.install(&it.package.first);
    it.run_as_root(&["dpkg", "--purge", "gpukill"]);
    assert!(it.path(somebodys).exists());

    it.run_as_root(&["rm", "/var/lib/gpukill"]);
    it.install(&it.package.first);
    it.run_as_root(&["dpkg", "--purge", "gpukill"]);
    assert!(!it.path("/var/lib/gpukill").exists());
}
