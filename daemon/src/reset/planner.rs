//! Makes a plan, or one target of it again: scans all processes, and leaves the decision to policy.

use super::helper_client;
use crate::kill::KillEnvironment;
use crate::procfs::read_at_most;
use crate::state::PublishedPoll;
use gpukill_policy::access::Caller;
use gpukill_policy::reset;
use gpukill_policy::reset::HelperCheck;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::model::{Device, DeviceId, Vendor};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{PlannedReset, ResetPlan, ResetRequest, ResetTarget};
use gpukill_proto::text::sanitize;
use std::collections::BTreeMap;
use std::path::Path;

/// Plans this request.
///
/// # Errors
/// The errors of [`reset::plan`].
pub(super) fn plan(
    environment: &KillEnvironment,
    caller: &Caller,
    request: &ResetRequest,
    published: &PublishedPoll,
) -> Result<ResetPlan, Refusal> {
    let wanted = reset::selected_devices(request, &published.snapshot)?;
    with_context(environment, caller, published, &wanted, |context| {
        reset::plan(request, context, environment.clock.now())
    })?
}

/// Plans one device as it is now; `None` if it is no longer listed.
///
/// # Errors
/// If processes cannot be scanned.
pub(super) fn plan_target(
    environment: &KillEnvironment,
    caller: &Caller,
    request: &ResetRequest,
    published: &PublishedPoll,
    id: &DeviceId,
) -> Result<Option<ResetTarget>, Refusal> {
    let mut devices = published.snapshot.devices.iter();
    let Some(device) = devices.find(|device| device.id == *id) else {
        return Ok(None);
    };
    with_context(environment, caller, published, &[device], |context| {
        Some(reset::plan_device(
            device,
            request,
            context,
            environment.clock.now(),
        ))
    })
}

fn with_context<T>(
    environment: &KillEnvironment,
    caller: &Caller,
    published: &PublishedPoll,
    wanted: &[&Device],
    decide: impl FnOnce(&reset::ResetContext<'_>) -> T,
) -> Result<T, Refusal> {
    let facts = environment.plan_facts()?;
    let config = environment.authority.config.borrow().clone();
    let checks = helper_checks(environment, &config.reset.helper, wanted);
    let hives = xgmi_hives(&published.snapshot.devices, &config.backends.sysfs_root);
    Ok(decide(&reset::ResetContext {
        kill: facts.context(caller, published),
        hives: &hives,
        checks: &checks,
    }))
}

/// The answer of the helper for each of these devices. If it does not answer, or another reset
/// runs, the answer for the others would be the same, so it is requested once.
fn helper_checks(
    environment: &KillEnvironment,
    socket: &Path,
    devices: &[&Device],
) -> BTreeMap<DeviceId, HelperCheck> {
    let mut of_all = None;
    let checks = devices.iter().filter_map(|device| {
        let gpu = helper_client::requested_gpu(device.vendor, device.pci.last_known()?)?;
        let check = of_all
            .clone()
            .unwrap_or_else(|| helper_client::check(socket, gpu, || environment.is_stopping()));
        match check {
            HelperCheck::Busy(_) | HelperCheck::NoAnswer(_) => of_all = Some(check.clone()),
            HelperCheck::Possible | HelperCheck::Refused(_) => {}
        }
        Some((device.id.clone(), check))
    });
    checks.into_map()
}

/// The name of a hive is a number.
const MAX_HIVE_BYTES: u64 = 64;

/// The hives of AMD adapters: adapters that are connected by XGMI have the same number, which is
/// not 0 (`amdgpu_xgmi.c`).
fn xgmi_hives(devices: &[Device], sysfs: &Path) -> BTreeMap<DeviceId, String> {
    let of_amd = devices.iter().filter(|it| it.vendor == Vendor::Amd);
    let hives = of_amd.filter_map(|device| {
        // The address becomes part of a path: one that is not from sysfs is never looked up.
        let address = helper_client::parse_address(device.pci.last_known()?)?;
        let directory = sysfs.join("bus/pci/devices").join(address.to_string());
        let number = read_at_most(
            &directory.join("xgmi_hive_info/xgmi_hive_id"),
            MAX_HIVE_BYTES,
        )
        .ok()?;
        let number = sanitize(number.trim_ascii(), 64);
        let is_one = !number.is_empty() && number.parse::<u64>() != Ok(0);
        is_one.then(|| (device.id.clone(), number))
    });
    hives.into_map()
}

/// Why a plan resets nothing.
pub(super) fn explain_no_reset(plan: &ResetPlan) -> String {
    const MAX_NAMED: usize = 8;
    let each = plan.devices.iter().take(MAX_NAMED).map(|target| {
        let why = match &target.action {
            PlannedReset::Reset => "is reset".to_owned(),
            PlannedReset::Unsupported(why) => format!("cannot be reset: {why}"),
            PlannedReset::Blocked => {
                let what: Vec<&str> = target
                    .blockers
                    .iter()
                    .take(MAX_NAMED)
                    .map(|blocker| blocker.what.as_str())
                    .collect();
                format!("is held: {}", what.join(", "))
            }
        };
        format!("GPU {} {why}", target.index)
    });
    let mut descriptions: Vec<String> = each.collect();
    let more = plan.devices.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        descriptions.push(format!("and {more} more"));
    }
    descriptions.join("; ")
}
