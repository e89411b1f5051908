//! The gateway of a host shows everybody what its user sees: it runs neither as root nor as a user
//! with more rights in the daemon than every user.

use super::stand_in_daemon::{PLAIN_RIGHTS, StandInDaemon};
use super::wait_until_ready;
use gpukill_proto::status::Right;
use gpukill_tests::harness::{
    CommandOutput, Gateway, TestBox, can_run_as_other_users, gateway_uid, group_id, skip,
};
use std::os::unix::process::CommandExt as _;

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn gateway_of_root_is_refused() {
    if gateway_uid().is_none() {
        return skip("only root can start a gateway as root");
    }
    let test_box = TestBox::new();
    let run = |arguments: &[&str]| {
        let mut command = test_box.gateway_command("");
        CommandOutput::run(command.uid(0).gid(0).args(arguments))
    };
    let refused = run(&LISTEN);
    assert_eq!(refused.code, 3, "{refused:?}");
    for part in ["everybody what root may see", "run gpukillctl web"] {
        assert!(refused.stderr.contains(part), "{refused:?}");
    }
    // It only checks the settings of another user.
    assert_eq!(run(&["--check-config"]).code, 0);
}

#[test]
fn gateway_with_rights_in_the_daemon_ends() {
    for right in [Right::EndAny, Right::EditRules] {
        let test_box = TestBox::new();
        let daemon = StandInDaemon::start(&test_box.socket(), 1);
        daemon.set_rights(&[Right::Look, Right::EndOwn, right]);
        let refused = CommandOutput::run(test_box.gateway_command("").args(LISTEN));
        assert_eq!(refused.code, 3, "{refused:?}");
        let why = "the user alice has more rights in gpukilld than every user";
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
}

#[test]
fn gateway_that_gets_rights_later_shows_nothing_more() {
    let test_box = TestBox::new();
    let daemon = StandInDaemon::start(&test_box.socket(), 1);
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let mut stream = gateway.live();
    let _ = stream.next_named("snapshot");
    daemon.set_rights(&[&PLAIN_RIGHTS[..], &[Right::EndAny]].concat());
    // It asks for its rights again with the next answers.
    daemon.answer_at_once();
    while let Some((name, _)) = stream.next_event() {
        assert_ne!(name, "snapshot");
    }
    assert_eq!(gateway.wait(), 3);
}

#[test]
fn member_of_the_operators_is_refused_and_a_personal_gateway_is_not() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(operators) = group_id("daemon") else {
        return skip("this system has no group daemon");
    };
    let test_box = TestBox::new();
    test_box.configure("[access]\noperator_group = \"daemon\"\n");
    let _daemon = test_box.start();
    let mut command = test_box.gateway_command("");
    let refused = CommandOutput::run(command.gid(operators).args(LISTEN));
    assert_eq!(refused.code, 3, "{refused:?}");
    // Root runs it here.
    let (personal, token) = Gateway::start_personal(&test_box);
    wait_until_ready(&personal);
    let status = personal.get_as("/api/v1/status", &token).json();
    let all = serde_json::json!(["look", "end_own", "end_any", "edit_rules"]);
    assert_eq!(status["rights"], all);
}
