//! How many jobs the guard ends side by side: a person whose jobs take long to end does not
//! keep it from other people's.

/// In all. Each takes a thread, a look at all processes now and then, and up to two minutes.
const IN_ALL: usize = 12;

/// Of one person.
const OF_ONE: usize = 4;

/// A person has a second one and more only while fewer than this are taken: the rest are
/// for people of whom no job is being ended.
const SHARED: usize = 6;

/// Whether one more job of a person is ended now, while so many of theirs and so many in all
/// are.
#[must_use]
pub const fn has_place(of_person: usize, in_all: usize) -> bool {
    match of_person {
        0 => in_all < IN_ALL,
        _ => of_person < OF_ONE && in_all < SHARED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many places each of these people gets, in this order, each as many as they can.
    fn taken(people: usize) -> Vec<usize> {
        let mut taken: Vec<usize> = Vec::new();
        for _ in 0..people {
            let mut own = 0;
            while has_place(own, taken.iter().sum::<usize>() + own) {
                own += 1;
            }
            taken.push(own);
        }
        taken
    }

    #[test]
    fn no_few_people_take_the_places_of_all() {
        assert_eq!(taken(1), [4]);
        // After one who takes all they get there is one for each of eight others.
        assert_eq!(taken(10), [4, 2, 1, 1, 1, 1, 1, 1, 0, 0]);
    }
}
