//! A headless Chromium, driven by the DevTools protocol over pipes: real keys, real drops, real
//! reloads.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use underpass_testkit::{WAIT_MAX, wait_until};

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// Events that nobody has asked for yet.
    events: Vec<Value>,
    last: u64,
    session: Option<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts one. The shell puts the pipes where the browser expects them.
    pub(crate) fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null",
                "sh",
            ])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-sync",
            ])
            .args(["--disable-component-update", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (commands, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            commands,
            messages,
            events: Vec::new(),
            last: 0,
            session: None,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.resize(1280, 900);
        browser
    }

    /// Sends a command and returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.ask(method, parameters);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Sends a command and returns the answer, which may be an error.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        let number = self.begin(method, parameters);
        loop {
            let message = self.messages.recv_timeout(WAIT_MAX).expect(method);
            if message["id"] == number {
                return message;
            }
            self.events.push(message);
        }
    }

    /// Sends a command that may not be answered before something else is done.
    pub(crate) fn begin(&mut self, method: &str, parameters: Value) -> u64 {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.commands
            .write_all(command.to_string().as_bytes())
            .unwrap();
        self.commands.write_all(&[0]).unwrap();
        self.last
    }

    /// Waits for an event.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        loop {
            if let Some(at) = self.events.iter().position(|event| event["method"] == name) {
                return self.events.remove(at)["params"].clone();
            }
            let message = self.messages.recv_timeout(WAIT_MAX).expect(name);
            self.events.push(message);
        }
    }

    /// Returns what the browser has complained of: exceptions, and violations of the policy.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.evaluate("0");
        let is_one = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            // An intervention is the browser's own choice.
            Some("Log.entryAdded") => {
                let source = &event["params"]["entry"]["source"];
                source != "network" && source != "intervention"
            }
            _ => false,
        };
        self.events
            .iter()
            .filter(is_one)
            .map(Value::to_string)
            .collect()
    }

    pub(crate) fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// Returns the value of an expression, or of the promise that it is.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
        });
        let result = self.call("Runtime.evaluate", parameters);
        let error = &result["exceptionDetails"];
        assert!(error.is_null(), "{expression}: {error}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true. It may fail while a page is being loaded.
    pub(crate) fn wait(&mut self, expression: &str) {
        let parameters = json!({"expression": format!("!!({expression})")});
        wait_until(expression, || {
            let answer = self.ask("Runtime.evaluate", parameters.clone());
            answer["result"]["result"]["value"] == true
        });
    }

    /// Returns the text of an element.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let expression = format!("document.querySelector('{selector}')?.innerText ?? ''");
        self.evaluate(&expression).as_str().unwrap().to_owned()
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    pub(crate) fn scheme(&mut self, scheme: &str) {
        let feature = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": feature}));
    }

    /// Limits the rate at which the page sends, in bytes per second; -1 for none.
    pub(crate) fn limit(&mut self, bytes: i64, offline: bool) {
        let conditions = json!({
            "offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes,
        });
        self.call("Network.emulateNetworkConditions", conditions);
    }

    /// Presses a key: `Tab`, `Enter`, `Escape`, ` `, or a letter.
    pub(crate) fn key(&mut self, key: &str, shift: bool) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            " " => (32, " "),
            letter => (u32::from(letter.as_bytes()[0]), letter),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({
                "type": kind, "key": key, "windowsVirtualKeyCode": code,
                "modifiers": if shift { 8 } else { 0 },
            });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Presses Tab until the focused element has this label or text.
    pub(crate) fn focus(&mut self, label: &str) {
        let focused = "(document.activeElement.getAttribute('aria-label') || \
                       document.activeElement.innerText || '').trim()";
        for _ in 0..60 {
            if self.evaluate(focused) == label {
                return;
            }
            self.key("Tab", false);
        }
        panic!("Tab does not lead to {label:?}");
    }

    /// Chooses files in a file input of the page.
    pub(crate) fn choose(&mut self, selector: &str, files: &[PathBuf]) {
        let root = self.call("DOM.getDocument", json!({}));
        let found = json!({"nodeId": root["root"]["nodeId"], "selector": selector});
        let node = self.call("DOM.querySelector", found);
        let files = json!({"nodeId": node["nodeId"], "files": files});
        self.call("DOM.setFileInputFiles", files);
    }

    /// Drags files and folders over the page, and drops them if asked to.
    pub(crate) fn drag(&mut self, files: &[PathBuf], steps: &[&str]) {
        for step in steps {
            let event = json!({
                "type": step, "x": 300, "y": 300,
                "data": {"items": [], "files": files, "dragOperationsMask": 1},
            });
            self.call("Input.dispatchDragEvent", event);
        }
    }

    /// Clicks an element.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = format!(
            "(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let place = self.evaluate(&place);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Leaves a picture of the page for people, in `target/tmp/uploads`.
    pub(crate) fn picture(&mut self, name: &str) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uploads");
        fs::create_dir_all(&folder).unwrap();
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let picture = BASE64_STANDARD
            .decode(picture["data"].as_str().unwrap())
            .unwrap();
        fs::write(folder.join(format!("{name}.png")), picture).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
