//! The JSON of the evidence for a violation.

use super::fields::{document, documents};
use crate::guard::{Evidence, EvidenceProcess};
use crate::model::NetworkRole;
use crate::rogue::Threat;
use crate::units::Timestamp;

document! {
    /// The evidence for a violation.
    plain EvidenceDocument(evidence: &Evidence) {
        /// In the unit of the rule's kind: bytes, percent, milliseconds, processes; for a risk,
        /// from 1 for low to 4 for critical.
        value: Option<u64> = evidence.measured.map(|it| it.value),
        limit: Option<u64> = evidence.measured.map(|it| it.limit),
        /// The class of threat: `crypto_miner`; `null` if the rule is not about threats.
        threat: Option<&'static str> as Option<Threat> = evidence.threat.map(Threat::name),
        since: String as Timestamp = evidence.since.to_rfc3339(),
        /// The number of processes involved; `procs` may be shorter.
        count: u32 = evidence.count,
        /// The number of these processes with an unknown fact.
        unknown: u32 = evidence.unknown,
        /// Whether the job is a service and is only warned about.
        service_only_warned: bool = evidence.is_service_only_warned,
        procs: Vec<EvidenceProcessDocument> = documents(&evidence.runs),
    }
}

document! {
    /// One process in the evidence.
    plain EvidenceProcessDocument(process: &EvidenceProcess) {
        pid: u32 = process.run.pid,
        start_ticks: u64 = process.run.start_ticks,
        gpu_index: u32 = process.gpu_index,
        gpu_id: String = process.run.device.0.clone(),
        owner: Option<String> = process.owner.as_ref().map(|person| person.name.clone()),
        owner_uid: Option<u32> = process.owner.as_ref().and_then(|person| person.uid),
        process_name: Option<String> = process.name.clone(),
        memory_bytes: Option<u64> = process.memory,
        utilization_pct: Option<u32> = process.utilization,
        job: Option<String> = process.job.clone(),
        unit: Option<String> = process.context.unit.clone(),
        container_image: Option<String> = process.context.image.clone(),
        network_role: Option<&'static str> as Option<NetworkRole> =
            process.context.network_role.as_ref().map(NetworkRole::name),
        ports: Vec<u16> = process
            .context
            .network_role
            .as_ref()
            .map_or_else(Vec::new, |role| role.ports().to_vec()),
        connections: Option<u32> = process.context.clients,
    }
}
