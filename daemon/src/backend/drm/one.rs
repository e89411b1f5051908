//! One card, read whole: what its own files tell, put together with what its
//! clients do.

use super::amd::Amd;
use super::card::Card;
use super::clients::{Client, Clients, Used, sharing};
use super::family::Family;
use super::intel::Intel;
use super::names;
use super::other::Other;
use super::{Listed, Told};
use crate::backend::{
    Backend, DeviceReadings, Failure, ProcessReadings, Readings, Roots, Utilization,
};
use crate::holders::Holders;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{BackendState, GpuEvent, Use, Vitals};
use gpukill_proto::units::Bytes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// One card, and what is remembered of it.
pub(super) struct One {
    family: Family,
    card: Card,
    own: Own,
    clients: Clients,
    holders: Holders,
    host_root: PathBuf,
    /// Once it was told or, of a card that sleeps, looked for.
    name: Option<Reading<String>>,
}

/// What a driver's own files tell.
enum Own {
    Amd(Box<Amd>),
    Intel(Intel),
    Other(Other),
}

impl One {
    pub(super) fn new(family: Family, card: Card, roots: &Roots, holders: Holders) -> Self {
        let own = match family {
            Family::Amd => Own::Amd(Box::new(Amd::new(&roots.sysfs, &roots.host))),
            Family::Intel => Own::Intel(Intel::new(roots.host.clone())),
            Family::Other => Own::Other(Other::new(roots.host.clone())),
        };
        Self {
            family,
            own,
            clients: Clients::new(roots.procfs.clone()),
            holders,
            host_root: roots.host.clone(),
            name: None,
            card,
        }
    }

    fn device(&mut self) -> (DeviceReadings, Vec<String>) {
        if self.card.is_suspended() {
            return (self.asleep(), Vec::new());
        }
        let told = match &mut self.own {
            Own::Amd(amd) => amd.read(&self.card, Instant::now()),
            Own::Intel(intel) => intel.read(&self.card, Instant::now()),
            Own::Other(other) => other.read(&self.card),
        };
        let used = self.clients.read(&self.card, &self.holders.found());
        self.holders.hint(told.listed.iter().map(|it| it.pid));
        self.name = Some(told.name.clone());
        let faults = told.faults.clone();
        (self.put_together(told, used), faults)
    }

    /// A card that sleeps is not woken: reading it, or its clients, would.
    fn asleep(&mut self) -> DeviceReadings {
        let name = || Reading::Value(names::of(&self.host_root, &self.card));
        let name = self.name.get_or_insert_with(name).clone();
        let why = Reading::Failed("asleep: not woken for a reading".to_owned());
        let device = DeviceReadings::unknown(self.card.id(), 0, self.card.vendor(), &why);
        DeviceReadings {
            name,
            pci: self.pci(),
            vitals: Vitals {
                suspended: Reading::Value(true),
                ..device.vitals
            },
            nodes: self.card.nodes.clone(),
            ..device
        }
    }

    fn pci(&self) -> Reading<String> {
        let pci = self.card.pci.as_ref();
        pci.map_or(Reading::Unsupported, |pci| Reading::Value(pci.slot.clone()))
    }

    fn put_together(&self, told: Told, used: Used) -> DeviceReadings {
        let mut vitals = told.vitals;
        let own_is_better = match self.family {
            Family::Amd | Family::Other => true,
            // What Intel's own files tell is how long its engines were powered,
            // which is more than they worked.
            Family::Intel => used.utilization.known().is_none(),
        };
        if !own_is_better || vitals.utilization == Reading::Unsupported {
            vitals.utilization = used.utilization;
        }
        if vitals.encoder == Reading::Unsupported {
            vitals.encoder = used.encoder;
        }
        if vitals.decoder == Reading::Unsupported {
            vitals.decoder = used.decoder;
        }
        vitals.suspended = Reading::Value(false);
        let mut memory = told.memory;
        // A platform's GPU mostly shares the host's memory; its clients know.
        memory.unified &= self.family != Family::Other || !used.has_own_memory;
        let mut clients = used.processes;
        if self.family == Family::Amd && memory.unified {
            // What is its own and what is the host's is one memory here.
            for client in &mut clients {
                client.memory = sum(&client.memory, &client.host_memory);
                client.sharing = client.sharing.and(client.host_sharing);
            }
        }
        let mut nodes = self.card.nodes.clone();
        nodes.extend(told.nodes);
        let unknown =
            DeviceReadings::unknown(self.card.id(), 0, self.card.vendor(), &Reading::Unsupported);
        DeviceReadings {
            name: told.name,
            pci: self.pci(),
            sharing: sharing(&clients),
            processes: Reading::Value(processes(clients, told.listed, memory.total.known())),
            memory,
            vitals,
            instances: told.instances,
            unseen: used.unseen,
            sharers: used.sharers,
            nodes,
            ..unknown
        }
    }
}

/// Of two parts, the one that is unknown makes the whole unknown; one that does
/// not exist adds nothing.
fn sum(one: &Reading<Bytes>, other: &Reading<Bytes>) -> Reading<Bytes> {
    match (one, other) {
        (Reading::Value(one), Reading::Value(other)) => {
            Reading::Value(Bytes(one.0.saturating_add(other.0)))
        }
        (known, Reading::Unsupported) | (Reading::Unsupported, known) => known.clone(),
        (Reading::Value(_), unknown) | (unknown, _) => unknown.clone(),
    }
}

/// Each process once. One that is both a client and in the driver's own list
/// holds the greater of the two: the same memory is told twice.
fn processes(
    clients: Vec<Client>,
    listed: Vec<Listed>,
    total: Option<&Bytes>,
) -> Vec<ProcessReadings> {
    let mut all: BTreeMap<u32, ProcessReadings> = clients
        .into_iter()
        .map(|client| {
            let process = ProcessReadings {
                pid: client.key.pid,
                start_ticks: Some(client.key.start_ticks),
                instance: None,
                used_for: client.used_for,
                memory: client.memory,
                utilization: client.utilization,
            };
            (process.pid, process)
        })
        .collect();
    for it in listed {
        let process = all.entry(it.pid).or_insert_with(|| ProcessReadings {
            pid: it.pid,
            start_ticks: None,
            instance: None,
            used_for: Use::default(),
            memory: Reading::Unsupported,
            utilization: Utilization::unknown(&Reading::Unsupported),
        });
        process.used_for.compute = true;
        process.memory = greater(process.memory.clone(), it.memory);
        // Engines do not count what KFD's queues do: by them, a process that
        // computes would be idle.
        process.utilization.sm = it.occupancy;
    }
    for process in all.values_mut() {
        if process
            .memory
            .known()
            .zip(total)
            .is_some_and(|(held, all)| held > all)
        {
            process.memory = Reading::Failed("the driver tells more than the card has".into());
        }
    }
    all.into_values().collect()
}

fn greater(one: Reading<Bytes>, other: Reading<Bytes>) -> Reading<Bytes> {
    match (one, other) {
        (Reading::Value(one), Reading::Value(other)) => Reading::Value(one.max(other)),
        (known, Reading::Unsupported) | (Reading::Unsupported, known) => known,
        (Reading::Value(_), unknown) | (unknown, _) => unknown,
    }
}

impl Backend for One {
    fn name(&self) -> &'static str {
        self.family.name()
    }

    fn read(&mut self) -> Result<Readings, Failure> {
        let (device, faults) = self.device();
        Ok(Readings {
            devices: vec![device],
            faults,
            ..Readings::nothing(BackendState::Ready)
        })
    }

    fn take_events(&mut self) -> Vec<GpuEvent> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_policy::memory::Sharing;
    use gpukill_proto::snapshot::ProcessKey;

    fn client(pid: u32, memory: u64) -> Client {
        Client {
            key: ProcessKey {
                pid,
                start_ticks: 7,
            },
            memory: Reading::Value(Bytes(memory)),
            sharing: Sharing::NONE,
            host_memory: Reading::Unsupported,
            host_sharing: Sharing::NONE,
            utilization: Utilization::unknown(&Reading::Unsupported),
            used_for: Use::default(),
        }
    }

    fn listed(pid: u32, memory: Reading<Bytes>) -> Listed {
        Listed {
            pid,
            memory,
            occupancy: Reading::Unsupported,
        }
    }

    fn memories(clients: Vec<Client>, listed: Vec<Listed>) -> Vec<(u32, Reading<Bytes>)> {
        let all = processes(clients, listed, Some(&Bytes(100)));
        all.into_iter().map(|it| (it.pid, it.memory)).collect()
    }

    #[test]
    fn what_two_lists_tell_of_a_process_is_the_same_memory() {
        let told = |bytes| Reading::Value(Bytes(bytes));
        let failed = || Reading::Failed("not understood".to_owned());
        let cases = [
            (told(5), told(20)),
            (told(30), told(30)),
            (Reading::Unsupported, told(20)),
            (failed(), failed()),
        ];
        for (other, expected) in cases {
            let found = memories(vec![client(1, 20)], vec![listed(1, other)]);
            assert_eq!(found, [(1, expected)]);
        }
    }

    #[test]
    fn nobody_holds_more_than_the_card_has() {
        let found = memories(vec![client(1, 100), client(2, 101)], Vec::new());
        let failed = Reading::Failed("the driver tells more than the card has".into());
        assert_eq!(found, [(1, Reading::Value(Bytes(100))), (2, failed)]);
    }
}
