//! Devices that a person's processes hold one after the other, each for a moment, in words.

use crate::backend::reader::Latest;
use crate::holders::Found;
use crate::host::users::Users;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::snapshot::DeviceId;
use std::collections::BTreeMap;

/// So many persons are named of a device.
const NAMED: usize = 3;

/// What is told of each device that is held so.
pub(super) fn fleeting(
    latest: &[(&'static str, Latest)],
    found: &Found,
    users: &Users,
) -> BTreeMap<DeviceId, String> {
    if found.fleeting.is_empty() {
        return BTreeMap::new();
    }
    let readings = latest.iter();
    let readings = readings.filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    let told = devices.filter_map(|device| {
        let persons = found.fleeting.iter().filter(|(_, numbers)| {
            let mut own = device.nodes.iter().filter(|node| !node.shared);
            own.any(|node| numbers.contains(&node.number))
        });
        let persons = persons.map(|(person, _)| match users.name(*person).known() {
            Some(name) => format!("{name} (user {person})"),
            None => format!("user {person}"),
        });
        let persons: Vec<String> = persons.take(NAMED).collect();
        (!persons.is_empty()).then(|| (device.id.clone(), words(&persons)))
    });
    told.into_map()
}

fn words(persons: &[String]) -> String {
    format!(
        "processes of {} hold it one after the other, each for a moment: they end before a rule \
         or a kill reaches them",
        persons.join(" and of ")
    )
}
