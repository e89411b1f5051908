//! Parses `stat` of a process: one line that is cheap to read and holds the values that change from
//! poll to poll.

use super::read_once;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use std::io;
use std::path::Path;

/// Linux writes about 300 bytes.
const STAT_MAX: usize = 4 << 10;

/// The fields of `/proc/PID/stat` that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    /// With control characters made visible.
    pub(crate) name: String,
    /// The state of the first thread: `R`, `S`, `D`, `Z` and so on.
    pub(crate) state: char,
    /// 0 if the parent is in another PID namespace.
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// A device number; 0 for none.
    pub(crate) terminal: u32,
    /// The flags of the first thread: `PF_` bits of `include/linux/sched.h`.
    pub(crate) flags: u32,
    /// Processor time, user and system.
    pub(crate) cpu_ticks: u64,
    /// Includes the first thread, even after it has ended.
    pub(crate) threads: u32,
    pub(crate) start_ticks: u64,
    pub(crate) resident_pages: u64,
    /// The start of the stack: with address randomization it differs after each exec. 0 if the
    /// reader lacks permission.
    pub(crate) stack: u64,
}

impl Stat {
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        Self::parse(read_once(&directory.join("stat"), &mut [0; STAT_MAX])?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unreadable stat"))
    }

    /// Parses the line. The name is in parentheses and may hold any byte, including parentheses and
    /// blanks: only the last closing one ends it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|byte| *byte == b'(')?;
        let close = bytes.iter().rposition(|byte| *byte == b')')?;
        let name = bytes.get(open + 1..close)?;
        let fields = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
        // Counted from 1, the field after the name is the third.
        let mut fields = (3..).zip(fields.split_ascii_whitespace());
        let mut field = |wanted: u32| fields.find(|(number, _)| *number == wanted).map(|(_, f)| f);
        Some(Self {
            name: sanitize(name, 64),
            state: field(3)?.chars().next()?,
            parent: parse_number(field(4)?)?,
            group: parse_number(field(5)?)?,
            session: parse_number(field(6)?)?,
            terminal: field(7)?.parse::<i32>().ok()?.cast_unsigned(),
            flags: parse_number(field(9)?)?,
            cpu_ticks: {
                let user: u64 = parse_number(field(14)?)?;
                user.saturating_add(parse_number(field(15)?)?)
            },
            threads: parse_number(field(20)?)?,
            start_ticks: parse_number(field(22)?)?,
            resident_pages: parse_number(field(24)?)?,
            stack: field(28).and_then(parse_number).unwrap_or_default(),
        })
    }
}

/// A number, which the kernel may write as -1 while a process ends.
fn parse_number<T: TryFrom<i128> + Default>(field: &str) -> Option<T> {
    let number: i128 = field.parse().ok()?;
    Some(T::try_from(number).unwrap_or_default())
}

/// The name of a terminal under `/dev`, from its device number, by the kernel's list of devices
/// (Documentation/admin-guide/devices.txt).
pub(crate) fn terminal_name(device: u32) -> Reading<Option<String>> {
    if device == 0 {
        return Reading::Value(None);
    }
    // The kernel's encoding: 12 bits of major between the halves of the minor.
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
    let name = match (major, minor) {
        (136..=143, _) => format!("pts/{}", (major - 136) * 256 + minor),
        (4, 0..=63) => format!("tty{minor}"),
        (4, _) => format!("ttyS{}", minor - 64),
        (5, 1) => "console".to_owned(),
        (166, _) => format!("ttyACM{minor}"),
        (188, _) => format!("ttyUSB{minor}"),
        (204, 64..=79) => format!("ttyAMA{}", minor - 64),
        (229, _) => format!("hvc{minor}"),
        _ => return Reading::Failed(format!("a terminal without a name: {major}:{minor}")),
    };
    Reading::Value(Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_names_do_not_shift_fields() {
        let after = "S 7 8 9 34816 -1 4194560 1 2 3 4 50 6 7 8 20 0 1 0 987654 11 22 33 44 55 66";
        for name in ["python", "a) S 1 (b", "tmux: server", ")", ""] {
            let stat = Stat::parse(format!("42 ({name}) {after}").as_bytes());
            let expected = Stat {
                name: name.to_owned(),
                state: 'S',
                parent: 7,
                group: 8,
                session: 9,
                terminal: 34816,
                flags: 4_194_560,
                cpu_ticks: 56,
                threads: 1,
                start_ticks: 987_654,
                resident_pages: 22,
                stack: 66,
            };
            assert_eq!(stat, Some(expected), "{name}");
        }
        let hostile = Stat::parse(format!("42 (\x1b[2J) {after}").as_bytes());
        assert_eq!(hostile.map(|stat| stat.name).as_deref(), Some("\\x1b[2J"));
    }

    #[test]
    fn ending_process_has_no_group_or_session() {
        let text = "42 (x) Z 1 -1 -1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0 0";
        let stat = Stat::parse(text.as_bytes()).unwrap();
        assert_eq!((stat.group, stat.session), (0, 0));
    }

    #[test]
    fn terminal_names_match_dev() {
        let device = |major: u32, minor: u32| major << 8 | minor & 0xff | (minor & 0xf_ff00) << 12;
        let cases = [
            (device(136, 4), "pts/4"),
            (device(136, 300), "pts/300"),
            (device(137, 4), "pts/260"),
            (device(4, 1), "tty1"),
            (device(4, 64), "ttyS0"),
            (device(5, 1), "console"),
            (device(204, 64), "ttyAMA0"),
            (device(188, 2), "ttyUSB2"),
        ];
        for (number, name) in cases {
            assert_eq!(terminal_name(number), Reading::Value(Some(name.into())));
        }
        assert_eq!(terminal_name(0), Reading::Value(None));
        assert_eq!(
            terminal_name(device(99, 1)),
            Reading::Failed("a terminal without a name: 99:1".into())
        );
    }

    #[test]
    fn own_stat_matches_status() {
        let text = std::fs::read("/proc/self/stat").unwrap();
        let stat = Stat::parse(&text).unwrap();
        // Not by getsid(): a leader outside this PID namespace is 0 there, which rustix's `Pid`
        // cannot hold.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let number = |key: &str| -> u32 {
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_whitespace().last().unwrap().parse().unwrap()
        };
        assert_eq!(stat.parent, number("PPid:"));
        assert_eq!(stat.group, number("NSpgid:"));
        assert_eq!(stat.session, number("NSsid:"));
        assert!(stat.resident_pages > 0 && stat.stack > 0);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Stat::parse(&bytes);
        }

        #[test]
        fn any_fields_parse_without_panic(fields in proptest::collection::vec("-?[0-9]{1,40}", 21..24), number: u32) {
            let _ = Stat::parse(format!("1 (x) S {}", fields.join(" ")).as_bytes());
            let _ = terminal_name(number);
        }
    }
}
