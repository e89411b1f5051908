//! Texts of processes and drivers with control characters.

use super::*;
use crate::output::audit::history::Coverage;
use crate::output::fixtures::hostile;
use gpukill_proto::model::FaultCode;

#[test]
fn process_texts_cannot_control_the_terminal() {
    let mut snapshot = snapshot();
    let mut state = status();
    let mut audit = records();
    snapshot.host = HOSTILE.into();
    for device in &mut snapshot.devices {
        device.name = Reading::Value(HOSTILE.into());
        device.id.0.push_str(HOSTILE);
        if let Some(loss) = &mut device.lost {
            loss.reason = HOSTILE.into();
            device.last_xid = None;
        }
        device.vitals.serial = Reading::Value(HOSTILE.into());
        for instance in &mut device.instances {
            instance.uuid.0.push_str(HOSTILE);
            instance.profile = Reading::Value(HOSTILE.into());
        }
    }
    for (process, device) in snapshot
        .processes
        .iter_mut()
        .zip(snapshot.devices.iter().cycle())
    {
        process.device = device.id.clone();
        for text in [&mut process.user, &mut process.name, &mut process.command] {
            *text = Reading::Value(HOSTILE.into());
        }
        make_hostile(process, HOSTILE);
    }
    for backend in &mut state.backends {
        backend.name = HOSTILE.into();
        backend.driver = Reading::Value(HOSTILE.into());
    }
    state.backends[1].state = BackendState::Failed(FaultCode::DriverError, HOSTILE.into());
    state.version = HOSTILE.into();
    state.will_not_act = Some(HOSTILE.into());
    state.store.directory = HOSTILE.into();
    state.caller.user = Reading::Value(HOSTILE.into());
    state.caller.log_in_again_for = Some(HOSTILE.into());
    for fault in &mut state.faults {
        fault.part = HOSTILE.into();
        fault.what = HOSTILE.into();
    }
    for record in &mut audit {
        if let gpukill_proto::audit::AuditSubject::Process {
            user,
            name,
            container,
            ..
        } = &mut record.subject
        {
            for text in [user, name, container] {
                *text = Some(HOSTILE.into());
            }
        }
    }

    let style = style(None);
    let span = TimeSpan {
        since: NOW,
        until: NOW,
    };
    let mut printed = vec![
        text(&status::lines(&state, &[], "0.1.0", &style), &style),
        text(
            &AuditRecord::lines(&audit, span, &Coverage::default(), &style),
            &style,
        ),
    ];
    for rows in [Rows::Gpus, Rows::Processes] {
        let view = View {
            containers: true,
            ..view(rows)
        };
        printed.push(listed(&snapshot, &view, &style));
    }
    let mut none = snapshot.clone();
    none.devices.clear();
    none.backends = state.backends.clone();
    printed.push(listed(&none, &view(Rows::Gpus), &style));
    let (_, _, _, brief) = hostile(HOSTILE);
    let list = ListDocument::new(&snapshot, &brief, &[]);
    let documents = [
        csv::gpus(&list, Header::First),
        csv::processes(&list, Header::First),
        json::pretty(&list),
        json::pretty(&StatusDocument::from(&state)),
    ];
    printed.extend(documents.into_iter().map(|text| text.expect("texts")));
    assert_steer_nothing(printed);
}

/// Replaces every text of a process. The kind of location depends on the pid, so that each kind
/// is shown.
pub(super) fn make_hostile(process: &mut GpuProcess, text: &str) {
    let some = || Reading::Value(Some(text.to_owned()));
    process.owner = Reading::Value(Owner {
        name: text.into(),
        uid: None,
        kind: OwnerKind::Label,
    });
    process.job = Reading::Value(Job::Unit {
        unit: Unit {
            name: text.into(),
            manager: None,
        },
        uid: 1000,
    });
    process.parents = vec![Ancestor {
        key: ProcessKey {
            pid: 1,
            start_ticks: 1,
        },
        name: text.into(),
    }];
    let container = Container {
        manager: None,
        id: ContainerId {
            runtime: text.into(),
            id: text.into(),
        },
        name: Reading::Value(format!("{text}name")),
        image: Reading::Value(text.into()),
        pod: process.pid.is_multiple_of(2).then(|| Pod {
            uid: text.into(),
            name: Reading::Value(text.into()),
            namespace: Reading::Value(text.into()),
        }),
    };
    let none = ProcessLocation {
        container: Reading::Value(None),
        unit: Reading::Value(None),
        session: Reading::Value(None),
        terminal: Reading::Value(None),
        scheduler: Reading::Value(None),
    };
    process.location = match process.pid % 5 {
        0 => ProcessLocation {
            scheduler: Reading::Value(Some(SchedulerJob {
                scheduler: Scheduler::Slurm,
                job: text.into(),
                step: Some(text.into()),
            })),
            ..none
        },
        1 => ProcessLocation {
            unit: Reading::Value(Some(Unit {
                name: text.into(),
                manager: None,
            })),
            ..none
        },
        2 => ProcessLocation {
            session: some(),
            terminal: some(),
            ..none
        },
        3 => ProcessLocation {
            terminal: some(),
            ..none
        },
        _ => ProcessLocation {
            container: Reading::Value(Some(container)),
            ..none
        },
    };
}
