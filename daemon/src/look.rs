//! A look at all processes, for whoever asks who holds a device.

use crate::holders::Holders;
use crate::state::{Published, Reader, Wanted};
use gpukill_proto::refusal::Refusal;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::sync::watch::error::RecvError;

/// Looks at all processes for holders of devices. It is over when a complete look
/// has been published, or after a few seconds in any case.
pub(crate) type Look =
    Arc<dyn Fn(Since) -> Pin<Box<dyn Future<Output = Looked> + Send>> + Send + Sync>;

/// Which look will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// One that is still news.
    Lately,
    /// One that began after this: what happened before is seen by it. Where the
    /// last one is still news, the next begins when it is no more.
    After(Instant),
}

/// How a look ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// Every process was looked at, and that is published.
    Whole,
    /// There was no time for that.
    InPart,
}

/// A look is news for so long: whoever asks again gets the same. It costs a second
/// of a processor on a box of 10,000 processes.
const NEWS: Duration = Duration::from_secs(2);

/// How long a look may take: three times as long as it takes on such a box.
pub(crate) const LOOK_TIMEOUT: Duration = Duration::from_secs(6);

/// How long its publication may take, by two polls: each waits a second at most.
const POLL_PATIENCE: Duration = Duration::from_secs(6);

/// How often is looked whether it is done.
const STEP: Duration = Duration::from_millis(10);

/// The look of a daemon. `hurry` makes the poller poll now.
pub(crate) fn look(
    holders: Holders,
    wanted: Wanted,
    state: Reader,
    hurry: impl Fn() + Send + Sync + 'static,
) -> Look {
    // Held while one looks: the others wait for it, and have its news.
    let last: Arc<Mutex<Option<Last>>> = Arc::default();
    let hurry = Arc::new(hurry);
    Arc::new(move |since| {
        let (holders, wanted, mut state) = (holders.clone(), wanted.clone(), state.clone());
        let (last, hurry) = (Arc::clone(&last), Arc::clone(&hurry));
        Box::pin(async move {
            wanted.ask();
            let mut last = loop {
                let last = last.lock().await;
                let wait = match *last {
                    Some(done) if done.will_do(since) => return Looked::Whole,
                    Some(done) => NEWS.saturating_sub(done.ended.elapsed()),
                    None => Duration::ZERO,
                };
                if wait.is_zero() {
                    break last;
                }
                // Whoever is content with the last one need not wait for this.
                drop(last);
                tokio::time::sleep(wait).await;
            };
            let began = Instant::now();
            let ticket = holders.look_now();
            let deadline = Instant::now() + LOOK_TIMEOUT;
            while !holders.has_looked(ticket) && Instant::now() < deadline {
                tokio::time::sleep(STEP).await;
            }
            let mut is_whole = holders.has_looked(ticket);
            let mut poll = NewPoll::after_now(&state);
            let published = async {
                while !poll.is_published(&state, &*hurry) {
                    state.changed().await?;
                }
                Ok::<(), RecvError>(())
            };
            // Too long, or the daemon stops: there is what there is.
            is_whole &= matches!(
                tokio::time::timeout(POLL_PATIENCE, published).await,
                Ok(Ok(()))
            );
            if !is_whole {
                return Looked::InPart;
            }
            let ended = Instant::now();
            *last = Some(Last { began, ended });
            Looked::Whole
        })
    })
}

/// A poll that begins after now. The one under way may have begun before: the one
/// after it has not.
pub(crate) struct NewPoll {
    tick: u64,
    /// The tick after which the next was made to come at once.
    hurried: Option<u64>,
}

impl NewPoll {
    pub(crate) fn after_now(state: &Reader) -> Self {
        Self {
            tick: state.borrow().snapshot.tick.saturating_add(2),
            hurried: None,
        }
    }

    /// Whether it is published. Where it is not, the next poll comes at once: ask
    /// again and again.
    pub(crate) fn is_published(&mut self, state: &Reader, hurry: &dyn Fn()) -> bool {
        let tick = state.borrow().snapshot.tick;
        if tick < self.tick && self.hurried.replace(tick) != Some(tick) {
            hurry();
        }
        tick >= self.tick
    }
}

/// The last whole look.
#[derive(Debug, Clone, Copy)]
struct Last {
    began: Instant,
    ended: Instant,
}

impl Last {
    fn will_do(self, since: Since) -> bool {
        match since {
            Since::Lately => self.ended.elapsed() < NEWS,
            Since::After(moment) => self.began >= moment,
        }
    }
}

/// What is known after a look at all processes. Where that took too long, it says
/// so: others may hold a device.
///
/// # Errors
/// [`Refusal::TooSlow`] where nobody ever had the time for such a look.
pub(crate) async fn looked(
    look: &Look,
    state: &Reader,
    since: Since,
) -> Result<Published, Refusal> {
    let looked = look(since).await;
    let mut published = state.borrow().clone();
    if looked == Looked::Whole {
        return Ok(published);
    }
    if published.holders.is_empty() && !published.snapshot.devices.is_empty() {
        return Err(Refusal::TooSlow("a look at all processes".to_owned()));
    }
    for held in Arc::make_mut(&mut published.holders) {
        let why = || "a look at all processes took too long".to_owned();
        held.unseen.get_or_insert_with(why);
    }
    Ok(published)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_had_begun_already_may_have_missed_what_came_then() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let last = Last {
            began: at(1),
            ended: at(3),
        };
        let will_do = [0, 1, 2, 3, 4].map(|second| last.will_do(Since::After(at(second))));
        assert_eq!(will_do, [true, true, false, false, false]);
    }

    #[test]
    fn a_poll_that_may_have_begun_before_is_not_a_new_one_and_each_is_hurried_once() {
        let (publisher, state) = crate::state::channel("box".into(), Duration::from_secs(1));
        let hurried = std::cell::Cell::new(0);
        let hurry = || hurried.set(hurried.get() + 1);
        let publish = || {
            publisher.send_modify(|published| Arc::make_mut(&mut published.snapshot).tick += 1);
        };
        let mut poll = NewPoll::after_now(&state);
        let mut seen = Vec::new();
        for _ in 0..3 {
            for _ in 0..2 {
                seen.push((poll.is_published(&state, &hurry), hurried.get()));
            }
            publish();
        }
        let (under_way, after_it, new) = ((false, 1), (false, 2), (true, 2));
        assert_eq!(seen, [under_way, under_way, after_it, after_it, new, new]);
    }
}
