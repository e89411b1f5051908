//! Whom a request means.

use super::super::meant::meant;
use super::super::*;
use super::scene::*;
use gpukill_proto::kill::{KillScope, KillSelector};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{Owner, OwnerKind, Pod, Vendor};
use gpukill_proto::units::Bytes;

/// Alice has 300 on GPU 0 (10 GiB), 301 on GPU 4, of AMD (2 GiB), and 302 that
/// has GPU 1 open; bob has 310 on GPU 0 and 1 (6 GiB each), in a container; what
/// 311 is and holds is not known.
pub(super) fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.add(process(300, 1, ALICE, "python"));
    scene.add(process(301, 1, ALICE, "hip"));
    scene.add(process(302, 1, ALICE, "worker"));
    let bobs = scene.add(process(310, 1, BOB, "vllm"));
    bobs.container = Reading::Value(Some(container('a', "serve", None)));
    let unknown = scene.add(process(311, 1, BOB, "python"));
    unknown.container = Reading::Failed("x".into());
    unknown.command = Reading::Failed("x".into());
    unknown.owner = Reading::Failed("x".into());
    for (pid, gpu, gib) in [
        (300, 0, 10),
        (301, 4, 2),
        (310, 0, 6),
        (310, 1, 6),
        (311, 2, 6),
    ] {
        scene.uses(pid, gpu, gib);
    }
    let unknown = scene.snapshot.processes.last_mut().unwrap();
    unknown.memory = Reading::Unsupported;
    unknown.user = Reading::Failed("x".into());
    scene.opens(302, 1);
    let mut scene = scene.with_jobs();
    scene.at(311).job = Reading::Failed("x".into());
    scene
}

pub(super) fn asked(scene: &Scene, selector: KillSelector) -> Result<(Vec<u32>, u32), Refusal> {
    let caller = caller(ALICE, &[]);
    let request = request(selector, KillScope::Process);
    let meant = meant(&request, &scene.seen(&caller))?;
    Ok((
        meant.keys.iter().map(|key| key.pid).collect(),
        meant.unjudged,
    ))
}

pub(super) fn text(typed: &str) -> Option<String> {
    Some(typed.to_owned())
}

#[test]
fn what_only_the_holders_tell_counts_too() {
    let mut scene = scene();
    // Not read as a process, and of a device that no backend lists.
    scene.at(302).owner = Reading::Failed("x".into());
    scene.at(302).kin.uid = None;
    let by_user = KillSelector {
        user: text("alice"),
        ..KillSelector::default()
    };
    assert_eq!(asked(&scene, by_user), Ok((vec![300, 301, 302], 1)));
    scene.snapshot.devices.remove(1);
    let by_vendor = KillSelector {
        vendors: [Vendor::Amd].into(),
        ..KillSelector::default()
    };
    assert_eq!(asked(&scene, by_vendor), Ok((vec![301], 2)));
}

#[test]
fn a_containers_whole_id_means_it_though_anothers_begins_so() {
    let mut scene = scene();
    for (pid, id) in [(320, "train"), (321, "train2")] {
        let inside = scene.add(process(pid, 1, ALICE, "python"));
        let mut container = container('a', "x", None);
        container.id.id = id.into();
        inside.container = Reading::Value(Some(container));
        scene.uses(pid, 3, 1);
    }
    let called = |typed| KillSelector {
        container: text(typed),
        ..KillSelector::default()
    };
    let several = "\"trai\" begins the ids of several containers";
    assert_eq!(
        asked(&scene, called("trai")),
        Err(Refusal::Invalid(several.into()))
    );
    assert!(asked(&scene, called("train")).is_ok());
}

/// The pids that are meant, and how many others may be.
type Expected = (&'static [u32], u32);

#[test]
fn each_condition_means_whom_it_says_and_counts_those_of_whom_that_is_not_known() {
    let none = KillSelector::default;
    #[rustfmt::skip]
    let cases: Vec<(&str, KillSelector, Expected)> = vec![
        ("a pid", pids(&[302]), (&[302], 0)),
        ("pids, one twice", pids(&[301, 300, 301]), (&[300, 301], 0)),
        ("name", KillSelector { filter: text("^pyth"), ..none() }, (&[300, 311], 0)),
        ("command", KillSelector { command: text("python of"), ..none() }, (&[300], 1)),
        ("gpu", KillSelector { gpu: text("0"), ..none() }, (&[300, 310], 0)),
        ("gpus", KillSelector { gpu: text("GPU-1000,4"), ..none() }, (&[301, 302, 310], 0)),
        ("user", KillSelector { user: text("alice"), ..none() }, (&[300, 301, 302], 1)),
        ("number", KillSelector { user: text("1001"), ..none() }, (&[310, 311], 0)),
        ("container", KillSelector { container: text("serve"), ..none() }, (&[310], 1)),
        ("its id", KillSelector { container: text("aaaa"), ..none() }, (&[310], 1)),
        ("shown", KillSelector { container: text("docker serve"), ..none() }, (&[310], 1)),
        ("image", KillSelector { image: text("lab/s*"), ..none() }, (&[310], 1)),
        ("part of it", KillSelector { image: text("serve"), ..none() }, (&[], 1)),
        ("job", KillSelector { job: text("tree 300"), ..none() }, (&[300], 1)),
        ("container's job", KillSelector { job: text("docker serve"), ..none() }, (&[310], 1)),
        ("vendor", KillSelector { vendors: [Vendor::Amd].into(), ..none() }, (&[301], 0)),
        ("vendors",
            KillSelector { vendors: [Vendor::Intel, Vendor::Amd].into(), ..none() }, (&[301], 0)),
        ("either",
            KillSelector {
                vendors: [Vendor::Amd, Vendor::Nvidia].into(), gpu: text("1,4"), ..none()
            }, (&[301, 302, 310], 0)),
        ("memory", KillSelector { min_memory: Some(Bytes(6 * GIB)), ..none() }, (&[300, 310], 2)),
        ("on each", KillSelector { min_memory: Some(Bytes(7 * GIB)), ..none() }, (&[300], 2)),
        ("both", KillSelector { user: text("bob"), gpu: text("2"), ..none() }, (&[], 1)),
        ("excluded otherwise",
            KillSelector { min_memory: Some(Bytes(1)), gpu: text("0"), ..none() }, (&[300, 310], 0)),
        ("on the same GPU",
            KillSelector { min_memory: Some(Bytes(2 * GIB)), gpu: text("1"), ..none() }, (&[310], 1)),
        ("of the same GPU",
            KillSelector { vendors: [Vendor::Amd].into(), gpu: text("0"), ..none() }, (&[], 0)),
        ("pids of a user", KillSelector { user: text("alice"), ..pids(&[300, 310]) }, (&[300], 0)),
    ];
    let scene = scene();
    for (what, selector, (keys, unjudged)) in cases {
        assert_eq!(
            asked(&scene, selector),
            Ok((keys.to_vec(), unjudged)),
            "{what}"
        );
    }
}

#[test]
fn a_container_whose_name_is_not_known_may_be_the_one_that_is_meant() {
    let mut scene = scene();
    let nameless = Container {
        name: Reading::Failed("x".into()),
        image: Reading::Unsupported,
        pod: Some(Pod {
            uid: "1".into(),
            name: Reading::Value("train-0".into()),
            namespace: Reading::Value("team".into()),
        }),
        ..container('c', "x", None)
    };
    scene.at(300).container = Reading::Value(Some(nameless));
    let of = |container: Option<&str>, image: Option<&str>| {
        let selector = KillSelector {
            container: container.map(str::to_owned),
            image: image.map(str::to_owned),
            ..KillSelector::default()
        };
        asked(&scene, selector)
    };
    assert_eq!(of(Some("x"), None), Ok((vec![], 2)));
    assert_eq!(of(Some("train-0"), None), Ok((vec![300], 1)));
    assert_eq!(of(Some("pod team/train-0"), None), Ok((vec![300], 1)));
    // There is no image of it that it could be.
    assert_eq!(of(None, Some("lab/*")), Ok((vec![310], 1)));
}

#[test]
fn a_job_of_a_scheduler_is_named_with_its_step_or_without() {
    let mut scene = scene();
    scene.slurm(300, "1234", "0");
    scene.slurm(301, "1234", "batch");
    let scene = scene.with_jobs();
    let of = |typed: &str| {
        let selector = KillSelector {
            job: text(typed),
            ..KillSelector::default()
        };
        asked(&scene, selector).unwrap().0
    };
    assert_eq!(of("1234"), [300, 301]);
    assert_eq!(of("slurm 1234"), [300, 301]);
    assert_eq!(of("slurm 1234.0"), [300]);
    assert_eq!(of("1234.batch"), [301]);
    assert_eq!(of("123"), [0; 0]);
    assert_eq!(of("pbs 1234"), [0; 0]);
}

#[test]
fn command_lines_that_are_withheld_match_nothing() {
    let mut scene = scene();
    scene.roles.hide_other_users = true;
    let selector = KillSelector {
        command: text("of (alice|bob)"),
        ..KillSelector::default()
    };
    let of_alice = asked(&scene, selector.clone());
    assert_eq!(of_alice, Ok((vec![300, 301, 302], 0)));
    let caller = olga();
    let asked = request(selector, KillScope::Process);
    let meant = meant(&asked, &scene.seen(&caller)).unwrap();
    assert_eq!((meant.keys.len(), meant.unjudged), (4, 1));
    let plan = scene.plan(
        &super::scene::caller(ALICE, &[]),
        &request(pids(&[300, 310]), KillScope::Process),
    );
    let shown: Vec<Reading<String>> = plan
        .unwrap()
        .targets
        .into_iter()
        .map(|t| t.command)
        .collect();
    assert_eq!(
        shown,
        [Reading::Value("python of alice".into()), Reading::Withheld]
    );
}

#[test]
fn whoever_a_label_or_a_namespace_names_is_meant_by_user() {
    let mut scene = scene();
    scene.at(302).owner = Reading::Value("team".into());
    scene.at(301).namespace_owner = Reading::Value(Some(7));
    scene.snapshot.processes[0].owner = Reading::Value(Owner {
        name: "lab".into(),
        uid: Some(4242),
        kind: OwnerKind::Label,
    });
    let of = |typed: &str| {
        let selector = KillSelector {
            user: text(typed),
            ..KillSelector::default()
        };
        asked(&scene, selector).unwrap().0
    };
    assert_eq!(of("team"), [302]);
    assert_eq!(of("7"), [301]);
    assert_eq!(of("lab"), [300]);
    assert_eq!(of("4242"), [300]);
}

#[test]
fn a_pid_that_is_anothers_than_the_one_that_was_listed_is_not_meant() {
    let mut scene = scene();
    scene.at(300).kin.key.start_ticks = 999;
    let selector = KillSelector {
        gpu: text("0"),
        ..KillSelector::default()
    };
    assert_eq!(asked(&scene, selector), Ok((vec![310], 0)));
}
