//! Describes devices that short-lived processes of one user hold one after the other.

use crate::backend::reader::LatestReadings;
use crate::fd_scan::FileHolders;
use crate::host::users::Users;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::model::DeviceId;
use std::collections::BTreeMap;

/// How many users the text names per device.
const MAX_NAMED: usize = 3;

/// The text for each such device.
pub(super) fn describe_short_lived(
    latest: &[(&'static str, LatestReadings)],
    found: &FileHolders,
    users: &Users,
) -> BTreeMap<DeviceId, String> {
    if found.short_lived.is_empty() {
        return BTreeMap::new();
    }
    let readings = latest.iter();
    let readings = readings.filter_map(|(_, latest)| latest.readings.as_ref());
    let devices = readings.flat_map(|(readings, _)| &readings.devices);
    let faults = devices.filter_map(|device| {
        let persons = found.short_lived.iter().filter(|(_, numbers)| {
            let mut own = device.nodes.iter().filter(|node| !node.shared);
            own.any(|node| numbers.contains(&node.number))
        });
        let persons = persons.map(|(person, _)| match users.name(*person).known() {
            Some(name) => format!("{name} (user {person})"),
            None => format!("user {person}"),
        });
        let persons: Vec<String> = persons.take(MAX_NAMED).collect();
        (!persons.is_empty()).then(|| (device.id.clone(), description(&persons)))
    });
    faults.into_map()
}

fn description(persons: &[String]) -> String {
    format!(
        "short-lived processes of {} hold it one after the other: they end before a rule or a kill \
         reaches them",
        persons.join(" and of ")
    )
}
