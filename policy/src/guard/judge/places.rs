//! Which devices each policy is about, among those that there are.

use super::super::bucket::Bucket;
use super::super::rules::{GpuSelector, Rules};
use crate::select::{DeviceName, NoSuchDevice, devices};
use gpukill_proto::snapshot::DeviceId;
use std::collections::{BTreeMap, BTreeSet};

/// Some devices, by their positions in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chosen {
    All,
    These(BTreeSet<usize>),
    /// It cannot be told which are meant.
    Unclear(String),
}

impl Chosen {
    /// Whether this device is one of them. One of which nothing is known but that it
    /// is used may be any.
    pub(crate) fn has(&self, device: Option<usize>) -> Result<bool, &str> {
        match (self, device) {
            (Self::All, _) => Ok(true),
            (Self::Unclear(why), _) => Err(why),
            (Self::These(these), Some(device)) => Ok(these.contains(&device)),
            (Self::These(these), None) if these.is_empty() => Ok(false),
            (Self::These(_), None) => Err("which device it uses is not known"),
        }
    }
}

/// The devices of each policy. By positions in [`Rules`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Places {
    pub(crate) gpus: Vec<Chosen>,
    pub(crate) times: Vec<Chosen>,
    pub(crate) behaviours: Vec<Chosen>,
    /// Allowed and blocked, of each user's policy.
    pub(crate) users: Vec<(Chosen, Chosen)>,
    /// Allowed and blocked, of each group's policy.
    pub(crate) groups: Vec<(Chosen, Chosen)>,
}

/// What devices are called by.
pub(crate) type Names = Vec<(DeviceId, u32, Option<String>, Option<String>)>;

/// What the devices of a bucket are called by, in its order.
pub(crate) fn is_called(bucket: &Bucket, names: &Names) -> bool {
    bucket.devices.len() == names.len()
        && bucket.devices.iter().zip(names).all(|((id, it), name)| {
            (id, it.index, &it.pci, &it.name) == (&name.0, name.1, &name.2, &name.3)
        })
}

pub(crate) fn names(bucket: &Bucket) -> Names {
    let devices = bucket.devices.iter();
    devices
        .map(|(id, it)| (id.clone(), it.index, it.pci.clone(), it.name.clone()))
        .collect()
}

impl Places {
    pub(crate) fn of(rules: &Rules, names: &Names) -> Self {
        let mut known = BTreeMap::new();
        let mut chosen = |selectors: &[GpuSelector], of_none: &Chosen| {
            if selectors.is_empty() {
                return of_none.clone();
            }
            let made = || choose(selectors, names);
            known.entry(selectors.to_vec()).or_insert_with(made).clone()
        };
        let none = Chosen::These(BTreeSet::new());
        let all = Chosen::All;
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

fn choose(selectors: &[GpuSelector], names: &Names) -> Chosen {
    let called: Vec<DeviceName<'_>> = names
        .iter()
        .map(|(id, index, pci, name)| DeviceName {
            index: *index,
            id: &id.0,
            pci: pci.as_deref(),
            name: name.as_deref(),
        })
        .collect();
    let mut these = BTreeSet::new();
    for typed in selectors
        .iter()
        .flat_map(|GpuSelector(typed)| typed.split(','))
    {
        match devices(typed, &called) {
            Ok(found) => these.extend(found),
            // A device that is not there now is used by nobody.
            Err(NoSuchDevice::Unknown { .. }) => {}
            Err(unclear @ (NoSuchDevice::Ambiguous { .. } | NoSuchDevice::Backwards { .. })) => {
                return Chosen::Unclear(unclear.to_string());
            }
        }
    }
    Chosen::These(these)
}
