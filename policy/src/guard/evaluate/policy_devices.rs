//! Which of the present devices each policy applies to.

use super::super::rules::{GpuSelector, RuleSet};
use super::super::sample::GuardSample;
use crate::select::{DeviceName, DeviceSelectorError, select_devices};
use gpukill_proto::model::DeviceId;
use std::collections::{BTreeMap, BTreeSet};

/// A set of devices, by their positions in a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeviceSet {
    All,
    Only(BTreeSet<usize>),
    /// The selection is ambiguous, with the reason.
    Ambiguous(String),
}

impl DeviceSet {
    /// Whether the set contains this device. A used device that is not identified may be
    /// any.
    pub(crate) fn contains(&self, device: Option<usize>) -> Result<bool, &str> {
        match (self, device) {
            (Self::All, _) => Ok(true),
            (Self::Ambiguous(why), _) => Err(why),
            (Self::Only(devices), Some(device)) => Ok(devices.contains(&device)),
            (Self::Only(devices), None) if devices.is_empty() => Ok(false),
            (Self::Only(_), None) => Err("which device it uses is not known"),
        }
    }
}

/// The devices of each policy, by positions in [`RuleSet`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PolicyDevices {
    pub(crate) gpus: Vec<DeviceSet>,
    pub(crate) times: Vec<DeviceSet>,
    pub(crate) behaviours: Vec<DeviceSet>,
    /// Allowed and blocked devices of each user policy.
    pub(crate) users: Vec<(DeviceSet, DeviceSet)>,
    /// Allowed and blocked devices of each group policy.
    pub(crate) groups: Vec<(DeviceSet, DeviceSet)>,
}

/// Id, index, PCI address and name of each device.
pub(crate) type DeviceNames = Vec<(DeviceId, u32, Option<String>, Option<String>)>;

/// Whether the devices of a sample have these names, in this order.
pub(crate) fn has_device_names(sample: &GuardSample, names: &DeviceNames) -> bool {
    sample.devices.len() == names.len()
        && sample.devices.iter().zip(names).all(|((id, it), name)| {
            (id, it.index, &it.pci, &it.name) == (&name.0, name.1, &name.2, &name.3)
        })
}

pub(crate) fn device_names(sample: &GuardSample) -> DeviceNames {
    let devices = sample.devices.iter();
    devices
        .map(|(id, it)| (id.clone(), it.index, it.pci.clone(), it.name.clone()))
        .collect()
}

impl PolicyDevices {
    pub(crate) fn resolve(rules: &RuleSet, names: &DeviceNames) -> Self {
        let mut known = BTreeMap::new();
        let mut chosen = |selectors: &[GpuSelector], of_none: &DeviceSet| {
            if selectors.is_empty() {
                return of_none.clone();
            }
            let made = || resolve_selectors(selectors, names);
            known.entry(selectors.to_vec()).or_insert_with(made).clone()
        };
        let none = DeviceSet::Only(BTreeSet::new());
        let all = DeviceSet::All;
        let gpus = rules.gpus.iter().map(|it| chosen(&it.gpus, &none));
        let gpus = gpus.collect();
        let times = rules.times.iter().map(|it| chosen(&it.gpus, &all));
        let times = times.collect();
        let behaviours = rules.behaviours.iter().map(|it| chosen(&it.gpus, &all));
        let behaviours = behaviours.collect();
        let mut lists = |allowed: &[GpuSelector], blocked: &[GpuSelector]| {
            (chosen(allowed, &all), chosen(blocked, &none))
        };
        let users = rules.users.iter();
        let users = users.map(|it| lists(&it.allowed_gpus, &it.blocked_gpus));
        let users = users.collect();
        let groups = rules.groups.iter();
        let groups = groups.map(|it| lists(&it.allowed_gpus, &it.blocked_gpus));
        Self {
            gpus,
            times,
            behaviours,
            users,
            groups: groups.collect(),
        }
    }
}

fn resolve_selectors(selectors: &[GpuSelector], names: &DeviceNames) -> DeviceSet {
    let called: Vec<DeviceName<'_>> = names
        .iter()
        .map(|(id, index, pci, name)| DeviceName {
            index: *index,
            id: &id.0,
            pci: pci.as_deref(),
            name: name.as_deref(),
        })
        .collect();
    let mut devices = BTreeSet::new();
    for typed in selectors
        .iter()
        .flat_map(|GpuSelector(typed)| typed.split(','))
    {
        match select_devices(typed, &called) {
            Ok(found) => devices.extend(found),
            // No process uses a device that is not present.
            Err(DeviceSelectorError::Unknown { .. } | DeviceSelectorError::Unmatched { .. }) => {}
            Err(
                unclear @ (DeviceSelectorError::Ambiguous { .. }
                | DeviceSelectorError::ReversedRange { .. }),
            ) => {
                return DeviceSet::Ambiguous(unclear.to_string());
            }
        }
    }
    DeviceSet::Only(devices)
}
