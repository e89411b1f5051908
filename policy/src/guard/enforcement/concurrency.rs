//! How many jobs the guard ends at the same time. One person's jobs that end slowly must
//! not block those of others.

/// In total. Each takes a thread, an occasional scan of all processes, and up to two
/// minutes.
const MAX_CONCURRENT: usize = 12;

const MAX_PER_PERSON: usize = 4;

/// A person gets a second slot only while fewer than this are taken. The others are for
/// people without a slot.
const MAX_SHARED: usize = 6;

/// Whether one more job of a person may be ended now, given the numbers in progress for
/// this person and in total.
#[must_use]
pub const fn has_slot(of_person: usize, in_all: usize) -> bool {
    match of_person {
        0 => in_all < MAX_CONCURRENT,
        _ => of_person < MAX_PER_PERSON && in_all < MAX_SHARED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many slots each of these people gets, in this order, if each takes as many as
    /// possible.
    fn slots_per_person(people: usize) -> Vec<usize> {
        let mut taken: Vec<usize> = Vec::new();
        for _ in 0..people {
            let mut own = 0;
            while has_slot(own, taken.iter().sum::<usize>() + own) {
                own += 1;
            }
            taken.push(own);
        }
        taken
    }

    #[test]
    fn few_people_cannot_take_all_slots() {
        assert_eq!(slots_per_person(1), [4]);
        // The first person takes the maximum. Eight slots are left for others.
        assert_eq!(slots_per_person(10), [4, 2, 1, 1, 1, 1, 1, 1, 0, 0]);
    }
}
