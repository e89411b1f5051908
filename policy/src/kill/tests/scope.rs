//! Tests of the processes that a scope reaches, and of processes forked later.

use super::super::late_members::find_forked;
use super::super::scope::ScopeIndex;
use super::super::*;
use super::fixture::*;
use gpukill_proto::kill::KillScope::{self, Container, Job, Process, Tree};
use gpukill_proto::model::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

fn pids_in_scope(test_host: &KillTestHost, pid: u32, scope: KillScope) -> Result<Vec<u32>, String> {
    let scopes = ScopeIndex::new(&test_host.process_table);
    let keys = scopes.processes_in_scope(&test_host.process_table[&pid], scope)?;
    Ok(keys.iter().map(|key| key.pid).collect())
}

/// A training run of alice's with two workers.
pub(super) fn training_run() -> KillTestHost {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    test_host.command(300, 202, "torchrun");
    test_host.command(310, 300, "python");
    test_host.command(311, 300, "python");
    test_host
}

#[test]
fn unknown_scope_says_why() {
    let mut test_host = training_run().with_jobs();
    test_host.process_mut(310).job = Reading::Failed("it has too many ancestors to read".into());
    let job = "its job is not known: failed: it has too many ancestors to read";
    assert_eq!(pids_in_scope(&test_host, 310, Job), Err(job.into()));
    assert_eq!(
        pids_in_scope(&test_host, 310, Container),
        Err("it is not in a container".into())
    );
    test_host.process_mut(310).container = Reading::Failed("x".into());
    let container = "its container is not known: failed: x";
    assert_eq!(
        pids_in_scope(&test_host, 310, Container),
        Err(container.into())
    );
    test_host.process_mut(300).lineage.uid = None;
    let reason = "its owner is not known";
    assert_eq!(pids_in_scope(&test_host, 300, Tree), Err(reason.into()));
    assert_eq!(pids_in_scope(&test_host, 300, Job), Err(reason.into()));
    assert_eq!(pids_in_scope(&test_host, 300, Process), Ok(vec![300]));
}

#[test]
fn tree_stops_at_session_servers_and_users() {
    let mut test_host = training_run();
    test_host.fork(400, 310, "sh");
    test_host.fork(401, 400, "python");
    test_host.fork(410, 310, "tmux: server");
    test_host.command(411, 410, "python").lineage.session = 411;
    // Without a pane it is no server.
    test_host.fork(430, 310, "tmux: server");
    test_host.command(431, 430, "python");
    let other = test_host.fork(420, 310, "python");
    other.lineage.uid = Some(BOB);
    test_host.fork(421, 420, "python").lineage.uid = Some(ALICE);
    // As read when pid 310 belonged to another process.
    test_host.fork(309, 310, "python");
    let test_host = test_host.with_jobs();
    assert_eq!(
        pids_in_scope(&test_host, 310, Tree),
        Ok(vec![310, 400, 401, 430, 431])
    );
    assert_eq!(pids_in_scope(&test_host, 410, Tree), Ok(vec![410, 411]));
}

#[test]
fn job_includes_led_process_groups() {
    let mut test_host = training_run();
    test_host.fork(330, 202, "tee").lineage.group = 310;
    let other = test_host.fork(331, 202, "tee");
    (other.lineage.group, other.lineage.uid) = (310, Some(BOB));
    test_host.fork(332, 202, "bash").lineage.group = 310;
    let test_host = test_host.with_jobs();
    assert_eq!(
        pids_in_scope(&test_host, 311, Job),
        Ok(vec![300, 310, 311, 330, 332])
    );
}

#[test]
fn names_keep_no_process_out_of_its_job() {
    let mut test_host = training_run();
    let names = [
        "agetty",
        "tmux: server",
        "screen",
        "sshd",
        "supervisord",
        "conmon",
        "bash",
    ];
    let pids = || 320u32..;
    for (pid, name) in pids().zip(names) {
        test_host.fork(pid, 300, name);
    }
    // Root of a namespace of hers, and leader of a session.
    let helper = test_host.fork(330, 300, "agetty");
    helper.lineage.namespace_creator = Some(ALICE);
    helper.namespace_owner = Reading::Value(Some(ALICE));
    test_host.fork(331, 300, "tmux: server").lineage.session = 331;
    // A shell for each, and one that has lost its parent.
    test_host.fork(332, 300, "sh");
    test_host.fork(333, 332, "agetty");
    let orphan = test_host.add(process(334, 1, ALICE, "tmux: server"));
    (orphan.lineage.group, orphan.lineage.session) = (300, 202);
    let test_host = test_host.with_jobs();
    let helpers = pids().take(names.len()).chain(330..=334);
    let expected: Vec<u32> = [300, 310, 311].into_iter().chain(helpers).collect();
    assert_eq!(pids_in_scope(&test_host, 310, Job), Ok(expected));
}

#[test]
fn servers_with_sessions_survive_in_a_job() {
    let mut test_host = KillTestHost::new();
    test_host.login(200, ALICE);
    // `uv run jupyter lab`, with a kernel.
    test_host.command(300, 202, "uv");
    let server = test_host.fork(310, 300, "python");
    server.lineage.arguments = Some(["python", "-m", "jupyterlab"].map(str::to_owned).into());
    let leads = |process: &mut ProcessInfo| {
        let pid = process.lineage.key.pid;
        (process.lineage.group, process.lineage.session) = (pid, pid);
    };
    leads(test_host.fork(311, 310, "python"));
    // A terminal, a subshell on the terminal of the session, and its user's multiplexer.
    test_host.fork(320, 300, "kitty");
    let pane = test_host.fork(321, 320, "bash");
    leads(pane);
    pane.lineage.on_terminal = true;
    test_host.command(330, 300, "bash").lineage.on_terminal = true;
    test_host.fork(340, 300, "tmux: server");
    leads(test_host.fork(341, 340, "bash"));
    // In the group, started by root's own sshd.
    test_host.fork(350, 200, "sshd").lineage.group = 300;
    let session = test_host.process_mut(350);
    (session.lineage.uid, session.uids) = (Some(ALICE), Reading::Value(Uids::from_single(ALICE)));
    let test_host = test_host.with_jobs();
    assert_eq!(pids_in_scope(&test_host, 300, Job), Ok(vec![300]));
    let hosts = |pid: u32| {
        let scopes = ScopeIndex::new(&test_host.process_table);
        scopes.hosts_sessions(&test_host.process_table[&pid])
    };
    for pid in [201, 202, 310, 320, 321, 330, 340, 350] {
        assert!(hosts(pid), "{pid}");
    }
    assert!(!hosts(300) && !hosts(311));
}

#[test]
fn servers_below_others_host_sessions() {
    let mut test_host = KillTestHost::new();
    // The manager of alice's units, a terminal that it starts, and a shell without one.
    let manager = test_host.add(process(200, 1, ALICE, "systemd"));
    manager.lineage.unit = Some(unit("init.scope", Some(ALICE)));
    test_host.command(210, 200, "kitty");
    test_host.command(211, 200, "bash");
    test_host.fork(212, 211, "tmux: server");
    // Below work, and below a process that a person can name so.
    test_host.add(process(220, 1, ALICE, "python"));
    test_host.command(221, 220, "tmux: server");
    test_host.add(process(230, 1, ALICE, "agetty"));
    test_host.command(231, 230, "screen");
    // Only root's processes are the host's own, and only from the host's files.
    for (pid, program) in [(240, ProgramOrigin::Host), (250, ProgramOrigin::Elsewhere)] {
        test_host.add(process(pid, 1, 0, "python"));
        test_host.fork(pid + 1, pid, "sshd").program = Reading::Value(program);
    }
    // A chain of shells, and a cycle.
    for pid in 1_000..1_100 {
        test_host.add(process(pid, pid - 1, ALICE, "bash"));
    }
    let mut test_host = test_host.with_jobs();
    test_host.process_mut(1_000).parent = 1_001;
    test_host.process_mut(1_001).lineage.key.start_ticks = 1_000;
    let scopes = ScopeIndex::new(&test_host.process_table);
    for (pid, expected) in [
        (200, true),
        (210, true),
        (211, true),
        (212, false),
        (221, false),
        (231, false),
        (241, true),
        (251, false),
        (1_000, false),
        (1_099, false),
    ] {
        let found = scopes.hosts_sessions(&test_host.process_table[&pid]);
        assert_eq!(found, expected, "{pid}");
    }
}

#[test]
fn containers_differ_by_user_manager() {
    let mut test_host = training_run();
    for (pid, manager) in [(400, None), (401, None), (402, Some(ALICE))] {
        let mut inside = process(pid, 1, ALICE, "python");
        let mut podmans = container('a', "x", manager);
        podmans.id.runtime = "podman".into();
        inside.container = Reading::Value(Some(podmans));
        test_host.add(inside);
    }
    let test_host = test_host.with_jobs();
    assert_eq!(
        pids_in_scope(&test_host, 400, Container),
        Ok(vec![400, 401])
    );
    assert_eq!(pids_in_scope(&test_host, 402, Container), Ok(vec![402]));
}

#[test]
fn scheduler_job_has_one_user() {
    let mut test_host = KillTestHost::new();
    for (pid, uid) in [(300, ALICE), (301, ALICE), (302, BOB)] {
        test_host.add(process(pid, 1, uid, "python"));
        test_host.slurm(pid, "1234", "0");
    }
    let test_host = test_host.with_jobs();
    assert_eq!(pids_in_scope(&test_host, 300, Job), Ok(vec![300, 301]));
}

#[test]
fn interactive_shells_and_runtimes_host_sessions() {
    let mut test_host = KillTestHost::new();
    let mut add = |pid, name: &str| {
        let mut inside = process(pid, 1, ALICE, name);
        inside.container = Reading::Value(Some(container('a', "x", None)));
        test_host.add(inside).clone()
    };
    add(400, "python");
    // The script of the container, and a shell of `docker exec -it`.
    add(401, "bash");
    add(402, "bash");
    add(403, "sshd");
    add(404, "conmon");
    add(405, "conmon");
    test_host.process_mut(402).lineage.on_terminal = true;
    test_host.process_mut(405).lineage.executable = Some("/home/eve/conmon".into());
    let test_host = test_host.with_jobs();
    assert_eq!(
        pids_in_scope(&test_host, 400, Container),
        Ok(vec![400, 401, 405])
    );
}

pub(super) fn keys(test_host: &KillTestHost, pids: &[u32]) -> BTreeSet<ProcessKey> {
    pids.iter()
        .map(|pid| test_host.process_table[pid].lineage.key)
        .collect()
}

/// These processes as they are on this host.
pub(super) fn processes_by_key(
    test_host: &KillTestHost,
    pids: &[u32],
) -> BTreeMap<ProcessKey, ProcessInfo> {
    let members = pids.iter().map(|pid| test_host.process_table[pid].clone());
    members.map(|member| (member.lineage.key, member)).collect()
}

/// The processes that are forked from 310 after this change.
fn forked_after(scope: KillScope, change: impl FnOnce(&mut KillTestHost)) -> Vec<u32> {
    let first = training_run().with_jobs();
    let members = processes_by_key(&first, &[310]);
    let mut now = training_run();
    change(&mut now);
    let now = now.with_jobs();
    let found = find_forked(&members, scope, &first.process_table, &now.process_table);
    found.iter().map(|key| key.pid).collect()
}

#[test]
fn new_children_are_found() {
    let forks = |now: &mut KillTestHost| {
        now.fork(500, 310, "python");
        now.fork(501, 500, "python");
        now.fork(510, 311, "python");
        now.command(520, 202, "python");
    };
    assert_eq!(forked_after(Tree, forks), [500, 501]);
    // Processes of the same job.
    assert_eq!(forked_after(Job, forks), [500, 501, 510]);
    assert_eq!(forked_after(Process, forks), [0; 0]);
    assert_eq!(forked_after(Tree, |_| {}), [0; 0]);
    assert_eq!(forked_after(Job, |_| {}), [0; 0]);
}

#[test]
fn orphans_are_found_by_group_or_session() {
    let orphans = |now: &mut KillTestHost| {
        now.process_table.remove(&310);
        // The first process is older than 310: the group had this number before it.
        for (pid, group, session) in [
            (309, 310, 7),
            (500, 310, 7),
            (501, 501, 310),
            (502, 502, 502),
        ] {
            let orphan = now.add(process(pid, 1, ALICE, "python"));
            (orphan.lineage.group, orphan.lineage.session) = (group, session);
        }
        now.fork(503, 501, "python").lineage.group = 503;
    };
    assert_eq!(forked_after(Tree, orphans), [500, 501, 503]);
}

#[test]
fn descendants_of_ended_late_member() {
    let first = training_run().with_jobs();
    let mut members = processes_by_key(&first, &[310]);
    let mut later = training_run();
    let late = later.fork(500, 310, "python");
    (late.lineage.group, late.lineage.session) = (500, 500);
    let later = later.with_jobs();
    let found = find_forked(&members, Tree, &first.process_table, &later.process_table);
    assert_eq!(found, keys(&later, &[500]));
    members.extend(processes_by_key(&later, &[500]));
    let mut now = training_run();
    let orphan = now.add(process(501, 1, ALICE, "python"));
    (orphan.lineage.group, orphan.lineage.session) = (500, 500);
    let now = now.with_jobs();
    let found = find_forked(&members, Tree, &first.process_table, &now.process_table);
    assert_eq!(found, keys(&now, &[501]));
}

#[test]
fn reused_pid_is_ignored() {
    let reused = |now: &mut KillTestHost| {
        now.process_mut(310).lineage.key.start_ticks = 9_000;
        let child = now.fork(500, 310, "python");
        child.lineage.key.start_ticks = 9_001;
    };
    assert_eq!(forked_after(Tree, reused), [0; 0]);
}

#[test]
fn foreign_users_and_session_hosts_are_excluded() {
    let others = |now: &mut KillTestHost| {
        now.fork(500, 310, "sudo").lineage.uid = Some(0);
        now.fork(501, 310, "bash");
        now.fork(502, 501, "python");
        now.command(505, 310, "bash").lineage.on_terminal = true;
        now.fork(503, 310, "python").lineage.uid = None;
        let of_group = now.add(process(504, 1, BOB, "python"));
        of_group.lineage.group = 310;
    };
    for scope in [Tree, Job] {
        assert_eq!(forked_after(scope, others), [501, 502], "{scope:?}");
    }
}

#[test]
fn new_container_processes_are_found() {
    let inside = |test_host: &mut KillTestHost, pid: u32, uid: u32, id: char| {
        let mut inside = process(pid, 1, uid, "python");
        inside.container = Reading::Value(Some(container(id, "x", None)));
        test_host.add(inside);
    };
    let mut first = training_run();
    inside(&mut first, 400, 0, 'a');
    let first = first.with_jobs();
    let mut now = training_run();
    inside(&mut now, 500, 0, 'a');
    inside(&mut now, 501, 0, 'b');
    inside(&mut now, 502, BOB, 'a');
    let now = now.with_jobs();
    let members = processes_by_key(&first, &[400]);
    for scope in [Container, Job] {
        let found = find_forked(&members, scope, &first.process_table, &now.process_table);
        assert_eq!(found, keys(&now, &[500]), "{scope:?}");
    }
}
