//! The parts of a card that is divided (CPX, DPX, …), and the device files that
//! are not the card's own.

use super::topology::GpuNode;
use crate::backend::drm::card::{self, Card};
use crate::backend::drm::sysfs;
use crate::backend::{InstanceReadings, MemoryReadings, Node};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{DeviceId, InstanceId, Vitals};
use std::path::Path;

/// The parts; none where the card is whole.
pub(super) fn instances(card: &Card, nodes: &[GpuNode], vitals: &Vitals) -> Vec<InstanceReadings> {
    if nodes.len() < 2 {
        return Vec::new();
    }
    (0_u32..)
        .zip(nodes)
        .map(|(part, node)| InstanceReadings {
            id: InstanceId {
                gpu: part,
                compute: 0,
            },
            // KFD's own number changes with the mode, and its `unique_id` is
            // that of the whole card on some kernels.
            uuid: DeviceId(format!("{}/{part}", card.id().0)),
            profile: vitals.compute_partition.clone(),
            memory: MemoryReadings {
                total: node.memory.clone(),
                ..MemoryReadings::unknown(&Reading::Unsupported)
            },
        })
        .collect()
}

/// `/dev/kfd`, which all cards share, and the render nodes of the parts.
pub(super) fn files(sysfs_root: &Path, card: &Card, nodes: &[GpuNode]) -> Vec<Node> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let node = |name: String, file: &str, shared| {
        let number = sysfs::parsed(&sysfs_root.join(file), card::device_number);
        Some(Node {
            number: *number.known()?,
            name,
            shared,
        })
    };
    let kfd = node("kfd".into(), "class/kfd/kfd/dev", true);
    let is_own = |name: &str| card.nodes.iter().any(|own| own.name == name);
    let parts = nodes
        .iter()
        .filter_map(|node| node.render_minor)
        .map(|minor| format!("renderD{minor}"))
        .filter(|name| !is_own(name))
        .filter_map(|name| {
            let file = format!("class/drm/{name}/dev");
            node(name, &file, false)
        });
    kfd.into_iter().chain(parts).collect()
}
