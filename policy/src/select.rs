//! Finds the devices and processes that a person selects.

mod glob;

pub use glob::Glob;
pub(crate) use glob::{compile_glob, is_user_manager};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::model::{Device, GpuProcess, Owner, Snapshot, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{MAX_CONDITION_BYTES, MAX_GPU_LIST_BYTES};
use regex_lite::{Regex, RegexBuilder};
use std::collections::BTreeSet;

/// Conditions that must all hold. An empty filter accepts everything.
#[derive(Debug, Clone, Default)]
pub struct SnapshotFilter {
    /// Devices, as typed: see [`select_devices`].
    pub gpu: Option<String>,
    /// Vendors of the devices; empty for all vendors.
    pub vendors: Vec<Vendor>,
    /// The pids of the processes; empty for all processes.
    pub pids: Vec<u32>,
    /// The user or owner of the processes, by name or number.
    pub user: Option<String>,
    /// A pattern for the names of the processes.
    pub name: Option<Regex>,
}

impl SnapshotFilter {
    /// Whether the filter leaves nothing out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gpu.is_none() && self.vendors.is_empty() && !self.narrows_processes()
    }

    /// Whether the filter leaves out processes of the selected devices.
    #[must_use]
    pub fn narrows_processes(&self) -> bool {
        !self.pids.is_empty() || self.user.is_some() || self.name.is_some()
    }

    /// Whether this process is accepted, as far as facts of it are known.
    #[must_use]
    pub fn accepts(&self, process: &GpuProcess) -> bool {
        self.matches(process) == Some(true)
    }

    /// Returns the missing fact that leaves open whether this process is accepted, with
    /// the reason; `None` where the result is known.
    #[must_use]
    pub fn missing_fact(&self, process: &GpuProcess) -> Option<(&'static str, String)> {
        if self.matches(process).is_some() {
            return None;
        }
        let (what, why) = match self
            .user
            .as_deref()
            .map(|user| names_user_of(user, process))
        {
            Some(None) => {
                let why = process.uid.failure().or(process.user.failure());
                ("user", why.map(str::to_owned))
            }
            Some(Some(_)) | None => ("name", process.name.failure().map(str::to_owned)),
        };
        Some((what, why.unwrap_or_else(|| "it is not reported".to_owned())))
    }

    /// Whether a process is accepted; `None` where too little is known of it.
    fn matches(&self, process: &GpuProcess) -> Option<bool> {
        if !self.pids.is_empty() && !self.pids.contains(&process.pid) {
            return Some(false);
        }
        let user = self.user.as_deref();
        let user = user.map_or(Some(true), |user| names_user_of(user, process));
        let name = self.name.as_ref().map_or(Some(true), |wanted| {
            let name = process.name.last_known();
            name.map(|name| wanted.is_match(name))
        });
        match (user, name) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            (None, _) | (_, None) => None,
        }
    }
}

/// Whether `typed` names the user or the owner of this process; `None` where that is
/// unknown.
fn names_user_of(typed: &str, process: &GpuProcess) -> Option<bool> {
    if names_user_or_owner(typed, &process.uid, &process.user, &process.owner) {
        return Some(true);
    }
    // A user without a name has no name to match. A user with an unreadable name
    // may have this name.
    let uid = process.uid.last_known();
    let is_a_name = typed.parse::<u32>().is_err();
    let may_be = uid.is_none() || is_a_name && process.user.failure().is_some();
    (!may_be).then_some(false)
}

/// Whether `typed` names the user or the owner of a process, as far as they are known.
pub(crate) fn names_user_or_owner(
    typed: &str,
    uid: &Reading<u32>,
    user: &Reading<String>,
    owner: &Reading<Owner>,
) -> bool {
    let uid = uid.last_known().copied();
    let user = user.last_known().map(String::as_str);
    let owner = owner.last_known();
    names_user(typed, uid, user)
        || owner.is_some_and(|owner| names_user(typed, owner.uid, Some(&owner.name)))
}

/// Whether `typed` names this user, by name or by number. A name of digits only is
/// always a number.
#[must_use]
pub fn names_user(typed: &str, uid: Option<u32>, name: Option<&str>) -> bool {
    match user_number(typed) {
        Some(number) => uid == Some(number),
        None => name == Some(typed),
    }
}

/// Whether `typed` names this user: a name or a number, or several with commas between.
#[must_use]
pub fn names_one_user_of(typed: &str, uid: Option<u32>, name: Option<&str>) -> bool {
    let mut users = typed.split(',').map(str::trim);
    users.any(|user| names_user(user, uid, name))
}

/// The uid that `typed` states, where it is not a name.
#[must_use]
pub fn user_number(typed: &str) -> Option<u32> {
    // Rust also parses `+0`, which is neither a user name nor a number that people
    // write.
    let number = typed.parse().ok();
    number.filter(|_| !typed.starts_with('+'))
}

/// Returns the selected part of a snapshot: its devices, and their accepted processes.
///
/// # Errors
/// As [`select_devices`].
pub fn filter_snapshot(
    mut snapshot: Snapshot,
    selection: &SnapshotFilter,
) -> Result<Snapshot, DeviceSelectorError> {
    // Before the vendors: an existing GPU of another vendor is no mistake.
    if let Some(typed) = &selection.gpu {
        let names: Vec<DeviceName<'_>> = snapshot.devices.iter().map(DeviceName::from).collect();
        let chosen = select_devices(typed, &names)?;
        let mut positions = 0..;
        snapshot
            .devices
            .retain(|_| positions.next().is_some_and(|at| chosen.contains(&at)));
    }
    if !selection.vendors.is_empty() {
        let is_chosen = |device: &Device| selection.vendors.contains(&device.vendor);
        snapshot.devices.retain(is_chosen);
    }
    let kept: BTreeSet<_> = snapshot
        .devices
        .iter()
        .map(|device| device.id.clone())
        .into_set();
    snapshot
        .processes
        .retain(|process| kept.contains(&process.device) && selection.accepts(process));
    if selection.narrows_processes() {
        for device in &mut snapshot.devices {
            let taken = snapshot
                .processes
                .iter()
                .filter(|process| process.device == device.id);
            let taken = u32::try_from(taken.count()).unwrap_or(u32::MAX);
            device.process_count = device.process_count.clone().map(|_| taken);
        }
    }
    Ok(snapshot)
}

/// The names of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceName<'a> {
    /// Its index.
    pub index: u32,
    /// Its UUID or PCI address.
    pub id: &'a str,
    /// Its PCI address.
    pub pci: Option<&'a str>,
    /// Its model name.
    pub name: Option<&'a str>,
}

impl<'a> From<&'a Device> for DeviceName<'a> {
    fn from(device: &'a Device) -> Self {
        Self {
            index: device.index,
            id: &device.id.0,
            pci: device.pci.last_known().map(String::as_str),
            name: device.name.last_known().map(String::as_str),
        }
    }
}

/// Returns the positions of the devices that `typed` names: one or more of the
/// following, separated by commas.
///
/// - an index or a range of indices: `0`, `2-5`
/// - a UUID or a unique prefix of one: `GPU-8f3c`, `8f3c9d`
/// - a PCI address: `0000:1b:00.0`, `1b:00.0`
/// - a name, with `*` and `?`: `*H100*`
/// - `all`
///
/// # Errors
/// A part names no device, is a pattern that no name matches, is a prefix of several UUIDs, or is
/// a reversed range.
pub fn select_devices(
    typed: &str,
    among: &[DeviceName<'_>],
) -> Result<BTreeSet<usize>, DeviceSelectorError> {
    if typed.len() > MAX_GPU_LIST_BYTES {
        return Err(DeviceSelectorError::Unknown {
            typed: typed.chars().take(40).chain(['…']).collect(),
            known: among.iter().map(|device| device.index).collect(),
        });
    }
    let mut chosen = BTreeSet::new();
    for part in typed.split(',').map(str::trim) {
        if let Some((first, last)) = parse_range(part)
            && first > last
        {
            return Err(DeviceSelectorError::ReversedRange { first, last });
        }
        let found = select_part(part, among);
        let is_prefix = found.is_empty() || is_uuid_prefix(part, among);
        if found.len() != 1 && is_prefix {
            return Err(part_error(part, among));
        }
        chosen.extend(found);
    }
    Ok(chosen)
}

/// Why this part selects no device, or why it is ambiguous. A prefix that is too short for one
/// UUID may still begin several.
fn part_error(part: &str, among: &[DeviceName<'_>]) -> DeviceSelectorError {
    let typed = part.to_owned();
    let begins = |device: &&DeviceName<'_>| !part.is_empty() && has_uuid_prefix(device.id, part);
    let matches: Vec<(u32, String)> = among
        .iter()
        .filter(begins)
        .map(|device| (device.index, device.id.to_owned()))
        .collect();
    let known = among.iter().map(|device| device.index).collect();
    if matches.len() > 1 && parse_range(part).is_none() {
        DeviceSelectorError::Ambiguous { typed, matches }
    } else if part.contains(['*', '?']) {
        DeviceSelectorError::Unmatched { typed, known }
    } else {
        DeviceSelectorError::Unknown { typed, known }
    }
}

fn select_part(part: &str, among: &[DeviceName<'_>]) -> BTreeSet<usize> {
    let positions = |takes: &dyn Fn(&DeviceName<'_>) -> bool| -> BTreeSet<usize> {
        among
            .iter()
            .enumerate()
            .filter(|(_, device)| takes(device))
            .map(|(position, _)| position)
            .into_set()
    };
    if part.eq_ignore_ascii_case("all") {
        return positions(&|_| true);
    }
    if let Some((first, last)) = parse_range(part) {
        return positions(&|device| (first..=last).contains(&device.index));
    }
    if part.contains(':') {
        return positions(&|device| device.pci.is_some_and(|pci| is_same_pci(pci, part)));
    }
    if is_uuid_prefix(part, among) {
        return positions(&|device| has_uuid_prefix(device.id, part));
    }
    let Some(glob) = compile_glob(part) else {
        return BTreeSet::new();
    };
    positions(&|device| {
        device.name.is_some_and(|name| {
            glob.is_match(name) || glob.is_match(name.trim_start_matches("NVIDIA "))
        })
    })
}

fn parse_range(part: &str) -> Option<(u32, u32)> {
    match part.split_once('-') {
        Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)),
        None => part.parse().ok().map(|index| (index, index)),
    }
}

fn is_same_pci(pci: &str, typed: &str) -> bool {
    // Drivers write the domain with eight digits, sysfs with four, and people often
    // omit it.
    let without_domain = |address: &str| -> (u32, String) {
        match address.split_once(':') {
            Some((domain, rest)) if rest.contains(':') => (
                u32::from_str_radix(domain, 16).unwrap_or(u32::MAX),
                rest.to_ascii_lowercase(),
            ),
            _ => (0, address.to_ascii_lowercase()),
        }
    };
    without_domain(pci) == without_domain(typed)
}

fn is_uuid_prefix(part: &str, among: &[DeviceName<'_>]) -> bool {
    // People shorten UUIDs to four digits or more. With fewer digits, a typing error
    // could select a device.
    let digits = part
        .get(..4)
        .filter(|head| head.eq_ignore_ascii_case("gpu-"))
        .map_or(part, |_| &part[4..]);
    digits.len() >= 4 && among.iter().any(|device| has_uuid_prefix(device.id, part))
}

fn has_uuid_prefix(id: &str, part: &str) -> bool {
    let begins = |whole: &str| {
        whole
            .get(..part.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(part))
    };
    begins(id)
        || id
            .get(4..)
            .filter(|_| id.starts_with("GPU-"))
            .is_some_and(begins)
}

/// Maximum memory of one compiled pattern: compiling takes time with its size, and
/// anyone may send a pattern.
const MAX_COMPILED_PATTERN_BYTES: usize = 128 << 10;

/// Compiles an unanchored pattern for process names and command lines.
///
/// # Errors
/// The mistake in the pattern, on one line.
pub fn compile_pattern(typed: &str) -> Result<Regex, String> {
    if typed.len() > MAX_CONDITION_BYTES {
        return Err(format!(
            "the regular expression has {} bytes: at most {MAX_CONDITION_BYTES} are allowed",
            typed.len()
        ));
    }
    RegexBuilder::new(typed)
        .size_limit(MAX_COMPILED_PATTERN_BYTES)
        .build()
        .map_err(|error| {
            let why = error.to_string();
            let why = why
                .lines()
                .last()
                .unwrap_or("invalid")
                .trim_start_matches("error: ");
            format!("{typed:?} is not a regular expression: {why}")
        })
}

/// A device selector that names no device, or not exactly one where it must.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceSelectorError {
    /// No device has this index, UUID, address or name.
    #[error("no GPU matches {typed:?}: this host has {}", known_gpus(.known))]
    Unknown {
        /// The typed text.
        typed: String,
        /// The existing indices.
        known: Vec<u32>,
    },
    /// No device has a name that matches this pattern.
    #[error("no GPU matches {typed:?}: this host has {}", known_gpus(.known))]
    Unmatched {
        /// The typed text.
        typed: String,
        /// The existing indices.
        known: Vec<u32>,
    },
    /// The text is a prefix of several UUIDs.
    #[error("{typed:?} is ambiguous: it is a prefix of {}", list_uuids(.matches))]
    Ambiguous {
        /// The typed text.
        typed: String,
        /// The index and the UUID of each device with this prefix.
        matches: Vec<(u32, String)>,
    },
    /// A range with a first index above its last.
    #[error("the range \"{first}-{last}\" is reversed: write {last}-{first}")]
    ReversedRange {
        /// The first index, as typed.
        first: u32,
        /// The last index, as typed.
        last: u32,
    },
}

impl From<DeviceSelectorError> for Refusal {
    fn from(error: DeviceSelectorError) -> Self {
        match error {
            DeviceSelectorError::Unmatched { .. } => Self::NoMatch(error.to_string()),
            DeviceSelectorError::Unknown { .. }
            | DeviceSelectorError::Ambiguous { .. }
            | DeviceSelectorError::ReversedRange { .. } => Self::Invalid(error.to_string()),
        }
    }
}

/// Number of UUIDs that a message lists: the GPUs of one host at most, in practice.
const MAX_LISTED_UUIDS: usize = 16;

fn list_uuids(matches: &[(u32, String)]) -> String {
    let listed = matches.iter().take(MAX_LISTED_UUIDS);
    let listed: Vec<String> = listed
        .map(|(index, uuid)| format!("{uuid} (GPU {index})"))
        .collect();
    match matches.len().saturating_sub(MAX_LISTED_UUIDS) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

fn known_gpus(known: &[u32]) -> String {
    if known.is_empty() {
        return "none".to_owned();
    }
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    format!("GPU {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::{DeviceId, OwnerKind};
    use gpukill_proto::units::Timestamp;
    use proptest::prelude::*;

    const BOX: [DeviceName<'static>; 4] = [
        DeviceName {
            index: 0,
            id: "GPU-8f3c1111-aaaa",
            pci: Some("0000:1b:00.0"),
            name: Some("NVIDIA H100 80GB HBM3"),
        },
        DeviceName {
            index: 1,
            id: "GPU-8f3c2222-bbbb",
            pci: Some("0000:43:00.0"),
            name: Some("NVIDIA H100 80GB HBM3"),
        },
        DeviceName {
            index: 2,
            id: "GPU-12345678-cccc",
            pci: Some("0001:43:00.0"),
            name: Some("NVIDIA RTX A6000"),
        },
        DeviceName {
            index: 3,
            id: "0000:03:00.0",
            pci: Some("0000:03:00.0"),
            name: None,
        },
    ];

    fn selected(typed: &str) -> Result<Vec<usize>, DeviceSelectorError> {
        select_devices(typed, &BOX).map(|set| set.into_iter().collect())
    }

    #[test]
    fn devices_by_index_uuid_pci_or_name() {
        let cases: [(&str, &[usize]); 14] = [
            ("all", &[0, 1, 2, 3]),
            ("0", &[0]),
            ("1-2", &[1, 2]),
            ("2,0", &[0, 2]),
            ("GPU-12345678-cccc", &[2]),
            ("gpu-8F3C1", &[0]),
            ("8f3c2", &[1]),
            ("0000:43:00.0", &[1]),
            ("00000000:43:00.0", &[1]),
            ("43:00.0", &[1]),
            ("0001:43:00.0", &[2]),
            ("0000:03:00.0", &[3]),
            ("*a6000", &[2]),
            ("H100*", &[0, 1]),
        ];
        for (typed, expected) in cases {
            assert_eq!(selected(typed).as_deref(), Ok(expected), "{typed}");
        }
    }

    #[test]
    fn digits_are_always_an_index() {
        assert_eq!(selected("2"), Ok(vec![2]));
        assert!(selected("1234").is_err());
        assert_eq!(selected("GPU-1234"), Ok(vec![2]));
    }

    #[test]
    fn unknown_and_ambiguous_are_errors() {
        let both = "is ambiguous: it is a prefix of GPU-8f3c1111-aaaa (GPU 0), \
                    GPU-8f3c2222-bbbb (GPU 1)";
        for (typed, expected) in [
            ("8f3c", format!("\"8f3c\" {both}")),
            ("gpu-8", format!("\"gpu-8\" {both}")),
            ("0,5-2", "the range \"5-2\" is reversed: write 2-5".into()),
        ] {
            let error = selected(typed).map_err(|error| error.to_string());
            assert_eq!(error, Err(expected));
        }
        assert_eq!(
            select_devices("0", &[]).map_err(|e| e.to_string()),
            Err("no GPU matches \"0\": this host has none".into())
        );
    }

    #[test]
    fn only_a_pattern_is_no_match() {
        for typed in [
            "9",
            "7-9",
            "GPU-9999",
            "GPU-1",
            "0000:99:00.0",
            "A100",
            "0,9",
            "0,nope",
            "",
        ] {
            let refusal = selected(typed).map_err(Refusal::from);
            let why = typed.rsplit(',').next().unwrap_or_default();
            let expected = format!("no GPU matches {why:?}: this host has GPU 0, 1, 2, 3");
            assert_eq!(refusal, Err(Refusal::Invalid(expected)), "{typed}");
        }
        for typed in ["*A100*", "0,H20?"] {
            let refusal = selected(typed).map_err(Refusal::from);
            assert!(matches!(refusal, Err(Refusal::NoMatch(_))), "{typed}");
        }
    }

    #[test]
    fn long_list_of_uuids_is_cut() {
        let uuids: Vec<String> = (0..18).map(|it| format!("GPU-8f3c00{it:02}")).collect();
        let names = uuids.iter().zip(0..).map(|(id, index)| DeviceName {
            index,
            id,
            pci: None,
            name: None,
        });
        let names: Vec<DeviceName<'_>> = names.collect();
        let message = select_devices("8f3c", &names).map_err(|error| error.to_string());
        let message = message.expect_err("it is ambiguous");
        assert!(
            message.ends_with("GPU-8f3c0015 (GPU 15) and 2 more"),
            "{message}"
        );
    }

    #[test]
    fn user_matches_whole_name_or_number() {
        assert!(names_user("alice", Some(1000), Some("alice")));
        assert!(names_user("1000", Some(1000), None));
        assert!(!names_user("ali", Some(1000), Some("alice")));
        assert!(!names_user("alice", Some(1000), None));
        assert!(!names_user("1000", Some(7), Some("1000")));
        assert!(!names_user("+1000", Some(1000), Some("alice")));
        assert!(names_one_user_of("bob, 1000", Some(1000), Some("alice")));
        assert!(names_one_user_of("alice,bob", Some(1001), Some("bob")));
        assert!(!names_one_user_of("alice,bob", Some(1002), Some("carol")));
        assert!(!names_one_user_of(",", Some(1002), Some("carol")));
    }

    #[test]
    fn process_by_user_or_owner() {
        let process = GpuProcess {
            uid: Reading::Value(100_999),
            user: Reading::Unsupported,
            owner: Reading::Value(Owner {
                name: "alice".into(),
                uid: Some(1000),
                kind: OwnerKind::Namespace,
            }),
            ..GpuProcess::unknown(
                DeviceId(String::new()),
                7,
                Timestamp(0),
                &Reading::Unsupported,
            )
        };
        for typed in ["100999", "1000", "alice"] {
            assert_eq!(names_user_of(typed, &process), Some(true), "{typed}");
        }
        for typed in ["bob", "7", "ali", "0"] {
            assert_eq!(names_user_of(typed, &process), Some(false), "{typed}");
        }
    }

    #[test]
    fn pattern_error_is_one_line() {
        assert_eq!(
            compile_pattern("python[").err().as_deref(),
            Some("\"python[\" is not a regular expression: found unclosed character class")
        );
        assert!(compile_pattern(&"(a{1000}){1000}".repeat(3)).is_err());
        assert!(
            compile_pattern("^tensor")
                .is_ok_and(|p| p.is_match("tensorboard") && !p.is_match("xtensor"))
        );
    }

    proptest! {
        #[test]
        fn any_text_selects_existing_devices(typed in "\\PC{0,20}") {
            if let Ok(found) = selected(&typed) {
                prop_assert!(!found.is_empty());
                prop_assert!(found.iter().all(|position| *position < BOX.len()));
            }
        }
    }

    #[test]
    fn expensive_patterns_are_refused() {
        assert!(compile_pattern("^python[0-9]*$").is_ok());
        let long = "[\\w]".repeat(1_000);
        assert_eq!(
            compile_pattern(&long).unwrap_err(),
            format!(
                "the regular expression has 4000 bytes: at most {MAX_CONDITION_BYTES} are allowed"
            )
        );
        // Short, and a megabyte when compiled.
        assert!(compile_pattern(r"(?i)(\w{50}\d{50}){50}").is_err());
        let many = "*H*,".repeat(1_000);
        assert!(matches!(
            select_devices(&many, &[]),
            Err(DeviceSelectorError::Unknown { typed, .. }) if typed.ends_with('…')
        ));
    }
}
