//! Makes a plan, or one target of it anew: all processes are looked at, and policy
//! decides.

use super::asking;
use crate::enforce::Means;
use crate::procfs::file::read_at_most;
use crate::state::Published;
use gpukill_policy::access::Caller;
use gpukill_policy::reset::HelperCheck;
use gpukill_policy::{kill, reset};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::reset::{ResetFate, ResetPlan, ResetRequest, ResetTarget};
use gpukill_proto::snapshot::{Device, DeviceId, Vendor};
use gpukill_proto::text::visible;
use std::collections::BTreeMap;
use std::path::Path;

/// What would be done for this request.
///
/// # Errors
/// As [`reset::plan`].
pub(super) fn plan(
    means: &Means,
    caller: &Caller,
    request: &ResetRequest,
    published: &Published,
) -> Result<ResetPlan, Refusal> {
    let wanted = reset::wanted(request, &published.snapshot)?;
    with_seen(means, caller, published, &wanted, |seen| {
        reset::plan(request, seen, means.clock.now())
    })?
}

/// One device as it is now; `None` where it is not listed any more.
///
/// # Errors
/// When processes cannot be looked at.
pub(super) fn target(
    means: &Means,
    caller: &Caller,
    request: &ResetRequest,
    published: &Published,
    id: &DeviceId,
) -> Result<Option<ResetTarget>, Refusal> {
    let mut devices = published.snapshot.devices.iter();
    let Some(device) = devices.find(|device| device.id == *id) else {
        return Ok(None);
    };
    with_seen(means, caller, published, &[device], |seen| {
        Some(reset::target(device, request, seen, means.clock.now()))
    })
}

fn with_seen<T>(
    means: &Means,
    caller: &Caller,
    published: &Published,
    wanted: &[&Device],
    decide: impl FnOnce(&reset::Seen<'_>) -> T,
) -> Result<T, Refusal> {
    let crowd = means.crowds.everybody(&means.authority.users);
    let crowd = crowd.map_err(|error| {
        tracing::error!(%error, "processes cannot be looked at");
        Refusal::Unavailable(format!("processes cannot be looked at: {error}"))
    })?;
    let authority = &means.authority;
    let (roles, operators) = (authority.roles(), authority.operators());
    let protection = authority.protection();
    let config = authority.config.borrow().clone();
    let checks = checks(means, &config.reset.helper, wanted);
    let hives = hives(&published.snapshot.devices, &config.backends.sysfs_root);
    Ok(decide(&reset::Seen {
        kill: kill::Seen {
            caller,
            roles: &roles,
            operators: &operators,
            snapshot: &published.snapshot,
            holders: &published.holders,
            crowd: &crowd,
            protection: &protection,
        },
        hives: &hives,
        checks: &checks,
    }))
}

/// What the helper says of each of these. Where it does not answer, or another reset
/// goes on, the others would hear the same, and it is asked once.
fn checks(means: &Means, socket: &Path, devices: &[&Device]) -> BTreeMap<DeviceId, HelperCheck> {
    let mut of_all = None;
    let checks = devices.iter().filter_map(|device| {
        let gpu = asking::gpu(device.vendor, device.pci.last_known()?)?;
        let check = of_all
            .clone()
            .unwrap_or_else(|| asking::check(socket, gpu, || means.is_stopping()));
        match check {
            HelperCheck::Busy(_) | HelperCheck::NoAnswer(_) => of_all = Some(check.clone()),
            HelperCheck::Possible | HelperCheck::Refused(_) => {}
        }
        Some((device.id.clone(), check))
    });
    checks.into_map()
}

/// A hive's name is a number.
const HIVE: u64 = 64;

/// The hives of AMD's adapters: those that XGMI joins have the same number, which is
/// not 0 (`amdgpu_xgmi.c`).
fn hives(devices: &[Device], sysfs: &Path) -> BTreeMap<DeviceId, String> {
    let of_amd = devices.iter().filter(|it| it.vendor == Vendor::Amd);
    let hives = of_amd.filter_map(|device| {
        // It is a name in a path here: what is none of sysfs's is looked up nowhere.
        let address = asking::address(device.pci.last_known()?)?;
        let directory = sysfs.join("bus/pci/devices").join(address.to_string());
        let number = read_at_most(&directory.join("xgmi_hive_info/xgmi_hive_id"), HIVE).ok()?;
        let number = visible(number.trim_ascii(), 64);
        let is_one = !number.is_empty() && number.parse::<u64>() != Ok(0);
        is_one.then(|| (device.id.clone(), number))
    });
    hives.into_map()
}

/// Why a plan resets nothing.
pub(super) fn why_none(plan: &ResetPlan) -> String {
    const SAID: usize = 8;
    let each = plan.devices.iter().take(SAID).map(|target| {
        let why = match &target.fate {
            ResetFate::Reset => "is reset".to_owned(),
            ResetFate::Unsupported(why) => format!("cannot be reset: {why}"),
            ResetFate::Blocked => {
                let what: Vec<&str> = target
                    .blockers
                    .iter()
                    .take(SAID)
                    .map(|blocker| blocker.what.as_str())
                    .collect();
                format!("is held: {}", what.join(", "))
            }
        };
        format!("GPU {} {why}", target.index)
    });
    let mut said: Vec<String> = each.collect();
    let more = plan.devices.len().saturating_sub(SAID);
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    said.join("; ")
}
