//! Access control of the tool: users, tokens, links and questions about rules.

mod flood;
mod terminal;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;
use underpass_testkit::{ExitReport, ServerProcess, run, run_with_input};

use crate::support::underpass;

fn tool(folder: &Path, words: &[&str]) -> ExitReport {
    run(underpass().current_dir(folder).arg("serve").args(words))
}

fn with_password(folder: &Path, words: &[&str], password: &str) -> ExitReport {
    let mut command = underpass();
    command.current_dir(folder).arg("serve").args(words);
    run_with_input(&mut command, password.as_bytes())
}

/// Makes a folder with a site and a configuration.
fn configured(rules: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join("www/team")).unwrap();
    fs::write(root.join("www/team/f"), "team").unwrap();
    fs::write(root.join("link.key"), "k".repeat(40)).unwrap();
    let user = with_password(root, &["hash", "anna"], "secret\n");
    user.assert_success();
    fs::write(root.join("users"), user.output).unwrap();
    let token = tool(root, &["hash", "--token", "ci", "--for", "90d"]);
    fs::write(root.join("token"), token.errors.trim_end()).unwrap();
    fs::write(root.join("tokens"), token.output).unwrap();
    let text = format!(
        "listen = ['127.0.0.1:0']\n[[site]]\nroot = 'www'\n[site.access]\nusers = 'users'\n\
         tokens = 'tokens'\nlink-keys = ['link.key']\n{rules}"
    );
    fs::write(root.join("c.toml"), text).unwrap();
    folder
}

fn bcrypt_line(user: &str) -> String {
    format!("{user}:$2y$04$abcdefghijklmnopqrstuuJ0SCBxa1qgyYLZ1cUgD0BcqZcAHPPzO\n")
}

const RULES: &str = "[[site.access.rule]]\npaths = ['/team']\nallow = ['user:anna', 'links']\n\
                     [[site.access.rule]]\nnetworks = ['10.0.0.0/8']\nallow = ['tokens']\n";

fn fetched(server: &ServerProcess, target: &str, login: Option<(&str, &str)>) -> u16 {
    use base64::Engine;
    let shown = login.map(|(user, password)| {
        let login = base64::prelude::BASE64_STANDARD.encode(format!("{user}:{password}"));
        format!("Authorization: Basic {login}\r\n")
    });
    let mut client = server.connect();
    let shown = shown.unwrap_or_default();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{shown}\r\n"));
    client.response().status
}

#[test]
fn what_the_tool_makes_is_what_the_server_takes() {
    let folder = configured(RULES);
    let mut command = underpass();
    command.current_dir(folder.path());
    command.args(["serve", "--config", "c.toml"]);
    let server = ServerProcess::spawn(&mut command);
    let link = tool(
        folder.path(),
        &["sign", "/team/", "--for", "1h", "--config", "c.toml"],
    );
    link.assert_success();
    let link = link.output.trim_end();
    assert_eq!(fetched(&server, "/team/f", None), 401);
    assert_eq!(fetched(&server, "/team/f", Some(("anna", "secret"))), 200);
    assert_eq!(fetched(&server, "/team/f", Some(("anna", "other"))), 401);
    assert_eq!(fetched(&server, link, None), 200);
    let (_, signature) = link.split_once('?').unwrap();
    assert_eq!(fetched(&server, &format!("/team/f?{signature}"), None), 200);
    // A reload reads the files again.
    fs::write(folder.path().join("users"), "").unwrap();
    server.reload();
    assert_eq!(fetched(&server, "/team/f", Some(("anna", "secret"))), 401);
    server.stop().assert_success();
}

#[test]
fn rules_hold_from_a_reload_on_and_a_broken_one_opens_nothing() {
    let folder = configured("");
    let path = folder.path().join("c.toml");
    let open = fs::read_to_string(&path).unwrap();
    let rule = |allow: &str| {
        let rule = format!("[[site.access.rule]]\npaths = ['/team']\nallow = [{allow}]\n");
        fs::write(&path, format!("{open}{rule}")).unwrap();
    };
    rule("'user:anna'");
    let mut command = underpass();
    command.current_dir(folder.path());
    command.args(["serve", "--config", "c.toml"]);
    let mut server = ServerProcess::spawn(&mut command);
    let statuses = |server: &ServerProcess| {
        [None, Some(("anna", "secret"))].map(|login| fetched(server, "/team/f", login))
    };
    assert_eq!(statuses(&server), [401, 200]);
    for wrong in ["'user:bert', 'nobody'", "'user:anna'\nlisten = 7"] {
        rule(wrong);
        server.signal(Signal::HUP);
        server.hear("reload failed");
        assert_eq!(statuses(&server), [401, 200], "{wrong}");
    }
    for _ in 0..2 {
        rule("'tokens'");
        server.reload();
        assert_eq!(statuses(&server), [401, 403]);
        rule("'everyone'");
        server.reload();
        assert_eq!(statuses(&server), [200, 200]);
        rule("'user:anna'");
        server.reload();
        assert_eq!(statuses(&server), [401, 200]);
        server.upgrade();
        assert_eq!(statuses(&server), [401, 200]);
    }
    server.stop().assert_success();
}

#[test]
fn a_single_user_needs_no_file() {
    let folder = configured("");
    let root = folder.path();
    fs::write(root.join("password"), "secret\nsecond line\n").unwrap();
    for (words, variable) in [
        (&["--auth", "anna", "--password-file", "password"][..], None),
        (&["--auth", "anna"], Some("secret")),
    ] {
        let mut command = underpass();
        command
            .current_dir(root)
            .args(["serve", "www", "-p", "0"])
            .args(words);
        command.env_remove("UNDERPASS_PASSWORD");
        command.envs(variable.map(|password| ("UNDERPASS_PASSWORD", password)));
        let server = ServerProcess::spawn(&mut command);
        assert_eq!(fetched(&server, "/team/f", None), 401);
        assert_eq!(fetched(&server, "/team/f", Some(("anna", "secret"))), 200);
        server.reload();
        assert_eq!(fetched(&server, "/team/f", Some(("anna", "secret"))), 200);
        server.stop().assert_success();
    }
    let refused = tool(root, &["--auth", "anna:secret", "www"]);
    refused.assert_failed(1, &["must not be an argument", "--auth anna"]);
    assert!(!refused.errors.contains("secret"), "{}", refused.errors);
    let refused = with_password(root, &["--auth", "anna", "www"], "");
    refused.assert_failed(1, &["no terminal", "--password-file", "UNDERPASS_PASSWORD"]);
}

#[test]
fn who_would_get_what_is_told_with_the_rule() {
    let folder = configured(RULES);
    let ask = |words: &[&str]| {
        tool(
            folder.path(),
            &[&["--check", "c.toml", "--as"], words].concat(),
        )
    };
    for (words, expected) in [
        (
            &["anna", "GET", "/team/f"][..],
            "granted: GET /team/f, rule 1 decides",
        ),
        (
            &["user:anna", "HEAD", "/te%61m/"],
            "granted: HEAD /te%61m/, rule 1 decides",
        ),
        (
            &["links", "GET", "/team/f"],
            "granted: GET /team/f, rule 1 decides",
        ),
        (
            &["token:ci", "GET", "/team/f"],
            "refused: GET /team/f, rule 1 decides",
        ),
        (
            &["everyone", "GET", "/team/f"],
            "refused: GET /team/f, rule 1 decides",
        ),
        (
            &["token:ci", "GET", "/x", "--from", "unix"],
            "refused: GET /x, no rule is about it",
        ),
        (
            &["token:ci", "GET", "/x", "--from", "10.1.1.1"],
            "granted: GET /x, rule 2 decides",
        ),
    ] {
        let told = ask(words);
        told.assert_success();
        assert_eq!(told.output.trim_end(), expected, "{words:?}");
    }
    for (words, expected) in [
        (&["carl", "GET", "/x"][..], "no user carl"),
        (&["token:other", "GET", "/x"], "no valid token other"),
        (&["anna", "GET", "/x"], "--from ADDRESS"),
        (&["anna", "GET", "/x", "--from", "a"], "192.0.2.1, or unix"),
        (&["anna", "GET", "x"], "begins with a slash"),
        (
            &["anna", "POST", "/x"],
            "POST is not GET, HEAD, PUT or DELETE",
        ),
        (&["anna", "GET", "/../x"], "above the root"),
    ] {
        let status = if expected.contains("or unix") { 2 } else { 1 };
        ask(words).assert_failed(status, &[expected]);
    }
}

#[test]
fn times_bases_and_names_are_signed_as_people_write_them() {
    let root = tempfile::tempdir().unwrap();
    let key = root.path().join("key");
    fs::write(&key, [b'k'; 40]).unwrap();
    let site = root.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("100% sure?.txt"), "").unwrap();
    let config = format!(
        "[[site]]\nroot = {site:?}\n[site.access]\nlink-keys = [{key:?}]\n\
         [[site.access.rule]]\nallow = ['links']\n"
    );
    fs::write(root.path().join("c.toml"), config).unwrap();
    let sign = |words: &[&str]| {
        let mut sign = underpass();
        sign.args(["serve", "sign", "--config", "c.toml"])
            .args(words);
        run(sign.current_dir(root.path()))
    };
    let signed = sign(&["--until", "2030-01-31", "/100% sure?.txt"]);
    signed.assert_success();
    let start = "/100%25%20sure%3F.txt?signed=1896048000.file.";
    assert!(signed.output.starts_with(start), "{}", signed.output);
    assert!(signed.errors.contains("valid until 2030-01-31T00:00:00Z"));
    fs::create_dir(site.join("50% off")).unwrap();
    let folder = sign(&["--for", "1h", "/50% off/?download=tar"]);
    let start = "/50%25%20off/?download=tar&signed=";
    assert!(folder.output.starts_with(start), "{}", folder.output);
    let evening = sign(&["--until", "2030-01-31 18:00:00", "/f"]);
    assert!(
        evening.output.contains("=1896112800."),
        "{}",
        evening.output
    );
    for (words, code, expected) in [
        (&["--for", "soon", "/f"][..], 2, "1h, 24h or 7d"),
        (&["--until", "tomorrow", "/f"], 2, "2030-01-31"),
        (&["--until", "2020-01-31", "/f"], 1, "in the past"),
        (&["/f"], 2, "--for"),
        (
            &["--for", "1h", "--base", "a.org", "/f"],
            2,
            "https://a.org",
        ),
    ] {
        sign(words).assert_failed(code, &[expected]);
    }
}

#[test]
fn a_link_that_will_disappoint_is_signed_with_a_warning() {
    let folder = configured(RULES);
    let sign = |path: &str| {
        let words = ["sign", path, "--for", "1h", "--config", "c.toml"];
        tool(folder.path(), &words)
    };
    for (path, expected) in [
        ("/team/f", None),
        ("/team/", None),
        ("/team/?download=tar", None),
        ("/team", Some("sign /team/ for everything in the folder")),
        ("/team/f/", Some("/team/f is a file")),
        ("/team/g", Some("nothing at /team/g in www yet")),
    ] {
        let signed = sign(path);
        signed.assert_success();
        assert!(signed.output.starts_with(path), "{}", signed.output);
        match expected {
            Some(warning) => assert!(signed.errors.contains(warning), "{path}: {}", signed.errors),
            None => {
                let rest = signed.errors.strip_prefix("valid until 20").unwrap();
                assert_eq!(rest.lines().count(), 1, "{path}: {rest}");
            }
        }
    }
    let signed = sign("/team/f");
    sign(signed.output.trim_end()).assert_failed(1, &["a signed link already"]);
    let folder = configured("[[site.access.rule]]\nallow = ['users']\n");
    let words = ["sign", "/team/", "--for", "1h", "--config", "c.toml"];
    let refused = tool(folder.path(), &words);
    let warning = "rule 1 decides about /team, and does not allow links";
    assert!(refused.errors.contains(warning), "{}", refused.errors);
}

#[test]
fn mistakes_are_reported_where_they_are() {
    let folder = configured("[[site.access.rule]]\nallow = ['anna']\n");
    let told = tool(folder.path(), &["--check", "c.toml"]);
    told.assert_failed(1, &["line 9", "user:NAME"]);
    let folder = configured(RULES);
    for (rules, expected) in [
        ("paths = []\nallow = ['users']", "rule 1 has no `paths`"),
        ("paths = ['//x']\nallow = ['users']", "matches no path"),
    ] {
        let folder = configured(&format!("[[site.access.rule]]\n{rules}\n"));
        let told = tool(folder.path(), &["--check", "c.toml"]);
        told.assert_failed(1, &[expected]);
    }
    let hash = bcrypt_line("ben");
    let users = fs::read_to_string(folder.path().join("users")).unwrap();
    fs::write(folder.path().join("users"), users + &hash).unwrap();
    let told = tool(folder.path(), &["--check", "c.toml"]);
    told.assert_success();
    assert!(
        told.output.contains("take longer to verify"),
        "{}",
        told.output
    );
    fs::write(folder.path().join("users"), "").unwrap();
    let told = tool(folder.path(), &["--check", "c.toml"]);
    assert!(told.output.contains("contains no users"), "{}", told.output);
    fs::write(folder.path().join("users"), "\nanna:$apr1$abc$def\n").unwrap();
    let told = tool(folder.path(), &["--check", "c.toml"]);
    told.assert_failed(1, &["users: line 2", "MD5", "underpass serve hash"]);
    let no_key = tool(
        folder.path(),
        &["sign", "/f", "--for", "1h", "--key", "none"],
    );
    no_key.assert_failed(1, &["none"]);
    let short = with_password(folder.path(), &["hash", "a:b"], "x\n");
    short.assert_failed(1, &["colon"]);
}

/// Starts a server with the configuration.
fn serving(folder: &Path) -> ServerProcess {
    let mut command = underpass();
    command.current_dir(folder);
    ServerProcess::spawn(command.args(["serve", "--config", "c.toml"]))
}

/// Returns the warnings at the start, and of `--check`.
fn warnings(folder: &Path) -> [String; 2] {
    let started = serving(folder).stop();
    started.assert_success();
    let checked = tool(folder, &["--check", "c.toml"]);
    checked.assert_success();
    [started.errors, checked.output]
}

/// Returns the warnings with other listeners, and with these options before the others.
fn warnings_at(folder: &Path, listen: &str, options: &str) -> [String; 2] {
    let config = folder.join("c.toml");
    let text = fs::read_to_string(&config).unwrap();
    let (_, sites) = text.split_once("[[site]]").unwrap();
    let changed = format!("listen = [{listen}]\n{options}\n[[site]]{sites}");
    fs::write(&config, changed).unwrap();
    warnings(folder)
}

fn assert_warned(warned: &[String; 2], words: &str, times: usize) {
    for (said, by) in warned.iter().zip(["start", "--check"]) {
        assert_eq!(said.matches(words).count(), times, "{by}: {words}: {said}");
    }
}

const UNENCRYPTED: &str = "passwords and tokens reach ";

#[test]
fn passwords_that_travel_unencrypted_are_warned_of() {
    let folder = configured("[[site.access.rule]]\nallow = ['users', 'tokens']\n");
    let root = folder.path();
    let socket = format!("'unix:{}'", root.join("socket").display());
    for (listen, times) in [
        ("'0.0.0.0:0'", 1),
        ("'[::]:0'", 1),
        ("'127.0.0.1:0', '0.0.0.0:0'", 1),
        ("'127.0.0.1:0'", 0),
        ("'127.0.0.2:0', '[::1]:0'", 0),
        (&socket, 0),
    ] {
        assert_warned(&warnings_at(root, listen, ""), UNENCRYPTED, times);
    }
    // Clients admitted by their network alone send no secret that others could read.
    let text = fs::read_to_string(root.join("c.toml")).unwrap();
    let open = text.split("[site.access]").next().unwrap().to_owned();
    let rule = "[[site.access.rule]]\nnetworks = ['127.0.0.0/8']\nallow = ['everyone']\n";
    fs::write(root.join("c.toml"), open + rule).unwrap();
    assert_warned(&warnings_at(root, "'0.0.0.0:0'", ""), UNENCRYPTED, 0);
}

#[test]
fn passwords_that_travel_by_https_alone_are_not_warned_of() {
    let folder = configured("");
    let root = folder.path();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(root.join("crt"), made.cert.pem()).unwrap();
    fs::write(root.join("key"), made.signing_key.serialize_pem()).unwrap();
    let tls = "[[tls.certificate]]\ncert = 'crt'\nkey = 'key'";
    for (listen, times) in [
        ("'0.0.0.0:0'", 0),
        ("'https:0.0.0.0:0', '127.0.0.1:0'", 0),
        // Requests to the HTTP listener are redirected.
        ("'https:127.0.0.1:0', 'http:0.0.0.0:0'", 0),
        ("'http:0.0.0.0:0'", 1),
    ] {
        assert_warned(&warnings_at(root, listen, tls), UNENCRYPTED, times);
    }
}

#[test]
fn files_that_others_may_read_and_names_that_nobody_has_are_warned_of() {
    let folder = configured(
        "[[site.access.rule]]\npaths = ['/team']\nallow = ['user:anna', 'user:carl']\n\
         [[site.access.rule]]\nallow = ['token:ci', 'token:nightly', 'links']\n",
    );
    let root = folder.path();
    let (key, users) = (root.join("link.key"), root.join("users"));
    let set_mode = |mode: u32| fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
    let exposed = "every user of this machine may read the key of signed links ";
    let costs = "the hashes of some users take longer to verify than those of others";
    for (mode, times) in [(0o644, 1), (0o604, 1), (0o640, 0), (0o600, 0)] {
        set_mode(mode);
        let warned = warnings(root);
        assert_warned(&warned, exposed, times);
        assert_warned(&warned, costs, 0);
        // Only the missing names, and each once.
        let unknown = "which its file does not contain";
        assert_warned(&warned, unknown, 2);
        assert_warned(&warned, &format!("allows the user carl, {unknown}"), 1);
        let token = format!("allows the valid token nightly, {unknown}");
        assert_warned(&warned, &token, 1);
    }
    let anna = fs::read_to_string(&users).unwrap();
    fs::write(&users, anna + &bcrypt_line("carl")).unwrap();
    let warned = warnings(root);
    assert_warned(&warned, costs, 1);
    assert_warned(&warned, "the user carl", 0);
}

#[test]
fn a_broken_file_leaves_the_users_that_were_there_and_is_reported() {
    let folder = configured("[[site.access.rule]]\nallow = ['users']\n");
    let users = folder.path().join("users");
    let line = |user: &str| {
        let made = with_password(folder.path(), &["hash", user], &format!("{user}'s\n"));
        made.assert_success();
        made.output
    };
    let (ben, carl) = (line("ben"), line("carl"));
    let write = |content: &str| {
        let new = folder.path().join("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, &users).unwrap();
    };
    let anna = fs::read_to_string(&users).unwrap();
    write(&format!("{anna}{ben}"));
    let server = serving(folder.path());
    let status = |user: &str, password: &str| fetched(&server, "/team/f", Some((user, password)));
    assert_eq!(status("anna", "secret"), 200);

    write(&format!("{anna}{carl}dora:secret\n"));
    let warning = server.hear("what this file held before stays in use");
    assert!(warning.contains("users: line 3: "), "{warning}");
    assert!(!warning.contains("secret"), "{warning}");
    // A remembered user, one who has never logged in, and one who is only in the broken file.
    assert_eq!(status("anna", "secret"), 200);
    assert_eq!(status("ben", "ben's"), 200);
    assert_eq!(status("carl", "carl's"), 401);

    server.signal(Signal::HUP);
    let error = server.hear("reload failed, the previous configuration stays in effect");
    assert!(error.contains("users: line 3: "), "{error}");
    assert_eq!(status("anna", "secret"), 200);
    assert_eq!(status("ben", "ben's"), 200);

    write(&format!("{anna}{carl}"));
    server.hear("the files of access can be read again, and are in use");
    assert_eq!(status("carl", "carl's"), 200);
    assert_eq!(status("ben", "ben's"), 401, "the remembered are forgotten");
    server.reload();
    assert_eq!(status("carl", "carl's"), 200);
    server.stop().assert_success();
}

#[test]
fn links_are_signed_by_the_first_key_for_any_base() {
    let folder = configured("[[site.access.rule]]\nallow = ['links']\n");
    let root = folder.path();
    fs::write(root.join("old.key"), "o".repeat(40)).unwrap();
    let text = fs::read_to_string(root.join("c.toml")).unwrap();
    let with_keys = |keys: &str| {
        fs::write(root.join("c.toml"), text.replace("['link.key']", keys)).unwrap();
    };
    let sign = |more: &[&str]| {
        let words = [&["sign", "/team/f", "--for", "1h"], more].concat();
        let signed = tool(root, &words);
        signed.assert_success();
        signed.output.trim_end().to_owned()
    };
    let config = &["--config", "c.toml"][..];
    with_keys("['old.key']");
    let old = sign(config);
    with_keys("['link.key', 'old.key']");
    let new = sign(config);
    let server = serving(root);
    for link in [&old, &new] {
        assert_eq!(fetched(&server, link, None), 200, "{link}");
    }
    let base = format!("http://{}", server.address());
    for given in [&base, &format!("{base}/")] {
        let url = sign(&[config, &["--base", given]].concat());
        let target = url.strip_prefix(&base).unwrap();
        assert!(target.starts_with("/team/f?signed="), "{url}");
        assert_eq!(fetched(&server, target, None), 200, "{url}");
    }
    // Without the old key, links signed by the first key stay valid.
    with_keys("['link.key']");
    server.reload();
    assert_eq!(fetched(&server, &new, None), 200);
    assert_eq!(fetched(&server, &sign(&["--key", "link.key"]), None), 200);
    assert_eq!(fetched(&server, &old, None), 403);
    assert_eq!(fetched(&server, &sign(&["--key", "old.key"]), None), 403);
    server.stop().assert_success();
}

#[test]
fn a_standard_error_that_is_closed_or_full_loses_no_token_and_no_link() {
    let folder = configured(RULES);
    let run = |command: &str, streams: &str| {
        let line = format!("exec \"$0\" serve {command} {streams}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_underpass")]);
        run_with_input(shell.current_dir(folder.path()), b"secret\n")
    };
    for streams in ["2>&-", "2>/dev/full", ">/dev/full 2>/dev/full", ">&- 2>&-"] {
        // The line of a token that nobody has seen is not printed.
        let token = run("hash --token ci", streams);
        assert_eq!((token.code, &*token.output), (Some(1), ""), "{streams}");
    }
    for streams in ["2>&-", "2>/dev/full"] {
        for command in ["hash anna", "sign /f --for 1h --config c.toml"] {
            let printed = run(command, streams);
            assert_eq!(printed.code, Some(0), "{command} {streams}: {printed:?}");
            assert_eq!(printed.output.lines().count(), 1, "{command} {streams}");
        }
    }
    for streams in [">/dev/full 2>/dev/full", ">&- 2>&-"] {
        for command in ["hash anna", "sign /f --for 1h --config c.toml"] {
            let failed = run(command, streams);
            assert_eq!(failed.code, Some(1), "{command} {streams}: {failed:?}");
        }
    }
}
