//! A list of processes, from the driver's bytes to records. Some builds of R535
//! write records of 32 bytes where all others write 24, and drivers before R450
//! write 16: taken for each other, memory becomes pids. How long they are is seen
//! from what was written, in every list, before a pid is believed.

use super::raw::{self, List, Listed, UNTOUCHED};
use gpukill_proto::snapshot::InstanceId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// One process in one list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) pid: u32,
    /// In bytes; `None` where the driver cannot tell.
    pub(super) memory: Option<u64>,
    pub(super) instance: Option<InstanceId>,
}

/// Why a list could not be had.
#[derive(Debug)]
pub(super) enum ListError {
    Nvml(NvmlError),
    /// It grew each time it was asked for with more room.
    Growing,
    /// The driver wrote records of a length that nobody knows.
    UnknownRecords,
}

impl From<NvmlError> for ListError {
    fn from(error: NvmlError) -> Self {
        Self::Nvml(error)
    }
}

/// The room for the first try: no list is asked for twice on a normal box.
const FIRST_ROOM: u32 = 128;

/// No box has more processes on one GPU; a driver that says so is not believed.
const MOST: u32 = 65_536;

/// How often a list may grow between two tries.
const TRIES: u32 = 4;

/// One of the lists of a device.
pub(super) fn list(
    nvml: &Nvml,
    device: &Device<'_>,
    which: List,
) -> Result<Vec<Record>, ListError> {
    let listed = with_room(|room| raw::list(nvml, device, which, room))?;
    parse(&listed).ok_or(ListError::UnknownRecords)
}

/// Asks with more room until it is enough.
fn with_room<T>(mut ask: impl FnMut(u32) -> Result<T, NvmlError>) -> Result<T, ListError> {
    let mut room = FIRST_ROOM;
    for _ in 0..TRIES {
        match ask(room) {
            Err(NvmlError::InsufficientSize(there_are)) => {
                let there_are = there_are.and_then(|count| u32::try_from(count).ok());
                let more = there_are.unwrap_or(0).max(room).saturating_mul(2);
                room = more.min(MOST);
            }
            other => return other.map_err(ListError::Nvml),
        }
    }
    Err(ListError::Growing)
}

/// The records in what was written; `None` when that fits no known length.
fn parse(listed: &Listed) -> Option<Vec<Record>> {
    if listed.count == 0 {
        return Some(Vec::new());
    }
    let last_touched = listed.bytes.iter().rposition(|byte| *byte != UNTOUCHED);
    let written = last_touched.map_or(0, |last| last + 1);
    let of_length = |length: usize| -> Option<Vec<Record>> {
        let end = listed.count.checked_mul(length)?;
        let records = listed.bytes.get(..end)?.chunks_exact(length);
        records.map(record).collect()
    };
    // A driver that first clears all the room shows no end; then the records
    // themselves must leave no doubt, and also when the last field of the last
    // longer record was not written.
    let lengths = || listed.lengths.iter().copied();
    let cleared = lengths().any(|length| listed.room.checked_mul(length) == Some(written));
    let unfinished = match *listed.lengths {
        [short, long] if listed.count > 1 => {
            let most = (listed.count - 1).checked_mul(long);
            most.and_then(|most| most.checked_add(short)) == Some(written)
        }
        _ => false,
    };
    if !cleared && !unfinished {
        let exact = lengths().find(|length| listed.count.checked_mul(*length) == Some(written));
        return exact.and_then(of_length);
    }
    let mut likely = lengths()
        .filter_map(of_length)
        .filter(|records| records.iter().all(is_likely));
    let first = likely.next()?;
    likely.all(|other| other == first).then_some(first)
}

/// Whether this may be a record at all, and not the middle of one.
fn is_likely(record: &Record) -> bool {
    // The kernel's greatest pid (PID_MAX_LIMIT), and more MIG instances than
    // any GPU has.
    const MOST_PIDS: u32 = 1 << 22;
    const MOST_INSTANCES: u32 = 64;
    let instance = record.instance;
    (1..=MOST_PIDS).contains(&record.pid)
        && instance.is_none_or(|id| id.gpu < MOST_INSTANCES && id.compute < MOST_INSTANCES)
}

fn record(bytes: &[u8]) -> Option<Record> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let memory = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some(Record {
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
    use super::super::raw::{LONG, SHORT};
    use super::*;

    const ROOM: usize = 16;

    /// Records of this length for these pids, each with so many bytes, in a
    /// buffer with room for more.
    fn written(length: usize, processes: &[(u32, u64)]) -> Listed {
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
        Listed {
            bytes,
            count: processes.len(),
            room: ROOM,
            lengths: LONG,
        }
    }

    /// The same as a driver before R450 is asked for them.
    fn written_before_r450(length: usize, processes: &[(u32, u64)]) -> Listed {
        Listed {
            lengths: SHORT,
            ..written(length, processes)
        }
    }

    #[test]
    fn the_short_records_of_old_drivers_name_the_same_processes_and_no_others_do() {
        let processes = [(48_213, 1 << 34), (48_214, u64::MAX), (7, 0)];
        let expected = Some(vec![(48_213, Some(1 << 34)), (48_214, None), (7, Some(0))]);
        assert_eq!(pids(&written_before_r450(16, &processes)), expected);
        // The length is seen there too, and also by the newer names.
        assert_eq!(pids(&written_before_r450(24, &processes)), None);
        assert_eq!(pids(&written_before_r450(32, &processes)), None);
        assert_eq!(pids(&written(16, &processes)), None);
        let mut cleared = written_before_r450(16, &processes);
        cleared.bytes[3 * 16..ROOM * 16].fill(0);
        assert_eq!(pids(&cleared), expected);
        let mut longer = written_before_r450(24, &processes);
        longer.bytes[3 * 24..ROOM * 24].fill(0);
        assert_eq!(pids(&longer), None);
    }

    fn pids(listed: &Listed) -> Option<Vec<(u32, Option<u64>)>> {
        let records = parse(listed)?;
        Some(
            records
                .iter()
                .map(|record| (record.pid, record.memory))
                .collect(),
        )
    }

    #[test]
    fn records_of_both_lengths_name_the_same_processes() {
        let processes = [(48_213, 1 << 34), (48_214, u64::MAX), (7, 0)];
        let expected = Some(vec![(48_213, Some(1 << 34)), (48_214, None), (7, Some(0))]);
        assert_eq!(pids(&written(24, &processes)), expected);
        assert_eq!(pids(&written(32, &processes)), expected);
        assert_eq!(pids(&written(24, &[])), Some(vec![]));
    }

    #[test]
    fn records_of_another_length_are_not_believed() {
        assert_eq!(pids(&written(40, &[(7, 1)])), None);
        let mut more_than_told = written(24, &[(7, 1), (8, 1)]);
        more_than_told.count = 1;
        assert_eq!(pids(&more_than_told), None);
        let mut fewer_than_told = written(24, &[(7, 1)]);
        fewer_than_told.count = usize::MAX;
        assert_eq!(pids(&fewer_than_told), None);
        let nothing_written = Listed {
            bytes: vec![UNTOUCHED; ROOM * 32],
            count: 3,
            room: ROOM,
            lengths: LONG,
        };
        assert_eq!(pids(&nothing_written), None);
    }

    #[test]
    fn a_driver_that_clears_all_the_room_is_believed_where_there_is_no_doubt() {
        let cleared = |length: usize, processes: &[(u32, u64)]| {
            let mut listed = written(length, processes);
            let room = &mut listed.bytes[processes.len() * length..ROOM * length];
            room.fill(0);
            listed
        };
        let processes = [(48_213, 1 << 34), (48_214, 3 << 20), (7, 5 << 20)];
        let expected = pids(&written(24, &processes));
        assert_eq!(pids(&cleared(24, &processes)), expected);
        assert_eq!(pids(&cleared(32, &processes)), expected);
        // Two readings of the same bytes, neither of them impossible.
        let mut doubtful = cleared(24, &[(7, 1), (8, 1 << 20 | 9 << 32)]);
        doubtful.bytes[24..32].copy_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0]);
        doubtful.bytes[32..40].copy_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0]);
        doubtful.bytes[48..56].copy_from_slice(&[0xff; 8]);
        assert_eq!(pids(&doubtful), None);
    }

    #[test]
    fn a_cleared_room_that_looks_like_longer_records_is_not_taken_for_them() {
        // 12 of 16 records: 12 times 32 bytes is 16 times 24.
        let processes: Vec<(u32, u64)> =
            (1..=12).map(|n| (5_000 + n, u64::from(n) << 30)).collect();
        let mut listed = written(24, &processes);
        listed.bytes[12 * 24..ROOM * 24].fill(0);
        assert_eq!(pids(&listed), pids(&written(24, &processes)));
    }

    #[test]
    fn the_last_field_of_a_longer_record_may_be_left_unwritten() {
        let processes = [(48_213, 1 << 34), (48_214, 3 << 20), (7, 5 << 20)];
        let mut listed = written(32, &processes);
        listed.bytes[88..96].fill(UNTOUCHED);
        assert_eq!(pids(&listed), pids(&written(24, &processes)));
    }

    #[test]
    fn a_list_that_grows_is_asked_again_with_more_room_and_not_for_ever() {
        let mut rooms = Vec::new();
        let grown = with_room(|room| {
            rooms.push(room);
            match rooms.len() {
                1 => Err(NvmlError::InsufficientSize(Some(1000))),
                _ => Ok(()),
            }
        });
        assert!(grown.is_ok());
        assert_eq!(rooms, [128, 2000]);
        let endless =
            with_room(|room| Err::<(), _>(NvmlError::InsufficientSize(Some(room as usize + 1))));
        assert!(matches!(endless, Err(ListError::Growing)));
        let absurd = with_room(|room| {
            assert!(room <= MOST);
            Err::<(), _>(NvmlError::InsufficientSize(Some(usize::MAX)))
        });
        assert!(matches!(absurd, Err(ListError::Growing)));
    }
}
