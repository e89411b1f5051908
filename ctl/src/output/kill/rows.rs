//! One line for each process, and what is to be known of it. What does not fit
//! beside it stands below.

use super::super::line::{Line, Tone, cut, shown, width, wrap};
use super::super::look::{Look, Symbols};
use super::{ends, owner, what};
use gpukill_proto::kill::{
    Ending, Fate, FuseMount, KillOutcome, KillPlan, KillTarget, Protected, Reaper, Stuck,
};

/// What is told of one process.
pub(super) struct Told {
    state: &'static str,
    tone: Tone,
    pid: u32,
    command: String,
    what: String,
}

/// What a plan has in store for one that it does not end, or that is protected.
pub(super) fn of_target(target: &KillTarget, symbols: Symbols) -> Option<Told> {
    let (state, tone, told) = match &target.fate {
        Fate::End(_) => {
            let why = shown(target.overridden.as_ref()?, symbols);
            ("protected", Tone::Doubtful, format!("{why}: overridden"))
        }
        Fate::Protected(protected) => (
            "protected",
            Tone::Doubtful,
            protected_line(protected, symbols),
        ),
        Fate::Denied(ask) => ("denied", Tone::Doubtful, denied(target, ask, symbols)),
        Fate::Unclear(why) => ("unclear", Tone::Doubtful, shown(why, symbols)),
        Fate::Zombie(parent) => ("zombie", Tone::Doubtful, zombie(parent, symbols)),
    };
    Some(Told {
        state,
        tone,
        pid: target.key.pid,
        command: what(&target.command, &target.name, symbols),
        what: told,
    })
}

/// Why it is protected, and how root ends it all the same.
fn protected_line(protected: &Protected, symbols: Symbols) -> String {
    let why = shown(&protected.why, symbols);
    match protected.way() {
        Some(way) => format!("{why}; {way}"),
        None => why,
    }
}

/// What became of one.
pub(super) fn of_outcome(outcome: &KillOutcome, plan: &KillPlan, symbols: Symbols) -> Told {
    let target = plan.targets.iter().find(|it| it.key == outcome.key);
    let text = |text: &String| shown(text, symbols);
    let (state, tone, told) = match &outcome.ending {
        Ending::Ended(signal, after) => {
            let after = seconds(*after);
            ("ended", Tone::Plain, format!("{signal}, {after}"))
        }
        Ending::Survived(signal, after) => {
            let after = seconds(*after);
            let next = if plan.request.force {
                ""
            } else {
                "; --force sends SIGKILL"
            };
            let told = format!("still there after {signal} and {after}{next}");
            ("survived", Tone::Doubtful, told)
        }
        Ending::Gone => ("gone", Tone::Faint, "had ended already".to_owned()),
        Ending::Changed(why) => (
            "changed",
            Tone::Doubtful,
            format!("{}: nothing was sent", text(why)),
        ),
        Ending::Protected(why) => ("protected", Tone::Doubtful, text(why)),
        Ending::Denied(ask) => {
            let told = target.map_or_else(
                || format!("ask {}", text(ask)),
                |target| denied(target, ask, symbols),
            );
            ("denied", Tone::Doubtful, told)
        }
        Ending::Unclear(why) => (
            "unclear",
            Tone::Doubtful,
            format!("{}: nothing was sent", text(why)),
        ),
        Ending::Uninterruptible(at) => ("uninterruptible", Tone::Broken, stuck(at, symbols)),
        Ending::Zombie(parent) => ("zombie", Tone::Doubtful, zombie(parent, symbols)),
        Ending::Failed(why) => ("failed", Tone::Broken, text(why)),
    };
    Told {
        state,
        tone,
        pid: outcome.key.pid,
        command: what(&outcome.command, &outcome.name, symbols),
        what: told,
    }
}

/// What no signal reaches, and what frees it.
fn stuck(stuck: &Stuck, symbols: Symbols) -> String {
    let at = stuck.waits_on.as_ref();
    let at = at.map_or_else(String::new, |at| format!(" ({})", shown(at, symbols)));
    let Some(FuseMount { path, servers }) = &stuck.fuse else {
        return format!(
            "stuck in the kernel{at}, where no signal reaches it; if it stays so, only a reboot \
             ends it"
        );
    };
    let path = shown(path, symbols);
    let waits = format!("stuck in the kernel{at}: it waits for the FUSE filesystem at {path}");
    if servers.is_empty() {
        return format!("{waits}, whose server is not known; it ends when that server does");
    }
    let named = servers
        .iter()
        .map(|server| match server.owner.last_known() {
            Some(owner) => format!("{} of {}", server.pid, shown(owner, symbols)),
            None => server.pid.to_string(),
        });
    let named = named.collect::<Vec<_>>().join(", ");
    let pids = servers.iter().map(|server| server.pid.to_string());
    let pids = pids.collect::<Vec<_>>().join(" ");
    format!("{waits}, served by process {named}; it ends when that does: kill {pids}")
}

/// Whose it is, and whom to ask.
fn denied(target: &KillTarget, ask: &str, symbols: Symbols) -> String {
    let ask = shown(ask, symbols);
    if ends(target) || target.owner.last_known().is_none() {
        return format!("ask {ask}");
    }
    format!("it belongs to {}: ask {ask}", owner(target, symbols))
}

fn zombie(parent: &Reaper, symbols: Symbols) -> String {
    let parent = named(parent, symbols);
    format!("has ended, and goes when its parent {parent} asks how, or ends")
}

/// `4711 (launcher)`
pub(super) fn named(parent: &Reaper, symbols: Symbols) -> String {
    match parent.name.last_known() {
        Some(name) => format!("{} ({})", parent.pid, shown(name, symbols)),
        None => parent.pid.to_string(),
    }
}

/// `0.8 s`; what is less than a tenth is no zero.
pub(super) fn seconds(milliseconds: u64) -> String {
    let tenths = milliseconds.saturating_add(50) / 100;
    match (tenths / 10, tenths % 10) {
        (0, 0) => "less than 0.1 s".to_owned(),
        (whole, tenth) => format!("{whole}.{tenth} s"),
    }
}

/// The least columns in which a sentence is worth beginning.
const LEAST_BESIDE: usize = 24;

/// The least columns of a command.
const LEAST_COMMAND: usize = 12;

/// Rows whose parts stand below each other.
pub(super) fn laid_out(rows: &[Told], look: &Look) -> Vec<Line> {
    let widest = |of: &dyn Fn(&Told) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let state = widest(&|row| row.state.len());
    let pid = widest(&|row| row.pid.to_string().len());
    let natural = widest(&|row| width(&row.command));
    let before = 2 + state + 2 + pid + 2;
    let command = match look.width {
        None => natural,
        Some(most) => {
            let room = most.saturating_sub(before + 2 + LEAST_BESIDE);
            natural.min(room.max(LEAST_COMMAND))
        }
    };
    let columns = Columns {
        state,
        pid,
        command,
        all: before + command + 2,
    };
    rows.iter()
        .flat_map(|row| columns.lines(row, look))
        .collect()
}

/// How wide each part is.
struct Columns {
    state: usize,
    pid: usize,
    command: usize,
    all: usize,
}

impl Columns {
    fn lines(&self, row: &Told, look: &Look) -> Vec<Line> {
        const BELOW: usize = 6;
        let mut first = Line::plain("  ");
        first.push(format!("{:1$}", row.state, self.state), row.tone);
        first.push(format!("  {:>1$}  ", row.pid, self.pid), Tone::Plain);
        let command = cut(&row.command, self.command, look.symbols);
        let padding = " ".repeat(self.command.saturating_sub(width(&command)) + 2);
        first.push(command + &padding, Tone::Plain);
        let fits = |columns: usize| look.width.is_none_or(|most| self.all + columns <= most);
        if !fits(width(&row.what).min(LEAST_BESIDE)) {
            let mut below = wrap(&row.what, BELOW, BELOW, look.width);
            if let Some(first) = below.first_mut() {
                first.insert_str(0, &" ".repeat(BELOW));
            }
            let below = below.into_iter().map(|text| Line::toned(text, row.tone));
            let first = first.trimmed().cut(look.width, look.symbols);
            return std::iter::once(first).chain(below).collect();
        }
        let mut texts = wrap(&row.what, self.all, self.all, look.width).into_iter();
        first.push(texts.next().unwrap_or_default(), row.tone);
        std::iter::once(first.trimmed())
            .chain(texts.map(|text| Line::toned(text, row.tone)))
            .collect()
    }
}
