//! When a device is hotter, or its memory fuller, than an admin lets pass unheard.
//! A threshold that is reached in two polls in a row begins an alert; two polls well
//! below it end the alert, so that a value that sways about it is one alert.

use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, DeviceId, FaultCode, Snapshot};
use gpukill_proto::status::AlertValue;
use gpukill_proto::units::{Bytes, Celsius, Percent, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// What holds for each device. Without a threshold there are no alerts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// Of the die.
    pub temperature: Option<Celsius>,
    /// The share of its memory that is in use. Holds for no device that shares the
    /// host's memory.
    pub memory: Option<Percent>,
}

/// What can have a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Of the die, in °C.
    Temperature,
    /// In use, in percent of all of it.
    Memory,
}

/// A device that reached a threshold, and has not been well below it since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// Names the device for good.
    pub device: DeviceId,
    /// Its number.
    pub index: u32,
    /// What is so high.
    pub quantity: Quantity,
    /// The threshold, in the unit of the quantity.
    pub limit: i64,
    /// The poll in which it began.
    pub since: Timestamp,
}

/// An alert that begins, or is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub alert: Alert,
    /// What becomes of it.
    pub step: Step,
}

/// What becomes of an alert. Values are rounded down, in the unit of the quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It begins, at this value.
    Begins(i64),
    /// It is over, at this value.
    Over(i64),
    /// Another threshold holds now, or none: what is above that begins anew.
    OtherThreshold,
    /// The device is not there any more.
    Gone,
}

/// What is remembered from one poll to the next, and which alerts last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory(BTreeMap<(DeviceId, Quantity), Watch>);

/// One quantity of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Watch {
    index: u32,
    limit: i64,
    /// Set while there is an alert.
    since: Option<Timestamp>,
    /// So many known values in a row would change that.
    in_a_row: u32,
}

/// One value may be a slip of a sensor, and two are none.
const ENOUGH: u32 = 2;

/// So far below its threshold, in °C or percent points, is well below.
const WELL_BELOW: i64 = 3;

impl Quantity {
    /// A word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::Memory => "memory",
        }
    }

    /// The code of its alerts.
    #[must_use]
    pub const fn fault_code(self) -> FaultCode {
        match self {
            Self::Temperature => FaultCode::TemperatureAlert,
            Self::Memory => FaultCode::MemoryAlert,
        }
    }

    /// Its unit, as it is shown.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Temperature => "°C",
            Self::Memory => "%",
        }
    }
}

impl Alert {
    /// The part that is broken: `GPU 3`.
    #[must_use]
    pub fn part(&self) -> String {
        format!("GPU {}", self.index)
    }

    /// What is wrong with the device, in words that stay the same while it lasts.
    #[must_use]
    pub fn what(&self) -> String {
        let limit = self.limit;
        match self.quantity {
            Quantity::Temperature => format!("temperature at or above {limit} °C"),
            Quantity::Memory => format!("memory in use at or above {limit} %"),
        }
    }
}

impl Thresholds {
    fn limits(&self) -> BTreeMap<Quantity, i64> {
        let temperature = self.temperature.map(|limit| i64::from(limit.0));
        let memory = self.memory.map(|limit| i64::from(limit.0));
        let both = [
            (Quantity::Temperature, temperature),
            (Quantity::Memory, memory),
        ];
        let set = both.into_iter();
        set.filter_map(|(quantity, limit)| Some((quantity, limit?)))
            .into_map()
    }
}

impl Memory {
    /// The alerts that last.
    pub fn lasting(&self) -> impl Iterator<Item = Alert> {
        let watches = self.0.iter();
        watches.filter_map(|((device, quantity), watch)| watch.alert(device, *quantity))
    }

    /// Forgets what no threshold is for, and devices that are gone.
    fn forget(&mut self, limits: &BTreeMap<Quantity, i64>, snapshot: &Snapshot) -> Vec<Change> {
        let here = snapshot.devices.iter().filter(|it| !it.is_gone());
        let here: BTreeSet<&DeviceId> = here.map(|it| &it.id).into_set();
        let mut changes = Vec::new();
        self.0.retain(|(device, quantity), watch| {
            let step = if !here.contains(device) {
                Step::Gone
            } else if limits.get(quantity) != Some(&watch.limit) {
                Step::OtherThreshold
            } else {
                return true;
            };
            let alert = watch.alert(device, *quantity);
            changes.extend(alert.map(|alert| Change { alert, step }));
            false
        });
        changes
    }
}

/// Judges one poll, and says which alerts begin and which are over. What is not known
/// now, or old, changes nothing.
#[must_use]
pub fn judge(thresholds: &Thresholds, memory: &mut Memory, snapshot: &Snapshot) -> Vec<Change> {
    let limits = thresholds.limits();
    let mut changes = memory.forget(&limits, snapshot);
    for device in &snapshot.devices {
        for (quantity, limit) in &limits {
            let key = (device.id.clone(), *quantity);
            let watch = memory.0.entry(key).or_insert(Watch {
                index: device.index,
                limit: *limit,
                since: None,
                in_a_row: 0,
            });
            watch.index = device.index;
            let change = measured(device, *quantity)
                .and_then(|known| watch.see(known, &device.id, *quantity, snapshot.taken_at));
            changes.extend(change);
        }
    }
    changes
}

/// What each device tells now of which there is an alert among a snapshot's faults, by the
/// thresholds that they are about.
#[must_use]
pub fn values(thresholds: &Thresholds, snapshot: &Snapshot) -> Vec<AlertValue> {
    let limits = thresholds.limits();
    let all = snapshot.devices.iter().flat_map(|device| {
        limits.iter().map(move |(quantity, limit)| {
            let alert = Alert {
                device: device.id.clone(),
                index: device.index,
                quantity: *quantity,
                limit: *limit,
                since: snapshot.taken_at,
            };
            let value = measured(device, *quantity).map(|it| it.rounded_down);
            (alert, value)
        })
    });
    let told = all.map(|(alert, value)| AlertValue {
        part: alert.part(),
        what: alert.what(),
        limit: alert.limit,
        value,
        unit: alert.quantity.unit().to_owned(),
    });
    let faults = &snapshot.faults;
    let is_alert = |it: &AlertValue| {
        let mut faults = faults.iter();
        faults.any(|fault| (&fault.part, &fault.what) == (&it.part, &it.what))
    };
    told.filter(is_alert).collect()
}

impl Watch {
    fn alert(&self, device: &DeviceId, quantity: Quantity) -> Option<Alert> {
        Some(Alert {
            device: device.clone(),
            index: self.index,
            quantity,
            limit: self.limit,
            since: self.since?,
        })
    }

    fn see(
        &mut self,
        measured: Measured,
        device: &DeviceId,
        quantity: Quantity,
        now: Timestamp,
    ) -> Option<Change> {
        let before = self.alert(device, quantity);
        let would_change = match before {
            None => measured.reaches(self.limit),
            Some(_) => measured.is_well_below(self.limit),
        };
        self.in_a_row = if would_change { self.in_a_row + 1 } else { 0 };
        if self.in_a_row < ENOUGH {
            return None;
        }
        self.in_a_row = 0;
        self.since = if before.is_some() { None } else { Some(now) };
        let value = measured.rounded_down;
        let (alert, step) = match before {
            Some(alert) => (alert, Step::Over(value)),
            None => (self.alert(device, quantity)?, Step::Begins(value)),
        };
        Some(Change { alert, step })
    }
}

/// A known value between two whole numbers, or on one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Measured {
    rounded_down: i64,
    rounded_up: i64,
}

impl Measured {
    fn reaches(self, limit: i64) -> bool {
        self.rounded_down >= limit
    }

    fn is_well_below(self, limit: i64) -> bool {
        // Of a threshold so low that hardly anything is well below it, below is enough.
        let well_below = (limit - WELL_BELOW).max(1);
        !self.reaches(limit) && self.rounded_up <= well_below
    }
}

/// What a device tells now; `None` where that is not known, or says nothing.
fn measured(device: &Device, quantity: Quantity) -> Option<Measured> {
    match quantity {
        Quantity::Temperature => {
            let degrees = i64::from(device.vitals.temperature.known()?.0);
            Some(Measured {
                rounded_down: degrees,
                rounded_up: degrees,
            })
        }
        // What of the host's memory others use is not seen.
        Quantity::Memory if device.memory_unified => None,
        Quantity::Memory => share(&device.memory_used, &device.memory_total),
    }
}

/// The percentage that is used. There is none of nothing.
fn share(used: &Reading<Bytes>, total: &Reading<Bytes>) -> Option<Measured> {
    let (used, total) = (used.known()?, total.known()?);
    let (hundredfold, total) = (u128::from(used.0) * 100, u128::from(total.0));
    let whole = |percent: u128| i64::try_from(percent).unwrap_or(i64::MAX);
    Some(Measured {
        rounded_down: whole(hundredfold.checked_div(total)?),
        rounded_up: whole(hundredfold.div_ceil(total)),
    })
}

#[cfg(test)]
mod tests;
