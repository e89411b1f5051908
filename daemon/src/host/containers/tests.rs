//! Tests of what runtimes' files say, over made-up ones.

use super::*;
use crate::host::users::{Group, NameService, User};
use gpukill_proto::snapshot::ContainerId;
use std::fs;
use std::os::unix::fs::symlink;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Everybody's home is `/home/u`.
pub(super) struct Homes;

impl NameService for Homes {
    fn user(&self, _: u32) -> Result<Option<User>, String> {
        let (name, home) = ("u".into(), "/home/u".into());
        Ok(Some(User { name, home }))
    }

    fn group(&self, _: &str) -> Result<Option<Group>, String> {
        Ok(None)
    }

    fn groups_of(&self, _: u32) -> Result<Option<Vec<String>>, String> {
        Ok(None)
    }
}

/// A host's root, and what is known of containers below it.
pub(super) struct Host {
    root: tempfile::TempDir,
    containers: Containers,
    users: Users,
}

impl Host {
    /// Every look asks again.
    pub(super) fn new() -> Self {
        Self::keeping(Duration::ZERO, AGAIN)
    }

    fn keeping(keep: Duration, again: Duration) -> Self {
        let root = tempfile::tempdir().unwrap();
        let containers = Containers::keeping(root.path().into(), "user", keep, again);
        let users = Users::new(Homes);
        for uid in [us(), us() + 1] {
            users.name(uid);
        }
        users.settle(Instant::now() + Duration::from_secs(10));
        Self {
            containers,
            root,
            users,
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        let path = self.root.path().join(file.replace("ID", ID));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).unwrap();
    }

    /// The container as it is on disk now, and its label's person.
    fn look(&self, contained: &Contained) -> (Container, Option<String>) {
        self.containers.keep_only(|_| false);
        self.containers.of(contained, &self.users);
        self.containers
            .settle(Instant::now() + Duration::from_secs(10));
        self.containers.of(contained, &self.users)
    }

    pub(super) fn name(&self, contained: &Contained) -> Reading<String> {
        self.look(contained).0.name
    }
}

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(super) fn contained(runtime: &str, teller: Teller) -> Contained {
    Contained {
        id: ContainerId {
            runtime: runtime.into(),
            id: ID.into(),
        },
        pod: None,
        teller,
    }
}

pub(super) fn named(name: &str) -> Reading<String> {
    Reading::Value(name.into())
}

pub(super) fn failed(why: &str) -> Reading<String> {
    Reading::Failed(why.into())
}

pub(super) const DOCKER: &str = "var/lib/docker/containers/ID/config.v2.json";

#[test]
fn each_runtimes_files_are_found_where_it_keeps_them() {
    let docker = r#"{"Name": "/train", "Config": {"Image": "i", "Labels": {"user": "alice"}}}"#;
    let oci = r#"{"annotations": {"io.kubernetes.container.name": "train", "nerdctl/name": "train", "user": "alice"}}"#;
    let list = format!(r#"[{{"id": "{ID}", "names": ["train"]}}]"#);
    let task = "io.containerd.runtime.v2.task";
    let storage = "containers/storage/overlay-containers";
    let alice = Some("alice".to_owned());
    let cases = [
        ("docker", DOCKER.to_owned(), docker, &alice),
        (
            "containerd",
            format!("run/containerd/{task}/k8s.io/ID/config.json"),
            oci,
            &alice,
        ),
        (
            "containerd",
            format!("run/containerd/{task}/moby/ID/config.json"),
            oci,
            &alice,
        ),
        (
            "containerd",
            format!("run/k3s/containerd/{task}/default/ID/config.json"),
            oci,
            &alice,
        ),
        (
            "kubernetes",
            format!("run/containerd/{task}/k8s.io/ID/config.json"),
            oci,
            &alice,
        ),
        (
            "kubernetes",
            format!("run/{storage}/ID/userdata/config.json"),
            oci,
            &alice,
        ),
        ("kubernetes", DOCKER.to_owned(), docker, &alice),
        (
            "cri-o",
            format!("var/lib/{storage}/ID/userdata/config.json"),
            oci,
            &alice,
        ),
        (
            "podman",
            format!("var/lib/{storage}/containers.json"),
            &list,
            &None,
        ),
        (
            "podman",
            format!("var/lib/{storage}/volatile-containers.json"),
            &list,
            &None,
        ),
    ];
    for (runtime, file, text, person) in cases {
        let host = Host::new();
        let container = contained(runtime, Teller::System);
        let nowhere = failed("no file of its runtime names it");
        assert_eq!(host.name(&container), nowhere, "{file}");
        host.write(&file, text);
        let (found, label) = host.look(&container);
        assert_eq!((&found.name, &label), (&named("train"), person), "{file}");
    }
}

#[test]
fn a_volatile_container_is_found_behind_the_list_of_the_others() {
    let host = Host::new();
    let storage = "var/lib/containers/storage/overlay-containers";
    host.write(
        &format!("{storage}/containers.json"),
        r#"[{"id": "other", "names": ["no"]}]"#,
    );
    let list = format!(r#"[{{"id": "{ID}", "names": ["train"]}}]"#);
    host.write(&format!("{storage}/volatile-containers.json"), &list);
    let container = contained("podman", Teller::System);
    assert_eq!(host.name(&container), named("train"));
}

#[test]
fn a_users_containers_are_told_by_their_own_files_which_never_say_whose_they_are() {
    let docker = r#"{"Name": "/mine", "Config": {"Labels": {"user": "mallory"}}}"#;
    let list = format!(r#"[{{"id": "{ID}", "names": ["mine"]}}]"#);
    let home = "home/u/.local/share";
    let storage = format!("{home}/containers/storage/overlay-containers");
    for (runtime, file, text) in [
        (
            "docker",
            format!("{home}/docker/containers/ID/config.v2.json"),
            docker,
        ),
        (
            "podman",
            format!("{storage}/containers.json"),
            list.as_str(),
        ),
        (
            "podman",
            format!("{storage}/volatile-containers.json"),
            list.as_str(),
        ),
    ] {
        let host = Host::new();
        host.write(&file, text);
        let (found, label) = host.look(&contained(runtime, Teller::User(us())));
        assert_eq!((found.name, label), (named("mine"), None), "{file}");
        // The same files of somebody else tell nothing.
        let name = host.name(&contained(runtime, Teller::User(us() + 1)));
        let last = file.rsplit('/').next().unwrap();
        assert_eq!(name, failed(&format!("{last} belongs to somebody else")));
        // Nor do the box's own files tell of a user's.
        assert_eq!(host.name(&contained(runtime, Teller::System)).known(), None);
    }
    let host = Host::new();
    host.write(DOCKER, docker);
    let container = contained("docker", Teller::User(us()));
    assert_eq!(
        host.name(&container),
        failed("no file of its runtime names it")
    );
}

#[test]
fn a_users_container_never_equals_the_boxs_of_the_same_id() {
    let host = Host::new();
    host.write(DOCKER, r#"{"Name": "/victim"}"#);
    let of_the_box = host.look(&contained("docker", Teller::System)).0;
    let of_a_user = host.look(&contained("docker", Teller::User(us()))).0;
    assert_eq!((of_the_box.manager, of_a_user.manager), (None, Some(us())));
    assert_eq!(of_the_box.id, of_a_user.id);
    assert_eq!(of_a_user.name, failed("no file of its runtime names it"));
}

#[test]
fn a_file_that_could_not_be_understood_is_soon_read_again() {
    let container = contained("docker", Teller::System);
    let an_hour = Duration::from_secs(3_600);
    let half_written = |again| {
        let host = Host::keeping(an_hour, again);
        host.write(DOCKER, r#"{"Name": "/tr"#);
        let why = "its runtime's file is not as expected in line 1";
        assert_eq!(host.name(&container), failed(why));
        host.write(DOCKER, r#"{"Name": "/train"}"#);
        (host, failed(why))
    };
    let (host, _) = half_written(Duration::ZERO);
    let deadline = Instant::now() + Duration::from_secs(10);
    while host.containers.of(&container, &host.users).0.name != named("train") {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    // Not at once, and what was known stays meanwhile.
    let (host, why) = half_written(an_hour);
    let now = || host.containers.of(&container, &host.users).0.name;
    assert_eq!([now(), now()], [why.clone(), why]);
    assert_eq!(AGAIN, Duration::from_secs(2));
}

#[test]
fn a_container_is_followed_when_it_is_renamed_and_when_it_has_gone() {
    let host = Host::new();
    let container = contained("docker", Teller::System);
    host.write(DOCKER, r#"{"Name": "/one"}"#);
    assert_eq!(host.name(&container), named("one"));
    host.write(DOCKER, r#"{"Name": "/two"}"#);
    // Without being forgotten: what is old is asked for again.
    let deadline = Instant::now() + Duration::from_secs(10);
    while host.containers.of(&container, &host.users).0.name != named("two") {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    fs::remove_file(host.path(DOCKER)).unwrap();
    assert_eq!(
        host.name(&container),
        failed("no file of its runtime names it")
    );
}

#[test]
fn files_that_are_made_to_harm_are_not_read_and_delay_nobody() {
    let container = contained("docker", Teller::System);
    let directory = DOCKER.rsplit_once('/').unwrap().0;
    type Making = fn(&Host);
    let cases: [(&str, Making); 6] = [
        ("config.v2.json is no regular file", |host| {
            let fifo = host.path(DOCKER);
            let made = std::process::Command::new("mkfifo").arg(fifo).status();
            assert!(made.unwrap().success());
        }),
        ("config.v2.json is no regular file", |host| {
            fs::create_dir(host.path(DOCKER)).unwrap();
        }),
        ("a link is in its way", |host| {
            host.write("secret.json", r#"{"Name": "secret"}"#);
            symlink(host.path("secret.json"), host.path(DOCKER)).unwrap();
        }),
        ("config.v2.json is longer than 1 MiB", |host| {
            let long = format!(r#"{{"Name": "/x"}}{}"#, " ".repeat(1 << 20));
            host.write(DOCKER, &long);
        }),
        ("config.v2.json cannot be read as text", |host| {
            fs::write(host.path(DOCKER), b"{\"Name\": \"\xff\"}").unwrap();
        }),
        ("its runtime's file is not as expected in line 2", |host| {
            host.write(DOCKER, "{\n\"Name\": 7}");
        }),
    ];
    for (why, make) in cases {
        let host = Host::new();
        make(&host);
        assert_eq!(host.name(&container), failed(why));
    }
    // A link where the container's directory should be.
    let host = Host::new();
    host.write("elsewhere/config.v2.json", r#"{"Name": "secret"}"#);
    symlink(host.root.path().join("elsewhere"), host.path(directory)).unwrap();
    assert_eq!(host.name(&container), failed("a link is in its way"));
}

#[test]
fn a_runtimes_whole_directory_may_lie_elsewhere() {
    let host = Host::new();
    host.write("data/containers/ID/config.v2.json", r#"{"Name": "/train"}"#);
    fs::create_dir_all(host.root.path().join("var/lib")).unwrap();
    symlink(
        host.root.path().join("data"),
        host.root.path().join("var/lib/docker"),
    )
    .unwrap();
    assert_eq!(
        host.name(&contained("docker", Teller::System)),
        named("train")
    );
}

#[test]
fn only_ids_become_parts_of_paths() {
    let host = Host::new();
    host.write(
        "var/lib/docker/containers/config.v2.json",
        r#"{"Name": "/x"}"#,
    );
    host.write(
        "run/containerd/io.containerd.runtime.v2.task/default/config.json",
        "{}",
    );
    for (runtime, id) in [
        ("docker", ".."),
        ("docker", "."),
        ("docker", ""),
        ("docker", "web01"),
        ("containerd", ".."),
        ("containerd", "a/../b"),
        ("podman", "containers.json"),
    ] {
        let mut container = contained(runtime, Teller::System);
        container.id.id = id.into();
        // Nothing was read: it is called by its id.
        assert_eq!(host.name(&container), named(id), "{runtime} {id}");
    }
    let lxc = Contained {
        id: ContainerId {
            runtime: "lxc".into(),
            id: "web01".into(),
        },
        ..contained("lxc", Teller::System)
    };
    assert_eq!(host.name(&lxc), named("web01"));
}

#[test]
fn a_containers_pod_has_the_uid_of_its_cgroup_and_the_names_of_its_file() {
    let host = Host::new();
    let oci = r#"{"annotations": {"io.kubernetes.cri.sandbox-name": "train-0", "io.kubernetes.cri.sandbox-namespace": "team"}}"#;
    host.write(
        "run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json",
        oci,
    );
    let container = Contained {
        pod: Some("74ba62da-1a3d-11e7-bb11-080027cb0e22".into()),
        ..contained("containerd", Teller::System)
    };
    let pod = Pod {
        uid: "74ba62da-1a3d-11e7-bb11-080027cb0e22".into(),
        name: named("train-0"),
        namespace: named("team"),
    };
    assert_eq!(host.look(&container).0.pod, Some(pod));
}
