//! Passwords that are typed on a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use underpass_testkit::{ChildProcess, ServerProcess, wait_until};

use crate::support::BINARY;

/// A terminal, and its output.
struct Terminal {
    keyboard: File,
    shown: Arc<Mutex<String>>,
    path: String,
}

impl Terminal {
    fn open() -> Terminal {
        let keyboard =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let path = ptsname(&keyboard, Vec::new()).unwrap();
        let keyboard = File::from(keyboard);
        let mut screen = keyboard.try_clone().unwrap();
        let shown = Arc::<Mutex<String>>::default();
        let on_screen = Arc::clone(&shown);
        // Ends with an error when the last program has closed the terminal.
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count) = screen.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]);
                on_screen.lock().unwrap().push_str(&text);
            }
        });
        Terminal {
            keyboard,
            shown,
            path: path.into_string().unwrap(),
        }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Returns the tool in a separate session on this terminal, killed when its parent ends.
    fn command(&self, words: &[&str]) -> Command {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = open(&*self.path, flags, Mode::empty()).unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "setpriv", "--pdeathsig", "KILL"]);
        command.args([BINARY, "serve"]).args(words);
        command.env_remove("UNDERPASS_PASSWORD");
        command.stdin(Stdio::from(terminal));
        command
    }

    /// Types a line once there is a prompt and the terminal does not echo.
    fn answer(&self, prompt: &str, line: &str) {
        wait_until("a prompt", || self.shown().ends_with(prompt));
        wait_until("a terminal that shows nothing", || {
            let modes = tcgetattr(&self.keyboard).unwrap().local_modes;
            !modes.contains(LocalModes::ECHO)
        });
        let mut keyboard = &self.keyboard;
        keyboard.write_all(line.as_bytes()).unwrap();
        keyboard.write_all(b"\r").unwrap();
    }
}

const FIRST: &str = "password of anna: ";
const SECOND: &str = "the same once more: ";

/// Runs `serve hash anna` with these answers. Returns the terminal's output and the exit report.
fn hashed(first: &str, second: &str) -> (String, underpass_testkit::ExitReport) {
    let terminal = Terminal::open();
    let process = ChildProcess::spawn(&mut terminal.command(&["hash", "anna"]));
    terminal.answer(FIRST, first);
    terminal.answer(SECOND, second);
    let report = process.end();
    (terminal.shown(), report)
}

fn status(server: &ServerProcess, password: &str) -> u16 {
    let login = BASE64_STANDARD.encode(format!("anna:{password}"));
    let mut client = server.connect();
    client.send(format!(
        "GET /f HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {login}\r\n\r\n"
    ));
    client.response().status
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    fs::write(folder.path().join("www/f"), "f").unwrap();
    folder
}

/// Serves with these options, while `types` types.
fn served(folder: &Path, words: &[&str], types: impl FnOnce(&Terminal) + Send) -> Served {
    let terminal = Terminal::open();
    let www = folder.join("www").display().to_string();
    let words = [&[&www, "--listen", "127.0.0.1:0"], words].concat();
    let server = thread::scope(|scope| {
        scope.spawn(|| types(&terminal));
        ServerProcess::spawn(&mut terminal.command(&words))
    });
    Served { server, terminal }
}

struct Served {
    server: ServerProcess,
    terminal: Terminal,
}

#[test]
#[ignore = "needs setsid; run by cargo xtask test"]
fn a_password_that_is_typed_twice_is_hashed_and_not_shown() {
    let folder = folder();
    let (shown, report) = hashed("correct horse \u{fc}", "correct horse \u{fc}");
    report.assert_clean();
    assert!(report.output.starts_with("anna:$argon2id$"), "{report:?}");
    assert!(!shown.contains("horse"), "{shown}");
    let users = folder.path().join("users");
    fs::write(&users, &report.output).unwrap();
    let users = users.display().to_string();
    let Served { server, terminal } = served(folder.path(), &["--users", &users], |_| {});
    assert_eq!(status(&server, "correct horse \u{fc}"), 200);
    assert_eq!(status(&server, "correct horse"), 401);
    server.stop().assert_success();
    assert_eq!(terminal.shown(), "", "a file asks for nothing");
}

#[test]
#[ignore = "needs setsid; run by cargo xtask test"]
fn a_password_that_is_typed_differently_the_second_time_is_refused() {
    let (shown, report) = hashed("correct horse", "correct house");
    report.assert_failed(1, &["the passwords differ"]);
    assert_eq!(report.output, "");
    assert!(!shown.contains("correct"), "{shown}");
    assert!(!report.errors.contains("correct"), "{report:?}");
}

#[test]
#[ignore = "needs setsid; run by cargo xtask test"]
fn the_only_user_has_the_password_that_was_typed_also_after_a_reload() {
    let folder = folder();
    let Served { server, terminal } = served(folder.path(), &["--auth", "anna"], |terminal| {
        terminal.answer(FIRST, "battery");
        terminal.answer(SECOND, "battery");
    });
    assert_eq!(status(&server, "battery"), 200);
    assert_eq!(status(&server, "staple"), 401);
    let asked = terminal.shown();
    assert_eq!(
        [FIRST, SECOND].map(|prompt| asked.matches(prompt).count()),
        [1, 1]
    );
    server.reload();
    assert_eq!(status(&server, "battery"), 200);
    server.stop().assert_success();
    assert_eq!(terminal.shown(), asked, "nobody is asked again");
    assert!(!asked.contains("battery"), "{asked}");
}
