//! The paths of Docker's files about a container.

use super::ContainerFile;
use super::format::ContainerFileFormat;
use super::open::{TrustedOwner, read_below};
use serde::Deserialize;
use std::path::{Component, Path, PathBuf};

/// The default data roots, of Docker itself and of its snap.
const DEFAULT_DATA_ROOTS: [&str; 2] = ["var/lib/docker", "var/snap/docker/common/var-lib-docker"];

/// How many entries of such a directory are read. Docker creates about ten, and one for each user
/// mapping that it was ever started with.
const MAX_ENTRIES: usize = 256;

/// The files that may describe this container, below a root.
pub(super) fn docker_files(root: &Path, id: &str) -> Vec<ContainerFile> {
    let usual = DEFAULT_DATA_ROOTS.map(PathBuf::from);
    let directories = configured_data_root(root).into_iter().chain(usual);
    directories
        .flat_map(|directory| {
            let mapped = userns_directories(&root.join(&directory)).into_iter();
            let below = mapped.map(|users| vec![users]).chain([Vec::new()]);
            below.map(move |mut parts| {
                parts.extend(["containers", id, "config.v2.json"].map(str::to_owned));
                ContainerFile {
                    directory: directory.clone(),
                    parts,
                    format: ContainerFileFormat::Docker,
                }
            })
        })
        .collect()
}

fn configured_data_root(root: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct DockerDaemonConfig {
        #[serde(rename = "data-root")]
        data_root: PathBuf,
    }
    // Docker does not start with a malformed file. Where this file cannot be read, the default is
    // tried.
    let name = ["daemon.json".to_owned()];
    let text = read_below(&root.join("etc/docker"), &name, TrustedOwner::Any).ok()?;
    let daemon: DockerDaemonConfig = serde_json::from_str(&text).ok()?;
    let below = daemon.data_root.strip_prefix("/").ok()?;
    let mut parts = below.components();
    let is_below = parts.all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| below.to_owned())
}

/// With `userns-remap` Docker uses a directory for each mapping, `100000.100000`: the user and the
/// group that are root inside.
fn userns_directories(directory: &Path) -> Vec<String> {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let of_mappings = names.filter(|name| {
        let users = name.split_once('.');
        users.is_some_and(|(uid, gid)| is_number(uid) && is_number(gid))
    });
    of_mappings.take(MAX_ENTRIES).collect()
}

#[cfg(test)]
mod tests {
    use crate::host::cgroup::{CgroupContainer, ContainerManager};
    use crate::host::containers::tests::{DOCKER, FakeContainerHost, contained, failed, named};

    #[test]
    fn kubernetes_name_counts_only_in_a_pod() {
        let labelled = r#"{"Name": "/train", "Config": {"Labels": {"io.kubernetes.container.name": "victim"}}}"#;
        let host = FakeContainerHost::new();
        host.write(DOCKER, labelled);
        let container = contained("docker", ContainerManager::System);
        assert_eq!(host.name(&container), named("train"));
        let in_a_pod = CgroupContainer {
            pod: Some("74ba62da-1a3d-11e7-bb11-080027cb0e22".into()),
            ..container
        };
        assert_eq!(host.name(&in_a_pod), named("victim"));
    }

    #[test]
    fn configured_data_root_is_used() {
        let container = contained("docker", ContainerManager::System);
        let file = "containers/ID/config.v2.json";
        let found = [
            ("", format!("var/snap/docker/common/var-lib-docker/{file}")),
            ("", format!("var/lib/docker/100000.100000/{file}")),
            (
                r#"{"data-root": "/data/docker"}"#,
                format!("data/docker/{file}"),
            ),
            (
                r#"{"debug": true, "data-root": "/d"}"#,
                format!("d/7.8/{file}"),
            ),
            // A file that is missing there may be in the default data root.
            (r#"{"data-root": "/d"}"#, DOCKER.to_owned()),
            (r#"{"data-root": 7}"#, DOCKER.to_owned()),
        ];
        for (config, directory) in found {
            let host = FakeContainerHost::new();
            host.write("etc/docker/daemon.json", config);
            host.write(&directory, r#"{"Name": "/train"}"#);
            assert_eq!(
                host.name(&container),
                named("train"),
                "{config} {directory}"
            );
        }
        let not_found = [
            (r#"{"data-root": "data"}"#, format!("data/{file}")),
            (r#"{"data-root": "/a/../data"}"#, format!("data/{file}")),
            (r#"{"data-root": "/data"} x"#, format!("data/{file}")),
            ("", format!("var/lib/docker/100000.x/{file}")),
            ("", format!("var/lib/docker/overlay2/{file}")),
        ];
        for (config, directory) in not_found {
            let host = FakeContainerHost::new();
            host.write("etc/docker/daemon.json", config);
            host.write("a/unused", "");
            host.write(&directory, r#"{"Name": "/train"}"#);
            let nowhere = failed("no file of its runtime names it");
            assert_eq!(host.name(&container), nowhere, "{config} {directory}");
        }
        // Only this much of the configuration is read.
        let host = FakeContainerHost::new();
        let config = format!(r#"{{"data-root": "/data"}}{}"#, " ".repeat(1 << 20));
        host.write("etc/docker/daemon.json", &config);
        host.write(&format!("data/{file}"), r#"{"Name": "/train"}"#);
        assert_eq!(host.name(&container).known(), None);
    }
}
