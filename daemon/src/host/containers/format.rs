//! Parses the files of container runtimes, as far as users need them. The creator of a container
//! chooses their texts: here they are bounded and made printable, and never repeated in an error.

use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The facts in a file about a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::host) struct ContainerFacts {
    pub(in crate::host) name: Reading<String>,
    /// The name that Kubernetes gives it, which counts in a pod; otherwise its name.
    pub(in crate::host) name_in_pod: Reading<String>,
    pub(in crate::host) image: Reading<String>,
    pub(in crate::host) pod_name: Reading<String>,
    pub(in crate::host) pod_namespace: Reading<String>,
    /// The person that the configured label names.
    pub(in crate::host) person: Option<String>,
}

impl ContainerFacts {
    /// No facts, for this reason.
    pub(super) fn unknown(why: &Reading<()>) -> Self {
        Self {
            name: why.as_unknown(),
            name_in_pod: why.as_unknown(),
            image: why.as_unknown(),
            pod_name: why.as_unknown(),
            pod_namespace: why.as_unknown(),
            person: None,
        }
    }

    /// The facts where the runtime has no such files: ids are names.
    pub(super) fn from_id(id: &str) -> Self {
        Self {
            name: Reading::Value(id.to_owned()),
            name_in_pod: Reading::Value(id.to_owned()),
            ..Self::unknown(&Reading::Unsupported)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum ContainerFileFormat {
    /// Docker's `config.v2.json`.
    Docker,
    /// The `config.json` for OCI runtimes, with annotations by containerd, CRI-O or podman.
    Annotations,
    /// The `containers.json` of a storage, where podman keeps names.
    List,
}

impl ContainerFileFormat {
    /// The facts about container `id`; `None` where the text does not contain it.
    ///
    /// # Errors
    /// When the text does not have this format.
    pub(in crate::host) fn parse(
        self,
        text: &str,
        id: &str,
        label: &str,
    ) -> Result<Option<ContainerFacts>, String> {
        match self {
            Self::Docker => from_json::<DockerContainer>(text).map(|file| Some(file.facts(label))),
            Self::Annotations => from_json::<OciConfig>(text).map(|file| Some(file.facts(label))),
            Self::List => {
                let list: Vec<StoredContainer> = from_json(text)?;
                let found = list.into_iter().find(|stored| stored.id == id);
                found.map(StoredContainer::facts).transpose()
            }
        }
    }
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // The error's own text may quote the file, which not every user may read.
    serde_json::from_str(text)
        .map_err(|error| format!("the runtime's file is malformed in line {}", error.line()))
}

type Labels = BTreeMap<String, Option<String>>;

#[derive(Deserialize)]
struct DockerContainer {
    #[serde(rename = "Name", default)]
    name: Option<String>,
    #[serde(rename = "Config", default)]
    config: Option<DockerConfig>,
}

#[derive(Default, Deserialize)]
struct DockerConfig {
    #[serde(rename = "Image", default)]
    image: Option<String>,
    #[serde(rename = "Labels", default)]
    labels: Option<Labels>,
}

impl DockerContainer {
    fn facts(self, label: &str) -> ContainerFacts {
        let config = self.config.unwrap_or_default();
        let labels = config.labels.unwrap_or_default();
        let name = self
            .name
            .as_deref()
            .map(|name| name.trim_start_matches('/'));
        ContainerFacts {
            name: display_text(name, 128),
            // Kubernetes gives a Docker container a name of many parts, and this label.
            name_in_pod: display_text(
                first_label(&labels, &["io.kubernetes.container.name"]).or(name),
                128,
            ),
            image: display_text(config.image.as_deref(), 256),
            pod_name: display_text(first_label(&labels, &["io.kubernetes.pod.name"]), 256),
            pod_namespace: display_text(
                first_label(&labels, &["io.kubernetes.pod.namespace"]),
                128,
            ),
            person: person_label(&labels, label),
        }
    }
}

#[derive(Deserialize)]
struct OciConfig {
    #[serde(default)]
    annotations: Option<Labels>,
}

impl OciConfig {
    fn facts(self, label: &str) -> ContainerFacts {
        let all = self.annotations.unwrap_or_default();
        let names = [
            "io.kubernetes.cri.container-name",
            "io.kubernetes.container.name",
        ];
        let name = first_label(&all, &["nerdctl/name"]);
        let images = [
            "io.kubernetes.cri.image-name",
            "io.kubernetes.cri-o.ImageName",
        ];
        let pods = ["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"];
        let namespaces = [
            "io.kubernetes.cri.sandbox-namespace",
            "io.kubernetes.pod.namespace",
        ];
        // CRI-O stores a pod's labels as one JSON text.
        let inner = first_label(&all, &["io.kubernetes.cri-o.Labels"]);
        let inner: Option<Labels> = inner.and_then(|text| serde_json::from_str(text).ok());
        ContainerFacts {
            name: display_text(name, 128),
            name_in_pod: display_text(first_label(&all, &names).or(name), 128),
            image: display_text(first_label(&all, &images), 256),
            pod_name: display_text(first_label(&all, &pods), 256),
            pod_namespace: display_text(first_label(&all, &namespaces), 128),
            person: person_label(&all, label)
                .or_else(|| person_label(&inner.unwrap_or_default(), label)),
        }
    }
}

/// A container in a storage list.
#[derive(Deserialize)]
struct StoredContainer {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    /// Podman's addition: JSON in a string.
    #[serde(default)]
    metadata: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "image-name", default)]
    image: Option<String>,
}

impl StoredContainer {
    fn facts(self) -> Result<ContainerFacts, String> {
        let names = self.names.unwrap_or_default();
        let metadata = self.metadata.filter(|text| !text.is_empty());
        let metadata: Option<Metadata> = metadata.as_deref().map(from_json).transpose()?;
        let image = metadata.and_then(|metadata| metadata.image);
        let name = display_text(names.first().map(String::as_str), 128);
        Ok(ContainerFacts {
            name: name.clone(),
            name_in_pod: name,
            image: display_text(image.as_deref(), 256),
            ..ContainerFacts::unknown(&Reading::Unsupported)
        })
    }
}

fn first_label<'a>(labels: &'a Labels, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| labels.get(*name)?.as_deref())
}

fn person_label(labels: &Labels, label: &str) -> Option<String> {
    let person = first_label(labels, &[label]).filter(|_| !label.is_empty())?;
    let person = sanitize(person.trim().as_bytes(), 64);
    (!person.is_empty()).then_some(person)
}

/// A display text; unsupported where the file has none.
fn display_text(text: Option<&str>, max_chars: usize) -> Reading<String> {
    let text = text.filter(|text| !text.is_empty());
    text.map_or(Reading::Unsupported, |text| {
        Reading::Value(sanitize(text.as_bytes(), max_chars))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(name: &str, image: &str) -> ContainerFacts {
        ContainerFacts {
            name: Reading::Value(name.into()),
            name_in_pod: Reading::Value(name.into()),
            image: Reading::Value(image.into()),
            ..ContainerFacts::unknown(&Reading::Unsupported)
        }
    }

    /// The name counts where the container is in no pod.
    fn else_called(name: Reading<String>, facts: ContainerFacts) -> ContainerFacts {
        ContainerFacts { name, ..facts }
    }

    fn in_pod(facts: ContainerFacts) -> ContainerFacts {
        ContainerFacts {
            pod_name: Reading::Value("train-0".into()),
            pod_namespace: Reading::Value("team".into()),
            ..facts
        }
    }

    fn by(person: &str, facts: ContainerFacts) -> ContainerFacts {
        ContainerFacts {
            person: Some(person.into()),
            ..facts
        }
    }

    #[test]
    fn each_runtime_file_gives_the_facts() {
        let docker = r#"{"Name": "/train", "Config": {"Image": "pytorch:2", "Labels": {"user": "alice"}}, "State": {}}"#;
        let in_kubernetes = r#"{"Name": "/k8s_trainer_train-0_team_1_0", "Config": {"Image": "sha256:1", "Labels":
            {"io.kubernetes.container.name": "trainer", "io.kubernetes.pod.name": "train-0", "io.kubernetes.pod.namespace": "team"}}}"#;
        let containerd = r#"{"ociVersion": "1", "annotations": {"io.kubernetes.cri.container-name": "trainer",
            "io.kubernetes.cri.image-name": "pytorch:2", "io.kubernetes.cri.sandbox-name": "train-0",
            "io.kubernetes.cri.sandbox-namespace": "team", "user": "alice"}}"#;
        let crio = r#"{"annotations": {"io.kubernetes.container.name": "trainer", "io.kubernetes.cri-o.ImageName": "pytorch:2",
            "io.kubernetes.pod.name": "train-0", "io.kubernetes.pod.namespace": "team",
            "io.kubernetes.cri-o.Labels": "{\"user\": \"alice\"}"}}"#;
        let nerdctl = r#"{"annotations": {"nerdctl/name": "train"}}"#;
        let list = r#"[{"id": "other", "names": ["no"]}, {"id": "x", "names": ["train", "also"], "image": "1f",
            "metadata": "{\"image-name\": \"pytorch:2\", \"name\": \"train\"}"}]"#;
        let cases = [
            (
                "docker",
                ContainerFileFormat::Docker,
                docker,
                by("alice", facts("train", "pytorch:2")),
            ),
            (
                "kubernetes",
                ContainerFileFormat::Docker,
                in_kubernetes,
                else_called(
                    Reading::Value("k8s_trainer_train-0_team_1_0".into()),
                    in_pod(facts("trainer", "sha256:1")),
                ),
            ),
            (
                "containerd",
                ContainerFileFormat::Annotations,
                containerd,
                by(
                    "alice",
                    else_called(Reading::Unsupported, in_pod(facts("trainer", "pytorch:2"))),
                ),
            ),
            (
                "cri-o",
                ContainerFileFormat::Annotations,
                crio,
                by(
                    "alice",
                    else_called(Reading::Unsupported, in_pod(facts("trainer", "pytorch:2"))),
                ),
            ),
            (
                "nerdctl",
                ContainerFileFormat::Annotations,
                nerdctl,
                ContainerFacts {
                    image: Reading::Unsupported,
                    ..facts("train", "")
                },
            ),
            (
                "podman",
                ContainerFileFormat::List,
                list,
                facts("train", "pytorch:2"),
            ),
        ];
        for (what, format, text, expected) in cases {
            assert_eq!(
                format.parse(text, "x", "user"),
                Ok(Some(expected)),
                "{what}"
            );
        }
        assert_eq!(ContainerFileFormat::List.parse(list, "y", "user"), Ok(None));
    }

    #[test]
    fn without_configured_label_no_person() {
        let text = r#"{"Config": {"Labels": {"": "mallory", "user": "alice"}}}"#;
        let person = |label| {
            ContainerFileFormat::Docker
                .parse(text, "x", label)
                .unwrap()
                .unwrap()
                .person
        };
        assert_eq!(person(""), None);
        assert_eq!(person("owner"), None);
        assert_eq!(person("user").as_deref(), Some("alice"));
    }

    #[test]
    fn malformed_text_is_not_quoted() {
        for (format, text) in [
            (ContainerFileFormat::Docker, "root:secret:0"),
            (ContainerFileFormat::Docker, r#"{"Name": ["secret"]}"#),
            (
                ContainerFileFormat::Annotations,
                r#"{"annotations": "secret"}"#,
            ),
            (ContainerFileFormat::List, r#"{"secret": 1}"#),
            (
                ContainerFileFormat::List,
                r#"[{"id": "x", "metadata": "secret"}]"#,
            ),
        ] {
            let why = format.parse(text, "x", "user").unwrap_err();
            assert_eq!(why, "the runtime's file is malformed in line 1");
        }
    }

    #[test]
    fn texts_are_bounded_and_printable() {
        let name = "\\u001b[2J\\u202e".repeat(1000);
        let text =
            format!(r#"{{"Name": "/{name}", "Config": {{"Labels": {{"user": "\u0007{name}"}}}}}}"#);
        let facts = ContainerFileFormat::Docker
            .parse(&text, "x", "user")
            .unwrap()
            .unwrap();
        let texts = [facts.name.known().unwrap(), &facts.person.unwrap()];
        for text in texts {
            assert!(text.len() <= 128 && text.starts_with("\\x"), "{text}");
            assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_accepted(text in prop_oneof![
            "\\PC{0,200}",
            "[\\[{\"a-z:,\\]} 0-9]{0,100}",
            r#"\[\{"id":"x","names":\["\PC{0,9}"\],"metadata":"\PC{0,20}"\}\]"#,
        ]) {
            for format in [ContainerFileFormat::Docker, ContainerFileFormat::Annotations, ContainerFileFormat::List] {
                let _ = format.parse(&text, "x", "user");
            }
        }
    }
}
