//! `list --watch`: a frame whenever there is something new, until a signal.

mod feed;

mod sheet;

mod signals;

use super::Wanted;
use crate::connect::choose;
use crate::exit::{Exit, Failure};
use crate::output::message::Messages;
use crate::settings::Settings;
use feed::Feed;
use sheet::Sheet;
use signals::{Signal, Signals};

/// Draws until it is told to stop.
pub(super) async fn run(
    wanted: &Wanted,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let mut signals = Signals::listen().map_err(Failure::System)?;
    let socket = choose(settings.socket.as_deref())?;
    let mut feed = Feed::new(socket, settings, messages);
    let mut sheet = Sheet::of_stdout(wanted, settings, messages);
    loop {
        // A signal must not cut an answer short, so the wait for news goes on
        // beside the signals that do not end it.
        let news = feed.next();
        tokio::pin!(news);
        let news = loop {
            tokio::select! {
                news = &mut news => break news?,
                signal = signals.next() => match signal {
                    Signal::Stop => return Ok(Exit::Done),
                    Signal::Suspend => sheet.suspend()?,
                    Signal::Redraw => sheet.redraw()?,
                },
            }
        };
        sheet.take(news)?;
        if sheet.is_screen() {
            signals.hear_suspend().map_err(Failure::System)?;
        }
    }
}
