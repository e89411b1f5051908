//! Merges the entries of several sources into one page, in the order of their positions.

use gpukill_proto::audit::{TimelineCursor, TimelineSource};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::transport::codec::encoded_size;
use gpukill_proto::units::Timestamp;
use serde::Serialize;

/// The most encoded bytes of one page, and of what one source contributes to it. A single entry
/// may be larger: it is a page of its own, an eighth of a frame.
const MAX_PAGE_BYTES: u64 = 256 << 10;

/// The most rows of one source that are read for one page, whether or not they belong to the
/// timeline.
const MAX_ROWS: u32 = 10_000;

/// The part of a source that one page can need.
#[derive(Debug)]
pub(super) struct SourcePart<T> {
    source: TimelineSource,
    /// The first position of the page.
    from: Option<TimelineCursor>,
    limit: usize,
    /// With their positions and encoded sizes.
    entries: Vec<(TimelineCursor, u64, T)>,
    bytes: u64,
    rows: u32,
    /// The position of the first row that was not read; `None` if all were read.
    unread_from: Option<TimelineCursor>,
}

impl<T: Serialize> SourcePart<T> {
    /// A source from the first position of a page with this maximum number of entries.
    pub(super) const fn new(
        source: TimelineSource,
        from: Option<TimelineCursor>,
        limit: usize,
    ) -> Self {
        Self {
            source,
            from,
            limit,
            entries: Vec::new(),
            bytes: 0,
            rows: 0,
            unread_from: None,
        }
    }

    /// The time and the id of the first row to read.
    pub(super) fn start(&self) -> (Timestamp, u64) {
        let Some(from) = self.from else {
            return (Timestamp(i64::MIN), 0);
        };
        match self.source.cmp(&from.source) {
            std::cmp::Ordering::Less => (Timestamp(from.at.0.saturating_add(1)), 0),
            std::cmp::Ordering::Equal => (from.at, from.id),
            std::cmp::Ordering::Greater => (from.at, 0),
        }
    }

    /// The most rows that the page can need if each is an entry: the next page begins at the last.
    pub(super) const fn max_rows(&self) -> usize {
        self.limit.saturating_add(1)
    }

    /// Whether the row at this position may be read. If not, the source ends here.
    pub(super) fn takes(&mut self, at: Timestamp, id: u64) -> bool {
        let is_full = self.entries.len() >= self.limit
            || self.bytes > MAX_PAGE_BYTES
            || self.rows >= MAX_ROWS;
        if is_full {
            self.unread_from = Some(self.position(at, id));
        }
        self.rows += 1;
        !is_full
    }

    /// Adds the entry of a row that was read.
    pub(super) fn push(&mut self, at: Timestamp, id: u64, entry: T) {
        let size = encoded_size(&entry).unwrap_or(MAX_PAGE_BYTES);
        self.bytes += size;
        self.entries.push((self.position(at, id), size, entry));
    }

    /// Adds the entries of a source that is computed as a whole, in any order.
    pub(super) fn extend(&mut self, mut all: Vec<(Timestamp, u64, T)>) {
        let start = self.start();
        all.retain(|(at, id, _)| (*at, *id) >= start);
        all.sort_indirect_by_key(|(at, id, _)| (*at, *id));
        for (at, id, entry) in all {
            if !self.takes(at, id) {
                return;
            }
            self.push(at, id, entry);
        }
    }

    /// The entries so far, each with the id of its row.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let entries = self.entries.iter_mut();
        entries.map(|(position, _, entry)| (position.id, entry))
    }

    const fn position(&self, at: Timestamp, id: u64) -> TimelineCursor {
        TimelineCursor {
            at,
            source: self.source,
            id,
        }
    }
}

/// Merges sources into the entries of a page, and the position at which the next page starts.
pub(super) fn merge<T>(
    parts: Vec<SourcePart<T>>,
    limit: usize,
) -> (Vec<T>, Option<TimelineCursor>) {
    // Beyond this position an entry of the source that ends first could be missing.
    let end = parts.iter().filter_map(|part| part.unread_from).min();
    let all = parts.into_iter().flat_map(|part| part.entries);
    let mut all: Vec<(TimelineCursor, u64, T)> = all
        .filter(|(position, ..)| end.is_none_or(|end| *position < end))
        .collect();
    all.sort_indirect_by_key(|(position, ..)| *position);
    let (mut page, mut bytes) = (Vec::new(), 0);
    for (position, size, entry) in all {
        bytes += size;
        let is_full = page.len() >= limit || bytes > MAX_PAGE_BYTES;
        if is_full && !page.is_empty() {
            return (page, Some(position));
        }
        page.push(entry);
    }
    (page, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::collect::IntoSet as _;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const SOURCES: [TimelineSource; 3] = [
        TimelineSource::Event,
        TimelineSource::Stretch,
        TimelineSource::RunEnd,
    ];

    /// A row: its source, its position, whether it belongs to the timeline, and its length.
    type Row = (usize, i64, u64, bool, usize);

    fn pages(rows: &[Row], limit: usize) -> Vec<Vec<(TimelineCursor, String)>> {
        let mut from = None;
        let mut pages = Vec::new();
        loop {
            let parts = SOURCES.iter().enumerate().map(|(at, source)| {
                let mut part = SourcePart::new(*source, from, limit);
                let mut rows: Vec<&Row> = rows.iter().filter(|row| row.0 == at).collect();
                rows.sort_by_key(|row| (row.1, row.2));
                let start = part.start();
                for (_, time, id, is_wanted, length) in rows {
                    let time = Timestamp(*time);
                    if (time, *id) < start {
                        continue;
                    }
                    if !part.takes(time, *id) {
                        break;
                    }
                    if *is_wanted {
                        let position = part.position(time, *id);
                        part.push(time, *id, (position, "x".repeat(*length)));
                    }
                }
                part
            });
            let (entries, next) = merge(parts.collect(), limit);
            assert!(entries.len() <= limit);
            pages.push(entries);
            assert!(pages.len() < 1_000, "the pages do not advance");
            assert!(next.is_none() || next > from, "{next:?} {from:?}");
            from = next;
            if from.is_none() {
                return pages;
            }
        }
    }

    proptest! {
        #[test]
        fn pages_join_to_all_entries_in_order(
            rows in prop::collection::btree_set(
                (0..3_usize, 0..6_i64, 0..12_u64), 0..60,
            ),
            wanted in prop::collection::vec(any::<bool>(), 60),
            long in prop::collection::vec(prop::bool::weighted(0.1), 60),
            limit in 1..8_usize,
        ) {
            let rows: Vec<Row> = rows
                .into_iter()
                .zip(wanted.into_iter().zip(long))
                .map(|((source, at, id), (wanted, long))| {
                    let length = if long { 200 << 10 } else { 1 };
                    (source, at, id, wanted, length)
                })
                .collect();
            let joined: Vec<TimelineCursor> = pages(&rows, limit)
                .into_iter()
                .flatten()
                .map(|(position, _)| position)
                .collect();
            let expected: BTreeSet<TimelineCursor> = rows
                .iter()
                .filter(|row| row.3)
                .map(|(source, at, id, ..)| TimelineCursor {
                    at: Timestamp(*at),
                    source: SOURCES[*source],
                    id: *id,
                })
                .into_set();
            prop_assert_eq!(joined, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn many_unwanted_rows_end_a_page_early() {
        let mut rows: Vec<Row> = (0..25_000).map(|at| (0, at, 1, false, 1)).collect();
        rows.push((1, 12_000, 7, true, 1));
        let pages = pages(&rows, 100);
        let counts: Vec<usize> = pages.iter().map(Vec::len).collect();
        assert_eq!(counts, [0, 1, 0]);
    }

    #[test]
    fn page_is_bounded_in_bytes() {
        let rows: Vec<Row> = (0..5).map(|at| (0, at, 1, true, 100 << 10)).collect();
        let counts: Vec<usize> = pages(&rows, 100).iter().map(Vec::len).collect();
        assert_eq!(counts, [2, 2, 1]);
        let huge: Vec<Row> = (0..3).map(|at| (at, 0, 1, true, 300 << 10)).collect();
        let counts: Vec<usize> = pages(&huge, 100).iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 1, 1]);
    }
}
