//! The owner and the location of a process, short enough for a cell.

use super::style::Symbols;
use super::text::escaped;
use super::value::reading;
use gpukill_proto::holders::Holder;
use gpukill_proto::model::{GpuProcess, Owner, ProcessLocation};
use gpukill_proto::reading::Reading;

/// The owner's name, else the user's, else the uid.
pub(super) fn process_owner(process: &GpuProcess, symbols: Symbols) -> String {
    named_owner(&process.owner, &process.user, &process.uid, symbols)
}

/// The owner of a process that has a device open.
pub(super) fn holder_owner(holder: &Holder, symbols: Symbols) -> String {
    named_owner(&holder.owner, &holder.user, &holder.uid, symbols)
}

fn named_owner(
    owner: &Reading<Owner>,
    user: &Reading<String>,
    uid: &Reading<u32>,
    symbols: Symbols,
) -> String {
    let owner = owner.last_known().map(|owner| owner.name.as_str());
    let user = user.last_known().map(String::as_str);
    if owner.or(user).is_none() && uid.last_known().is_none() {
        return reading(uid, ToString::to_string).text;
    }
    owner_name(owner, user, uid.last_known().copied(), symbols)
}

/// The name of an owner on every screen: the owner's name, else the user's, else the uid.
pub(super) fn owner_name(
    owner: Option<&str>,
    user: Option<&str>,
    uid: Option<u32>,
    symbols: Symbols,
) -> String {
    match (owner.or(user), uid) {
        (Some(name), _) => escaped(name, symbols),
        (None, Some(uid)) => uid.to_string(),
        (None, None) => "?".to_owned(),
    }
}

/// ` of carol`, ` of carol and dana`; empty when none is known.
pub(super) fn of_owners(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => format!(" of {one}"),
        [one, other] => format!(" of {one} and {other}"),
        several => format!(" of {} users", several.len()),
    }
}

/// Where a process runs, in the most specific word: the job of a scheduler, a container, a
/// systemd unit, a login session, a terminal. `None` means that it is known to run in none of
/// them.
pub(super) fn location(location: &ProcessLocation) -> Reading<Option<String>> {
    let unit = named_reading(&location.unit, |unit| unit.name.clone());
    let locations = [
        named_reading(&location.scheduler, ToString::to_string),
        named_reading(&location.container, ToString::to_string),
        unit.map(|unit| unit.filter(|unit| !is_of_session(unit, location))),
        session_or_terminal(location),
        location.terminal.clone(),
    ];
    let is_known =
        |location: &&Reading<Option<String>>| matches!(location.last_known(), Some(Some(_)));
    if let Some(found) = locations.iter().find(is_known) {
        return found.clone();
    }
    // A location that could not be read is not shown as none.
    let failed = locations
        .iter()
        .find(|location| location.failure().is_some());
    let withheld = locations
        .iter()
        .find(|location| **location == Reading::Withheld);
    let none = locations
        .iter()
        .find(|location| location.last_known().is_some());
    let [first, ..] = &locations;
    failed.or(withheld).or(none).unwrap_or(first).clone()
}

fn named_reading<T>(
    reading: &Reading<Option<T>>,
    name: impl FnOnce(&T) -> String,
) -> Reading<Option<String>>
where
    T: Clone,
{
    reading.clone().map(|value| value.as_ref().map(name))
}

/// Every login session has a unit with a less specific name.
fn is_of_session(unit: &str, location: &ProcessLocation) -> bool {
    let session = location.session.last_known().and_then(Option::as_ref);
    session.is_some_and(|session| unit == format!("session-{session}.scope"))
}

fn session_or_terminal(location: &ProcessLocation) -> Reading<Option<String>> {
    let terminal = location.terminal.last_known().and_then(Option::as_ref);
    named_reading(&location.session, |session| match terminal {
        Some(terminal) => format!("session {session}, {terminal}"),
        None => format!("session {session}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::{
        Container, ContainerId, Owner, OwnerKind, Scheduler, SchedulerJob, Unit,
    };
    use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value, Withheld};

    fn nowhere() -> ProcessLocation {
        ProcessLocation {
            container: Value(None),
            unit: Value(None),
            session: Value(None),
            terminal: Value(None),
            scheduler: Value(None),
        }
    }

    fn everywhere() -> ProcessLocation {
        ProcessLocation {
            container: Value(Some(Container {
                manager: None,
                id: ContainerId {
                    runtime: "docker".into(),
                    id: "0123456789abcdef".repeat(4),
                },
                name: Value("train".into()),
                image: Unsupported,
                pod: None,
            })),
            unit: Value(Some(Unit {
                name: "train.service".into(),
                manager: None,
            })),
            session: Value(Some("3".into())),
            terminal: Value(Some("pts/4".into())),
            scheduler: Value(Some(SchedulerJob {
                scheduler: Scheduler::Slurm,
                job: "1234".into(),
                step: Some("0".into()),
            })),
        }
    }

    fn some(text: &str) -> Reading<Option<String>> {
        Value(Some(text.into()))
    }

    #[test]
    fn most_specific_location_is_shown() {
        let mut there = everywhere();
        assert_eq!(location(&there), some("slurm 1234.0"));
        there.scheduler = Value(None);
        assert_eq!(location(&there), some("docker train"));
        there.container = Value(None);
        assert_eq!(location(&there), some("train.service"));
        there.unit = Value(Some(Unit {
            name: "session-3.scope".into(),
            manager: None,
        }));
        assert_eq!(location(&there), some("session 3, pts/4"));
        there.terminal = Value(None);
        assert_eq!(location(&there), some("session 3"));
        there = nowhere();
        there.terminal = Value(Some("pts/4".into()));
        assert_eq!(location(&there), some("pts/4"));
        assert_eq!(location(&nowhere()), Value(None));
    }

    #[test]
    fn unreadable_location_is_not_none() {
        let mut there = nowhere();
        there.session = Withheld;
        assert_eq!(location(&there), Withheld);
        there.unit = Failed("timeout".into());
        assert_eq!(location(&there), Failed("timeout".into()));
        there.terminal = Stale(Some("pts/4".into()), 7);
        assert_eq!(location(&there), Stale(Some("pts/4".into()), 7));
        assert_eq!(
            location(&ProcessLocation::unknown(&Unsupported)),
            Unsupported
        );
        there = ProcessLocation::unknown(&Unsupported);
        there.session = Value(None);
        assert_eq!(location(&there), Value(None));
    }

    #[test]
    fn owner_comes_before_user_and_uid() {
        let mut process = super::super::fixtures::snapshot().processes.remove(0);
        let name = |process: &GpuProcess| process_owner(process, Symbols::Unicode);
        process.uid = Value(4242);
        process.user = Value("100999".into());
        process.owner = Value(Owner {
            name: "container web01".into(),
            uid: None,
            kind: OwnerKind::Container,
        });
        assert_eq!(name(&process), "container web01");
        process.owner = Unsupported;
        assert_eq!(name(&process), "100999");
        process.user = Failed("no such user".into());
        assert_eq!(name(&process), "4242");
        process.uid = Failed("timeout".into());
        assert_eq!(name(&process), "?");
    }
}
