//! Lists the partitions of a divided card (CPX, DPX, …), and the device files beyond the card's
//! own.

use super::topology::KfdNode;
use crate::backend::drm::card::{DrmCard, read_node};
use crate::backend::{DeviceNode, InstanceReadings, MemoryReadings};
use gpukill_proto::model::{DeviceId, InstanceId, Vitals};
use gpukill_proto::reading::Reading;
use std::path::Path;

/// The partitions; none if the card is not divided.
pub(super) fn partition_instances(
    card: &DrmCard,
    nodes: &[KfdNode],
    vitals: &Vitals,
) -> Vec<InstanceReadings> {
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
            // KFD's own number changes with the mode, and on some kernels its `unique_id` is that
            // of the whole card.
            uuid: DeviceId(format!("{}/{part}", card.id().0)),
            profile: vitals.compute_partition.clone(),
            memory: MemoryReadings {
                total: node.memory.clone(),
                ..MemoryReadings::unknown(&Reading::Unsupported)
            },
        })
        .collect()
}

/// `/dev/kfd`, which all cards share, and the render nodes of the partitions.
pub(super) fn device_nodes(
    sysfs_root: &Path,
    card: &DrmCard,
    nodes: &[KfdNode],
) -> Vec<DeviceNode> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let classes = sysfs_root.join("class");
    let kfd = read_node("kfd".into(), &classes.join("kfd/kfd"), true);
    let is_own = |name: &str| card.nodes.iter().any(|own| own.name == name);
    let parts = nodes
        .iter()
        .filter_map(|node| node.render_minor)
        .map(|minor| format!("renderD{minor}"))
        .filter(|name| !is_own(name))
        .filter_map(|name| {
            let directory = classes.join("drm").join(&name);
            read_node(name, &directory, false)
        });
    kfd.into_iter().chain(parts).collect()
}
