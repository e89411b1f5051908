//! Tests that cgroup names which any user may choose are not believed.

use super::tests::{A, CgroupSummary, some, summarize};
use super::{CgroupLocation, CgroupView};
use std::fs::{Permissions, create_dir, set_permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

#[test]
fn untrusted_container_is_none_its_unit_counts() {
    let user = "user.slice/user-1000.slice";
    let cases = [
        (
            format!("system.slice/hub.service/docker-{A}.scope"),
            some("hub.service"),
        ),
        // The service may belong to an unprivileged user, and be divided further.
        (
            format!("system.slice/hub.service/libpod-{A}.scope"),
            some("hub.service"),
        ),
        (
            format!("system.slice/hub.service/x/libpod-payload-{A}"),
            some("hub.service"),
        ),
        (
            format!("{user}/session-3.scope/libpod-payload-{A}"),
            some("session-3.scope"),
        ),
        // Outside of the slice that the system's systemd made for a user.
        (
            format!("system.slice/hub.service/user@7.service/libpod-{A}.scope"),
            some("hub.service"),
        ),
        (
            format!("{user}/user@7.service/libpod-payload-{A}"),
            some("user@7.service"),
        ),
        (
            format!("user@7.service/libpod-payload-{A}"),
            some("user@7.service"),
        ),
        (
            format!(
                "system.slice/hub.service/user.slice/user-7.slice/user@7.service/libpod-{A}.scope"
            ),
            some("hub.service"),
        ),
        // Groups that `pam_cgfs` gives to users, who may name units, too.
        (format!("user/bob/0/docker/{A}"), None),
        (format!("user/bob/0/docker-{A}.scope"), None),
        ("user/bob/0/ssh.service".to_owned(), None),
    ];
    for (path, unit) in cases {
        let session = unit.as_deref().filter(|unit| unit.starts_with("session"));
        let expected = CgroupSummary {
            session: session.map(|_| "3".to_owned()),
            unit,
            ..CgroupSummary::default()
        };
        assert_eq!(summarize(&format!("0::/{path}")), expected, "{path}");
    }
}

#[test]
fn user_named_cgroup_is_no_scheduler_job() {
    let names = [
        "system.slice/slurmstepd.scope/job_1/step_0",
        "slurmstepd.scope/job_1/step_0",
        "slurm/uid_0/job_1/step_0",
        "slurm/job_7",
        "slurm_n1/uid_0/job_1",
        "pbs_jobs.service/jobid/123.srv",
        "lsf/c/job.1.2.3",
        "htcondor/slot_1",
        "condor.service/slot_1",
    ];
    let parents = [
        "user.slice/user-1000.slice/user@1000.service/mine",
        "user.slice/user-1000.slice/session-3.scope",
        "system.slice/hub.service",
        "user/bob/0",
    ];
    for (parent, name) in parents
        .iter()
        .flat_map(|parent| names.map(|name| (parent, name)))
    {
        assert_eq!(
            summarize(&format!("4:memory:/{parent}/{name}")).job,
            None,
            "{parent}/{name}"
        );
    }
    for path in [
        "system.slice/slurmstepd.scope/job_1;rm/step_0",
        "system.slice/slurmstepd.scope/x/job_1",
        "slurm/job_7",
        "slurmd/uid_0/job_7",
        "slurm/uid_x/job_7",
        "slurm/uid_0/x/job_7",
        "x.service/job_1",
    ] {
        assert_eq!(summarize(&format!("0::/{path}")).job, None, "{path}");
    }
    // A cgroup below a job is no container of the host: some schedulers let a job divide its
    // cgroup.
    for path in [
        "htcondor/slot_1",
        "slurm/uid_0/job_1/step_0",
        "lsf/c/job.1.2.3",
    ] {
        let divided = summarize(&format!("4:memory:/{path}/docker-{A}.scope"));
        assert_eq!((divided.container, divided.unit), (None, None), "{path}");
        assert!(divided.job.is_some(), "{path}");
    }
}

#[test]
fn container_in_a_users_directory_is_none() {
    if std::fs::metadata("/usr").unwrap().uid() != 0 {
        eprintln!("skipped: in this user namespace nothing belongs to root");
        return;
    }
    // Stands for the mounted hierarchies, at the root of all files: `/usr` is root's.
    let mounts = tempfile::tempdir().unwrap();
    let name = |part: &str| {
        let path = mounts.path().join(part);
        path.strip_prefix("/").unwrap().to_str().unwrap().to_owned()
    };
    for directory in ["docker", "alice.service", "alice"] {
        let path = mounts.path().join(directory);
        create_dir(&path).unwrap();
        // Of a user, or writable for one.
        set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    }
    for directory in ["root.service", "root"] {
        symlink("/usr", mounts.path().join(directory)).unwrap();
    }
    let is_container = |line: &str, root: Option<&str>| {
        let location = CgroupLocation::parse(line, CgroupView::Whole, root.map(Path::new));
        location.container.known().unwrap().is_some()
    };
    for (directory, part, expected) in [
        ("alice.service", "libpod-payload-", false),
        ("root.service", "libpod-payload-", true),
        ("gone.service", "libpod-payload-", false),
        ("alice", "docker-", false),
        ("root", "docker-", true),
        ("gone", "docker-", false),
        ("docker", "", false),
    ] {
        let line = format!("0::/{}/{part}{A}", name(directory));
        assert_eq!(is_container(&line, Some("/")), expected, "{line}");
        // The owner of the directory is not known.
        assert!(!is_container(&line, None), "{line}");
    }
    // Each hierarchy of version 1 is a directory of its own.
    let line = format!("4:{}:/root/docker-{A}", name(""));
    assert!(is_container(&line, Some("/")), "{line}");
    let line = format!("4:{}:/alice/docker-{A}", name(""));
    assert!(!is_container(&line, Some("/")), "{line}");
    // Where the owner is unknown, the places of systemd and the runtimes count.
    assert!(is_container(&format!("0::/docker/{A}"), None));
    assert!(!is_container(
        &format!("0::/mine/a.slice/docker-{A}.scope"),
        None
    ));
}
