//! Whose a process is, and where it runs, in the few words that a cell has.

use super::line::shown;
use super::look::Symbols;
use super::value::reading;
use gpukill_proto::holders::Holder;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{GpuProcess, Owner, Place};

/// Whom to ask: the owner's name, else the user's, else the number.
pub(super) fn owner(process: &GpuProcess, symbols: Symbols) -> String {
    named_owner(&process.owner, &process.user, &process.uid, symbols)
}

/// Whom to ask about a process that has a device open.
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

/// What an owner is called on every screen: by their name, else by the user's, else by
/// the user's number.
pub(super) fn owner_name(
    owner: Option<&str>,
    user: Option<&str>,
    uid: Option<u32>,
    symbols: Symbols,
) -> String {
    match (owner.or(user), uid) {
        (Some(name), _) => shown(name, symbols),
        (None, Some(uid)) => uid.to_string(),
        (None, None) => "?".to_owned(),
    }
}

/// Where a process runs, in the one word that says most: the job of a scheduler,
/// a container, a systemd unit, a login session, a terminal. `None` is a known
/// "in none of them".
pub(super) fn place(place: &Place) -> Reading<Option<String>> {
    let unit = named(&place.unit, |unit| unit.name.clone());
    let places = [
        named(&place.scheduler, ToString::to_string),
        named(&place.container, ToString::to_string),
        unit.map(|unit| unit.filter(|unit| !is_of_session(unit, place))),
        session(place),
        place.terminal.clone(),
    ];
    let found = |place: &&Reading<Option<String>>| matches!(place.last_known(), Some(Some(_)));
    if let Some(found) = places.iter().find(found) {
        return found.clone();
    }
    // It may be in one that could not be read, and is not said to be in none.
    let failed = places.iter().find(|place| place.failure().is_some());
    let withheld = places.iter().find(|place| **place == Reading::Withheld);
    let none = places.iter().find(|place| place.last_known().is_some());
    let [first, ..] = &places;
    failed.or(withheld).or(none).unwrap_or(first).clone()
}

fn named<T>(
    reading: &Reading<Option<T>>,
    name: impl FnOnce(&T) -> String,
) -> Reading<Option<String>>
where
    T: Clone,
{
    reading.clone().map(|value| value.as_ref().map(name))
}

/// Every login session has a unit, whose name says less.
fn is_of_session(unit: &str, place: &Place) -> bool {
    let session = place.session.last_known().and_then(Option::as_ref);
    session.is_some_and(|session| unit == format!("session-{session}.scope"))
}

fn session(place: &Place) -> Reading<Option<String>> {
    let terminal = place.terminal.last_known().and_then(Option::as_ref);
    named(&place.session, |session| match terminal {
        Some(terminal) => format!("session {session}, {terminal}"),
        None => format!("session {session}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value, Withheld};
    use gpukill_proto::snapshot::{
        Container, ContainerId, Owner, OwnerKind, Scheduler, SchedulerJob, Unit,
    };

    fn nowhere() -> Place {
        Place {
            container: Value(None),
            unit: Value(None),
            session: Value(None),
            terminal: Value(None),
            scheduler: Value(None),
        }
    }

    fn everywhere() -> Place {
        Place {
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
    fn the_place_that_says_most_is_shown() {
        let mut there = everywhere();
        assert_eq!(place(&there), some("slurm 1234.0"));
        there.scheduler = Value(None);
        assert_eq!(place(&there), some("docker train"));
        there.container = Value(None);
        assert_eq!(place(&there), some("train.service"));
        there.unit = Value(Some(Unit {
            name: "session-3.scope".into(),
            manager: None,
        }));
        assert_eq!(place(&there), some("session 3, pts/4"));
        there.terminal = Value(None);
        assert_eq!(place(&there), some("session 3"));
        there = nowhere();
        there.terminal = Value(Some("pts/4".into()));
        assert_eq!(place(&there), some("pts/4"));
        assert_eq!(place(&nowhere()), Value(None));
    }

    #[test]
    fn a_place_that_could_not_be_read_is_not_taken_for_none() {
        let mut there = nowhere();
        there.session = Withheld;
        assert_eq!(place(&there), Withheld);
        there.unit = Failed("timeout".into());
        assert_eq!(place(&there), Failed("timeout".into()));
        there.terminal = Stale(Some("pts/4".into()), 7);
        assert_eq!(place(&there), Stale(Some("pts/4".into()), 7));
        assert_eq!(place(&Place::unknown(&Unsupported)), Unsupported);
        there = Place::unknown(&Unsupported);
        there.session = Value(None);
        assert_eq!(place(&there), Value(None));
    }

    #[test]
    fn the_owner_is_asked_before_the_user_and_the_number() {
        let mut process = super::super::sample::snapshot().processes.remove(0);
        let name = |process: &GpuProcess| owner(process, Symbols::Unicode);
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
