//! A headless Chromium, driven by its own protocol (CDP) through a pipe: JSON messages, each ended by a zero byte.
//! Some eighty lines in place of a driver that is generated from the whole protocol.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::room;

/// A browser that answers nothing for this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one page. It ends with this.
pub(crate) struct Chromium {
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    last: i64,
    /// What the browser told by itself: requests, messages of the console.
    pub(crate) told: Vec<Value>,
    _process: Child,
    _profile: tempfile::TempDir,
}

impl Chromium {
    /// None where no Chromium is installed.
    pub(crate) async fn start() -> Option<Self> {
        Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await.ok()?;
        let profile = room();
        // It reads commands from descriptor 3 and answers on 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "chromium"])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--remote-debugging-pipe", "--window-size=1280,900"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (commands, answers) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser =
            Self { commands, answers, session: None, last: 0, told: Vec::new(), _process: process, _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true})).await;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Network.enable", "Log.enable", "Runtime.enable"] {
            browser.call(domain, json!({})).await;
        }
        Some(browser)
    }

    /// Sends a command and gives its result; keeps what is told meanwhile.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).await.unwrap();
        loop {
            let mut bytes = Vec::new();
            let read = tokio::time::timeout(PATIENCE, self.answers.read_until(0, &mut bytes));
            assert!(read.await.expect("an answer in time").unwrap() > 0, "the browser ended at {method}");
            bytes.pop();
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.told.push(answer);
        }
    }

    /// The value of a script in the page.
    pub(crate) async fn value(&mut self, script: &str) -> Value {
        let result = self.call("Runtime.evaluate", json!({"expression": script, "returnByValue": true})).await;
        result["result"]["value"].clone()
    }

    /// Waits until a script in the page gives true. A page on its way gives nothing.
    pub(crate) async fn until(&mut self, script: &str) {
        let began = std::time::Instant::now();
        while self.value(script).await != json!(true) {
            let text = self.value("location.href + ' ' + document.body?.innerText").await;
            assert!(began.elapsed() < PATIENCE, "never came: {script}; on the page: {text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Goes to a page and waits for all of it.
    pub(crate) async fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url})).await;
        let script = format!("location.href === {} && document.readyState === 'complete'", json!(url));
        self.until(&script).await;
    }

    /// Presses and lets go of a key: its name, and the text that it types.
    pub(crate) async fn press(&mut self, key: &str, text: &str) {
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            _ => 0,
        };
        let stroke = json!({"type": "keyDown", "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", stroke).await;
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code})).await;
    }

    /// Types a text into what has the focus.
    pub(crate) async fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text})).await;
    }
}
