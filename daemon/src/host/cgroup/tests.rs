//! Tests of the cgroup parser, with our own texts and recordings.

use super::*;
use proptest::prelude::*;

pub(super) const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const POD: &str = "74ba62da-1a3d-11e7-bb11-080027cb0e22";
const POD_: &str = "74ba62da_1a3d_11e7_bb11_080027cb0e22";

/// The facts of a text: container, unit, session and scheduler job.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CgroupSummary {
    pub(super) container: Option<String>,
    pub(super) unit: Option<String>,
    pub(super) session: Option<String>,
    pub(super) job: Option<String>,
}

pub(super) fn summarize(text: &str) -> CgroupSummary {
    let group = CgroupLocation::parse(text, CgroupView::Whole, None);
    let container = group.container.known().unwrap().as_ref().map(|contained| {
        let manager = match contained.manager {
            ContainerManager::System => String::new(),
            ContainerManager::User(uid) => format!(" by {uid}"),
        };
        let pod = contained.pod.as_ref().map(|pod| format!(" in {pod}"));
        let ContainerId { runtime, id } = &contained.id;
        format!("{runtime} {id}{}{manager}", pod.unwrap_or_default())
    });
    let unit = group
        .unit
        .known()
        .unwrap()
        .as_ref()
        .map(|unit| match unit.manager {
            Some(uid) => format!("{} of {uid}", unit.name),
            None => unit.name.clone(),
        });
    CgroupSummary {
        container,
        unit,
        session: group.session.known().unwrap().clone(),
        job: group
            .scheduler
            .known()
            .unwrap()
            .as_ref()
            .map(ToString::to_string),
    }
}

pub(super) fn some(text: impl Into<String>) -> Option<String> {
    Some(text.into())
}

#[test]
fn container_runtimes_are_recognized() {
    let user = "user.slice/user-1000.slice/user@1000.service";
    let burst = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod";
    let cases = [
        (
            format!("12:memory:/docker/{A}\n1:name=systemd:/docker/{A}"),
            format!("docker {A}"),
            None,
        ),
        (
            format!("0::/system.slice/docker-{A}.scope"),
            format!("docker {A}"),
            some(format!("docker-{A}.scope")),
        ),
        (
            format!("0::/{user}/app.slice/docker-{A}.scope"),
            format!("docker {A} by 1000"),
            some(format!("docker-{A}.scope of 1000")),
        ),
        (
            format!("11:memory:/kubepods/besteffort/pod{POD}/{A}"),
            format!("kubernetes {A} in {POD}"),
            None,
        ),
        (
            format!("11:memory:/kubepods/pod{POD}/{A}"),
            format!("kubernetes {A} in {POD}"),
            None,
        ),
        (
            format!("0::/{burst}{POD_}.slice/cri-containerd-{A}.scope"),
            format!("containerd {A} in {POD}"),
            some(format!("cri-containerd-{A}.scope")),
        ),
        (
            format!("0::/kubepods.slice/kubepods-pod{POD_}.slice/crio-{A}.scope/container"),
            format!("cri-o {A} in {POD}"),
            some(format!("crio-{A}.scope")),
        ),
        (
            format!("0::/{burst}{}.slice/docker-{A}.scope", "0".repeat(32)),
            format!("docker {A} in {}", "0".repeat(32)),
            some(format!("docker-{A}.scope")),
        ),
        (format!("0::/k8s.io/{A}"), format!("containerd {A}"), None),
        (
            "0::/default/redis-1".to_owned(),
            "containerd redis-1".to_owned(),
            None,
        ),
        (
            format!("0::/system.slice/nerdctl-{A}.scope"),
            format!("containerd {A}"),
            some(format!("nerdctl-{A}.scope")),
        ),
        (
            format!("0::/machine.slice/libpod-{A}.scope/container"),
            format!("podman {A}"),
            some(format!("libpod-{A}.scope")),
        ),
        (
            format!("0::/user.slice/user-0.slice/user@0.service/user.slice/libpod-{A}.scope"),
            format!("podman {A}"),
            some(format!("libpod-{A}.scope of 0")),
        ),
        (
            format!("0::/{user}/user.slice/libpod-{A}.scope/container"),
            format!("podman {A} by 1000"),
            some(format!("libpod-{A}.scope of 1000")),
        ),
        (
            format!("0::/machine.slice/machine-libpod_pod_{B}.slice/libpod-{A}.scope"),
            format!("podman {A}"),
            some(format!("libpod-{A}.scope")),
        ),
        (
            "0::/lxc.payload.web01/init.scope".to_owned(),
            "lxc web01".to_owned(),
            None,
        ),
        (
            "3:devices:/lxc/101/ns".to_owned(),
            "lxc 101".to_owned(),
            None,
        ),
        (
            "0::/machine.slice/machine-deb\\x2d12.scope/payload".to_owned(),
            "systemd-nspawn deb-12".to_owned(),
            some("machine-deb\\x2d12.scope"),
        ),
        (
            "0::/machine.slice/systemd-nspawn@deb.service/payload".to_owned(),
            "systemd-nspawn deb".to_owned(),
            some("systemd-nspawn@deb.service"),
        ),
    ];
    for (text, container, unit) in cases {
        let expected = CgroupSummary {
            container: some(container),
            unit,
            ..CgroupSummary::default()
        };
        assert_eq!(summarize(&text), expected, "{text}");
    }
}

#[test]
fn outermost_container_counts() {
    let cases = [
        // Root in a container may name another one after any container of the host.
        (
            format!("9:memory:/docker/{A}/docker/{B}"),
            format!("docker {A}"),
            None,
        ),
        (
            format!("0::/system.slice/docker-{A}.scope/kubelet/kubepods/pod{POD}/{B}"),
            format!("docker {A}"),
            some(format!("docker-{A}.scope")),
        ),
        (
            format!("9:memory:/kubepods/pod{POD}/{A}/kube-proxy"),
            format!("kubernetes {A} in {POD}"),
            None,
        ),
        // Neither units nor schedulers inside a container belong to the host.
        (
            format!("0::/docker/{A}/system.slice/x.service"),
            format!("docker {A}"),
            None,
        ),
        (
            format!("0::/system.slice/docker-{A}.scope/system.slice/slurmstepd.scope/job_1/step_0"),
            format!("docker {A}"),
            some(format!("docker-{A}.scope")),
        ),
        (
            format!("0::/docker/{A}/user.slice/user-7.slice/user@7.service/libpod-{B}.scope"),
            format!("docker {A}"),
            None,
        ),
    ];
    for (text, container, unit) in cases {
        let expected = CgroupSummary {
            container: some(container),
            unit,
            ..CgroupSummary::default()
        };
        assert_eq!(summarize(&text), expected, "{text}");
    }
}

#[test]
fn units_sessions_and_jobs_are_recognized() {
    let unit = |unit: &str| CgroupSummary {
        unit: some(unit),
        ..CgroupSummary::default()
    };
    let session = |unit: &str, session: &str| CgroupSummary {
        unit: some(unit),
        session: some(session),
        ..CgroupSummary::default()
    };
    let job = |unit: Option<&str>, job: &str| CgroupSummary {
        unit: unit.map(str::to_owned),
        job: some(job),
        ..CgroupSummary::default()
    };
    let user = "0::/user.slice/user-1000.slice";
    let cases = [
        ("0::/".to_owned(), CgroupSummary::default()),
        ("14:name=dsystemd:/\n13:name=systemd:/\n5:memory:/\n0::/".to_owned(), CgroupSummary::default()),
        (String::new(), CgroupSummary::default()),
        ("0::/init.scope".to_owned(), unit("init.scope")),
        ("0::/system.slice/ssh.service".to_owned(), unit("ssh.service")),
        ("0::/system.slice/a.service/b.service (deleted)".to_owned(), unit("a.service")),
        ("0::/system.slice/gone.service (deleted)".to_owned(), unit("gone.service")),
        ("0::/system.slice/system-getty.slice/getty@tty1.service".to_owned(), unit("getty@tty1.service")),
        (format!("{user}/session-3.scope"), session("session-3.scope", "3")),
        (format!("{user}/session-c1.scope"), session("session-c1.scope", "c1")),
        (format!("{user}/user@1000.service"), unit("user@1000.service")),
        (format!("{user}/user@1000.service/init.scope"), unit("init.scope of 1000")),
        (format!("{user}/user@1000.service/app.slice/train.service"), unit("train.service of 1000")),
        (format!("{user}/user@1000.service/session-9.scope"), unit("session-9.scope of 1000")),
        (
            format!("{user}/user@1000.service/user@0.service/x.service"),
            unit("user@0.service of 1000"),
        ),
        // At another place it is a service with that name.
        ("0::/system.slice/user@1000.service/x.service".to_owned(), unit("user@1000.service")),
        (format!("{user}/user@1001.service/x.service"), unit("user@1001.service")),
        // The hierarchy with the information need not be the first.
        (
            "4:memory:/user.slice\n1:name=systemd:/user.slice/user-7.slice/session-9.scope\n0::/".to_owned(),
            session("session-9.scope", "9"),
        ),
        (
            "4:memory:/slurm/uid_1000/job_1234/step_0/task_0\n1:name=systemd:/system.slice/slurmd.service".to_owned(),
            job(Some("slurmd.service"), "slurm 1234.0"),
        ),
        ("4:memory:/slurm_node1/uid_1000/job_1234/step_batch/task_0".to_owned(), job(None, "slurm 1234.batch")),
        ("4:devices:/slurm/uid_1000/job_1234".to_owned(), job(None, "slurm 1234")),
        (
            "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0".to_owned(),
            job(Some("slurmstepd.scope"), "slurm 1234.0"),
        ),
        (
            "0::/system.slice/node1_slurmstepd.scope/job_1234/step_extern/user/task_0".to_owned(),
            job(Some("node1_slurmstepd.scope"), "slurm 1234.extern"),
        ),
        ("4:memory:/pbs_jobs.service/jobid/123.srv".to_owned(), job(Some("pbs_jobs.service"), "pbs 123.srv")),
        ("4:memory:/lsf/cluster1/job.123.1234.5".to_owned(), job(None, "lsf 123")),
        (
            "0::/system.slice/htcondor/condor_var_lib_condor_execute_slot1_2@node".to_owned(),
            job(None, "htcondor slot1_2@node"),
        ),
        ("4:memory:/htcondor/slot_1".to_owned(), job(None, "htcondor slot_1")),
        // Monitors run beside their containers; libvirt guests are no containers.
        (
            format!("0::/machine.slice/libpod-conmon-{A}.scope"),
            unit(&format!("libpod-conmon-{A}.scope")),
        ),
        (
            format!("0::/kubepods.slice/kubepods-pod{POD_}.slice/crio-conmon-{A}.scope"),
            unit(&format!("crio-conmon-{A}.scope")),
        ),
        ("0::/lxc.monitor.web01".to_owned(), CgroupSummary::default()),
        (
            "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope".to_owned(),
            unit("machine-qemu\\x2d1\\x2dvm.scope"),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(summarize(&text), expected, "{text}");
    }
}

#[test]
fn invisible_cgroup_is_unknown_not_none() {
    let out_of_sight = CgroupLocation::unknown(&Reading::Failed(
        "its cgroup is not visible to gpukilld".into(),
    ));
    let cases = [
        ("0::/../../x", CgroupView::Whole),
        ("0::/..", CgroupView::Part),
        ("0::/", CgroupView::Part),
        ("4:memory:/\n0::/", CgroupView::Part),
    ];
    for (text, view) in cases {
        assert_eq!(
            CgroupLocation::parse(text, view, None),
            out_of_sight,
            "{text}"
        );
    }
    // Information in the path counts all the same.
    let location = CgroupLocation::parse(
        &format!("0::/../../system.slice/docker-{A}.scope"),
        CgroupView::Part,
        None,
    );
    assert_eq!(
        location.container.known().unwrap().as_ref().unwrap().id.id,
        A
    );
    assert_eq!(location.session, Reading::Value(None));
    // A daemon in a pod sees another pod like this: of the same class, and of another.
    for path in [
        format!("/../../kubepods-burstable-pod{POD_}.slice/cri-containerd-{A}.scope"),
        format!("/../../../kubepods-pod{POD_}.slice/crio-{A}.scope"),
        format!("/../../pod{POD}/{A}"),
        format!("/../../../besteffort/pod{POD}/{A}"),
    ] {
        let location = CgroupLocation::parse(&format!("0::{path}"), CgroupView::Part, None);
        let contained = location.container.known().unwrap().as_ref().unwrap();
        let ids = (contained.id.id.as_str(), contained.pod.as_deref());
        assert_eq!(ids, (A, Some(POD)), "{path}");
    }
    let unreadable = CgroupLocation::unknown(&Reading::Failed("unreadable cgroup".into()));
    assert_eq!(
        CgroupLocation::parse("garbage", CgroupView::Whole, None),
        unreadable
    );
}

/// Paths of meaningful parts, in any order.
fn paths() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("docker".to_owned()),
        Just("default".to_owned()),
        Just("lxc".to_owned()),
        Just("kubepods".to_owned()),
        Just("machine.slice".to_owned()),
        Just("user@1000.service".to_owned()),
        Just("slurm".to_owned()),
        Just("htcondor".to_owned()),
        Just(A.to_owned()),
        "(docker-|libpod-|pod|job_|step_|slot|session-|machine-|lxc\\.payload\\.)\\PC{0,300}(\\.scope|\\.service|\\.slice)?",
        "\\PC{0,20}",
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| format!("0::/{}", parts.join("/")))
}

proptest! {
    #[test]
    fn any_text_gives_bounded_printable_facts(
        text in prop_oneof!["\\PC{0,200}", "[0-9:,/a-z\\n\u{1b}.@-]{0,200}", paths()],
        whole: bool,
    ) {
        let view = if whole { CgroupView::Whole } else { CgroupView::Part };
        let group = CgroupLocation::parse(&text, view, None);
        let mut texts = Vec::new();
        if let Some(Some(found)) = group.container.known() {
            texts.extend([found.id.runtime.clone(), found.id.id.clone()]);
            texts.extend(found.pod.clone());
        }
        texts.extend(group.unit.known().cloned().flatten().map(|unit| unit.name));
        texts.extend(group.session.known().cloned().flatten());
        if let Some(Some(job)) = group.scheduler.known() {
            texts.push(job.job.clone());
            texts.extend(job.step.clone());
        }
        for text in texts {
            prop_assert!(text.len() <= 256, "{text}");
            prop_assert!(!text.chars().any(char::is_control), "{text}");
        }
    }
}

#[test]
fn user_slice_counts_only_at_its_place() {
    for (text, expected) in [
        (
            "0::/user.slice/user-1000.slice/session-3.scope\n",
            Some(1000),
        ),
        ("0::/user.slice/user-7.slice\n", Some(7)),
        (
            "4:memory:/\n1:name=systemd:/user.slice/user-8.slice/a\n0::/\n",
            Some(8),
        ),
        ("0::/system.slice/user.slice/user-1000.slice/x\n", None),
        ("0::/user.slice/user-x.slice\n", None),
        ("0::/../user.slice/user-1000.slice\n", None),
        ("", None),
    ] {
        assert_eq!(user_slice(text), expected, "{text}");
    }
}
