//! The image recipe and the DaemonSet agree with the unit file, the settings and the
//! binaries.

use gpukill_tests::harness::CommandOutput;
use gpukill_tests::harness::binaries;
use gpukilld::config::{Config, DaemonScope, load};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn container_has_the_capabilities_of_the_unit() {
    let unit = text("systemd/gpukilld.service");
    let of_the_unit: BTreeSet<String> = value(&unit, "AmbientCapabilities=")
        .split(' ')
        .map(str::to_owned)
        .collect();
    assert_eq!(of_the_unit.len(), 3, "{of_the_unit:?}");

    let context = daemon()["securityContext"].clone();
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
    let added = context["capabilities"]["add"].as_array().unwrap().iter();
    let of_the_pod: BTreeSet<_> = added
        .map(|name| format!("CAP_{}", name.as_str().unwrap()))
        .collect();
    assert_eq!(of_the_pod, of_the_unit);

    let recipe = recipe();
    let of_the_file = value(&recipe, "/build/sbin/setcap ");
    let (names, rest) = of_the_file.split_once('=').unwrap();
    let of_the_file = names.split(',').map(str::to_uppercase).collect();
    assert_eq!(
        (of_the_unit, "ep /usr/bin/gpukilld && \\"),
        (of_the_file, rest)
    );
}

#[test]
fn no_container_can_become_privileged() {
    let pod = pod();
    assert_eq!(pod["hostPID"], json!(true));
    for shared in ["hostNetwork", "hostIPC"] {
        assert_eq!(pod[shared], Value::Null, "{shared}");
    }
    assert_eq!(pod["automountServiceAccountToken"], json!(false));
    assert_eq!(pod["securityContext"]["runAsNonRoot"], json!(true));
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        json!("RuntimeDefault")
    );
    let containers = ["containers", "initContainers"].map(|key| pod[key].as_array().unwrap());
    for container in containers.into_iter().flatten() {
        let context = &container["securityContext"];
        assert_eq!(context["privileged"], Value::Null);
        assert_eq!(context["allowPrivilegeEscalation"], json!(false));
        assert_eq!(context["readOnlyRootFilesystem"], json!(true));
        assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
    }
}

#[test]
fn pod_mounts_only_directories_from_settings() {
    let Ok(config) = load_file(&root().join("packaging/container/gpukilld.toml")) else {
        panic!("its settings are wrong");
    };
    let socket = config.daemon.socket.parent().unwrap();
    let settings = config.guard.rules.parent().unwrap();
    assert_eq!(config.rogue.rules.parent(), Some(settings));
    let state = config.daemon.state_dir.as_path();
    let at = |name: &str, path: &Path| json!({"name": name, "mountPath": path});
    let scratch = at("scratch", Path::new("/tmp"));
    let mut read_only = at("settings", settings);
    read_only["readOnly"] = json!(true);
    assert_eq!(
        daemon()["volumeMounts"],
        json!([at("socket", socket), at("state", state), read_only, scratch])
    );
    let of_the_node = |name: &str, path: &Path| json!({"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}});
    assert_eq!(
        pod()["volumes"],
        json!([
            of_the_node("socket", socket),
            of_the_node("state", state),
            {"name": "settings", "configMap": {"name": "gpukill"}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "256Mi"}},
        ])
    );
    // The init container creates them for the user of the image.
    let recipe = recipe();
    let uid = value(&recipe, "ARG GPUKILL_UID=");
    let user: u32 = uid.parse().unwrap();
    let context = &pod()["securityContext"];
    assert_eq!(
        (&context["runAsUser"], &context["runAsGroup"]),
        (&json!(user), &json!(user))
    );
    let made = pod()["initContainers"][0]["command"][2].clone();
    let make = |path: &Path, mode: &str| {
        let path = path.display();
        format!("install --directory --owner={uid} --group={uid} --mode={mode} {path}\n")
    };
    assert_eq!(made, json!(make(socket, "0755") + &make(state, "0750")));
}

#[test]
fn settings_of_image_and_pod_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    let of_the_pod = directory.path().join("gpukilld.toml");
    let map = &documents()[1];
    assert_eq!(map["kind"], json!("ConfigMap"));
    std::fs::write(&of_the_pod, map["data"]["gpukilld.toml"].as_str().unwrap()).unwrap();
    let of_the_image = root().join("packaging/container/gpukilld.toml");
    for file in [&of_the_pod, &of_the_image] {
        let mut check = Command::new(&binaries().gpukilld);
        let ran = CommandOutput::run(check.arg("--check-config").arg("--config").arg(file));
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let of_the_image = load_file(&of_the_image).unwrap();
    assert_eq!(load_file(&of_the_pod).unwrap(), of_the_image);
    // The links of the image point below the host root.
    let host = of_the_image.backends.host_root;
    assert_eq!(of_the_image.guard.terminals, Some(host.join("dev")));
    for file in ["passwd", "group", "localtime"] {
        let link = format!(" ..{}/etc/{file} ", host.display());
        assert!(
            recipe().replace("/etc/\n", "/etc/ \n").contains(&link),
            "{file}"
        );
    }
}

#[test]
fn image_has_the_programs() {
    let recipe = recipe();
    let unit = text("systemd/gpukilld.service");
    let daemon_path = value(&unit, "ExecStart=");
    assert_eq!(
        value(&recipe, "ENTRYPOINT "),
        format!("[\"{daemon_path}\"]")
    );
    assert_eq!(daemon()["command"], Value::Null);
    for (probe, kind) in [("livenessProbe", "status"), ("readinessProbe", "status")] {
        let command = &daemon()[probe]["exec"]["command"];
        assert_eq!(*command, json!(["/usr/bin/gpukillctl", kind]));
    }
    for (binary, profile, option) in [
        ("gpukilld", "release", "--release"),
        ("gpukillctl", "client", "--profile client"),
    ] {
        let build = format!("RUN cargo build --locked {option} -p {binary}\n");
        assert!(recipe.contains(&build), "{build}");
        let line = format!("install --mode=0755 /build/src/target/{profile}/{binary} /usr/bin/");
        assert!(recipe.contains(&line), "{line}");
    }
    let sensor = "install -D --mode=0755 /build/src/target/release/gpukill-sensor \
                  --target-directory=/usr/libexec/gpukill && \\";
    assert!(recipe.contains(sensor), "{sensor}");
    let built = binaries();
    let sensor = built.gpukilld.with_file_name("gpukill-sensor");
    for binary in [&built.gpukilld, &built.gpukillctl, &sensor] {
        assert!(binary.exists(), "{}", binary.display());
    }
}

#[test]
fn versions_match_the_source() {
    let manifest: toml::Table = toml::from_str(&text("Cargo.toml")).unwrap();
    let package = &manifest["workspace"]["package"];
    let image = format!("gpukill:{}", package["version"].as_str().unwrap());
    assert_eq!(daemon()["image"], json!(image));
    assert_eq!(pod()["initContainers"][0]["image"], json!(image));
    let recipe = recipe();
    assert_eq!(recipe.matches(&format!("--tag {image} .")).count(), 2);
    let rust = package["rust-version"].as_str().unwrap();
    assert_eq!(
        value(&recipe, "FROM rust:"),
        format!("{rust}-bookworm AS build")
    );
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

fn recipe() -> String {
    text("packaging/container/Containerfile")
}

/// The text after `key` on the one line that contains it.
fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let mut found = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix(key));
    let value = found.next().unwrap_or_else(|| panic!("no line has {key}"));
    assert_eq!(found.next(), None, "two lines have {key}");
    value
}

fn documents() -> Vec<Value> {
    serde_saphyr::from_multiple(&text("packaging/kubernetes/daemonset.yaml")).unwrap()
}

fn pod() -> Value {
    let set = documents().pop().unwrap();
    assert_eq!(set["kind"], json!("DaemonSet"));
    set["spec"]["template"]["spec"].clone()
}

fn daemon() -> Value {
    pod()["containers"][0].clone()
}

fn load_file(file: &Path) -> Result<Config, String> {
    load(Some(file), DaemonScope::Host, &[]).map_err(|invalid| invalid.to_string())
}
