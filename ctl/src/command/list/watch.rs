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
use signals::Answering;

/// Draws until a signal ends it.
pub(super) fn run(
    wanted: &Wanted,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let sheet = Sheet::of_stdout(wanted, settings, messages);
    let mut answering = Answering::on(sheet).map_err(Failure::System)?;
    let socket = choose(settings.socket.as_deref())?;
    let mut feed = Feed::new(socket, settings, messages);
    loop {
        let news = feed.next(&mut answering)?;
        answering.sheet.take(news)?;
        if answering.sheet.is_screen() {
            answering.hear_suspend().map_err(Failure::System)?;
        }
    }
}
