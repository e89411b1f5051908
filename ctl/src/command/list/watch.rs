//! `list --watch`: draws a frame for each new snapshot until a signal ends it.

mod feed;
mod frame_output;
mod signals;

use super::ListRequest;
use crate::connect::choose_socket;
use crate::exit::{Error, Exit};
use crate::output::message::Messages;
use crate::settings::Settings;
use feed::SnapshotFeed;
use frame_output::FrameOutput;
use signals::WatchHooks;

/// Draws frames until a signal ends the watch.
pub(super) fn run(
    wanted: &ListRequest,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Error> {
    let sheet = FrameOutput::for_stdout(wanted, settings, messages);
    let mut answering = WatchHooks::new(sheet).map_err(Error::System)?;
    let socket = choose_socket(settings.socket.as_deref())?;
    let mut feed = SnapshotFeed::new(socket, settings, messages);
    loop {
        let news = feed.next_update(&mut answering)?;
        answering.sheet.show_update(news)?;
        if answering.sheet.is_screen() {
            answering.handle_suspend().map_err(Error::System)?;
        }
    }
}
