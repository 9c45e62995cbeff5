//! `underpass serve` configured by a file, by flags and by the environment.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use underpass_testkit::{ExitReport, assert_contains, run};

use crate::support::{Server, serve, underpass};

/// Makes a configuration in a separate folder, with a folder `www` next to it.
fn configuration(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("www")).unwrap();
    let file = folder.path().join("underpass.toml");
    fs::write(&file, text).unwrap();
    (folder, file)
}

fn check(file: &Path) -> ExitReport {
    run(underpass().args(["serve", "--check"]).arg(file))
}

#[test]
fn a_right_configuration_is_reported_and_nothing_is_served() {
    let (folder, file) = configuration(
        "listen = ['127.0.0.1:1']\n[[site]]\nroot = 'www'\nnames = ['a.example']\n\
         [[site]]\nroot = '.'\nnames = ['*.b.example']\n",
    );
    let output = check(&file);
    output.assert_success();
    let www = folder.path().join("www").display().to_string();
    assert_contains(
        &output.output,
        &[
            "127.0.0.1:1",
            &www,
            "a.example, all other names",
            "*.b.example",
        ],
    );
}

#[test]
fn the_example_is_right_as_it_is_shipped() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/underpass.toml");
    let report = check(&example);
    report.assert_success();
    assert_contains(&report.output, &["is valid", "/srv for all other names"]);
    assert!(!report.output.contains("warning"), "{report:?}");
}

#[test]
fn what_is_probably_not_meant_is_warned_of() {
    let (folder, file) = configuration(
        "tls.hsts = '1y'\n[[site]]\nroot = 'www'\n[[site.access.rule]]\n\
         paths = ['/acounting', '/accounting', '/caf\u{e9}', '/*.key', 'anywhere']\n\
         allow = ['everyone']\n",
    );
    // The disk has the name in the other normal form.
    for name in ["accounting", "cafe\u{301}"] {
        fs::create_dir(folder.path().join("www").join(name)).unwrap();
    }
    let output = check(&file);
    output.assert_success();
    let warnings = output.output.lines();
    let warnings: Vec<_> = warnings
        .filter(|line| line.starts_with("warning:"))
        .collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_contains(warnings[0], &["tls.hsts is sent over HTTPS only"]);
    assert_contains(
        warnings[1],
        &["rule 1", "/acounting", "nothing of that name"],
    );
}

#[test]
fn what_belongs_elsewhere_is_reported_with_its_place() {
    let (folder, file) = configuration("root = 'www'\nnames = ['a.example']\n");
    let output = check(&file);
    output.assert_failed(1, &["line 1, column 1", "line 2, column 1", "`[[site]]`"]);
    assert_eq!(output.errors.matches("option of a site").count(), 2);
    let www = folder.path().join("www");
    let www = www.to_str().unwrap();
    serve(&[www, www]).assert_failed(2, &["several are sites of a configuration"]);
    serve(&[www, "9000"]).assert_failed(2, &["-p PORT"]);
}

#[test]
fn every_mistake_is_reported_with_line_and_column() {
    let (_folder, file) = configuration(
        "lisen = '127.0.0.1:1'\nworkers = -1\n[[site]]\nroot = 'www'\nnames = ['a b']\n",
    );
    let output = check(&file);
    assert_eq!(output.code, Some(1));
    let place = file.display().to_string();
    assert_contains(
        &output.errors,
        &[
            &place,
            "line 1, column 1",
            "line 2, column 11",
            "line 5, column",
            "`lisen`",
        ],
    );
    let served = run(underpass().args(["serve", "--config"]).arg(&file));
    served.assert_failed(1, &["line 1, column 1"]);
}

#[test]
fn every_site_that_cannot_be_opened_is_reported() {
    let (_folder, file) =
        configuration("[[site]]\nroot = 'none'\n[[site]]\nroot = 'www'\nfallback = '/none.html'\n");
    let output = check(&file);
    assert_eq!(output.code, Some(1));
    assert_contains(
        &output.errors,
        &["none: No such file", "the page /none.html does not exist"],
    );
    let missing = check(Path::new("/nowhere.toml"));
    missing.assert_failed(1, &["/nowhere.toml: No such file"]);
}

/// Returns the status line and the fields of a response.
fn head(server: &Server, target: &str) -> String {
    server.connect().ask_head(target).head
}

#[test]
fn flags_override_the_configuration() {
    let (_folder, file) = configuration(
        "listen = ['192.0.2.1:1']\nworkers = 7\n\
         [[site]]\nroot = 'www'\nindex = ['a']\nhidden = 'shown'\ncache = [\n\
         {paths = ['*'], control = 'max-age=1'}]\n",
    );
    let file = file.to_str().unwrap();
    let server = Server::with(&[
        "-v",
        "--config",
        file,
        "--index",
        "b,c",
        "--cache-control",
        "no-store",
    ]);
    assert_contains(server.greeting(), &["\n1 worker\n"]);
    for name in ["a", "c", ".hidden"] {
        server.write(name, name);
    }
    let mut socket = server.connect();
    assert_eq!(socket.get("/").body, b"c");
    assert_eq!(socket.get("/.hidden").body, b".hidden");
    assert!(head(&server, "/a").contains("\r\nCache-Control: no-store\r\n"));
    server.stop().assert_success();
    let plain = Server::with(&["--config", file, "--hidden", "denied"]);
    plain.write("a", "a");
    plain.write(".hidden", "hidden");
    assert_eq!(plain.get("/").body, b"a");
    assert!(head(&plain, "/.hidden").starts_with("HTTP/1.1 404 "));
    assert!(head(&plain, "/a").contains("\r\nCache-Control: max-age=1\r\n"));
}

#[test]
fn every_flag_about_files_does_what_the_option_does() {
    let server = Server::with(&[
        "--fallback",
        "/app.html",
        "--pretty",
        "--precompressed",
        "br,gzip",
        "--symlinks",
        "none",
        "--immutable",
        "--cors",
        "*",
    ]);
    for name in ["app.html", "about.html", "x.3f9ab2c1.js"] {
        server.write(name, name);
    }
    std::os::unix::fs::symlink("about.html", server.path("link.html")).unwrap();
    let mut socket = server.connect();
    assert_eq!(socket.get("/route").body, b"app.html");
    assert_eq!(socket.get("/about").body, b"about.html");
    assert_eq!(socket.get("/link").body, b"app.html");
    let reported = head(&server, "/x.3f9ab2c1.js");
    assert_contains(
        &reported,
        &[
            "immutable",
            "Vary: Accept-Encoding",
            "Access-Control-Allow-Origin: *",
        ],
    );
    let bare = Server::with(&["--no-listing", "--hashes", "--compress", "zstd,gzip"]);
    bare.write("f", "f");
    bare.write("f.txt", "f");
    assert!(head(&bare, "/f.txt").contains("\r\nVary: Accept-Encoding\r\n"));
    assert!(head(&bare, "/").starts_with("HTTP/1.1 403 "));
    assert!(head(&bare, "/?download=tar").starts_with("HTTP/1.1 403 "));
    assert!(head(&bare, "/f?hash=sha256").contains("\r\nContent-Length: 68\r\n"));
    for wrong in [
        ["--fallback", "app.html"],
        ["--precompressed", "lzma"],
        ["--compress", "lzma"],
        ["--symlinks", "some"],
        ["--hidden", "maybe"],
        ["--index", "a/b"],
        ["--cors", "a.example"],
        ["--cache-control", "a\r\nb: c"],
    ] {
        let output = serve(&wrong);
        output.assert_failed(2, &[wrong[0]]);
    }
}

#[test]
fn the_environment_stands_behind_the_flags() {
    let (_folder, file) = configuration("[[site]]\nroot = 'www'\nindex = ['a']\n");
    let mut command = underpass();
    command
        .env("UNDERPASS_CONFIG", &file)
        .env("UNDERPASS_LISTEN", "192.0.2.1:1")
        .env("UNDERPASS_WORKERS", "5")
        .env("UNDERPASS_CORS", "*");
    let server = Server::by(command, &["-v"]);
    assert_contains(server.greeting(), &["\n1 worker\n"]);
    server.write("a", "a");
    assert_eq!(server.get("/").body, b"a");
    assert!(head(&server, "/a").contains("Access-Control-Allow-Origin: *"));
}

#[test]
fn any_option_can_be_set_on_the_command_line() {
    let server = Server::with(&[
        "--set",
        "requests.line-bytes-max=200",
        "--set",
        "site.security.frame-options=DENY",
        "--set",
        "site.cache=[{paths = ['*.js'], control = 'max-age=5'}]",
        "--set=site.index=start.html",
        "--set=connections.connections-per-client-max=3",
    ]);
    for name in ["start.html", "a.js"] {
        server.write(name, name);
    }
    let mut socket = server.connect();
    assert_eq!(socket.get("/").body, b"start.html");
    let reported = head(&server, "/a.js");
    assert_contains(
        &reported,
        &["X-Frame-Options: DENY", "Cache-Control: max-age=5"],
    );
    let long = format!("/?{}", "q".repeat(200));
    assert!(head(&server, &long).starts_with("HTTP/1.1 414 "));
}

#[test]
fn the_environment_beats_the_file_and_flags_beat_both() {
    let (_folder, file) = configuration(
        "[[site]]\nroot = 'www'\nindex = ['file']\nhidden = 'shown'\npretty = true\n",
    );
    let index = |arguments: &[&str]| {
        let mut command = underpass();
        command
            .env("UNDERPASS_CONFIG", &file)
            .env("UNDERPASS_CORS", "https://variable.example");
        let server = Server::by(command, arguments);
        for name in ["file", "set", "flag", ".hidden", "p.html"] {
            server.write(name, name);
        }
        let mut socket = server.connect();
        assert_eq!(socket.get("/.hidden").body, b".hidden");
        assert_eq!(socket.get("/p").body, b"p.html");
        let index = socket.get("/").body;
        (String::from_utf8(index).unwrap(), head(&server, "/file"))
    };
    let (reported, cors) = index(&[]);
    assert_eq!(reported, "file");
    assert!(cors.contains("Vary: Origin"), "the variable of its own");
    let set = ["--set", "site.index=set", "--set", "site.cors.origins=*"];
    let (reported, cors) = index(&set);
    assert_eq!(reported, "set");
    assert!(cors.contains("Access-Control-Allow-Origin: *"), "{cors}");
    let flag = [&set[..], &["--index", "flag"]].concat();
    assert_eq!(index(&flag).0, "flag");
}

#[test]
fn a_setting_that_makes_no_sense_is_reported_by_its_name() {
    let (folder, file) = configuration("[[site]]\nroot = 'www'\n");
    let report = |name: &str, settings: &[&str]| {
        let mut command = underpass();
        command.args(["serve", name]).arg(&file);
        run(command.args(settings.iter().flat_map(|setting| ["--set", setting])))
    };
    let mistakes = [
        "--set site.etagg=1: unknown field `etagg`, expected one of `root`",
        "--set workers=none: invalid type: string \"none\"",
        "--set connections.rate-maxx=1: unknown field `rate-maxx`",
        "--set site.symlinks=some: unknown variant `some`, expected one of `none`, `inside`",
    ];
    let wrong = [
        "site.etagg=1",
        "workers=none",
        "connections.rate-maxx=1",
        "site.symlinks=some",
    ];
    for name in ["--check", "--config"] {
        report(name, &wrong).assert_failed(1, &mistakes);
    }
    report("--check", &["workers"]).assert_failed(2, &["is not KEY=VALUE"]);
    let output = run(underpass()
        .args([
            "serve",
            "--set=listen=127.0.0.1:2",
            "--set",
            "site.root=www",
        ])
        .args(["--set=site.2.names=b.example", "--set=site.2.root=."])
        .arg("--check")
        .arg(&file)
        .current_dir(folder.path()));
    output.assert_success();
    output.assert_output(&[
        "listens on 127.0.0.1:2\nwith --set listen=127.0.0.1:2\nwith --set site.root=www",
        "site 1: www for all other names",
        "site 2: . for b.example",
    ]);
}

#[test]
fn one_folder_is_not_that_of_several_sites() {
    let (folder, file) =
        configuration("[[site]]\nroot = '.'\n[[site]]\nroot = '.'\nnames = ['a']\n");
    let output = run(underpass()
        .args(["serve", "--config"])
        .args([file.as_path(), folder.path()]));
    output.assert_failed(1, &["several sites"]);
}

#[test]
fn addresses_that_conflict_are_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("u.toml");
    for (listen, status) in [
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("127.0.0.1:8080", "0.0.0.0:8080"),
        ("unix:/run/u", "unix:/run/u,mode=0600"),
    ] {
        let text = format!(
            "listen = [{listen:?}]\n[status]\nlisten = {status:?}\n[[site]]\nroot = \".\"\n"
        );
        fs::write(&config, text).unwrap();
        let report = serve(&["--check", config.to_str().unwrap()]);
        report.assert_failed(1, &["cannot serve metrics on", "twice"]);
    }
}

#[test]
fn a_folder_that_cannot_take_files_in_is_reported_with_its_cure() {
    let report = |upload: &str, words: &[&str]| {
        let text = format!("[[site]]\nroot = 'www'\n[[site.upload]]\n{upload}");
        let (_folder, file) = configuration(&text);
        check(&file).assert_failed(1, words);
    };
    report(
        "keep-free = '9EB'",
        &["keep-free of ", "/www", "lower keep-free"],
    );
    report("path = '/new'", &["www/new does not exist; make it"]);
    report("at-once-max = 0", &["at-once-max is 0", "raise it"]);
    report(
        "[[site.upload]]",
        &["two [[site.upload]] tables", "remove one"],
    );
    // A mistake, and not only a warning at the start.
    let (folder, file) = configuration(
        "user = '12345:12345'\n[[site]]\nroot = 'www'\n[[site.upload]]\nkeep-free = 0\n",
    );
    let www = folder.path().join("www").display().to_string();
    check(&file).assert_failed(
        1,
        &[
            "the user 12345:12345 may not write to ",
            &www,
            "chown 12345:12345",
        ],
    );
}
