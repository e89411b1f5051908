//! The colour of each person: the same on all pages, and as long as the person is there.

use super::format::segment;
use gpukill_proto::json::ListDocument;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// The colours with a pattern each in `page.css`: `p0` to `p7`.
const COLOURS: usize = 8;

/// The colour of everything that belongs to no person.
pub(super) const NOBODY: usize = 8;

/// The colours of people by name.
pub(super) struct People(BTreeMap<String, usize>);

impl People {
    /// Gives each owner of a process a colour: that of the name, or the next that is free.
    pub(super) fn new(list: &ListDocument) -> Self {
        let owners = list.procs.iter().filter_map(|it| it.owner.as_deref());
        let owners: BTreeSet<&str> = owners.collect();
        let mut taken = BTreeSet::new();
        let mut colours = BTreeMap::new();
        for owner in owners {
            let first = colour_of(owner);
            let mut all = (0..COLOURS).map(|step| (first + step) % COLOURS);
            let colour = all.find(|it| !taken.contains(it)).unwrap_or(first);
            taken.insert(colour);
            colours.insert(owner.to_owned(), colour);
        }
        Self(colours)
    }

    /// The number of people with processes.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The number of the colour; [`NOBODY`] of an empty name.
    pub(super) fn colour(&self, name: &str) -> usize {
        let known = self.0.get(name).copied();
        known.unwrap_or_else(|| match name {
            "" => NOBODY,
            _ => colour_of(name),
        })
    }

    /// The person with their colour, as a link.
    pub(super) fn chip(&self, name: &str) -> Markup {
        let class = format!("who p{}", self.colour(name));
        html! {
            a class=(class) href={ "/person/" (segment(name)) } { i {} bdi { (name) } }
        }
    }
}

/// What belongs to no known person, in the form of a chip.
pub(super) fn nobody(label: &str) -> Markup {
    html! { span.who.p8 { i {} (label) } }
}

/// FNV-1a: the same for the same name, also after a restart.
fn colour_of(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The higher bits are better mixed.
    usize::try_from((hash >> 32) % COLOURS as u64).unwrap_or_default()
}
