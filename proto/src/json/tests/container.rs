//! The fields of a stale container.

use super::*;

#[test]
fn stale_container_makes_fields_stale() {
    let mut process = process();
    let Value(Some(mut container)) = process.location.container else {
        panic!("the sample is in a container");
    };
    container.image = Unsupported;
    process.location.container = Stale(Some(container), 12);
    let list = list_document(device(), process);
    let (_, reasons) = null_fields(&list["procs"][0]);
    let reasons = reasons.iter().map(|(field, why)| format!("{field} {why}"));
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        [
            "container \"stale: 12 s\"",
            "container_id \"stale: 12 s\"",
            "container_image \"unsupported\"",
            "container_manager_uid \"stale: 12 s\"",
            "container_name \"stale: 12 s\"",
            "container_runtime \"stale: 12 s\"",
            "pod \"stale: 12 s\"",
            "pod_namespace \"stale: 12 s\"",
            "pod_uid \"stale: 12 s\"",
        ]
    );
}
