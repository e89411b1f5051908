//! Tests of the data from runtimes' files, over fake ones.

use super::*;
use crate::host::users::{NameService, UserRecord};
use gpukill_proto::model::ContainerId;
use std::fs;
use std::os::unix::fs::symlink;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A name service in which every user's home is `/home/u`.
pub(super) struct HomesNameService;

impl NameService for HomesNameService {
    fn user(&self, _: u32) -> Result<Option<UserRecord>, String> {
        let (name, home) = ("u".into(), "/home/u".into());
        Ok(Some(UserRecord { name, home }))
    }
}

/// A host's root, and the container cache over it.
pub(super) struct FakeContainerHost {
    root: tempfile::TempDir,
    containers: ContainerCache,
    users: Users,
}

impl FakeContainerHost {
    /// Every lookup reads again.
    pub(super) fn new() -> Self {
        Self::keeping(Duration::ZERO, RETRY_AFTER)
    }

    fn keeping(keep: Duration, again: Duration) -> Self {
        let root = tempfile::tempdir().unwrap();
        let containers = ContainerCache::with_times(root.path().into(), "user", keep, again);
        let users = Users::new(HomesNameService);
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
    fn look_up(&self, contained: &CgroupContainer) -> (Container, Option<String>) {
        self.containers.keep_only(|_| false);
        self.containers.get(contained, &self.users);
        self.containers
            .settle(Instant::now() + Duration::from_secs(10));
        self.containers.get(contained, &self.users)
    }

    pub(super) fn name(&self, contained: &CgroupContainer) -> Reading<String> {
        self.look_up(contained).0.name
    }
}

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(super) fn contained(runtime: &str, manager: ContainerManager) -> CgroupContainer {
    CgroupContainer {
        id: ContainerId {
            runtime: runtime.into(),
            id: ID.into(),
        },
        pod: None,
        manager,
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
fn each_runtimes_files_are_found() {
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
        let host = FakeContainerHost::new();
        let container = contained(runtime, ContainerManager::System);
        let nowhere = failed("no file of its runtime names it");
        assert_eq!(host.name(&container), nowhere, "{file}");
        host.write(&file, text);
        let (found, label) = host.look_up(&container);
        assert_eq!((&found.name, &label), (&named("train"), person), "{file}");
    }
}

#[test]
fn volatile_container_is_in_the_second_list() {
    let host = FakeContainerHost::new();
    let storage = "var/lib/containers/storage/overlay-containers";
    host.write(
        &format!("{storage}/containers.json"),
        r#"[{"id": "other", "names": ["no"]}]"#,
    );
    let list = format!(r#"[{{"id": "{ID}", "names": ["train"]}}]"#);
    host.write(&format!("{storage}/volatile-containers.json"), &list);
    let container = contained("podman", ContainerManager::System);
    assert_eq!(host.name(&container), named("train"));
}

#[test]
fn users_files_never_name_an_owner() {
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
        let host = FakeContainerHost::new();
        host.write(&file, text);
        let (found, label) = host.look_up(&contained(runtime, ContainerManager::User(us())));
        assert_eq!((found.name, label), (named("mine"), None), "{file}");
        // The same files with another owner give no facts.
        let name = host.name(&contained(runtime, ContainerManager::User(us() + 1)));
        let last = file.rsplit('/').next().unwrap();
        assert_eq!(name, failed(&format!("{last} belongs to another user")));
        // Nor do the system's files describe a user's container.
        assert_eq!(
            host.name(&contained(runtime, ContainerManager::System))
                .known(),
            None
        );
    }
    let host = FakeContainerHost::new();
    host.write(DOCKER, docker);
    let container = contained("docker", ContainerManager::User(us()));
    assert_eq!(
        host.name(&container),
        failed("no file of its runtime names it")
    );
}

#[test]
fn users_container_differs_from_systems() {
    let host = FakeContainerHost::new();
    host.write(DOCKER, r#"{"Name": "/victim"}"#);
    let of_host = host
        .look_up(&contained("docker", ContainerManager::System))
        .0;
    let of_a_user = host
        .look_up(&contained("docker", ContainerManager::User(us())))
        .0;
    assert_eq!((of_host.manager, of_a_user.manager), (None, Some(us())));
    assert_eq!(of_host.id, of_a_user.id);
    assert_eq!(of_a_user.name, failed("no file of its runtime names it"));
}

#[test]
fn malformed_file_is_soon_read_again() {
    let container = contained("docker", ContainerManager::System);
    let an_hour = Duration::from_secs(3_600);
    let half_written = |again| {
        let host = FakeContainerHost::keeping(an_hour, again);
        host.write(DOCKER, r#"{"Name": "/tr"#);
        let why = "the runtime's file is malformed in line 1";
        assert_eq!(host.name(&container), failed(why));
        host.write(DOCKER, r#"{"Name": "/train"}"#);
        (host, failed(why))
    };
    let (host, _) = half_written(Duration::ZERO);
    let deadline = Instant::now() + Duration::from_secs(10);
    while host.containers.get(&container, &host.users).0.name != named("train") {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    // Not at once; the earlier data stays meanwhile.
    let (host, why) = half_written(an_hour);
    let now = || host.containers.get(&container, &host.users).0.name;
    assert_eq!([now(), now()], [why.clone(), why]);
    assert_eq!(RETRY_AFTER, Duration::from_secs(2));
}

#[test]
fn renamed_and_removed_containers_are_noticed() {
    let host = FakeContainerHost::new();
    let container = contained("docker", ContainerManager::System);
    host.write(DOCKER, r#"{"Name": "/one"}"#);
    assert_eq!(host.name(&container), named("one"));
    host.write(DOCKER, r#"{"Name": "/two"}"#);
    // Without being dropped: an old value is fetched again.
    let deadline = Instant::now() + Duration::from_secs(10);
    while host.containers.get(&container, &host.users).0.name != named("two") {
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
fn harmful_files_are_skipped_without_delay() {
    let container = contained("docker", ContainerManager::System);
    let directory = DOCKER.rsplit_once('/').unwrap().0;
    type Making = fn(&FakeContainerHost);
    let cases: [(&str, Making); 6] = [
        ("config.v2.json is not a regular file", |host| {
            let fifo = host.path(DOCKER);
            let made = std::process::Command::new("mkfifo").arg(fifo).status();
            assert!(made.unwrap().success());
        }),
        ("config.v2.json is not a regular file", |host| {
            fs::create_dir(host.path(DOCKER)).unwrap();
        }),
        ("its path contains a link", |host| {
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
        ("the runtime's file is malformed in line 2", |host| {
            host.write(DOCKER, "{\n\"Name\": 7}");
        }),
    ];
    for (why, make) in cases {
        let host = FakeContainerHost::new();
        make(&host);
        assert_eq!(host.name(&container), failed(why));
    }
    // A link in place of the container's directory.
    let host = FakeContainerHost::new();
    host.write("elsewhere/config.v2.json", r#"{"Name": "secret"}"#);
    symlink(host.root.path().join("elsewhere"), host.path(directory)).unwrap();
    assert_eq!(host.name(&container), failed("its path contains a link"));
}

#[test]
fn runtime_directory_may_be_elsewhere() {
    let host = FakeContainerHost::new();
    host.write("data/containers/ID/config.v2.json", r#"{"Name": "/train"}"#);
    fs::create_dir_all(host.root.path().join("var/lib")).unwrap();
    symlink(
        host.root.path().join("data"),
        host.root.path().join("var/lib/docker"),
    )
    .unwrap();
    assert_eq!(
        host.name(&contained("docker", ContainerManager::System)),
        named("train")
    );
}

#[test]
fn only_ids_become_path_parts() {
    let host = FakeContainerHost::new();
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
        let mut container = contained(runtime, ContainerManager::System);
        container.id.id = id.into();
        // No file was read: its name is its id.
        assert_eq!(host.name(&container), named(id), "{runtime} {id}");
    }
    let lxc = CgroupContainer {
        id: ContainerId {
            runtime: "lxc".into(),
            id: "web01".into(),
        },
        ..contained("lxc", ContainerManager::System)
    };
    assert_eq!(host.name(&lxc), named("web01"));
}

#[test]
fn pod_uid_is_from_cgroup_names_from_file() {
    let host = FakeContainerHost::new();
    let oci = r#"{"annotations": {"io.kubernetes.cri.sandbox-name": "train-0", "io.kubernetes.cri.sandbox-namespace": "team"}}"#;
    host.write(
        "run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json",
        oci,
    );
    let container = CgroupContainer {
        pod: Some("74ba62da-1a3d-11e7-bb11-080027cb0e22".into()),
        ..contained("containerd", ContainerManager::System)
    };
    let pod = Pod {
        uid: "74ba62da-1a3d-11e7-bb11-080027cb0e22".into(),
        name: named("train-0"),
        namespace: named("team"),
    };
    assert_eq!(host.look_up(&container).0.pod, Some(pod));
}
