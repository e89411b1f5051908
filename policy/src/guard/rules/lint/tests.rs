//! Each lint reports an unintended rule, and no lint reports an intended one.

use super::*;
use crate::guard::rules::parse::{parse, print_reference};
use crate::guard::rules::{ForbiddenBehaviour, RunawayParams};
use gpukill_proto::guard::GuardAction;

fn lint_text(text: &str) -> Vec<String> {
    let rules = parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    lint(&rules).iter().map(ToString::to_string).collect()
}

#[test]
fn accepts_intended_rules() {
    for text in [
        "",
        &print_reference(),
        // Ends jobs at once for access violations.
        "enforcement = { soft_enforcement = false, hard_enforcement = true, grace_period_seconds \
        = 0 }",
        "enforcement.hard_enforcement = true",
        // An idle limit without a minimum memory.
        "global.default_idle_limit_minutes = 60",
        // Redundant values.
        "global.default_idle_min_memory_gb = 1\n[user_policies.a]\n[gpu_policies.2]",
        "enforcement = { soft_enforcement = false, hard_enforcement = true, grace_period_seconds \
        = 0 }\nglobal.default_idle_limit_minutes = 60",
        "[user_policies.a]\nmemory_limit_gb = 8\ntime_overrides = [{ days_of_week = 'mon-sun', memory_limit_gb = 9 }]",
        "[group_policies.g]\nmembers = ['a']\nmemory_limit_gb = 8.5\n[user_policies.a]\nmemory_limit_gb = 9",
        "rules = [{ name = 'a', idle_limit_minutes = 9, services = 'end', action = 'warn' }]",
        // Milder than the mode of the guard.
        "enforcement.hard_enforcement = true\n[user_policies.a]\nmode = 'soft'\npriority = 1",
        "[user_policies.a]\nmode = 'soft'\npriority = 1",
        // A limit of zero for one person.
        "[user_policies.a]\nmemory_limit_gb = 0",
        "[gpu_policies.'1b:00.0']\nmax_memory_gb = 8\nreserved_memory_gb = 2",
        "[gpu_policies.GPU-8f3c9d]\nmax_memory_gb = 8",
        "[gpu_policies.'*H100*']\nmax_memory_gb = 8",
        "[gpu_policies.big]\ngpus = [0]\nmax_memory_gb = 8",
        "[user_policies.a]\nmemory_limit_gb = 8\ntime_overrides = [{ start_time = '20:00', end_time = '08:00', memory_limit_gb = 64 }]",
        "[group_policies.g]\nmembers = ['a', 'b']\nmemory_limit_gb = 8\n[user_policies.a]\nmemory_limit_gb = 9",
        "[[rules]]\nname = 'r'\nusers = ['a', 'b']\nexcept_users = ['a']\nwaste_below_pct = 1",
        // Only the host knows the user of a number.
        "[user_policies.a]\npriority = 1\n[user_policies.1000]\npriority = 2",
        "protect.processes = ['Xorg', 'gnome-*', 'nvidia-smi.bin']",
        // A shorter time with a stricter limit, and times that do not overlap.
        "[user_policies.a]\ntime_overrides = [{ start_time = '08:00', end_time = '20:00', memory_limit_gb = 8 }, { start_time = '11:00', end_time = '13:00', memory_limit_gb = 4 }, { start_time = '20:00', end_time = '08:00', memory_limit_gb = 64 }]",
        // A warning before a later end, and means over other times.
        "rules = [{ name = 'a', duration_limit_hours = 8, action = 'warn' }, { name = 'b', \
        duration_limit_hours = 24 }, { name = 'w', waste_below_pct = 20, waste_hours = 2 }, { name = 'v', waste_below_pct = 10, waste_hours = 8 }, { name = 'u', waste_below_pct = 10, waste_hours = 2, users = ['x'] }]",
        "rules = [{ name = 'a', duration_limit_hours = 8, except_users = ['x'] }, { name = 'b', \
        duration_limit_hours = 24 }]",
        "rules = [{ name = 'a', duration_limit_hours = 8, gpus = [0] }, { name = 'b', \
        duration_limit_hours = 24, gpus = [1] }]",
    ] {
        assert_eq!(lint_text(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn reports_unintended_rules() {
    let cases: &[(&str, &[&str])] = &[
        (
            "[global]\ndefault_memory_limit_gb = 0\ndefault_max_concurrent_processes = 0\ndefault_duration_limit_hours = 0\ndefault_utilization_limit_pct = 100",
            &[
                "line 2: global.default_memory_limit_gb: nobody may use any GPU",
                "line 3: global.default_max_concurrent_processes: nobody may use any GPU",
                "line 4: global.default_duration_limit_hours: nobody may use any GPU",
                "line 5: global.default_utilization_limit_pct: utilization never exceeds 100, so \
                this never matches",
            ],
        ),
        (
            "[enforcement]\nsoft_enforcement = true\nhard_enforcement = true\ngrace_period_seconds = 0\nmax_warnings = 0\nidle_below_pct = 0",
            &[
                "line 3: enforcement.hard_enforcement: soft_enforcement is true as well: the \
                milder mode applies, soft",
                "line 4: enforcement.grace_period_seconds: no grace period: except for idleness \
                and waste, a job is ended as soon as its owner is warned",
                "line 5: enforcement.max_warnings: no owner is warned before a job is ended",
                "line 6: enforcement.idle_below_pct: utilization is never below 0, so nothing is \
                ever idle",
            ],
        ),
        (
            "[enforcement]\nsoft_enforcement = false",
            &[
                "line 2: enforcement.soft_enforcement: neither soft nor hard: the guard only \
                records",
            ],
        ),
        (
            "[enforcement]\nsoft_enforcement = false\nhard_enforcement = false",
            &[
                "line 2: enforcement.soft_enforcement: neither soft nor hard: the guard only \
                records",
            ],
        ),
        (
            "protect.users = ['a']\n[user_policies.a]\npriority = 1",
            &["line 2: user_policies.a: [protect] lists this user: no rule applies"],
        ),
        (
            "[user_policies.'a b']\nmode = 'enforce'\naction = 'warn'\nutilization_limit_pct = 100",
            &[
                "line 2: user_policies.\"a b\".mode: \"enforce\" is harder than the mode of the \
                guard, soft, which applies",
                "line 4: user_policies.\"a b\".utilization_limit_pct: utilization never exceeds \
                100, so this never matches",
            ],
        ),
        (
            "[user_policies.a]\n[user_policies.b]\nallowed_gpus = [0, 1]\nblocked_gpus = [1]\n[user_policies.c]\nallowed_gpus = [0, 1]\nblocked_gpus = ['0-3']",
            &[
                "line 3: user_policies.b.allowed_gpus: blocked_gpus takes precedence: not allowed: \
                 1",
                "line 6: user_policies.c.allowed_gpus: nothing is allowed: all entries are in \
                blocked_gpus, which takes precedence",
            ],
        ),
        (
            "[user_policies.a]\nmemory_limit_gb = 8\npriority = 1\n[[user_policies.a.time_overrides]]\nstart_time = '08:00'\nend_time = '08:00'\nmemory_limit_gb = 9\n[[user_policies.a.time_overrides]]\ndays_of_week = 'mon'",
            &[
                "line 6: user_policies.a.time_overrides[0].end_time: it starts and ends at the \
                same time: it lasts a whole day",
            ],
        ),
        (
            "[group_policies.g]\ntotal_memory_limit_gb = 0\nmax_concurrent_processes = 0\ntotal_utilization_limit_pct = 100\n[group_policies.h]\nmembers = ['a']\nmode = 'enforce'",
            &[
                "line 1: group_policies.g: it has no members",
                "line 2: group_policies.g.total_memory_limit_gb: no member may use any GPU",
                "line 3: group_policies.g.max_concurrent_processes: no member may use any GPU",
                "line 4: group_policies.g.total_utilization_limit_pct: utilization never exceeds \
                100, so this never matches",
                "line 7: group_policies.h.mode: \"enforce\" is harder than the mode of the guard, \
                soft, which applies",
            ],
        ),
        (
            "[group_policies.g]\nmembers = ['a']\ntotal_memory_limit_gb = 8\nmax_concurrent_processes = 2\nmax_concurrent_processes_each = 3\nmemory_limit_gb = 8.5\n[user_policies.a]\nmemory_limit_gb = 9\nmax_concurrent_processes = 4",
            &[
                "line 5: group_policies.g.max_concurrent_processes_each: 3 is more than its own \
                max_concurrent_processes, 2",
                "line 6: group_policies.g.memory_limit_gb: 8.5 is more than its own \
                total_memory_limit_gb, 8",
                "line 8: user_policies.a.memory_limit_gb: 9 is more than group g's \
                total_memory_limit_gb, 8",
                "line 9: user_policies.a.max_concurrent_processes: 4 is more than group g's \
                max_concurrent_processes, 2",
            ],
        ),
        (
            "[gpu_policies.0]\nmax_memory_gb = 2\nreserved_memory_gb = 2\nmax_utilization_pct = 100\nallowed_users = ['a']\nblocked_users = ['a']\nallowed_processes = ['p', 'q']\nblocked_processes = ['q']\nmaintenance_window = { days_of_week = 'mon-sun' }\nmode = 'enforce'",
            &[
                "line 4: gpu_policies.0.max_utilization_pct: utilization never exceeds 100, so \
                this never matches",
                "line 5: gpu_policies.0.allowed_users: nothing is allowed: all entries are in \
                blocked_users, which takes precedence",
                "line 7: gpu_policies.0.allowed_processes: blocked_processes takes precedence: not \
                 allowed: q",
                "line 9: gpu_policies.0.maintenance_window: the maintenance never ends: nobody \
                may ever use it",
                "line 10: gpu_policies.0.mode: \"enforce\" is harder than the mode of the guard, \
                soft, which applies",
            ],
        ),
        (
            "[gpu_policies.training]\nmax_memory_gb = 0\n[gpu_policies.1]\nmaintenance_window = { start_time = '08:00', end_time = '08:00', days_of_week = 'mon' }\n[gpu_policies.2]",
            &[
                "line 1: gpu_policies.training: it selects only GPUs of exactly this name; write \
                gpus = […] to select others",
                "line 2: gpu_policies.training.max_memory_gb: nobody may use it",
                "line 4: gpu_policies.1.maintenance_window.end_time: it starts and ends at the \
                same time: it lasts a whole day",
            ],
        ),
        (
            "[user_policies.1000]\npriority = 1\n[user_policies.root]\npriority = 1\n[user_policies.01000]\npriority = 2\n[user_policies.0]\npriority = 2",
            &[
                "line 1: user_policies.1000: user_policies.01000 is for the same user and applies \
                 instead",
                "line 3: user_policies.root: user_policies.0 is for the same user and applies \
                 instead",
            ],
        ),
        (
            "protect.users = ['0', 'a']\nprotect.processes = ['/usr/bin/Xorg', 'train.py', 'Xorg']\n[user_policies.root]\npriority = 1\n[group_policies.g]\nmembers = ['a', 'root']\npriority = 1\n[gpu_policies.0]\nblocked_users = ['b', 'a']\n[[time_policies]]\nname = 't'\ndays_of_week = 'mon'\nblocked_users = ['root']",
            &[
                "line 2: protect.processes: \"/usr/bin/Xorg\" is a path, and no process has such \
                a name: write the name alone",
                "line 2: protect.processes: \"train.py\" is a script, and anybody can use its \
                name: it protects only those of root; list users or units instead",
                "line 3: user_policies.root: [protect] lists this user: no rule applies",
                "line 6: group_policies.g.members: all members are in [protect], so this never \
                matches",
                "line 9: gpu_policies.0.blocked_users: [protect] lists a: no rule applies to them",
                "line 13: time_policies.t.blocked_users: [protect] lists root: no rule applies to \
                them",
            ],
        ),
        (
            "[[user_policies.a.time_overrides]]\nstart_time = '08:00'\nend_time = '20:00'\nmemory_limit_gb = 8\n[[user_policies.a.time_overrides]]\nstart_time = '11:00'\nend_time = '13:00'\nmemory_limit_gb = 9\n[[user_policies.a.time_overrides]]\nstart_time = '19:00'\nend_time = '22:00'\nmemory_limit_gb = 10\n[[user_policies.a.time_overrides]]\nstart_time = '19:00'\nend_time = '22:00'\nmemory_limit_gb = 10",
            &[
                "line 8: user_policies.a.time_overrides[1].memory_limit_gb: time_overrides[0] is \
                at least as strict at all these times, so this never applies",
                "line 12: user_policies.a.time_overrides[2].memory_limit_gb: it overlaps \
                time_overrides[0], which is stricter and applies then",
                "line 16: user_policies.a.time_overrides[3].memory_limit_gb: it overlaps \
                time_overrides[0], which is stricter and applies then",
                "line 16: user_policies.a.time_overrides[3].memory_limit_gb: time_overrides[2] is \
                at least as strict at all these times, so this never applies",
            ],
        ),
        (
            "rules = [\n{ name = 'a', duration_limit_hours = 8, users = ['x'] },\n{ name = 'b', duration_limit_hours = 8 },\n{ name = 'c', duration_limit_hours = 8 },\n{ name = 'd', runaway_above_pct = 90, runaway_minutes = 60 },\n{ name = 'e', runaway_above_pct = 95, runaway_minutes = 60, runaway_orphaned = true },\n{ name = 'f', idle_limit_minutes = 30 },\n{ name = 'g', idle_limit_minutes = 30, idle_min_memory_gb = 8 },\n{ name = 'h', growth_gb = 8, growth_hours = 2 },\n{ name = 'i', growth_gb = 9, growth_hours = 2 },\n{ name = 'w', waste_below_pct = 20 },\n{ name = 'x', waste_below_pct = 10 },\n{ name = 'y', rogue_risk = 'high', rogue_threats = ['crypto_miner'] },\n{ name = 'z', rogue_risk = 'medium' },\n{ name = 'zz', rogue_risk = 'medium', rogue_threats = ['resource_abuser'] }]",
            &[
                "line 2: rules.a: rules.b is broken whenever this rule is, with the same \
                 consequence: this rule adds nothing",
                "line 4: rules.c: rules.b is broken whenever this rule is, with the same \
                 consequence: this rule adds nothing",
                "line 6: rules.e: rules.d is broken whenever this rule is, with the same \
                 consequence: this rule adds nothing",
                "line 8: rules.g: rules.f is broken whenever this rule is, with the same \
                 consequence: this rule adds nothing",
                "line 10: rules.i: rules.h is broken whenever this rule is, with the same \
                 consequence: this rule adds nothing",
                "line 12: rules.x: rules.w is broken whenever this rule is, with the same \
                 consequence: this rule adds nothing",
                "line 13: rules.y: rules.z is broken whenever this rule is, with the same \
                 consequence: this rule adds nothing",
            ],
        ),
        (
            "[[time_policies]]\nname = 't'\nstart_time = '08:00'\nend_time = '08:00'\nmemory_limit_gb = 0\nallowed_users = ['a', 'b']\nblocked_users = ['b']\nmode = 'enforce'\n[[time_policies]]\nname = 'u'\ndays_of_week = 'mon'",
            &[
                "line 4: time_policies.t.end_time: it starts and ends at the same time: it lasts \
                a whole day",
                "line 5: time_policies.t.memory_limit_gb: nobody may use any GPU",
                "line 6: time_policies.t.allowed_users: blocked_users takes precedence: not \
                 allowed: b",
                "line 8: time_policies.t.mode: \"enforce\" is harder than the mode of the guard, \
                soft, which applies",
            ],
        ),
        (
            "protect.users = ['b']\nrules = [\n{ name = 'd', duration_limit_hours = 0 },\n{ name = 'w', waste_below_pct = 0 },\n{ name = 'r', runaway_above_pct = 100 },\n{ name = 'g', growth_gb = 0, mode = 'enforce' },\n{ name = 'n', growth_gb = 1, users = ['a', 'b'], except_users = ['a'] },\n{ name = 's', rogue_risk = 'low' },\n{ name = 't', rogue_risk = 'low', action = 'warn' },\n{ name = 'u', rogue_risk = 'critical', rogue_threats = [], grace = '1m' }]",
            &[
                "line 3: rules.d.duration_limit_hours: the selected processes may not use any GPU",
                "line 4: rules.w.waste_below_pct: utilization is never below 0, so this never \
                matches",
                "line 5: rules.r.runaway_above_pct: utilization never exceeds 100, so this never \
                matches",
                "line 6: rules.g.growth_gb: any growth breaks it, and most programs grow",
                "line 6: rules.g.mode: \"enforce\" is harder than the mode of the guard, soft, \
                which applies",
                "line 7: rules.n.users: all users are in except_users or in [protect], so this \
                never matches",
                "line 8: rules.s.rogue_risk: jobs are ended for verdicts of low risk, the least \
                certain ones",
                "line 10: rules.u.rogue_threats: lists no threat, so this never matches",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(lint_text(text), *expected, "{text}");
    }
}

#[test]
fn presets_have_no_lints_and_end_nothing() {
    for (name, text) in [
        (
            "lab",
            include_str!("../../../../../packaging/guard/lab.toml"),
        ),
        (
            "team",
            include_str!("../../../../../packaging/guard/team.toml"),
        ),
        (
            "strict",
            include_str!("../../../../../packaging/guard/strict.toml"),
        ),
    ] {
        assert_eq!(lint_text(text), Vec::<String>::new(), "{name}");
        let mode = parse(text).unwrap().mode;
        assert_eq!(mode, gpukill_proto::guard::GuardMode::DryRun, "{name}");
    }
}

#[test]
fn reports_impossible_memory_limits() {
    let most = "[user_policies.a]\nmemory_limit_gb = '100TiB'\ntime_overrides = [{ start_time = '20:00', end_time = '08:00', memory_limit_gb = 102400 }]";
    assert_eq!(lint_text(most), Vec::<String>::new());
    let over = most
        .replace("100TiB", "100.5TiB")
        .replace("102400", "200000");
    let more = format!(
        "global.default_memory_limit_gb = 200000\n[group_policies.g]\nmembers = ['b']\nmemory_limit_gb = 200000\ntotal_memory_limit_gb = 200000\n[gpu_policies.0]\nreserved_memory_gb = 102401\n{over}"
    );
    let too_much = "GiB is more than the GPUs of any host have: limits are in GiB";
    assert_eq!(
        lint_text(&more),
        [
            format!("line 1: global.default_memory_limit_gb: 200000 {too_much}"),
            format!("line 4: group_policies.g.memory_limit_gb: 200000 {too_much}"),
            format!("line 5: group_policies.g.total_memory_limit_gb: 200000 {too_much}"),
            format!("line 7: gpu_policies.0.reserved_memory_gb: 102401 {too_much}"),
            format!("line 9: user_policies.a.memory_limit_gb: 102912 {too_much}"),
            format!(
                "line 10: user_policies.a.time_overrides[0].memory_limit_gb: 200000 {too_much}"
            ),
        ]
    );
}

#[test]
fn reports_idle_grace_despite_zero() {
    let base = "enforcement.soft_enforcement = true\nenforcement.grace_period_seconds = 0\n";
    let warning = "line 2: enforcement.grace_period_seconds: no grace period: except for idleness \
                and waste, a job is ended as soon as its owner is warned";
    for rule in [
        "global.default_idle_limit_minutes = 30",
        "rules = [{ name = 'a', idle_limit_minutes = 9 }]",
        "rules = [{ name = 'a', waste_below_pct = 9, waste_hours = 2, waste_min_memory_gb = 1 }]",
    ] {
        assert_eq!(lint_text(&format!("{base}{rule}")), [warning], "{rule}");
    }
}

#[test]
fn reports_login_units_in_protect() {
    let units = "protect.units = ['session-3.scope', 'session-*.scope', 'user@1000.service', \
        'user@*', 'user-tools.service', 'sessions.service']";
    let warning = |name: &str, why: &str| {
        format!(
            "line 1: protect.units: \"{name}\" does not protect the processes of users: {why}; \
            list the users instead"
        )
    };
    let pattern = "a pattern matches no login session and no user@UID.service";
    let own = "users' processes are in units of their own systemd, not in this one";
    let mut expected = [
        warning(
            "session-3.scope",
            "each login session has a different number",
        ),
        warning("session-*.scope", pattern),
        warning("user@1000.service", own),
        warning("user@*", pattern),
    ];
    expected.sort();
    assert_eq!(lint_text(units), expected);
}

#[test]
fn presets_only_warn_about_orphans() {
    for text in [
        include_str!("../../../../../packaging/guard/lab.toml"),
        include_str!("../../../../../packaging/guard/team.toml"),
        include_str!("../../../../../packaging/guard/strict.toml"),
    ] {
        let rules = parse(text).unwrap();
        let orphans = rules.behaviours.iter();
        let mut orphans = orphans.filter(|it| {
            matches!(
                it.behaviour,
                ForbiddenBehaviour::Runaway(RunawayParams { orphaned: true, .. })
            )
        });
        // A job that was started with nohup or setsid is an orphan too.
        assert!(orphans.all(|it| it.measures.action == Some(GuardAction::Warn)));
    }
}

#[test]
fn reports_useless_protect_entries() {
    let typed = "protect.processes = ['python*', 'python3.12', 'Xorg', 'pythonic']\n\
        protect.units = ['ollama', 'ollama*', 'ollama.service']\n\
        protect.command = '.*'";
    let people = |name: &str| {
        format!(
            "line 1: protect.processes: \"{name}\" is a common name of users' programs: it \
             protects only those of root and system accounts; list users or units instead"
        )
    };
    let expected = [
        people("python*"),
        people("python3.12"),
        "line 2: protect.units: no unit has the name \"ollama\": write \"ollama.service\"".into(),
        "line 3: protect.command: it matches every command line: no rule ever applies".into(),
    ];
    assert_eq!(lint_text(typed), expected);
    let one = parse("protect.command = '^$|train'").unwrap();
    assert_eq!(lint(&one), []);
}
