//! A headless Chromium, driven by its DevTools protocol over two pipes: messages of JSON, each ended by
//! a NUL.

use super::has_program;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The programs that are tried, after `$CHROMIUM`.
const PROGRAMS: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];

/// How long an answer may take, on a machine that is shared and slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long it may take to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The roles of what a person uses, which needs a name.
const CONTROLS: [&str; 9] = [
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "DisclosureTriangle",
    "image",
    "application",
];

/// A browser with one page. It ends when dropped.
pub struct Browser {
    child: Child,
    directory: tempfile::TempDir,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    last_id: u64,
    events: Vec<Value>,
}

impl Browser {
    /// Starts a browser; `None` where there is none.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let named = std::env::var("CHROMIUM").ok();
        let mut programs = named.iter().map(String::as_str).chain(PROGRAMS);
        let program = programs.find(|program| has_program(program))?;
        let directory = tempfile::tempdir().expect("a directory");
        let pipes = ["to", "from"].map(|name| directory.path().join(name));
        let made = Command::new("mkfifo").args(&pipes).status();
        assert!(made.expect("mkfifo starts").success());
        // The browser reads from descriptor 3 and writes to 4.
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<to 4>from", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--user-data-dir=profile"])
            .args(["--hide-scrollbars", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-extensions"])
            .current_dir(directory.path())
            .env("HOME", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        // Open for both, which waits for nobody: a browser that does not start is seen by its silence.
        let open = |path: &Path| {
            let file = File::options().read(true).write(true).open(path);
            file.expect("a pipe")
        };
        let mut browser = Self {
            child,
            to: open(&pipes[0]),
            from: read_messages(open(&pipes[1])),
            directory,
            session: None,
            last_id: 0,
            events: Vec::new(),
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    fn next_message(&self, what: &str) -> Value {
        let message = self.from.recv_timeout(ANSWER_TIMEOUT);
        message.unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    /// Makes a call and returns its result. Events meanwhile are kept.
    ///
    /// # Panics
    /// When it fails.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .expect("it is sent");
        loop {
            let mut answer = self.next_message(method);
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    /// Loads a page.
    ///
    /// # Panics
    /// When it is not loaded.
    pub fn load(&mut self, url: &str) {
        self.events
            .retain(|event| event["method"] != "Page.loadEventFired");
        let navigated = self.call("Page.navigate", &json!({ "url": url }));
        assert!(navigated["errorText"].is_null(), "{url}: {navigated}");
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(is_loaded) {
            let event = self.next_message(url);
            self.events.push(event);
        }
    }

    /// The value of an expression of JavaScript, also of a promise.
    ///
    /// # Panics
    /// When it throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression,
            "awaitPromise": true,
            "returnByValue": true,
        });
        let mut result = self.call("Runtime.evaluate", &asked);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].take()
    }

    /// Sets the size of the window and whether the system wants dark pages.
    pub fn set_screen(&mut self, (width, height): (u32, u32), theme: &str) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let theme = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.call("Emulation.setEmulatedMedia", &theme);
    }

    /// Presses a key: `Tab`, `Enter`, `Escape` or an arrow.
    ///
    /// # Panics
    /// When it is another.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            other => panic!("{other}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            if key == "Enter" && kind == "keyDown" {
                event["text"] = "\r".into();
            }
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// What the console says since the last call, errors of scripts and of the policy among it.
    pub fn console(&mut self) -> Vec<String> {
        self.evaluate("1");
        let is_said = |event: &Value| {
            let method = event["method"].as_str().unwrap_or_default();
            [
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            ]
            .contains(&method)
        };
        let said = self.events.iter().filter(|event| is_said(event));
        let said = said.map(|event| event["params"].to_string()).collect();
        self.events.retain(|event| !is_said(event));
        said
    }

    /// The addresses that were requested since the last call.
    pub fn requests(&mut self) -> Vec<String> {
        let is_request = |event: &Value| event["method"] == "Network.requestWillBeSent";
        let requests = self.events.iter().filter(|event| is_request(event));
        let urls = requests.filter_map(|event| event["params"]["request"]["url"].as_str());
        let urls = urls.map(str::to_owned).collect();
        self.events.retain(|event| !is_request(event));
        urls
    }

    /// The controls without a name for screen readers: their roles and what they are.
    ///
    /// # Panics
    /// When there is no accessibility tree.
    pub fn nameless_controls(&mut self) -> Vec<String> {
        let tree = self.call("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().expect("a tree");
        let nameless = nodes.iter().filter(|node| {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            let name = node["name"]["value"].as_str().unwrap_or_default();
            node["ignored"] == false && CONTROLS.contains(&role) && name.trim().is_empty()
        });
        nameless.map(Value::to_string).collect()
    }

    /// Saves what the window shows.
    ///
    /// # Panics
    /// When it cannot be saved.
    pub fn save_screenshot(&mut self, file: &Path) {
        let shot = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        let data = shot["data"].as_str().expect("a picture");
        let file = File::create(file).expect("a file");
        let mut decoder = Command::new("base64")
            .arg("-d")
            .stdin(Stdio::piped())
            .stdout(file)
            .spawn()
            .expect("base64 starts");
        let mut input = decoder.stdin.take().expect("it is piped");
        input.write_all(data.as_bytes()).expect("it is read");
        drop(input);
        assert!(decoder.wait().expect("it ends").success());
    }

    /// The directory of its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself. Its program may be a script, with the browser as a child.
        let close = b"{\"id\":0,\"method\":\"Browser.close\"}\0";
        let _ = self.to.write_all(close);
        let until = Instant::now() + CLOSE_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads messages in a thread, which ends with the program.
fn read_messages(from: File) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for message in BufReader::new(from).split(0).map_while(Result::ok) {
            let message = serde_json::from_slice(&message).unwrap_or_default();
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    receiver
}
