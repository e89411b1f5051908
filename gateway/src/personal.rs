//! The gateway of one person, `gpukill-gateway --personal`, which `gpukillctl web` starts: its
//! address with the token, and its end.
//!
//! It has the rights of that person, because it is a process of theirs. Every other user of the host
//! can connect to its port, so every request but health checks needs the token.

use crate::gateway::Gateway;
use crate::log;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::Signal;

/// The gateway ends after this time without a request that has the token, and without a stream.
const MAX_IDLE: Duration = Duration::from_secs(30 * 60);

/// What a person wants of their gateway.
pub(crate) struct PersonalAccess {
    pub(crate) token: String,
    /// Whether to show the address in a browser.
    pub(crate) opens_browser: bool,
}

/// Prints the address, and opens it in a browser if that is wanted. The page that leads the browser
/// there is removed when the result is dropped.
///
/// # Errors
/// The address cannot be printed.
pub(crate) fn announce(
    address: &str,
    personal: &PersonalAccess,
) -> Result<Option<RedirectPage>, String> {
    // A browser does not send what follows the # to anybody.
    let url = format!("http://{address}/#{}", personal.token);
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{url}")
        .and_then(|()| stdout.flush())
        .map_err(|error| format!("cannot print the address: {error}"))?;
    log::info(
        "this address acts with your rights: keep it to yourself. It ends with Ctrl-C, with this \
         terminal, or after 30 minutes without use",
    );
    if !personal.opens_browser {
        return Ok(None);
    }
    let opened = RedirectPage::create(&url).and_then(|page| page.open().map(|()| page));
    Ok(opened
        .inspect_err(|error| log::warn(&format!("cannot open a browser: {error}")))
        .ok())
}

/// A file that only this user can read, and that leads a browser to the address: every user can read
/// the command line of a browser, which must not have the token.
pub(crate) struct RedirectPage(PathBuf);

impl RedirectPage {
    fn create(url: &str) -> io::Result<Self> {
        let directory = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let directory = directory.filter(|path| path.is_absolute());
        let directory =
            directory.ok_or_else(|| io::Error::other("XDG_RUNTIME_DIR names no directory"))?;
        let path = directory.join(format!("gpukill-web-{}.html", std::process::id()));
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let page = Self(path);
        let head = "<!DOCTYPE html><meta charset=\"utf-8\">\
                    <meta name=\"referrer\" content=\"no-referrer\"><title>gpukill</title>";
        writeln!(
            file,
            "{head}<meta http-equiv=\"refresh\" content=\"0;url={url}\">"
        )?;
        Ok(page)
    }

    fn open(&self) -> io::Result<()> {
        let mut command = Command::new("xdg-open");
        command.arg(&self.0).stdin(Stdio::null());
        // It is for the gateway.
        command.env_remove("MALLOC_ARENA_MAX");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut browser = command.spawn()?;
        // It may run as long as the browser, and would stay a zombie.
        let wait = move || browser.wait();
        std::thread::Builder::new().spawn(wait).map(drop)
    }
}

impl Drop for RedirectPage {
    fn drop(&mut self) {
        // Left behind, it would lead nowhere.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Waits until the terminal is gone, or nobody uses the gateway any more. Returns the reason.
pub(crate) async fn wait_for_end(gateway: Arc<Gateway>, mut hangup: Signal) -> &'static str {
    loop {
        let left = MAX_IDLE.saturating_sub(gateway.idle_time());
        if left.is_zero() {
            return "nobody has used it for 30 minutes";
        }
        tokio::select! {
            _ = hangup.recv() => return "the terminal is gone",
            () = tokio::time::sleep(left) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn redirect_page_is_private_and_removed() {
        let Ok(page) = RedirectPage::create("http://127.0.0.1:1/#token") else {
            // Without a session there is no such directory.
            return;
        };
        let path = page.0.clone();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("url=http://127.0.0.1:1/#token\""));
        drop(page);
        assert!(!path.exists());
    }
}
