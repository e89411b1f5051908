//! Tests of the processes that a name protects, and of overriding protection.

use super::super::*;
use super::fixture::*;
use super::protection::{LOGIN, SYSTEM, protection_reason, root_protection_reason};
use gpukill_proto::kill::{KillRequest, KillScope, PlannedAction};
use gpukill_proto::refusal::Refusal;

#[test]
fn name_protects_system_accounts() {
    type TrustChange = fn(&mut ProcessInfo);
    let as_uids = |real, effective, saved| {
        move |p: &mut ProcessInfo| {
            p.lineage.uid = Some(real);
            p.uids = Reading::Value(Uids {
                real,
                effective,
                saved,
            });
        }
    };
    for name in [
        "agetty",
        "Xorg",
        "sshd",
        "systemd",
        "nv-hostengine",
        "nvidia-cuda-mps-server",
    ] {
        let is = |change: &dyn Fn(&mut ProcessInfo)| {
            root_protection_reason(name, |p| change(p)).is_some()
        };
        for (real, effective, saved, expected) in [
            (0, 0, 0, true),
            (SYSTEM, SYSTEM, SYSTEM, true),
            (0, SYSTEM, 0, true),
            (1000, 1000, 1000, false),
            // A process of a person with the rights of root, and one of root with a
            // person's.
            (1000, 0, 0, false),
            (0, 1000, 0, false),
            (0, 0, 1000, false),
            (65_534, 65_534, 65_534, false),
        ] {
            let found = is(&as_uids(real, effective, saved));
            assert_eq!(found, expected, "{name} {real} {effective} {saved}");
        }
        let cases: [(&str, TrustChange, bool); 5] = [
            (
                "replaced",
                |p| p.program = Reading::Value(ProgramOrigin::Replaced),
                true,
            ),
            (
                "elsewhere",
                |p| p.program = Reading::Value(ProgramOrigin::Elsewhere),
                false,
            ),
            (
                "file not known",
                |p| p.program = Reading::Failed("x".into()),
                true,
            ),
            (
                "users not known",
                |p| p.uids = Reading::Failed("x".into()),
                true,
            ),
            (
                "users not known, in a namespace",
                |p| {
                    p.uids = Reading::Failed("x".into());
                    p.namespace_owner = Reading::Value(Some(1005));
                },
                false,
            ),
        ];
        for (what, change, expected) in cases {
            assert_eq!(is(&change), expected, "{name}: {what}");
        }
    }
    // The host decides where the uids of people start.
    let mut test_host = KillTestHost::new();
    test_host.protection.uid_min = 500;
    test_host.add(process(300, 1, SYSTEM, "sshd"));
    assert_eq!(protection_reason(&test_host), None);
}

#[test]
fn display_server_at_active_seat_is_protected() {
    let of = |name: &str, at_seat: Reading<bool>, program: ProgramOrigin| {
        let mut test_host = KillTestHost::new();
        let process = test_host.add(process(300, 1, ALICE, name));
        process.at_seat = at_seat;
        process.program = Reading::Value(program);
        protection_reason(&test_host).is_some()
    };
    let host = ProgramOrigin::Host;
    for name in ["Xorg", "gnome-shell", "kwin_wayland", "sway", "Xwayland"] {
        assert!(of(name, Reading::Value(true), host), "{name}");
        assert!(of(name, Reading::Failed("x".into()), host), "{name}");
        assert!(!of(name, Reading::Value(false), host), "{name}");
        assert!(!of(name, Reading::Unsupported, host), "{name}");
        assert!(!of(name, Reading::Value(true), ProgramOrigin::Elsewhere));
    }
    for name in ["sshd", "agetty", "systemd", "nv-hostengine"] {
        assert!(!of(name, Reading::Value(true), host), "{name}");
    }
}

#[test]
fn root_may_override_most_protection() {
    let mut test_host = KillTestHost::new();
    test_host.add(process(300, 1, 0, "sshd"));
    test_host.fork(301, 300, "python");
    for pid in [300, 301] {
        test_host.list_process(pid, 0, 1);
    }
    test_host.list_process(1, 0, 1);
    test_host.list_process(90, 0, 1);
    test_host
        .add(process(302, 1, 0, "kworker"))
        .is_kernel_thread = true;
    test_host.list_process(302, 0, 1);
    let test_host = test_host.with_jobs();
    let ask = |caller: &Caller, selector, scope| {
        let request = KillRequest {
            override_protected: true,
            ..request(selector, scope)
        };
        test_host.plan(caller, &request)
    };
    let root = caller(0, &[]);
    for pid in [1, 90, 302] {
        let plan = ask(&root, pids(&[pid]), KillScope::Process).unwrap();
        let action = &plan.targets[0].action;
        let is_kept = matches!(action, PlannedAction::Protected(it) if !it.root_may_override);
        assert!(is_kept, "{pid}: {action:?}");
        assert_eq!(plan.targets[0].overridden, None);
    }
    let plan = ask(&root, pids(&[300]), KillScope::Process).unwrap();
    assert!(matches!(plan.targets[0].action, PlannedAction::End(_)));
    assert_eq!(plan.targets[0].overridden.as_deref(), Some(LOGIN));
    let contained = Caller {
        contained: true,
        ..root.clone()
    };
    for caller in [olga(), alice(), contained] {
        let refused = ask(&caller, pids(&[300]), KillScope::Process);
        assert!(matches!(refused, Err(Refusal::Denied { .. })), "{caller:?}");
    }
    let selector = by_gpu("0");
    let refused = ask(&root, selector, KillScope::Process);
    assert!(matches!(refused, Err(Refusal::Invalid(_))));
}
