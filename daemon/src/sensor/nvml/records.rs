//! Parses a process list from the driver's bytes into records. Some builds of R535 write records of
//! 32 bytes where all others write 24, and drivers before R450 write 16: with the wrong length,
//! memory sizes would be read as pids. The length is derived from the written bytes of every list
//! before a pid is accepted.

use super::raw::{self, ListBuffer, ListKind, UNTOUCHED};
use gpukill_proto::model::InstanceId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessRecord {
    pub(super) pid: u32,
    /// In bytes; `None` where the driver cannot report it.
    pub(super) memory: Option<u64>,
    pub(super) instance: Option<InstanceId>,
}

/// Why a list could not be read.
#[derive(Debug)]
pub(super) enum ListError {
    Nvml(NvmlError),
    /// The list grew each time it was read with more room.
    Growing,
    /// The driver wrote records of an unknown length.
    UnknownRecords,
}

impl From<NvmlError> for ListError {
    fn from(error: NvmlError) -> Self {
        Self::Nvml(error)
    }
}

/// The room for the first try: enough on a normal host.
const FIRST_ROOM: u32 = 128;

/// No host has more processes on one GPU. A list that needs more room than this fails as
/// [`ListError::Growing`].
const MAX_RECORDS: u32 = 65_536;

/// How many times a list is tried while it grows.
const MAX_TRIES: u32 = 4;

pub(super) fn read_records(
    nvml: &Nvml,
    device: &Device<'_>,
    which: ListKind,
) -> Result<Vec<ProcessRecord>, ListError> {
    let listed = retry_with_room(|room| raw::read_list(nvml, device, which, room))?;
    parse_records(&listed).ok_or(ListError::UnknownRecords)
}

/// Tries with more room until it is enough.
fn retry_with_room<T>(mut ask: impl FnMut(u32) -> Result<T, NvmlError>) -> Result<T, ListError> {
    let mut room = FIRST_ROOM;
    for _ in 0..MAX_TRIES {
        match ask(room) {
            Err(NvmlError::InsufficientSize(there_are)) => {
                let there_are = there_are.and_then(|count| u32::try_from(count).ok());
                let more = there_are.unwrap_or(0).max(room).saturating_mul(2);
                room = more.min(MAX_RECORDS);
            }
            other => return other.map_err(ListError::Nvml),
        }
    }
    Err(ListError::Growing)
}

/// Parses the written records; `None` if they fit no known length.
fn parse_records(listed: &ListBuffer) -> Option<Vec<ProcessRecord>> {
    if listed.count == 0 {
        return Some(Vec::new());
    }
    let last_touched = listed.bytes.iter().rposition(|byte| *byte != UNTOUCHED);
    let written = last_touched.map_or(0, |last| last + 1);
    let of_length = |length: usize| -> Option<Vec<ProcessRecord>> {
        let end = listed.count.checked_mul(length)?;
        let records = listed.bytes.get(..end)?.chunks_exact(length);
        records.map(parse_record).collect()
    };
    // A driver that first clears the whole buffer shows no end; then the records themselves must be
    // unambiguous, also if the last field of the last longer record was not written.
    let lengths = || listed.lengths.iter().copied();
    let cleared = lengths().any(|length| listed.room.checked_mul(length) == Some(written));
    let unfinished = match *listed.lengths {
        [short, long] if listed.count > 1 => {
            let max_bytes = (listed.count - 1).checked_mul(long);
            max_bytes.and_then(|max_bytes| max_bytes.checked_add(short)) == Some(written)
        }
        _ => false,
    };
    if !cleared && !unfinished {
        let exact = lengths().find(|length| listed.count.checked_mul(*length) == Some(written));
        return exact.and_then(of_length);
    }
    let mut likely = lengths()
        .filter_map(of_length)
        .filter(|records| records.iter().all(is_plausible));
    let first = likely.next()?;
    likely.all(|other| other == first).then_some(first)
}

/// Whether this can be a record at all, and not the middle of one.
fn is_plausible(record: &ProcessRecord) -> bool {
    // The kernel's greatest pid (PID_MAX_LIMIT), and more MIG instances than any GPU has.
    const MAX_PIDS: u32 = 1 << 22;
    const MAX_INSTANCES: u32 = 64;
    let instance = record.instance;
    (1..=MAX_PIDS).contains(&record.pid)
        && instance.is_none_or(|id| id.gpu < MAX_INSTANCES && id.compute < MAX_INSTANCES)
}

fn parse_record(bytes: &[u8]) -> Option<ProcessRecord> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let memory = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some(ProcessRecord {
        pid: word(0)?,
        // NVML_VALUE_NOT_AVAILABLE
        memory: (memory != u64::MAX).then_some(memory),
        instance: match (word(16), word(20)) {
            (Some(gpu), Some(compute)) => raw::instance(gpu, compute),
            _ => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::raw::{LONG_RECORDS, SHORT_RECORDS};
    use super::*;

    const ROOM: usize = 16;

    /// Records of this length with these pids and sizes, in a buffer with room for more.
    fn list_buffer(length: usize, processes: &[(u32, u64)]) -> ListBuffer {
        let mut bytes = Vec::new();
        for (pid, memory) in processes {
            let mut record = vec![0; length];
            record[..4].copy_from_slice(&pid.to_ne_bytes());
            record[8..16].copy_from_slice(&memory.to_ne_bytes());
            if let Some(instance) = record.get_mut(16..24) {
                instance.copy_from_slice(&[0xff; 8]);
            }
            bytes.extend(record);
        }
        bytes.resize(ROOM * 32, UNTOUCHED);
        ListBuffer {
            bytes,
            count: processes.len(),
            room: ROOM,
            lengths: LONG_RECORDS,
        }
    }

    /// The same records from a driver before R450.
    fn list_buffer_before_r450(length: usize, processes: &[(u32, u64)]) -> ListBuffer {
        ListBuffer {
            lengths: SHORT_RECORDS,
            ..list_buffer(length, processes)
        }
    }

    #[test]
    fn short_records_of_old_drivers() {
        let processes = [(48_213, 1 << 34), (48_214, u64::MAX), (7, 0)];
        let expected = Some(vec![(48_213, Some(1 << 34)), (48_214, None), (7, Some(0))]);
        assert_eq!(pids(&list_buffer_before_r450(16, &processes)), expected);
        // The length is checked for old drivers too, and for the newer function names.
        assert_eq!(pids(&list_buffer_before_r450(24, &processes)), None);
        assert_eq!(pids(&list_buffer_before_r450(32, &processes)), None);
        assert_eq!(pids(&list_buffer(16, &processes)), None);
        let mut cleared = list_buffer_before_r450(16, &processes);
        cleared.bytes[3 * 16..ROOM * 16].fill(0);
        assert_eq!(pids(&cleared), expected);
        let mut longer = list_buffer_before_r450(24, &processes);
        longer.bytes[3 * 24..ROOM * 24].fill(0);
        assert_eq!(pids(&longer), None);
    }

    fn pids(listed: &ListBuffer) -> Option<Vec<(u32, Option<u64>)>> {
        let records = parse_records(listed)?;
        Some(
            records
                .iter()
                .map(|record| (record.pid, record.memory))
                .collect(),
        )
    }

    #[test]
    fn both_record_lengths_parse_alike() {
        let processes = [(48_213, 1 << 34), (48_214, u64::MAX), (7, 0)];
        let expected = Some(vec![(48_213, Some(1 << 34)), (48_214, None), (7, Some(0))]);
        assert_eq!(pids(&list_buffer(24, &processes)), expected);
        assert_eq!(pids(&list_buffer(32, &processes)), expected);
        assert_eq!(pids(&list_buffer(24, &[])), Some(vec![]));
    }

    #[test]
    fn unknown_record_length_is_refused() {
        assert_eq!(pids(&list_buffer(40, &[(7, 1)])), None);
        let mut more_than_counted = list_buffer(24, &[(7, 1), (8, 1)]);
        more_than_counted.count = 1;
        assert_eq!(pids(&more_than_counted), None);
        let mut fewer_than_counted = list_buffer(24, &[(7, 1)]);
        fewer_than_counted.count = usize::MAX;
        assert_eq!(pids(&fewer_than_counted), None);
        let nothing_written = ListBuffer {
            bytes: vec![UNTOUCHED; ROOM * 32],
            count: 3,
            room: ROOM,
            lengths: LONG_RECORDS,
        };
        assert_eq!(pids(&nothing_written), None);
    }

    #[test]
    fn cleared_buffer_needs_unambiguous_records() {
        let cleared = |length: usize, processes: &[(u32, u64)]| {
            let mut listed = list_buffer(length, processes);
            let room = &mut listed.bytes[processes.len() * length..ROOM * length];
            room.fill(0);
            listed
        };
        let processes = [(48_213, 1 << 34), (48_214, 3 << 20), (7, 5 << 20)];
        let expected = pids(&list_buffer(24, &processes));
        assert_eq!(pids(&cleared(24, &processes)), expected);
        assert_eq!(pids(&cleared(32, &processes)), expected);
        // Two possible parses of the same bytes.
        let mut doubtful = cleared(24, &[(7, 1), (8, 1 << 20 | 9 << 32)]);
        doubtful.bytes[24..32].copy_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0]);
        doubtful.bytes[32..40].copy_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0]);
        doubtful.bytes[48..56].copy_from_slice(&[0xff; 8]);
        assert_eq!(pids(&doubtful), None);
    }

    #[test]
    fn cleared_buffer_is_not_longer_records() {
        // 12 of 16 records: 12 times 32 bytes is 16 times 24.
        let processes: Vec<(u32, u64)> =
            (1..=12).map(|n| (5_000 + n, u64::from(n) << 30)).collect();
        let mut listed = list_buffer(24, &processes);
        listed.bytes[12 * 24..ROOM * 24].fill(0);
        assert_eq!(pids(&listed), pids(&list_buffer(24, &processes)));
    }

    #[test]
    fn last_field_may_be_unwritten() {
        let processes = [(48_213, 1 << 34), (48_214, 3 << 20), (7, 5 << 20)];
        let mut listed = list_buffer(32, &processes);
        listed.bytes[88..96].fill(UNTOUCHED);
        assert_eq!(pids(&listed), pids(&list_buffer(24, &processes)));
    }

    #[test]
    fn growing_list_is_retried_a_few_times() {
        let mut rooms = Vec::new();
        let grown = retry_with_room(|room| {
            rooms.push(room);
            match rooms.len() {
                1 => Err(NvmlError::InsufficientSize(Some(1000))),
                _ => Ok(()),
            }
        });
        assert!(grown.is_ok());
        assert_eq!(rooms, [128, 2000]);
        let endless = retry_with_room(|room| {
            Err::<(), _>(NvmlError::InsufficientSize(Some(room as usize + 1)))
        });
        assert!(matches!(endless, Err(ListError::Growing)));
        let absurd = retry_with_room(|room| {
            assert!(room <= MAX_RECORDS);
            Err::<(), _>(NvmlError::InsufficientSize(Some(usize::MAX)))
        });
        assert!(matches!(absurd, Err(ListError::Growing)));
    }
}
