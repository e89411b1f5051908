//! What a container that was read some time ago says.

use super::*;

#[test]
fn what_an_old_container_says_is_as_old_as_the_container() {
    let mut process = process();
    let Value(Some(mut container)) = process.place.container else {
        panic!("the sample is in a container");
    };
    container.image = Unsupported;
    process.place.container = Stale(Some(container), 12);
    let list = listed(device(), process);
    let (_, reasons) = nulls(&list["procs"][0]);
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
