//! Decides when the temperature or the memory use of a device crosses an admin's
//! threshold. Two consecutive polls at the threshold start an alert, and two polls well
//! below it end the alert, so a value that oscillates around the threshold is one
//! alert.

use gpukill_proto::collect::{IntoMap as _, IntoSet as _};
use gpukill_proto::model::{Device, DeviceId, FaultCode, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::status::AlertValue;
use gpukill_proto::units::{Bytes, Celsius, Percent, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The thresholds of all devices. A quantity without a threshold has no alerts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// The temperature of the die.
    pub temperature: Option<Celsius>,
    /// Percentage of memory in use. Does not apply to devices that share the host's
    /// memory.
    pub memory: Option<Percent>,
}

/// A quantity that can have a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Temperature of the die, in °C.
    Temperature,
    /// Memory in use, in percent of the total.
    Memory,
}

/// A device that reached a threshold and has not been well below it since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// Stable id of the device.
    pub device: DeviceId,
    /// Index of the device.
    pub index: u32,
    /// The quantity that is too high.
    pub quantity: Quantity,
    /// The threshold, in the unit of the quantity.
    pub limit: i64,
    /// The time of the poll in which the alert started.
    pub since: Timestamp,
}

/// An alert that starts or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertChange {
    /// The alert.
    pub alert: Alert,
    /// The transition.
    pub transition: AlertTransition,
}

/// The transition of an alert. Values are rounded down, in the unit of the quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertTransition {
    /// The alert starts at this value.
    Started(i64),
    /// The alert ends at this value.
    Ended(i64),
    /// The threshold was changed or removed. A value above the new threshold starts a
    /// new alert.
    ThresholdChanged,
    /// The device is gone.
    DeviceGone,
}

/// State that is kept from one poll to the next, with the active alerts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertState(BTreeMap<(DeviceId, Quantity), WatchState>);

/// State of one quantity of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchState {
    index: u32,
    limit: i64,
    /// Set while an alert is active.
    since: Option<Timestamp>,
    /// Number of consecutive known values that would change the alert.
    in_a_row: u32,
}

/// One value may be a sensor error; two are not.
const POLLS_TO_CHANGE: u32 = 2;

/// Distance below the threshold that ends an alert, in °C or percentage points.
const HYSTERESIS: i64 = 3;

impl Quantity {
    /// Name of the quantity.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::Memory => "memory",
        }
    }

    /// The fault code of an alert for this threshold.
    #[must_use]
    pub const fn fault_code(self) -> FaultCode {
        match self {
            Self::Temperature => FaultCode::TemperatureAlert,
            Self::Memory => FaultCode::MemoryAlert,
        }
    }

    /// Unit of the quantity, as displayed.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Temperature => "°C",
            Self::Memory => "%",
        }
    }
}

impl Alert {
    /// The subject of the fault: `GPU 3`.
    #[must_use]
    pub fn part(&self) -> String {
        format!("GPU {}", self.index)
    }

    /// Description of the fault. The text stays the same while the alert is active.
    #[must_use]
    pub fn description(&self) -> String {
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

impl AlertState {
    /// The active alerts.
    pub fn active(&self) -> impl Iterator<Item = Alert> {
        let watches = self.0.iter();
        watches.filter_map(|((device, quantity), watch)| watch.alert(device, *quantity))
    }

    /// Drops the state of quantities without a threshold and of devices that are gone.
    fn drop_outdated(
        &mut self,
        limits: &BTreeMap<Quantity, i64>,
        snapshot: &Snapshot,
    ) -> Vec<AlertChange> {
        let present = snapshot.devices.iter().filter(|it| !it.is_gone());
        let present: BTreeSet<&DeviceId> = present.map(|it| &it.id).into_set();
        let mut changes = Vec::new();
        self.0.retain(|(device, quantity), watch| {
            let step = if !present.contains(device) {
                AlertTransition::DeviceGone
            } else if limits.get(quantity) != Some(&watch.limit) {
                AlertTransition::ThresholdChanged
            } else {
                return true;
            };
            let alert = watch.alert(device, *quantity);
            changes.extend(alert.map(|alert| AlertChange {
                alert,
                transition: step,
            }));
            false
        });
        changes
    }
}

/// Evaluates one poll and returns the alerts that start and end. Unknown and stale
/// readings change nothing.
#[must_use]
pub fn evaluate(
    thresholds: &Thresholds,
    memory: &mut AlertState,
    snapshot: &Snapshot,
) -> Vec<AlertChange> {
    let limits = thresholds.limits();
    let mut changes = memory.drop_outdated(&limits, snapshot);
    for device in &snapshot.devices {
        for (quantity, limit) in &limits {
            let key = (device.id.clone(), *quantity);
            let watch = memory.0.entry(key).or_insert(WatchState {
                index: device.index,
                limit: *limit,
                since: None,
                in_a_row: 0,
            });
            watch.index = device.index;
            let change = measure(device, *quantity)
                .and_then(|known| watch.observe(known, &device.id, *quantity, snapshot.taken_at));
            changes.extend(change);
        }
    }
    changes
}

/// Returns the current value of each device that has an alert among the faults of the
/// snapshot, by the current thresholds.
#[must_use]
pub fn alert_values(thresholds: &Thresholds, snapshot: &Snapshot) -> Vec<AlertValue> {
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
            let value = measure(device, *quantity).map(|it| it.rounded_down);
            (alert, value)
        })
    });
    let values = all.filter_map(|(alert, value)| {
        let (part, what) = (alert.part(), alert.description());
        let mut faults = snapshot.faults.iter();
        let fault = faults.find(|fault| (&fault.part, &fault.what) == (&part, &what))?;
        Some(AlertValue {
            part,
            code: fault.code,
            what,
            since: fault.since,
            limit: alert.limit,
            value,
            unit: alert.quantity.unit().to_owned(),
        })
    });
    values.collect()
}

impl WatchState {
    fn alert(&self, device: &DeviceId, quantity: Quantity) -> Option<Alert> {
        Some(Alert {
            device: device.clone(),
            index: self.index,
            quantity,
            limit: self.limit,
            since: self.since?,
        })
    }

    fn observe(
        &mut self,
        measured: RoundedValue,
        device: &DeviceId,
        quantity: Quantity,
        now: Timestamp,
    ) -> Option<AlertChange> {
        let before = self.alert(device, quantity);
        let would_change = match before {
            None => measured.reaches(self.limit),
            Some(_) => measured.is_well_below(self.limit),
        };
        self.in_a_row = if would_change { self.in_a_row + 1 } else { 0 };
        if self.in_a_row < POLLS_TO_CHANGE {
            return None;
        }
        self.in_a_row = 0;
        self.since = if before.is_some() { None } else { Some(now) };
        let value = measured.rounded_down;
        let (alert, step) = match before {
            Some(alert) => (alert, AlertTransition::Ended(value)),
            None => (
                self.alert(device, quantity)?,
                AlertTransition::Started(value),
            ),
        };
        Some(AlertChange {
            alert,
            transition: step,
        })
    }
}

/// A known value, rounded down and up to whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RoundedValue {
    rounded_down: i64,
    rounded_up: i64,
}

impl RoundedValue {
    fn reaches(self, limit: i64) -> bool {
        self.rounded_down >= limit
    }

    fn is_well_below(self, limit: i64) -> bool {
        // For a threshold so low that almost no value is well below it, any value below
        // it is enough.
        let well_below = (limit - HYSTERESIS).max(1);
        !self.reaches(limit) && self.rounded_up <= well_below
    }
}

/// The current value of a device; `None` where it is unknown or does not apply.
fn measure(device: &Device, quantity: Quantity) -> Option<RoundedValue> {
    match quantity {
        Quantity::Temperature => {
            let degrees = i64::from(device.vitals.temperature.known()?.0);
            Some(RoundedValue {
                rounded_down: degrees,
                rounded_up: degrees,
            })
        }
        // Memory that others use on the host is not visible.
        Quantity::Memory if device.memory_unified => None,
        Quantity::Memory => percent_used(&device.memory_used, &device.memory_total),
    }
}

/// The percentage in use; `None` where the total is 0.
fn percent_used(used: &Reading<Bytes>, total: &Reading<Bytes>) -> Option<RoundedValue> {
    let (used, total) = (used.known()?, total.known()?);
    let (hundredfold, total) = (u128::from(used.0) * 100, u128::from(total.0));
    let to_i64 = |percent: u128| i64::try_from(percent).unwrap_or(i64::MAX);
    Some(RoundedValue {
        rounded_down: to_i64(hundredfold.checked_div(total)?),
        rounded_up: to_i64(hundredfold.div_ceil(total)),
    })
}

#[cfg(test)]
mod tests;
