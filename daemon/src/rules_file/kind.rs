//! What the rules of one file have of their own, and how they stand.

use crate::audit::RulesOf;
use gpukill_proto::guard::RulesRevision;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// What one kind of rules has of its own.
pub(crate) trait Kind {
    /// What they say, understood. Clones are cheap.
    type Rules: Clone;
    /// One change of them, told as it is recorded.
    type Edit: fmt::Display;

    /// Under what they are recorded.
    const OF: RulesOf;
    /// What is typed to have a file of them checked.
    const CHECK: &str;

    /// What holds where there is no file.
    fn built_in() -> Self::Rules;

    /// What a text says.
    ///
    /// # Errors
    /// Every mistake in it.
    fn read(text: &str) -> Result<Self::Rules, Vec<Wrong>>;

    /// What a text becomes, while these are in force.
    ///
    /// # Errors
    /// Why it is not changed.
    fn edited(text: &str, asked: &Self::Edit, held: &Self::Rules) -> Result<String, String>;

    /// The text that an edit puts in the place of all.
    fn whole(asked: &Self::Edit) -> Option<&str>;

    /// Logs that they are in force.
    fn log(rules: &Self::Rules, revision: Option<&str>);
}

/// Rules, and where they come from.
#[derive(Debug, Clone)]
pub(crate) struct InForce<R> {
    pub(crate) rules: R,
    /// As they are written; empty where there is no file.
    pub(crate) text: Arc<str>,
    /// `None` where there is no file, and the built-in ones hold.
    pub(crate) revision: Option<RulesRevision>,
    /// Why the file as it was last read is not in force.
    pub(crate) mistakes: Vec<Wrong>,
    /// Names the text that has them.
    pub(super) mistaken: Option<RulesRevision>,
}

impl<R> InForce<R> {
    pub(super) fn of(rules: R, text: &str, revision: Option<RulesRevision>) -> Self {
        Self {
            rules,
            text: text.into(),
            revision,
            mistakes: Vec::new(),
            mistaken: None,
        }
    }
}

/// What is wrong with a file of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wrong {
    /// Where, without a word of what the file says.
    place: String,
    /// What.
    what: String,
}

impl Wrong {
    /// A mistake at this place, in words: `line 3`.
    pub(crate) fn mistake(place: Option<String>, what: String) -> Self {
        let place = match place {
            Some(place) => format!("a mistake in {place}"),
            None => "a mistake".to_owned(),
        };
        Self { place, what }
    }

    /// The first of many: nobody reads more, and a file can have one on each line.
    pub(crate) fn first_ones(mut all: Vec<Self>) -> Vec<Self> {
        const MOST: usize = 100;
        let more = all.len().saturating_sub(MOST);
        all.truncate(MOST);
        if more > 0 {
            all.push(Self::mistake(None, format!("{more} more mistakes")));
        }
        all
    }

    /// The file cannot be read.
    pub(super) fn unreadable(why: &std::io::Error) -> Self {
        Self {
            place: why.to_string(),
            what: why.to_string(),
        }
    }

    /// Where, without a word of what the file says.
    pub(crate) fn place(&self) -> String {
        self.place.clone()
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
