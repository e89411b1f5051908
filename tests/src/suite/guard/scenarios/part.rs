//! One process of a story: whose it is, what it does on which GPU, and what is known
//! of it.

/// What a process does on a GPU.
#[derive(Clone, Copy)]
pub(super) struct Hold {
    pub(super) gpu: usize,
    /// Bytes; `None` where the driver does not tell.
    pub(super) memory: Option<u64>,
    /// Percent.
    pub(super) works: u32,
}

/// Holds so much of a GPU and does nothing.
pub(super) const fn holds(gpu: usize, memory: u64) -> Hold {
    Hold {
        gpu,
        memory: Some(memory),
        works: 0,
    }
}

/// Holds nobody knows how much.
pub(super) const fn holds_unknown(gpu: usize) -> Hold {
    Hold {
        gpu,
        memory: None,
        works: 0,
    }
}

impl Hold {
    /// So many percent of it.
    pub(super) const fn works(self, percent: u32) -> Self {
        Self {
            works: percent,
            ..self
        }
    }
}

/// One process, and what is to be known of it.
pub(super) struct Part<'a> {
    /// The person.
    pub(super) who: &'a str,
    /// What it is called here, where a person has several.
    pub(super) called: Option<&'a str>,
    pub(super) holds: &'a [Hold],
    /// The name of its program.
    pub(super) program: &'a str,
    /// What its command line ends with.
    pub(super) argument: &'a str,
    pub(super) cgroup: &'a str,
    /// Files of it that nobody can read.
    pub(super) hides: &'a [&'a str],
    /// The user who logged in to start it; the highest number is that of nobody.
    pub(super) login: Option<u32>,
    /// Whoever started it has ended.
    pub(super) is_orphan: bool,
}

impl Default for Part<'_> {
    fn default() -> Self {
        Self {
            who: "somebody",
            called: None,
            holds: &[],
            program: "sleep",
            argument: "0",
            cgroup: "0::/\n",
            hides: &[],
            login: None,
            is_orphan: false,
        }
    }
}
