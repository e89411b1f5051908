//! Every GPU whose driver is a part of the kernel: AMD, Intel, and any other DRM
//! driver. Read from files alone: sysfs, hwmon, KFD, and what the kernel tells of
//! each open descriptor (fdinfo).

pub(crate) mod amd;

pub(crate) mod card;

pub(crate) mod clients;

mod contradiction;

pub(crate) mod engines;

pub(crate) mod family;

pub(crate) mod fdinfo;

pub(crate) mod hwmon;

pub(crate) mod intel;

pub(crate) mod lacking;

mod link;

pub(crate) mod names;

mod one;

pub(crate) mod other;

mod rest;

pub(crate) mod sysfs;

mod untrusted;

use super::{InstanceReadings, MemoryReadings, Node};
use crate::faults::FaultCause;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::{Bytes, Percent};

/// What a card's own files tell, as against those of its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) name: Reading<String>,
    pub(crate) memory: MemoryReadings,
    pub(crate) vitals: Vitals,
    pub(crate) instances: Vec<InstanceReadings>,
    /// Device files beyond the card's own: KFD's, and those of its partitions.
    pub(crate) nodes: Vec<Node>,
    /// The processes that its driver lists.
    pub(crate) listed: Vec<Listed>,
    /// What went wrong beyond a single value.
    pub(crate) faults: Vec<FaultCause>,
}

impl Told {
    /// Nothing, for this reason.
    pub(crate) fn unknown(why: &Reading<()>) -> Self {
        Self {
            name: why.because(),
            memory: MemoryReadings::unknown(why),
            vitals: Vitals::unknown(why),
            instances: Vec::new(),
            nodes: Vec::new(),
            listed: Vec::new(),
            faults: Vec::new(),
        }
    }
}

/// A process that a driver lists by itself (KFD), in the host's PID namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) pid: u32,
    /// Device memory it holds by that list.
    pub(crate) memory: Reading<Bytes>,
    /// The share of the compute units it occupies now.
    pub(crate) occupancy: Reading<Percent>,
}
