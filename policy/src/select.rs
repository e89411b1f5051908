//! Which devices and processes does a person mean?

mod glob;

pub use glob::Glob;
pub(crate) use glob::{glob, is_of_a_login, is_user_manager};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, GpuProcess, Owner, Snapshot, Vendor};
use regex_lite::{Regex, RegexBuilder};
use std::collections::BTreeSet;
use std::fmt;

/// Conditions that must all hold. An empty one chooses everything.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Devices, as typed: see [`devices`].
    pub gpu: Option<String>,
    /// Devices of these vendors; of all where none is named.
    pub vendors: Vec<Vendor>,
    /// Processes of this person, by name or number: who runs them, or whose
    /// they are.
    pub user: Option<String>,
    /// Processes whose name matches.
    pub name: Option<Regex>,
}

impl Selection {
    /// Whether it leaves anything out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gpu.is_none() && self.vendors.is_empty() && !self.narrows_processes()
    }

    /// Whether it leaves out processes of the devices it chooses.
    #[must_use]
    pub fn narrows_processes(&self) -> bool {
        self.user.is_some() || self.name.is_some()
    }

    fn takes(&self, process: &GpuProcess) -> bool {
        self.matches(process) == Some(true)
    }

    /// What keeps it from being told whether this process is taken: what of it is
    /// not known, and why. `None` where it is told.
    #[must_use]
    pub fn doubt(&self, process: &GpuProcess) -> Option<(&'static str, String)> {
        if self.matches(process).is_some() {
            return None;
        }
        let (what, why) = match self.user.as_deref().map(|user| is_of(user, process)) {
            Some(None) => {
                let why = process.uid.failure().or(process.user.failure());
                ("user", why.map(str::to_owned))
            }
            Some(Some(_)) | None => ("name", process.name.failure().map(str::to_owned)),
        };
        Some((what, why.unwrap_or_else(|| "it does not tell".to_owned())))
    }

    /// Whether a process is taken; `None` where too little is known of it.
    fn matches(&self, process: &GpuProcess) -> Option<bool> {
        let user = self.user.as_deref();
        let user = user.map_or(Some(true), |user| is_of(user, process));
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

/// Whether `typed` names who runs this process, or whose it is; `None` where that
/// is not known.
fn is_of(typed: &str, process: &GpuProcess) -> Option<bool> {
    if is_theirs(typed, &process.uid, &process.user, &process.owner) {
        return Some(true);
    }
    // A user without a name is not called anything; one whose name could not be
    // had may be called so.
    let uid = process.uid.last_known();
    let is_a_name = typed.parse::<u32>().is_err();
    let may_be = uid.is_none() || is_a_name && process.user.failure().is_some();
    (!may_be).then_some(false)
}

/// Whether `typed` names the user of a process, or its owner, as far as these are
/// known.
pub(crate) fn is_theirs(
    typed: &str,
    uid: &Reading<u32>,
    user: &Reading<String>,
    owner: &Reading<Owner>,
) -> bool {
    let uid = uid.last_known().copied();
    let user = user.last_known().map(String::as_str);
    let owner = owner.last_known();
    is_user(typed, uid, user)
        || owner.is_some_and(|owner| is_user(typed, owner.uid, Some(&owner.name)))
}

/// Whether `typed` names this user, by name or by number. A name that is all
/// digits is only ever a number.
#[must_use]
pub fn is_user(typed: &str, uid: Option<u32>, name: Option<&str>) -> bool {
    match user_number(typed) {
        Some(number) => uid == Some(number),
        None => name == Some(typed),
    }
}

/// The number of the user whom `typed` names, where it is not by name.
pub(crate) fn user_number(typed: &str) -> Option<u32> {
    // Rust's own takes `+0`, which is nobody's name and no number people write.
    let number = typed.parse().ok();
    number.filter(|_| !typed.starts_with('+'))
}

/// The part of a snapshot that the selection chooses: its devices, and of their
/// processes those that it takes.
///
/// # Errors
/// As [`devices`].
pub fn narrow(mut snapshot: Snapshot, selection: &Selection) -> Result<Snapshot, NoSuchDevice> {
    if !selection.vendors.is_empty() {
        let is_chosen = |device: &Device| selection.vendors.contains(&device.vendor);
        snapshot.devices.retain(is_chosen);
    }
    if let Some(typed) = &selection.gpu {
        let names: Vec<DeviceName<'_>> = snapshot.devices.iter().map(DeviceName::from).collect();
        let chosen = devices(typed, &names)?;
        let mut position = 0;
        snapshot.devices.retain(|_| {
            position += 1;
            chosen.contains(&(position - 1))
        });
    }
    let kept: BTreeSet<_> = snapshot
        .devices
        .iter()
        .map(|device| device.id.clone())
        .into_set();
    snapshot
        .processes
        .retain(|process| kept.contains(&process.device) && selection.takes(process));
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

/// What a device can be called by.
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

/// The positions of the devices that `typed` names: one or more of these, with
/// commas between them.
///
/// - an index or a range of indices: `0`, `2-5`
/// - a UUID or the beginning of one, if it is unique: `GPU-8f3c`, `8f3c9d`
/// - a PCI address: `0000:1b:00.0`, `1b:00.0`
/// - a name, with `*` and `?`: `*H100*`
///
/// # Errors
/// When a part names no device, begins several UUIDs, or is a range backwards.
pub fn devices(typed: &str, among: &[DeviceName<'_>]) -> Result<BTreeSet<usize>, NoSuchDevice> {
    let known = || among.iter().map(|device| device.index).collect();
    if typed.len() > DEVICES_MAX {
        return Err(NoSuchDevice::Unknown {
            typed: typed.chars().take(40).chain(['…']).collect(),
            known: known(),
        });
    }
    let mut chosen = BTreeSet::new();
    for part in typed.split(',').map(str::trim) {
        if let Some((first, last)) = range(part)
            && first > last
        {
            return Err(NoSuchDevice::Backwards { first, last });
        }
        let found = part_of_devices(part, among);
        if found.is_empty() {
            return Err(NoSuchDevice::Unknown {
                typed: part.to_owned(),
                known: known(),
            });
        }
        if found.len() > 1 && is_uuid_beginning(part, among) {
            return Err(NoSuchDevice::Ambiguous {
                typed: part.to_owned(),
            });
        }
        chosen.extend(found);
    }
    Ok(chosen)
}

fn part_of_devices(part: &str, among: &[DeviceName<'_>]) -> BTreeSet<usize> {
    let positions = |takes: &dyn Fn(&DeviceName<'_>) -> bool| -> BTreeSet<usize> {
        among
            .iter()
            .enumerate()
            .filter(|(_, device)| takes(device))
            .map(|(position, _)| position)
            .into_set()
    };
    if let Some((first, last)) = range(part) {
        return positions(&|device| (first..=last).contains(&device.index));
    }
    if part.contains(':') {
        return positions(&|device| device.pci.is_some_and(|pci| same_pci(pci, part)));
    }
    if is_uuid_beginning(part, among) {
        return positions(&|device| begins_uuid(device.id, part));
    }
    let Some(glob) = glob(part) else {
        return BTreeSet::new();
    };
    positions(&|device| {
        device.name.is_some_and(|name| {
            glob.is_match(name) || glob.is_match(name.trim_start_matches("NVIDIA "))
        })
    })
}

fn range(part: &str) -> Option<(u32, u32)> {
    match part.split_once('-') {
        Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)),
        None => part.parse().ok().map(|index| (index, index)),
    }
}

fn same_pci(pci: &str, typed: &str) -> bool {
    // Drivers write the domain with eight digits, sysfs with four, people often
    // not at all.
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

fn is_uuid_beginning(part: &str, among: &[DeviceName<'_>]) -> bool {
    // Four digits are the least that people cut UUIDs to; fewer would make
    // typing errors choose a device.
    let digits = part
        .get(..4)
        .filter(|head| head.eq_ignore_ascii_case("gpu-"))
        .map_or(part, |_| &part[4..]);
    digits.len() >= 4 && among.iter().any(|device| begins_uuid(device.id, part))
}

fn begins_uuid(id: &str, part: &str) -> bool {
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

/// The most memory one pattern of a person may compile to: building one takes
/// time with its size, and anybody may send one.
const PATTERN_SIZE: usize = 128 << 10;

/// The longest pattern and the longest list of devices, in bytes.
pub(crate) const PATTERN_MAX: usize = 512;
const DEVICES_MAX: usize = 2_048;

/// Compiles an unanchored pattern for process names and command lines.
///
/// # Errors
/// What is wrong with it, on one line.
pub fn pattern(typed: &str) -> Result<Regex, String> {
    if typed.len() > PATTERN_MAX {
        return Err(format!(
            "a regular expression of {} bytes is too long: at most {PATTERN_MAX}",
            typed.len()
        ));
    }
    RegexBuilder::new(typed)
        .size_limit(PATTERN_SIZE)
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

/// A device selector that names no device, or not just one where it must.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSuchDevice {
    /// Nothing is called so.
    Unknown {
        /// What was typed.
        typed: String,
        /// The indices that there are.
        known: Vec<u32>,
    },
    /// It begins several UUIDs.
    Ambiguous {
        /// What was typed.
        typed: String,
    },
    /// A range whose first index is above its last.
    Backwards {
        /// The first, as typed.
        first: u32,
        /// The last, as typed.
        last: u32,
    },
}

impl fmt::Display for NoSuchDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { typed, known } if known.is_empty() => {
                write!(f, "no GPU is called {typed:?}: there is none here")
            }
            Self::Unknown { typed, known } => {
                let known: Vec<String> = known.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "no GPU is called {typed:?}: there are {}",
                    known.join(", ")
                )
            }
            Self::Ambiguous { typed } => write!(f, "{typed:?} begins the UUID of several GPUs"),
            Self::Backwards { first, last } => {
                write!(
                    f,
                    "\"{first}-{last}\" is a range backwards: write {last}-{first}"
                )
            }
        }
    }
}

impl std::error::Error for NoSuchDevice {}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::snapshot::{DeviceId, OwnerKind};
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

    fn chosen(typed: &str) -> Result<Vec<usize>, NoSuchDevice> {
        devices(typed, &BOX).map(|set| set.into_iter().collect())
    }

    #[test]
    fn a_device_is_called_by_index_uuid_pci_address_or_name() {
        let cases: [(&str, &[usize]); 13] = [
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
            assert_eq!(chosen(typed).as_deref(), Ok(expected), "{typed}");
        }
    }

    #[test]
    fn digits_are_an_index_even_when_a_uuid_begins_so() {
        assert_eq!(chosen("2"), Ok(vec![2]));
        assert!(chosen("1234").is_err());
        assert_eq!(chosen("GPU-1234"), Ok(vec![2]));
    }

    #[test]
    fn what_names_nothing_or_several_is_an_error_that_says_what_there_is() {
        let said = |typed: &str| chosen(typed).err().map(|error| error.to_string());
        assert_eq!(
            said("9").as_deref(),
            Some("no GPU is called \"9\": there are 0, 1, 2, 3")
        );
        assert_eq!(
            said("8f3c").as_deref(),
            Some("\"8f3c\" begins the UUID of several GPUs")
        );
        assert_eq!(
            said("0,5-2").as_deref(),
            Some("\"5-2\" is a range backwards: write 2-5")
        );
        assert_eq!(
            said("").as_deref(),
            Some("no GPU is called \"\": there are 0, 1, 2, 3")
        );
        assert_eq!(
            said("0,nope").as_deref(),
            Some("no GPU is called \"nope\": there are 0, 1, 2, 3")
        );
        assert_eq!(
            devices("0", &[]).map_err(|e| e.to_string()),
            Err("no GPU is called \"0\": there is none here".into())
        );
    }

    #[test]
    fn a_user_is_a_name_or_a_number_and_never_part_of_one() {
        assert!(is_user("alice", Some(1000), Some("alice")));
        assert!(is_user("1000", Some(1000), None));
        assert!(!is_user("ali", Some(1000), Some("alice")));
        assert!(!is_user("alice", Some(1000), None));
        assert!(!is_user("1000", Some(7), Some("1000")));
        assert!(!is_user("+1000", Some(1000), Some("alice")));
    }

    #[test]
    fn a_process_is_chosen_by_who_runs_it_and_by_whose_it_is() {
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
            assert_eq!(is_of(typed, &process), Some(true), "{typed}");
        }
        for typed in ["bob", "7", "ali", "0"] {
            assert_eq!(is_of(typed, &process), Some(false), "{typed}");
        }
    }

    #[test]
    fn a_bad_pattern_says_what_is_wrong_on_one_line() {
        assert_eq!(
            pattern("python[").err().as_deref(),
            Some("\"python[\" is not a regular expression: found unclosed character class")
        );
        assert!(pattern(&"(a{1000}){1000}".repeat(3)).is_err());
        assert!(
            pattern("^tensor").is_ok_and(|p| p.is_match("tensorboard") && !p.is_match("xtensor"))
        );
    }

    proptest! {
        #[test]
        fn whatever_is_typed_chooses_existing_devices_or_is_an_error(typed in "\\PC{0,20}") {
            if let Ok(found) = chosen(&typed) {
                prop_assert!(!found.is_empty());
                prop_assert!(found.iter().all(|position| *position < BOX.len()));
            }
        }
    }

    #[test]
    fn what_takes_long_to_understand_is_refused_at_once() {
        assert!(pattern("^python[0-9]*$").is_ok());
        let long = "[\\w]".repeat(1_000);
        assert!(pattern(&long).unwrap_err().contains("too long"));
        // Short, and as large as a megabyte.
        assert!(pattern(r"(?i)(\w{50}\d{50}){50}").is_err());
        let many = "*H*,".repeat(1_000);
        assert!(matches!(
            devices(&many, &[]),
            Err(NoSuchDevice::Unknown { typed, .. }) if typed.ends_with('…')
        ));
    }
}
