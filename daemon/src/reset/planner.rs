//! Makes a plan, or one target of it again: scans all processes, and leaves the decision to policy.

use super::helper_client;
use crate::kill::KillEnvironment;
use crate::procfs::read_at_most;
use crate::state::PublishedPoll;
use gpukill_policy::access::Caller;
use gpukill_policy::reset;
use gpukill_policy::reset::{HelperCheck, Hive};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::model::{Device, DeviceId, Vendor};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{PlannedReset, ResetPlan, ResetRequest, ResetTarget};
use gpukill_proto::text::sanitize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
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

/// The longest PCI address that is shown.
const MAX_ADDRESS_BYTES: usize = 64;

/// The hives of AMD adapters: adapters that are connected by XGMI have the same number, which is
/// not 0 (`amdgpu_xgmi.c`).
fn xgmi_hives(devices: &[Device], sysfs: &Path) -> BTreeMap<DeviceId, Result<Hive, String>> {
    let directory = sysfs.join("bus/pci/devices");
    let of_amd = devices.iter().filter(|it| it.vendor == Vendor::Amd);
    // The address becomes part of a path: one that is not from sysfs is never looked up.
    let addresses: BTreeMap<String, &DeviceId> = of_amd
        .filter_map(|device| {
            let address = helper_client::parse_address(device.pci.last_known()?)?;
            Some((address.to_string(), &device.id))
        })
        .into_map();
    let hives: Vec<(&DeviceId, Result<String, String>)> = addresses
        .iter()
        .filter_map(|(address, id)| Some((*id, hive_name(&directory.join(address)).transpose()?)))
        .collect();
    // Usually there is none.
    if hives.is_empty() {
        return BTreeMap::new();
    }
    let unlisted = unlisted_members(&directory, &addresses);
    let with_unlisted = |name: String| -> Result<Hive, String> {
        let unlisted = unlisted.as_ref().map_err(Clone::clone)?;
        let of_hive = unlisted.iter().filter(|(hive, _)| *hive == name);
        let unlisted = of_hive.map(|(_, address)| address.clone()).collect();
        Ok(Hive { name, unlisted })
    };
    let hives = hives.into_iter();
    hives
        .map(|(id, name)| (id.clone(), name.and_then(with_unlisted)))
        .into_map()
}

/// The members of hives that are none of these devices: hive and address of each.
fn unlisted_members(
    directory: &Path,
    listed: &BTreeMap<String, &DeviceId>,
) -> Result<Vec<(String, String)>, String> {
    let unreadable = |error| format!("the PCI devices cannot be listed: {error}");
    let mut members = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let address = sanitize(entry.file_name().as_encoded_bytes(), MAX_ADDRESS_BYTES);
        if !listed.contains_key(&address) {
            let hive = hive_name(&entry.path())?;
            members.extend(hive.map(|hive| (hive, address)));
        }
    }
    Ok(members)
}

/// The name of the hive of a device; `None` if it is in none.
fn hive_name(device: &Path) -> Result<Option<String>, String> {
    let file = device.join("xgmi_hive_info/xgmi_hive_id");
    let name = match read_at_most(&file, MAX_HIVE_BYTES) {
        Ok(name) => sanitize(name.trim_ascii(), 64),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("its XGMI hive cannot be read: {error}")),
    };
    let is_one = !name.is_empty() && name.parse::<u64>() != Ok(0);
    Ok(is_one.then_some(name))
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::reading::Reading;
    use std::fs;

    #[test]
    fn finds_members_of_hives() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("bus/pci/devices");
        let join_hive = |address: &str, hive: &str| {
            let info = directory.join(address).join("xgmi_hive_info");
            fs::create_dir_all(&info).unwrap();
            fs::write(info.join("xgmi_hive_id"), hive).unwrap();
        };
        let addresses = ["0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0"];
        let devices: Vec<Device> = (0..)
            .zip(addresses)
            .map(|(index, address)| {
                let id = DeviceId(address.to_owned());
                let mut device = Device::unknown(id, index, Vendor::Amd, &Reading::Unsupported);
                device.pci = Reading::Value(address.to_owned());
                device
            })
            .collect();
        let hives = || xgmi_hives(&devices, root.path());
        assert_eq!(hives(), BTreeMap::new());
        join_hive("0000:1b:00.0", "77\n");
        join_hive("0000:1c:00.0", "0\n");
        join_hive("0000:1e:00.0", "77\n");
        join_hive("0000:1f:00.0", "78\n");
        let hive = Hive {
            name: "77".into(),
            unlisted: vec!["0000:1e:00.0".into()],
        };
        let id = |at: usize| DeviceId(addresses[at].to_owned());
        assert_eq!(hives(), BTreeMap::from([(id(0), Ok(hive.clone()))]));
        // Of a device that is not listed: it may be a member of any hive.
        let unreadable = directory.join("0000:20:00.0/xgmi_hive_info/xgmi_hive_id");
        fs::create_dir_all(&unreadable).unwrap();
        assert!(hives()[&id(0)].is_err());
        fs::remove_dir(&unreadable).unwrap();
        // Of a listed device: the others are known.
        let unreadable = directory.join("0000:1d:00.0/xgmi_hive_info/xgmi_hive_id");
        fs::create_dir_all(&unreadable).unwrap();
        let found = hives();
        assert_eq!(found[&id(0)], Ok(hive));
        assert!(found[&id(2)].is_err());
    }
}
