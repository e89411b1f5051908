//! Checks that concern several keys: whether the whole state can be simulated.

use std::collections::BTreeSet;

use super::{Gpu, State};

/// The maximum number of MIG devices of one GPU, on every product so far.
pub(crate) const MAX_INSTANCES: u32 = 7;

/// Refuses a state that cannot be simulated.
pub(super) fn check(state: &State) -> Result<(), String> {
    uuids_differ(state)?;
    errors_are_errors(state)?;
    events_are_in_order(state)?;
    state.gpus.iter().try_for_each(instances_fit)
}

/// A handle belongs to a UUID.
fn uuids_differ(state: &State) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let uuids = state.gpus.iter().flat_map(|gpu| {
        let instances = gpu.instances.iter().map(|instance| instance.uuid(gpu));
        instances.chain([gpu.uuid()])
    });
    match uuids.into_iter().find(|uuid| !seen.insert(uuid.clone())) {
        Some(twin) => Err(format!("two GPUs have the UUID {twin}")),
        None => Ok(()),
    }
}

/// The caller would take 0 for success and read an answer that was never written.
fn errors_are_errors(state: &State) -> Result<(), String> {
    let of_gpus = state.gpus.iter().map(|gpu| &gpu.errors);
    let instances = state.gpus.iter().flat_map(|gpu| &gpu.instances);
    let of_instances = instances.map(|instance| &instance.errors);
    let functions = of_gpus.chain(of_instances).chain([&state.errors]).flatten();
    let fields = state.gpus.iter().flat_map(|gpu| &gpu.field_errors);
    let named = functions
        .map(|(function, code)| (function.clone(), *code))
        .chain(fields.map(|(field, code)| (format!("field {field}"), *code)))
        .chain([("another load".to_owned(), state.load_error)]);
    match named.into_iter().find(|(_, code)| *code == 0) {
        Some((what, _)) => Err(format!("the error of {what} is 0, which is success")),
        None => Ok(()),
    }
}

fn events_are_in_order(state: &State) -> Result<(), String> {
    let mut last = 0;
    for event in &state.events {
        if event.id <= last {
            return Err(format!("the event {} does not come after {last}", event.id));
        }
        if event.gpu >= state.gpus.len() {
            return Err(format!("the event {} is of no GPU", event.id));
        }
        last = event.id;
    }
    Ok(())
}

fn instances_fit(gpu: &Gpu) -> Result<(), String> {
    if !gpu.instances.is_empty() && !gpu.is_divided() {
        return Err("instances need mig to be true".to_owned());
    }
    let mut indexes = BTreeSet::new();
    let mut pairs = BTreeSet::new();
    for (index, instance) in gpu.indexed_instances() {
        let pair = (instance.gpu_instance, instance.compute_instance);
        if index >= MAX_INSTANCES {
            return Err(format!(
                "the instance index {index} is not below {MAX_INSTANCES}"
            ));
        }
        if !indexes.insert(index) {
            return Err(format!("two instances have the index {index}"));
        }
        if !pairs.insert(pair) {
            return Err(format!(
                "two instances are GPU instance {} compute instance {}",
                pair.0, pair.1
            ));
        }
        let shared = gpu.memory_of_instance(instance.gpu_instance);
        if instance.memory.as_ref().is_some_and(|own| own != shared) {
            return Err(format!(
                "GPU instance {} has two memories",
                instance.gpu_instance
            ));
        }
    }
    Ok(())
}
