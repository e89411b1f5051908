//! Tests of refused requests.

use super::super::resolve::resolve;
use super::super::*;
use super::fixture::*;
use super::resolve::{host, resolve_pids, text};
use gpukill_proto::kill::{KillRequest, KillScope, KillSelector};
use gpukill_proto::model::ContainerId;
use gpukill_proto::refusal::Refusal;

#[test]
fn contradictory_requests_are_refused() {
    let none = KillSelector::default;
    let plain = |selector| request(selector, KillScope::Process);
    let invalid = |why: &str| Refusal::Invalid(why.to_owned());
    let cases = [
        (plain(none()), "no process is selected"),
        (
            plain(KillSelector {
                filter: text("py["),
                ..none()
            }),
            "\"py[\" is not a regular expression: found unclosed character class",
        ),
        (
            plain(KillSelector {
                command: text(r"(\w{50}\d{50}){50}"),
                ..none()
            }),
            "\"(\\\\w{50}\\\\d{50}){50}\" is not a regular expression: \
             compiled regex exceeded size limit",
        ),
    ];
    let test_host = host();
    for (request, why) in cases {
        let caller = caller(0, &[]);
        assert_eq!(
            resolve(&request, &test_host.context(&caller)),
            Err(invalid(why))
        );
    }
    let unknown = resolve_pids(
        &test_host,
        KillSelector {
            gpu: text("9"),
            ..none()
        },
    );
    let none_such = "no GPU matches \"9\": this host has GPU 0, 1, 2, 3, 4";
    assert_eq!(unknown, Err(invalid(none_such)));
}

#[test]
fn pids_without_gpu_are_named() {
    let mut test_host = host();
    test_host.add(process(400, 1, ALICE, "vim"));
    let resolution =
        |selected: &[u32]| resolve_pids(&test_host, pids(selected)).map_err(|why| why.to_string());
    assert_eq!(resolution(&[400]), Err("process 400 uses no GPU".into()));
    assert_eq!(resolution(&[4711]), Err("there is no process 4711".into()));
    assert_eq!(resolution(&[0]), Err("there is no process 0".into()));
    assert_eq!(
        resolution(&[300, 4711, 400]),
        Err("process 400 uses no GPU; there is no process 4711".into())
    );
    let many: Vec<u32> = (5_000..6_000).collect();
    let why = resolution(&many).unwrap_err();
    assert!(
        why.ends_with("there is no process 5007; and 992 more"),
        "{why}"
    );
    // The pid belongs to another process than the listed one.
    test_host.process_mut(300).lineage.key.start_ticks = 999;
    assert_eq!(
        resolve_pids(&test_host, pids(&[300])).map_err(|why| why.to_string()),
        Err("process 300 uses no GPU".into())
    );
    test_host.holders[0].incomplete_reason = Some("nobody has looked yet".into());
    assert_eq!(
        resolve_pids(&test_host, pids(&[400])).map_err(|why| why.to_string()),
        Err("process 400 is not known to use a GPU: nobody has looked yet".into())
    );
}

#[test]
fn any_process_needs_root() {
    let mut test_host = host();
    test_host.add(process(400, 1, ALICE, "vim"));
    let asked = KillRequest {
        any_process: true,
        ..request(pids(&[400]), KillScope::Process)
    };
    let of = |caller: Caller| {
        resolve(&asked, &test_host.context(&caller)).map(|selection| selection.keys.len())
    };
    let denied = Refusal::Denied {
        asked: "end a process that uses no GPU".into(),
        ask: "root".into(),
    };
    let contained = Caller {
        contained: true,
        ..caller(0, &[])
    };
    assert_eq!(of(caller(0, &[])), Ok(1));
    assert_eq!(of(caller(ALICE, &[])), Err(denied.clone()));
    assert_eq!(of(olga()), Err(denied.clone()));
    assert_eq!(of(contained), Err(denied));
    let gone = KillRequest {
        selector: pids(&[4711]),
        ..asked.clone()
    };
    let gone = resolve(&gone, &test_host.context(&caller(0, &[])));
    assert_eq!(
        gone,
        Err(Refusal::NoMatch("there is no process 4711".into()))
    );
}

#[test]
fn ambiguous_container_id_is_refused() {
    let mut test_host = host();
    let other = Container {
        id: ContainerId {
            runtime: "docker".into(),
            id: format!("aaaa{}", "b".repeat(60)),
        },
        ..container('a', "other", None)
    };
    test_host.process_mut(300).container = Reading::Value(Some(other));
    let called = |typed: &str| {
        let selector = KillSelector {
            container: text(typed),
            ..KillSelector::default()
        };
        resolve_pids(&test_host, selector)
    };
    let why = "\"aaaa\" is a prefix of several container ids";
    assert_eq!(called("aaaa"), Err(Refusal::Invalid(why.into())));
    assert_eq!(called("aaaab"), Ok((vec![300], 1)));
    assert_eq!(called(&"a".repeat(64)), Ok((vec![310], 1)));
    assert_eq!(called("aaa"), Ok((vec![], 1)));
}
