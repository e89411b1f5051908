//! Changes the rules, and shows what that changed.

use super::{connect, here};
use crate::args::Edit;
use crate::connect::{Doing, Patience};
use crate::exit::{Exit, Failure};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{guard, print_lines};
use crate::settings::Settings;
use gpukill_proto::guard::edit::GuardEdit;

/// Makes one edit, or says what it would change.
pub(super) async fn run(
    edit: GuardEdit,
    how: &Edit,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages).await?;
    let doing = if how.dry_run {
        Doing::Saying
    } else {
        Doing::Doing
    };
    let patience = Patience::lasting(settings.timeout);
    let report = daemon
        .edit_rules(Some(&edit), None, doing, patience)
        .await?;
    let look = Look::of_stdout(settings);
    print_lines(&guard::edited(&report, doing, &look), &look)?;
    for warning in &report.warnings {
        messages.warn(warning);
    }
    for warning in here::about_edit(&edit, &daemon, patience).await {
        messages.warn(&here::without_its_line(warning).to_string());
    }
    Ok(Exit::Done)
}
