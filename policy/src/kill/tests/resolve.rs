//! Tests of the processes that a request selects.

use super::super::resolve::resolve;
use super::super::*;
use super::fixture::*;
use gpukill_proto::kill::{KillScope, KillSelector};
use gpukill_proto::model::{Owner, OwnerKind, Pod, Vendor};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Bytes;

/// Alice has 300 on GPU 0 (10 GiB), 301 on GPU 4, an AMD GPU (2 GiB), and 302, which
/// has GPU 1 open. Bob has 310 on GPUs 0 and 1 (6 GiB each), in a container. Owner and
/// memory of 311 are unknown.
pub(super) fn host() -> KillTestHost {
    let mut test_host = KillTestHost::new();
    test_host.add(process(300, 1, ALICE, "python"));
    test_host.add(process(301, 1, ALICE, "hip"));
    test_host.add(process(302, 1, ALICE, "worker"));
    let bobs = test_host.add(process(310, 1, BOB, "vllm"));
    bobs.container = Reading::Value(Some(container('a', "serve", None)));
    let unknown = test_host.add(process(311, 1, BOB, "python"));
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
        test_host.list_process(pid, gpu, gib);
    }
    let unknown = test_host.snapshot.processes.last_mut().unwrap();
    unknown.memory = Reading::Unsupported;
    unknown.user = Reading::Failed("x".into());
    test_host.open_device(302, 1);
    let mut test_host = test_host.with_jobs();
    test_host.process_mut(311).job = Reading::Failed("x".into());
    test_host
}

pub(super) fn resolve_pids(
    test_host: &KillTestHost,
    selector: KillSelector,
) -> Result<(Vec<u32>, u32), Refusal> {
    let caller = caller(ALICE, &[]);
    let request = request(selector, KillScope::Process);
    let selection = resolve(&request, &test_host.context(&caller))?;
    Ok((
        selection.keys.iter().map(|key| key.pid).collect(),
        selection.undetermined,
    ))
}

pub(super) fn text(typed: &str) -> Option<String> {
    Some(typed.to_owned())
}

#[test]
fn holder_facts_count() {
    let mut test_host = host();
    // Not read as a process, and on a device that no backend lists.
    test_host.process_mut(302).owner = Reading::Failed("x".into());
    test_host.process_mut(302).lineage.uid = None;
    let by_user = KillSelector {
        user: text("alice"),
        ..KillSelector::default()
    };
    assert_eq!(
        resolve_pids(&test_host, by_user),
        Ok((vec![300, 301, 302], 1))
    );
    test_host.snapshot.devices.remove(1);
    let by_vendor = KillSelector {
        vendors: [Vendor::Amd].into(),
        ..KillSelector::default()
    };
    assert_eq!(resolve_pids(&test_host, by_vendor), Ok((vec![301], 2)));
}

#[test]
fn full_container_id_beats_prefix() {
    let mut test_host = host();
    for (pid, id) in [(320, "train"), (321, "train2")] {
        let inside = test_host.add(process(pid, 1, ALICE, "python"));
        let mut container = container('a', "x", None);
        container.id.id = id.into();
        inside.container = Reading::Value(Some(container));
        test_host.list_process(pid, 3, 1);
    }
    let called = |typed| KillSelector {
        container: text(typed),
        ..KillSelector::default()
    };
    let several = "\"trai\" is a prefix of several container ids";
    assert_eq!(
        resolve_pids(&test_host, called("trai")),
        Err(Refusal::Invalid(several.into()))
    );
    assert!(resolve_pids(&test_host, called("train")).is_ok());
}

/// The selected pids, and the number of other pids that may be selected.
type ExpectedSelection = (&'static [u32], u32);

#[test]
fn conditions_select_and_count_unknown() {
    let none = KillSelector::default;
    #[rustfmt::skip]
    let cases: Vec<(&str, KillSelector, ExpectedSelection)> = vec![
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
    let test_host = host();
    for (what, selector, (keys, undetermined)) in cases {
        assert_eq!(
            resolve_pids(&test_host, selector),
            Ok((keys.to_vec(), undetermined)),
            "{what}"
        );
    }
}

#[test]
fn unnamed_container_may_match() {
    let mut test_host = host();
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
    test_host.process_mut(300).container = Reading::Value(Some(nameless));
    let of = |container: Option<&str>, image: Option<&str>| {
        let selector = KillSelector {
            container: container.map(str::to_owned),
            image: image.map(str::to_owned),
            ..KillSelector::default()
        };
        resolve_pids(&test_host, selector)
    };
    assert_eq!(of(Some("x"), None), Ok((vec![], 2)));
    assert_eq!(of(Some("train-0"), None), Ok((vec![300], 1)));
    assert_eq!(of(Some("pod team/train-0"), None), Ok((vec![300], 1)));
    // The container has no image that could match.
    assert_eq!(of(None, Some("lab/*")), Ok((vec![310], 1)));
}

#[test]
fn scheduler_job_with_or_without_step() {
    let mut test_host = host();
    test_host.slurm(300, "1234", "0");
    test_host.slurm(301, "1234", "batch");
    let test_host = test_host.with_jobs();
    let of = |typed: &str| {
        let selector = KillSelector {
            job: text(typed),
            ..KillSelector::default()
        };
        resolve_pids(&test_host, selector).unwrap().0
    };
    assert_eq!(of("1234"), [300, 301]);
    assert_eq!(of("slurm 1234"), [300, 301]);
    assert_eq!(of("slurm 1234.0"), [300]);
    assert_eq!(of("1234.batch"), [301]);
    assert_eq!(of("123"), [0; 0]);
    assert_eq!(of("pbs 1234"), [0; 0]);
}

#[test]
fn withheld_command_lines_match_nothing() {
    let mut test_host = host();
    test_host.roles.hide_other_users = true;
    let selector = KillSelector {
        command: text("of (alice|bob)"),
        ..KillSelector::default()
    };
    let of_alice = resolve_pids(&test_host, selector.clone());
    assert_eq!(of_alice, Ok((vec![300, 301, 302], 0)));
    let caller = olga();
    let asked = request(selector, KillScope::Process);
    let selection = resolve(&asked, &test_host.context(&caller)).unwrap();
    assert_eq!((selection.keys.len(), selection.undetermined), (4, 1));
    let plan = test_host.plan(
        &super::fixture::caller(ALICE, &[]),
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
fn user_matches_label_and_namespace() {
    let mut test_host = host();
    test_host.process_mut(302).owner = Reading::Value("team".into());
    test_host.process_mut(301).namespace_owner = Reading::Value(Some(7));
    test_host.snapshot.processes[0].owner = Reading::Value(Owner {
        name: "lab".into(),
        uid: Some(4242),
        kind: OwnerKind::Label,
    });
    let of = |typed: &str| {
        let selector = KillSelector {
            user: text(typed),
            ..KillSelector::default()
        };
        resolve_pids(&test_host, selector).unwrap().0
    };
    assert_eq!(of("team"), [302]);
    assert_eq!(of("7"), [301]);
    assert_eq!(of("lab"), [300]);
    assert_eq!(of("4242"), [300]);
}

#[test]
fn reused_pid_is_not_selected() {
    let mut test_host = host();
    test_host.process_mut(300).lineage.key.start_ticks = 999;
    let selector = KillSelector {
        gpu: text("0"),
        ..KillSelector::default()
    };
    assert_eq!(resolve_pids(&test_host, selector), Ok((vec![310], 0)));
}
