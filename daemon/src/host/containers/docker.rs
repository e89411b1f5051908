//! Where Docker keeps what it knows of a container.

use super::Source;
use super::format::Format;
use super::open::{Whose, read};
use serde::Deserialize;
use std::path::{Component, Path, PathBuf};

/// Where it keeps everything, of itself and as a snap.
const USUAL: [&str; 2] = ["var/lib/docker", "var/snap/docker/common/var-lib-docker"];

/// As many entries of such a directory are looked at; Docker makes about ten,
/// and one for each mapping of users that it was ever started with.
const ENTRIES: usize = 256;

/// The files that may tell about this container, below a root.
pub(super) fn docker(root: &Path, id: &str) -> Vec<Source> {
    let usual = USUAL.map(PathBuf::from);
    let places = configured(root).into_iter().chain(usual);
    places
        .flat_map(|place| {
            let mapped = mapped(&root.join(&place)).into_iter();
            let below = mapped.map(|users| vec![users]).chain([Vec::new()]);
            below.map(move |mut parts| {
                parts.extend(["containers", id, "config.v2.json"].map(str::to_owned));
                Source {
                    directory: place.clone(),
                    parts,
                    format: Format::Docker,
                }
            })
        })
        .collect()
}

/// Where the admin has it keep everything, below the root.
fn configured(root: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Daemon {
        #[serde(rename = "data-root")]
        data_root: PathBuf,
    }
    // Docker does not start with a file that is none; where this one cannot be
    // read it is in its usual place, or nowhere.
    let name = ["daemon.json".to_owned()];
    let text = read(&root.join("etc/docker"), &name, Whose::Anybodys).ok()?;
    let daemon: Daemon = serde_json::from_str(&text).ok()?;
    let below = daemon.data_root.strip_prefix("/").ok()?;
    let mut parts = below.components();
    let is_below = parts.all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| below.to_owned())
}

/// With `userns-remap` it keeps everything in a directory of its own for each
/// mapping, `100000.100000`: after the user and the group that are root inside.
fn mapped(place: &Path) -> Vec<String> {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let names = entries
        .take(ENTRIES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter(|name| {
            let users = name.split_once('.');
            users.is_some_and(|(uid, gid)| is_number(uid) && is_number(gid))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::host::cgroup::{Contained, Teller};
    use crate::host::containers::tests::{DOCKER, Host, contained, failed, named};

    #[test]
    fn the_name_that_kubernetes_gives_counts_in_a_pod_alone() {
        let labelled = r#"{"Name": "/train", "Config": {"Labels": {"io.kubernetes.container.name": "victim"}}}"#;
        let host = Host::new();
        host.write(DOCKER, labelled);
        let container = contained("docker", Teller::System);
        assert_eq!(host.name(&container), named("train"));
        let in_a_pod = Contained {
            pod: Some("74ba62da-1a3d-11e7-bb11-080027cb0e22".into()),
            ..container
        };
        assert_eq!(host.name(&in_a_pod), named("victim"));
    }

    #[test]
    fn dockers_files_are_found_where_the_admin_has_them_kept() {
        let container = contained("docker", Teller::System);
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
            // What is not there now may be in the usual place.
            (r#"{"data-root": "/d"}"#, DOCKER.to_owned()),
            (r#"{"data-root": 7}"#, DOCKER.to_owned()),
        ];
        for (config, place) in found {
            let host = Host::new();
            host.write("etc/docker/daemon.json", config);
            host.write(&place, r#"{"Name": "/train"}"#);
            assert_eq!(host.name(&container), named("train"), "{config} {place}");
        }
        let not_found = [
            (r#"{"data-root": "data"}"#, format!("data/{file}")),
            (r#"{"data-root": "/a/../data"}"#, format!("data/{file}")),
            (r#"{"data-root": "/data"} x"#, format!("data/{file}")),
            ("", format!("var/lib/docker/100000.x/{file}")),
            ("", format!("var/lib/docker/overlay2/{file}")),
        ];
        for (config, place) in not_found {
            let host = Host::new();
            host.write("etc/docker/daemon.json", config);
            host.write("a/unused", "");
            host.write(&place, r#"{"Name": "/train"}"#);
            let nowhere = failed("no file of its runtime names it");
            assert_eq!(host.name(&container), nowhere, "{config} {place}");
        }
        // Only so much of the configuration is read.
        let host = Host::new();
        let config = format!(r#"{{"data-root": "/data"}}{}"#, " ".repeat(1 << 20));
        host.write("etc/docker/daemon.json", &config);
        host.write(&format!("data/{file}"), r#"{"Name": "/train"}"#);
        assert_eq!(host.name(&container).known(), None);
    }
}
