//! The files of container runtimes, as far as they tell what people want to
//! know. Their texts are whoever's made the container: bounded and made visible
//! here, and never repeated in an error.

use gpukill_proto::reading::Reading;
use gpukill_proto::text::visible;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// What a file tells of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::host) struct Told {
    pub(in crate::host) name: Reading<String>,
    /// What Kubernetes calls it, which counts where it is in a pod; else its name.
    pub(in crate::host) name_in_pod: Reading<String>,
    pub(in crate::host) image: Reading<String>,
    pub(in crate::host) pod_name: Reading<String>,
    pub(in crate::host) pod_namespace: Reading<String>,
    /// Whom the configured label names.
    pub(in crate::host) person: Option<String>,
}

impl Told {
    /// Nothing, for this reason.
    pub(super) fn unknown(why: &Reading<()>) -> Self {
        Self {
            name: why.because(),
            name_in_pod: why.because(),
            image: why.because(),
            pod_name: why.because(),
            pod_namespace: why.because(),
            person: None,
        }
    }

    /// Of a runtime that keeps no such files: its ids are its names.
    pub(super) fn by_its_id(id: &str) -> Self {
        Self {
            name: Reading::Value(id.to_owned()),
            name_in_pod: Reading::Value(id.to_owned()),
            ..Self::unknown(&Reading::Unsupported)
        }
    }
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum Format {
    /// Docker's `config.v2.json`.
    Docker,
    /// The `config.json` that OCI runtimes are given, with annotations by
    /// containerd, CRI-O or podman.
    Annotations,
    /// The `containers.json` of a storage, where podman keeps names.
    List,
}

impl Format {
    /// What this text tells of container `id`; `None` where it is not in it.
    ///
    /// # Errors
    /// That it is not written so.
    pub(in crate::host) fn parse(
        self,
        text: &str,
        id: &str,
        label: &str,
    ) -> Result<Option<Told>, String> {
        match self {
            Self::Docker => from_json::<Docker>(text).map(|file| Some(file.told(label))),
            Self::Annotations => from_json::<Oci>(text).map(|file| Some(file.told(label))),
            Self::List => {
                let list: Vec<Stored> = from_json(text)?;
                let found = list.into_iter().find(|stored| stored.id == id);
                found.map(Stored::told).transpose()
            }
        }
    }
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // The error's own words may quote the file, which is not for everybody.
    serde_json::from_str(text).map_err(|error| {
        format!(
            "its runtime's file is not as expected in line {}",
            error.line()
        )
    })
}

type Labels = BTreeMap<String, Option<String>>;

#[derive(Deserialize)]
struct Docker {
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

impl Docker {
    fn told(self, label: &str) -> Told {
        let config = self.config.unwrap_or_default();
        let labels = config.labels.unwrap_or_default();
        let name = self
            .name
            .as_deref()
            .map(|name| name.trim_start_matches('/'));
        Told {
            name: shown(name, 128),
            // Kubernetes gives Docker a name of many parts, and this one.
            name_in_pod: shown(
                one_of(&labels, &["io.kubernetes.container.name"]).or(name),
                128,
            ),
            image: shown(config.image.as_deref(), 256),
            pod_name: shown(one_of(&labels, &["io.kubernetes.pod.name"]), 256),
            pod_namespace: shown(one_of(&labels, &["io.kubernetes.pod.namespace"]), 128),
            person: person(&labels, label),
        }
    }
}

#[derive(Deserialize)]
struct Oci {
    #[serde(default)]
    annotations: Option<Labels>,
}

impl Oci {
    fn told(self, label: &str) -> Told {
        let all = self.annotations.unwrap_or_default();
        let names = [
            "io.kubernetes.cri.container-name",
            "io.kubernetes.container.name",
        ];
        let name = one_of(&all, &["nerdctl/name"]);
        let images = [
            "io.kubernetes.cri.image-name",
            "io.kubernetes.cri-o.ImageName",
        ];
        let pods = ["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"];
        let namespaces = [
            "io.kubernetes.cri.sandbox-namespace",
            "io.kubernetes.pod.namespace",
        ];
        // CRI-O keeps a pod's labels as a text of their own.
        let inner = one_of(&all, &["io.kubernetes.cri-o.Labels"]);
        let inner: Option<Labels> = inner.and_then(|text| serde_json::from_str(text).ok());
        Told {
            name: shown(name, 128),
            name_in_pod: shown(one_of(&all, &names).or(name), 128),
            image: shown(one_of(&all, &images), 256),
            pod_name: shown(one_of(&all, &pods), 256),
            pod_namespace: shown(one_of(&all, &namespaces), 128),
            person: person(&all, label).or_else(|| person(&inner.unwrap_or_default(), label)),
        }
    }
}

/// A container of a storage.
#[derive(Deserialize)]
struct Stored {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    /// What podman adds: JSON in a text.
    #[serde(default)]
    metadata: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "image-name", default)]
    image: Option<String>,
}

impl Stored {
    fn told(self) -> Result<Told, String> {
        let names = self.names.unwrap_or_default();
        let metadata = self.metadata.filter(|text| !text.is_empty());
        let metadata: Option<Metadata> = metadata.as_deref().map(from_json).transpose()?;
        let image = metadata.and_then(|metadata| metadata.image);
        let name = shown(names.first().map(String::as_str), 128);
        Ok(Told {
            name: name.clone(),
            name_in_pod: name,
            image: shown(image.as_deref(), 256),
            ..Told::unknown(&Reading::Unsupported)
        })
    }
}

fn one_of<'a>(labels: &'a Labels, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| labels.get(*name)?.as_deref())
}

fn person(labels: &Labels, label: &str) -> Option<String> {
    let person = one_of(labels, &[label]).filter(|_| !label.is_empty())?;
    let person = visible(person.trim().as_bytes(), 64);
    (!person.is_empty()).then_some(person)
}

/// A text for people; a file without it has none.
fn shown(text: Option<&str>, most: usize) -> Reading<String> {
    let text = text.filter(|text| !text.is_empty());
    text.map_or(Reading::Unsupported, |text| {
        Reading::Value(visible(text.as_bytes(), most))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(name: &str, image: &str) -> Told {
        Told {
            name: Reading::Value(name.into()),
            name_in_pod: Reading::Value(name.into()),
            image: Reading::Value(image.into()),
            ..Told::unknown(&Reading::Unsupported)
        }
    }

    /// This is called so where it is in no pod.
    fn else_called(name: Reading<String>, told: Told) -> Told {
        Told { name, ..told }
    }

    fn in_pod(told: Told) -> Told {
        Told {
            pod_name: Reading::Value("train-0".into()),
            pod_namespace: Reading::Value("team".into()),
            ..told
        }
    }

    fn by(person: &str, told: Told) -> Told {
        Told {
            person: Some(person.into()),
            ..told
        }
    }

    #[test]
    fn each_runtimes_file_tells_name_image_pod_and_person() {
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
                Format::Docker,
                docker,
                by("alice", told("train", "pytorch:2")),
            ),
            (
                "kubernetes",
                Format::Docker,
                in_kubernetes,
                else_called(
                    Reading::Value("k8s_trainer_train-0_team_1_0".into()),
                    in_pod(told("trainer", "sha256:1")),
                ),
            ),
            (
                "containerd",
                Format::Annotations,
                containerd,
                by(
                    "alice",
                    else_called(Reading::Unsupported, in_pod(told("trainer", "pytorch:2"))),
                ),
            ),
            (
                "cri-o",
                Format::Annotations,
                crio,
                by(
                    "alice",
                    else_called(Reading::Unsupported, in_pod(told("trainer", "pytorch:2"))),
                ),
            ),
            (
                "nerdctl",
                Format::Annotations,
                nerdctl,
                Told {
                    image: Reading::Unsupported,
                    ..told("train", "")
                },
            ),
            ("podman", Format::List, list, told("train", "pytorch:2")),
        ];
        for (what, format, text, expected) in cases {
            assert_eq!(
                format.parse(text, "x", "user"),
                Ok(Some(expected)),
                "{what}"
            );
        }
        assert_eq!(Format::List.parse(list, "y", "user"), Ok(None));
    }

    #[test]
    fn without_a_configured_label_nobody_is_named() {
        let text = r#"{"Config": {"Labels": {"": "mallory", "user": "alice"}}}"#;
        let person = |label| {
            Format::Docker
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
    fn a_text_that_is_no_such_file_says_so_and_repeats_nothing_of_it() {
        for (format, text) in [
            (Format::Docker, "root:secret:0"),
            (Format::Docker, r#"{"Name": ["secret"]}"#),
            (Format::Annotations, r#"{"annotations": "secret"}"#),
            (Format::List, r#"{"secret": 1}"#),
            (Format::List, r#"[{"id": "x", "metadata": "secret"}]"#),
        ] {
            let why = format.parse(text, "x", "user").unwrap_err();
            assert_eq!(why, "its runtime's file is not as expected in line 1");
        }
    }

    #[test]
    fn texts_are_bounded_and_harmless() {
        let name = "\\u001b[2J\\u202e".repeat(1000);
        let text =
            format!(r#"{{"Name": "/{name}", "Config": {{"Labels": {{"user": "\u0007{name}"}}}}}}"#);
        let told = Format::Docker.parse(&text, "x", "user").unwrap().unwrap();
        let texts = [told.name.known().unwrap(), &told.person.unwrap()];
        for text in texts {
            assert!(text.len() <= 128 && text.starts_with("\\x"), "{text}");
            assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'));
        }
    }

    proptest! {
        #[test]
        fn no_text_can_panic_it(text in prop_oneof![
            "\\PC{0,200}",
            "[\\[{\"a-z:,\\]} 0-9]{0,100}",
            r#"\[\{"id":"x","names":\["\PC{0,9}"\],"metadata":"\PC{0,20}"\}\]"#,
        ]) {
            for format in [Format::Docker, Format::Annotations, Format::List] {
                let _ = format.parse(&text, "x", "user");
            }
        }
    }
}
