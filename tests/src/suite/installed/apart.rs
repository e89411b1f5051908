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
    // What the daemon has of it, from an older build or otherwise, goes back.
    it.does(&["chown", "--recursive", "gpukill", "/etc/gpukill"]);
    it.install(&it.package.second);
    for path in ["/etc/gpukill", "/etc/gpukill/gpukilld.toml"] {
        assert_eq!(it.path(path).symlink_metadata().unwrap().uid(), 0, "{path}");
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
    it.put(&it.package.first, "/root/gpukill.deb");
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
            "there is a user gpukill with a number of people's, 1500",
        ),
        (
            &[daemon, "u alice 1500", "m alice gpukill"],
            "alice is in the group gpukill, which is the daemon's",
        ),
        (
            &["g gpukill 990", "u alice 1500:990"],
            "alice has the group gpukill",
        ),
    ] {
        are_people(&it, users);
        is_refused(&it, why);
    }
    // What systemd's tools do not make.
    are_people(&it, &[daemon]);
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
            "the user root has the number of the user gpukill, 0",
        ),
    ] {
        let (others, line) = text.trim_end().rsplit_once('\n').unwrap();
        assert!(line.starts_with("gpukill:"), "{line}");
        let edited = line.replace(from, to);
        it.write("/etc/passwd", &format!("{others}\n{edited}\n"));
        is_refused(&it, why);
    }
    // One that an admin made as it would be made, where it is told twice from which number
    // on people's are.
    it.write("/etc/passwd", &text);
    let defaults = std::fs::read_to_string(it.path("/etc/login.defs")).unwrap();
    let twice = format!("{defaults}\nUID_MIN 1500\nUID_MIN 1000\n");
    it.write("/etc/login.defs", &twice);
    it.install(&it.package.first);
    // Later they may do as they like.
    it.does(&[
        "systemd-sysusers",
        "--inline",
        "u alice 1500",
        "m alice gpukill",
    ]);
    it.install(&it.package.second);
}

/// Has these lines of sysusers.d be all that is there of their names.
fn are_people(it: &Installed, lines: &[&str]) {
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
    it.does(&[&["systemd-sysusers", "--inline"][..], lines].concat());
}

fn is_refused(it: &Installed, why: &str) {
    let ran = it.run("root", &["dpkg", "--install", "/root/gpukill.deb"]);
    assert_ne!(ran.code, 0, "{why}: {ran:?}");
    let told = ran
        .stderr
        .lines()
        .find(|line| line.starts_with("gpukill: "));
    assert_eq!(told, Some(format!("gpukill: {why}").as_str()), "{ran:?}");
    assert!(!it.path("/usr/bin/gpukilld").exists(), "{why}");
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
