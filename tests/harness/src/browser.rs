//! A browser without a window, with one page, driven by the DevTools protocol.
//!
//! The browser writes its port into a file of its profile; commands and events are JSON messages of a
//! WebSocket. Every message that is no reply is recorded: requests, errors and what scripts print.

use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

use crate::daemon::Daemon;
use crate::sleep_blocking;

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A browser that is no user's: it looks nothing up, updates nothing and asks nothing.
const FLAGS: [&str; 13] = [
    // Input is dropped until a new page is painted otherwise.
    "--allow-pre-commit-input",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-port=0",
];

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Viewport {
    pub width: u32,
    pub is_dark: bool,
}

pub struct Browser {
    socket: WebSocket<TcpStream>,
    session: String,
    last_id: u64,
    events: Vec<Value>,
    _process: Daemon,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser with an empty profile and an empty page.
    pub fn start(program: &Path) -> Self {
        Self::start_with(program, &[])
    }

    /// The same, but every name leads to one server, whose certificate is not verified.
    pub fn start_at(program: &Path, address: &str) -> Self {
        let resolver = format!("--host-resolver-rules=MAP * {address}");
        Self::start_with(program, &["--ignore-certificate-errors", &resolver])
    }

    fn start_with(program: &Path, flags: &[&str]) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let flags = FLAGS.iter().chain(flags);
        let mut arguments: Vec<String> = flags.map(|flag| (*flag).to_owned()).collect();
        let folder = profile.path().join("profile");
        arguments.push(format!("--user-data-dir={}", folder.display()));
        arguments.push("about:blank".to_owned());
        let process = Daemon::start(program, arguments, &profile.path().join("log"));
        let (port, path) = read_address(&folder.join("DevToolsActivePort"));
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = client(url, stream).unwrap();
        let mut browser = Self {
            socket,
            session: String::new(),
            last_id: 0,
            events: Vec::new(),
            _process: process,
            _profile: profile,
        };
        browser.open_page();
        browser
    }

    fn open_page(&mut self) {
        let page = self.command("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let attached = self.command("Target.attachToTarget", attach);
        attached["sessionId"]
            .as_str()
            .unwrap()
            .clone_into(&mut self.session);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.command(&format!("{domain}.enable"), json!({}));
        }
    }

    /// The result of a command.
    fn command(&mut self, method: &str, parameters: Value) -> Value {
        let reply = self.send(method, &parameters);
        assert!(reply.get("error").is_none(), "{method}: {reply}");
        reply["result"].clone()
    }

    /// The reply to a command.
    fn send(&mut self, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket
            .send(Message::text(message.to_string()))
            .unwrap();
        loop {
            let received = self.socket.read().unwrap();
            let Ok(text) = received.into_text() else {
                continue;
            };
            let received: Value = machinery::json::from_str(&text).unwrap();
            if received["id"] == self.last_id {
                return received;
            }
            self.events.push(received);
        }
    }

    /// Opens an address and waits until its page is complete.
    pub fn navigate(&mut self, url: &str) {
        let done = self.command("Page.navigate", json!({"url": url}));
        assert!(done.get("errorText").is_none(), "{url}: {done}");
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// The value of a JavaScript expression; null while the page is being replaced.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let reply = self.send("Runtime.evaluate", &parameters);
        reply["result"]["result"]["value"].clone()
    }

    /// Waits until a JavaScript expression is true, also over a change of the page.
    pub fn wait_for(&mut self, condition: &str) {
        let end = Instant::now() + TIMEOUT;
        while self.evaluate(condition) != true {
            if Instant::now() > end {
                let page = self.evaluate("location.href + '\\n' + document.body.innerText");
                panic!(
                    "never true: {condition}\n{}",
                    page.as_str().unwrap_or_default()
                );
            }
            sleep_blocking(POLL_INTERVAL);
        }
    }

    /// Waits until the page has this text.
    pub fn wait_for_text(&mut self, text: &str) {
        let text = json!(text);
        self.wait_for(&format!("document.body.innerText.includes({text})"));
    }

    /// Clicks on the first element of a selector, at its middle, as a mouse does.
    pub fn click(&mut self, selector: &str) {
        let selector = json!(selector);
        // Before the styles are there, its middle is somewhere else.
        self.wait_for(&format!(
            "document.readyState === 'complete' && document.querySelector({selector}) !== null"
        ));
        let middle = self.evaluate(&format!(
            "(() => {{ const e = document.querySelector({selector}); e.scrollIntoView({{block: 'center'}});
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let parameters = json!({"type": kind, "x": middle[0], "y": middle[1], "button": "left", "clickCount": 1});
            self.command("Input.dispatchMouseEvent", parameters);
        }
    }

    /// Types a text into what has the focus.
    pub fn type_text(&mut self, text: &str) {
        self.command("Input.insertText", json!({"text": text}));
    }

    /// Sets how wide the page is and whether the user prefers it dark.
    pub fn set_viewport(&mut self, viewport: Viewport) {
        let is_phone = viewport.width < 600;
        let metrics = json!({"width": viewport.width, "height": 800, "deviceScaleFactor": 1, "mobile": is_phone});
        self.command("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if viewport.is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", features);
    }

    /// Writes the page, also what is below the window, as a PNG file.
    pub fn screenshot(&mut self, file: &Path) {
        let parameters = json!({"format": "png", "captureBeyondViewport": true});
        let result = self.command("Page.captureScreenshot", parameters);
        let image = STANDARD.decode(result["data"].as_str().unwrap()).unwrap();
        std::fs::write(file, image).unwrap();
    }

    fn recorded<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Value> {
        let events = self.events.iter();
        let events = events.filter(move |event| event["method"] == method);
        events.map(|event| &event["params"])
    }

    /// The faults of the pages: exceptions, errors of the console, violations of the policy.
    pub fn errors(&self) -> Vec<String> {
        let thrown = self
            .recorded("Runtime.exceptionThrown")
            .map(Value::to_string);
        let printed = self.recorded("Runtime.consoleAPICalled");
        let printed = printed
            .filter(|call| call["type"] == "error")
            .map(Value::to_string);
        let logged = self.recorded("Log.entryAdded");
        let logged = logged.filter(|entry| entry["entry"]["level"] == "error");
        let logged = logged.map(Value::to_string);
        thrown.chain(printed).chain(logged).collect()
    }

    /// The addresses that the pages have requested.
    pub fn requested_urls(&self) -> Vec<String> {
        let requests = self.recorded("Network.requestWillBeSent");
        let urls = requests.filter_map(|request| request["request"]["url"].as_str());
        urls.map(str::to_owned).collect()
    }
}

/// The port and the path that the browser has written into a file.
fn read_address(file: &Path) -> (u16, String) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Some((port, path)) = text.split_once('\n')
            && !path.is_empty()
        {
            return (port.parse().unwrap(), path.trim().to_owned());
        }
        assert!(Instant::now() < end, "no {}", file.display());
        sleep_blocking(POLL_INTERVAL);
    }
}
