//! How the memory of the gateway is divided. All shares together are less than `MemoryMax` of
//! gpukill-gateway.service, so that no client can make the kernel end the gateway.

/// The most rows of processes in a snapshot: what gpukilld accepts of a backend.
pub(crate) const MAX_ROWS: usize = 20_000;

/// The most bytes of all answers that clients have not read yet. One longer answer is possible.
pub(crate) const MAX_HELD_BYTES: usize = 64 << 20;

/// The most bytes of all answers of gpukilld that are kept.
pub(crate) const MAX_KEPT_ANSWERS: usize = 32 << 20;

/// The most bytes of all parts with a filter that are kept. One without a filter is no longer than the
/// snapshot.
pub(crate) const MAX_KEPT_PARTS: usize = 16 << 20;

/// A part of a longer snapshot is made alone.
pub(crate) const LARGE_PART: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a row takes as JSON, in bytes, where everything is known: measured.
    const ROW: usize = 2_048;

    #[test]
    fn shares_are_less_than_the_limit_of_the_unit() {
        let unit = include_str!("../../systemd/gateway/gpukill-gateway.service");
        let limit = unit.lines().find_map(|it| it.strip_prefix("MemoryMax="));
        let limit = limit.and_then(|it| it.strip_suffix('M')).unwrap();
        let limit = limit.parse::<usize>().unwrap() << 20;
        let snapshot = MAX_ROWS * ROW;
        // The newest snapshot and the one before it: as received, as rows, which take twice as much as
        // JSON, as JSON, as an event and as a message.
        let frames = 2 * 6 * snapshot;
        // One that is made, and one that is kept.
        let parts = 2 * snapshot + MAX_KEPT_PARTS;
        // Code, connections and calls that run.
        let rest = 64 << 20;
        let all = frames + parts + MAX_HELD_BYTES + snapshot + MAX_KEPT_ANSWERS + rest;
        assert!(all < limit, "{all} of {limit}");
        assert!(unit.contains("\nEnvironment=MALLOC_ARENA_MAX=2\n"));
    }
}
