//! Tests of each cause except orphans, with its evidence and remedy.

use super::*;

#[test]
fn unlisted_containers_are_named() {
    let inner = Holder {
        container: Value(None),
        ..contained(9)
    };
    let expected = finding(
        Cause::OtherNamespace,
        &[7, 9],
        &[
            "7 (python of carol) has the device open, runs in docker train, and the driver does \
             not list it",
            "9 (python of carol) has the device open, runs as 7 of another PID namespace, and the \
             driver does not list it",
        ],
        None,
    );
    assert_eq!(
        find_causes(&device(vec![contained(7), inner]), NOW),
        [expected]
    );
}

#[test]
fn parent_of_a_zombie_is_never_ended() {
    let cases = [
        (zombie(7, 60, "torchrun"), Remedy::Reap(60)),
        (zombie(7, 1, "systemd"), Remedy::Wait),
        (zombie(7, 60, "systemd"), Remedy::Reap(60)),
        (zombie(7, 60, "containerd-shim"), Remedy::Reap(60)),
        (zombie(7, 60, "tini"), Remedy::Reap(60)),
        (zombie(7, 60, "sshd"), Remedy::Reap(60)),
        (zombie(7, 60, "bash"), Remedy::Reap(60)),
        (zombie(7, 60, "nv-hostengine"), Remedy::Reap(60)),
        (zombie(7, 60, "gnome-shell"), Remedy::Reap(60)),
    ];
    for (holder, remedy) in cases {
        let parent = holder.parent.known().copied().unwrap();
        let name = holder.parent_name.known().cloned().unwrap();
        let text = format!(
            "7 (python of carol) has ended, and its parent {parent} ({name}) has not reaped it"
        );
        let expected = finding(Cause::Zombie, &[7], &[&text], Some(remedy));
        assert_eq!(find_causes(&device(vec![holder]), NOW), [expected]);
    }
    let unnamed = Holder {
        parent_name: Failed("x".into()),
        ..zombie(7, 60, "")
    };
    let found = find_causes(&device(vec![unnamed]), NOW);
    assert_eq!(found[0].remedy, Some(Remedy::Reap(60)));
    // A parent outside of this PID namespace has pid 0.
    let both = device(vec![zombie(7, 0, ""), zombie(8, 60, "torchrun")]);
    assert_eq!(find_causes(&both, NOW)[0].remedy, Some(Remedy::Reap(60)));
    let elsewhere = device(vec![zombie(7, 0, "")]);
    assert_eq!(find_causes(&elsewhere, NOW)[0].remedy, None);
}

#[test]
fn listed_zombie_is_reported() {
    let listed_still = Holder {
        memory: Value(gib(356)),
        listed: true,
        ..zombie(7, 60, "torchrun")
    };
    let mut ended = device(vec![listed_still.clone()]);
    ended.memory_unattributed = Value(Bytes(0));
    let text = "7 (python of carol) has ended, and its parent 60 (torchrun) has not reaped it";
    let expected = finding(Cause::Zombie, &[7], &[text], Some(Remedy::Reap(60)));
    assert_eq!(find_causes(&ended, NOW), [expected]);
    // Only its first thread has ended: the others work and hold the listed memory.
    let goes_on = Holder {
        holds: vec!["nvidia6".into()],
        holds_this_device: true,
        ..listed_still
    };
    ended.holders = vec![goes_on.clone()];
    assert_eq!(find_causes(&ended, NOW), []);
    assert_eq!(role(&goes_on, &ended), Role::User);
    let unlisted = Holder {
        listed: false,
        ..goes_on
    };
    assert_eq!(role(&unlisted, &ended), Role::Unlisted);
}

#[test]
fn uninterruptible_process_is_waited_for() {
    let cases = [
        (Some("nvidia_close"), "in nvidia_close"),
        (Some("folio_wait_bit"), "in folio_wait_bit"),
        (None, "which does not say where"),
    ];
    for (kernel_function, text) in cases {
        let state = ProcessState::Uninterruptible(kernel_function.map(str::to_owned));
        let text = format!("7 (python of carol) waits in the kernel, {text}");
        let expected = finding(
            Cause::Uninterruptible,
            &[7],
            &[&text, "no signal reaches it in this state"],
            Some(Remedy::Wait),
        );
        assert_eq!(
            find_causes(&device(vec![in_state(7, state)]), NOW),
            [expected]
        );
    }
}

#[test]
fn mps_server_is_not_ended() {
    let server = Holder {
        user: Value("root".into()),
        owner: Unsupported,
        ..named(50, "nvidia-cuda-mps")
    };
    let client = |pid| Holder {
        used_for: GpuUse {
            mps: true,
            compute: true,
            graphics: false,
        },
        ..listed(pid, Value(gib(1)))
    };
    let served = device(vec![server.clone(), client(51), client(52)]);
    let holds = "50 (nvidia-cuda-mps of root) holds memory for its clients";
    let expected = finding(
        Cause::Mps,
        &[50],
        &[holds, "51 and 52 are listed as such"],
        None,
    );
    assert_eq!(find_causes(&served, NOW), [expected]);
    let expected = finding(Cause::Mps, &[50], &[holds, "it has no clients now"], None);
    assert_eq!(find_causes(&device(vec![server]), NOW), [expected]);
}

#[test]
fn display_server_is_not_ended() {
    let expected = finding(
        Cause::Display,
        &[50],
        &["50 (Xorg of carol) draws on it"],
        None,
    );
    assert_eq!(
        find_causes(&device(vec![named(50, "Xorg")]), NOW),
        [expected]
    );
    let drawing = Holder {
        used_for: GpuUse {
            graphics: true,
            ..GpuUse::default()
        },
        name: Value("Xorg".into()),
        ..listed(50, Unsupported)
    };
    assert_eq!(role(&drawing, &device(vec![])), Role::Display);
}

#[test]
fn monitors_are_no_cause() {
    let shared = Holder {
        holds: vec!["nvidiactl".into(), "nvidia-uvm".into()],
        holds_this_device: false,
        ..holder(9)
    };
    let of_root = |pid, name| Holder {
        uid: Value(0),
        ..named(pid, name)
    };
    let watched = device(vec![
        of_root(7, "nvidia-persiste"),
        of_root(8, "gpukilld: GPU 6"),
        shared,
        named(10, "nvtop"),
    ]);
    for holder in &watched.holders {
        assert_eq!(role(holder, &watched), Role::Monitor, "{}", holder.pid);
    }
    let expected = finding(
        Cause::Unknown,
        &[],
        &[
            "35.6 GiB are used, and no process explains them",
            "all open files were scanned",
            "nvtop 10 of carol has the device open, and counts as a monitor only by its name",
        ],
        None,
    );
    assert_eq!(find_causes(&watched, NOW), [expected]);
    // A process that the driver lists with memory has the role of its listing.
    let disguised = Holder {
        name: Value("dcgm-exporter".into()),
        ..listed(7, Value(gib(356)))
    };
    assert_eq!(role(&disguised, &watched), Role::User);
}

#[test]
fn teardown_is_waited_for() {
    let after = |seconds, tenths| {
        let mut torn = device(vec![]);
        torn.ended = vec![ended(60_190, tenths, seconds)];
        find_causes(&torn, NOW)
    };
    let expected = finding(
        Cause::TearingDown,
        &[60_190],
        &[
            "60190 (python of carol) ended 3s ago and held 35.6 GiB",
            "35.6 GiB are not released yet",
        ],
        Some(Remedy::Wait),
    );
    assert_eq!(after(3, 356), [expected]);
    let cause = |found: Vec<HolderFinding>| found[0].cause;
    assert_eq!(cause(after(30, 500)), Cause::TearingDown);
    assert_eq!(cause(after(31, 356)), Cause::Unknown);
    assert_eq!(cause(after(3, 100)), Cause::Unknown);
    assert_eq!(cause(after(-9, 356)), Cause::Unknown);
}

#[test]
fn earlier_unattributed_memory_is_not_waited_for() {
    let torn = |holders, ended| {
        let mut torn = device(holders);
        torn.memory_used = Value(gib(100));
        torn.memory_unattributed = Value(gib(100));
        torn.ended = ended;
        find_causes(&torn, NOW)
    };
    let before = |pid, tenths, seconds, before| EndedHolder {
        unattributed_before: Value(gib(before)),
        ..ended(pid, tenths, seconds)
    };
    let wait = finding(
        Cause::TearingDown,
        &[600],
        &[
            "600 (python of carol) ended 3s ago and held 2.0 GiB",
            "2.0 GiB are not released yet",
            "8.0 GiB more were already unattributed before",
        ],
        Some(Remedy::Wait),
    );
    let rest = finding(
        Cause::Unknown,
        &[],
        &[
            "8.0 GiB have been unattributed for longer",
            "all open files were scanned, and no process that could hold the memory has the device \
             open",
        ],
        None,
    );
    let one = || vec![before(600, 20, 3, 80)];
    assert_eq!(torn(vec![], one()), [wait.clone(), rest]);
    // Where another process may hold the rest, that cause is reported for it.
    let found = torn(vec![holder(7)], one());
    assert_eq!(found[0], wait);
    let causes: Vec<Cause> = found.iter().map(|found| found.cause).collect();
    assert_eq!(causes, [Cause::TearingDown, Cause::Unlisted]);
    // The second process sees as unattributed what the first has just released.
    let both = torn(vec![], vec![before(601, 20, 3, 80), before(600, 80, 9, 0)]);
    assert_eq!(both.len(), 1);
    assert_eq!(both[0].evidence[2], "10.0 GiB are not released yet");
    let both = torn(vec![], vec![before(601, 20, 3, 80), before(600, 50, 9, 0)]);
    assert_eq!(both[0].evidence[2], "7.0 GiB are not released yet");
    assert_eq!(both[1].cause, Cause::Unknown);
}

#[test]
fn listed_processes_may_have_it_open() {
    let mut used = device(vec![listed(7, Value(gib(20)))]);
    used.memory_unattributed = Value(gib(336));
    let text = "all open files were scanned, and only listed processes that could hold the memory \
                have the device open";
    assert_eq!(find_causes(&used, NOW)[0].evidence[1], text);
}

#[test]
fn busy_device_without_holder_needs_reset() {
    let busy = |percent, seconds: i64| {
        let mut alone = device(vec![]);
        alone.memory_unattributed = Value(Bytes(0));
        alone.utilization = Value(Percent(percent));
        alone.busy_without_holder_since = Some(NOW.plus_seconds(-seconds));
        alone
    };
    let expected = finding(
        Cause::BusyWithoutHolder,
        &[],
        &[
            "its utilization has stayed at 100 % for 5m",
            "all open files were scanned, and no process has the device open",
        ],
        Some(Remedy::Reset),
    );
    assert_eq!(find_causes(&busy(100, 300), NOW), [expected]);
    assert_eq!(find_causes(&busy(89, 300), NOW), []);
    assert_eq!(find_causes(&busy(100, 29), NOW), []);
    let mut held = busy(100, 300);
    held.holders = vec![holder(7)];
    assert_eq!(find_causes(&held, NOW), []);
    let mut incomplete = busy(100, 300);
    incomplete.incomplete_reason = Some("x".into());
    assert_eq!(find_causes(&incomplete, NOW), []);
}

#[test]
fn unlisted_holder_is_named() {
    let expected = finding(
        Cause::Unlisted,
        &[7],
        &["7 (python of carol) has the device open, and the driver does not list it"],
        None,
    );
    assert_eq!(find_causes(&device(vec![holder(7)]), NOW), [expected]);
}
