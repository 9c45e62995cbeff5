//! Passwords, tokens and links in other programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tempfile::TempDir;
use underpass_serve::{new_token, password_line, signed_link};
use underpass_testkit::{WAIT_MAX, assert_same, content};

use crate::support::{Server, pattern};

/// A server whose files require a user, a token or a link, and a home folder for clients.
struct Restricted {
    server: Server,
    home: TempDir,
    token: String,
}

const PASSWORD: &str = "correct horse, battery \u{fc}";
const PASSWORD_IN_URL: &str = "correct%20horse%2C%20battery%20%C3%BC";

impl Restricted {
    fn start() -> Restricted {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| home.path().join(name);
        let made = new_token("ci", None).unwrap();
        fs::write(
            file("users"),
            password_line("anna", PASSWORD.as_bytes()).unwrap(),
        )
        .unwrap();
        fs::write(file("tokens"), &made.line).unwrap();
        fs::write(file("key"), "a key of forty bytes that nobody guesses").unwrap();
        let path = |name: &str| file(name).display().to_string();
        let server = Server::configured(&format!(
            "[site.access]\nusers = '{}'\ntokens = '{}'\nlink-keys = ['{}']\nlink-cookies = true\n",
            path("users"),
            path("tokens"),
            path("key")
        ));
        Restricted {
            server,
            home,
            token: made.token,
        }
    }

    fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.server.address())
    }

    /// Returns the URL with a user and a password.
    fn url_with(&self, user: &str, password: &str, target: &str) -> String {
        format!("http://{user}:{password}@{}{target}", self.server.address())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Returns a program with this home folder, its token in a netrc, and a time limit.
    fn client(&self, program: &str) -> Command {
        let netrc = format!("machine 127.0.0.1 login ci password {}\n", self.token);
        fs::write(self.file(".netrc"), netrc).unwrap();
        let mut command = Command::new("timeout");
        let bound = WAIT_MAX.as_secs().to_string();
        command
            .args([&bound, program])
            .env("HOME", self.home.path())
            .current_dir(self.home.path());
        for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY"] {
            command.env_remove(proxy);
        }
        command
    }
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
    output
}

fn written(root: &Path, content: &[u8]) {
    assert_same(
        &fs::read(root).unwrap(),
        content,
        "the file that was fetched",
    );
}

#[test]
#[ignore = "needs curl; run by cargo xtask test"]
fn curl_shows_passwords_tokens_and_links() {
    let site = Restricted::start();
    let file = content(1, 300_000);
    site.server.write("d/f", &file);
    let login = format!("anna:{PASSWORD}");
    let bearer = format!("Authorization: Bearer {}", site.token);
    let expires = SystemTime::now() + Duration::from_secs(600);
    let access = &site.server.options().sites[0].access;
    let signed = site.url(&signed_link(access, "/d/f", expires).unwrap());
    let url = site.url("/d/f");
    for arguments in [
        vec!["--user", &login, &url],
        vec!["--anyauth", "--user", &login, &url],
        vec!["--header", &bearer, &url],
        vec!["--oauth2-bearer", &site.token, &url],
        vec!["--netrc", &url],
        vec![&signed[..]],
    ] {
        let mut curl = site.client("curl");
        curl.args(["--silent", "--fail", "--show-error"])
            .args(&arguments);
        assert_same(&run(&mut curl).stdout, &file, &format!("{arguments:?}"));
    }
    for arguments in [vec!["--user", "anna:wrong", &url], vec![&url[..]]] {
        let mut curl = site.client("curl");
        let output = curl
            .args(["--silent", "--fail"])
            .args(&arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(22), "{arguments:?}");
    }
}

/// Following the archive links would fetch every file once for each folder above it.
#[test]
#[ignore = "needs wget; run by cargo xtask test"]
fn wget_mirrors_a_site_without_its_archives() {
    let server = Server::start();
    for folder in ["", "a/", "a/b/", "c/"] {
        server.write(format!("{folder}f"), pattern(100_000));
    }
    let copy = tempfile::tempdir().unwrap();
    let mut wget = Command::new("wget");
    wget.current_dir(copy.path())
        .args([
            "--quiet",
            "--mirror",
            "--no-parent",
            "--no-host-directories",
        ])
        .arg(format!("http://{}/", server.address()));
    wget.status().unwrap();
    let (mut folders, mut bytes) = (vec![copy.path().to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            assert!(!name.contains("download"), "{name}");
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => bytes += entry.metadata().unwrap().len() * u64::from(name == "f"),
            }
        }
    }
    assert_eq!(bytes, 400_000);
}

#[test]
#[ignore = "needs wget; run by cargo xtask test"]
fn wget_answers_the_challenge() {
    let site = Restricted::start();
    let file = content(2, 50_000);
    site.server.write("f", &file);
    let mut wget = site.client("wget");
    wget.args(["--quiet", "--user=anna", &format!("--password={PASSWORD}")]);
    run(wget.args(["--output-document=got", &site.url("/f")]));
    written(&site.file("got"), &file);
}

#[test]
#[ignore = "needs htpasswd and curl; run by cargo xtask test"]
fn a_line_of_htpasswd_is_one() {
    let site = Restricted::start();
    site.server.write("f", "f");
    let mut htpasswd = site.client("htpasswd");
    let line = run(htpasswd.args(["-nbB", "ben", "secret"])).stdout;
    let users = site.file("htpasswd");
    fs::write(&users, line).unwrap();
    let text = format!("[site.access]\nusers = '{}'", users.display());
    let server = Server::configured(&text);
    server.write("f", "f");
    let mut curl = site.client("curl");
    let url = format!("http://{}/f", server.address());
    let got = run(curl.args(["--silent", "--fail", "--user", "ben:secret", &url])).stdout;
    assert_eq!(got, b"f");
}

#[test]
#[ignore = "needs git; run by cargo xtask test"]
fn git_clones_with_a_netrc_and_with_a_url() {
    let site = Restricted::start();
    let source = site.file("source");
    let git = |folder: &Path, arguments: &[&str]| {
        let mut git = site.client("git");
        git.env("GIT_TERMINAL_PROMPT", "0").arg("-C").arg(folder);
        git.args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "init.defaultBranch=main",
        ]);
        git.args(arguments);
        git
    };
    fs::create_dir(&source).unwrap();
    run(&mut git(&source, &["init", "--quiet"]));
    fs::write(source.join("f"), "content").unwrap();
    run(&mut git(&source, &["add", "f"]));
    run(&mut git(&source, &["commit", "--quiet", "--message=one"]));
    let bare = site.server.site().join("repository.git");
    let bare_name = bare.display().to_string();
    run(&mut git(
        &source,
        &["clone", "--quiet", "--bare", ".", &bare_name],
    ));
    run(&mut git(&bare, &["update-server-info"]));
    let url = site.url("/repository.git");
    run(&mut git(
        site.home.path(),
        &["clone", "--quiet", &url, "by-netrc"],
    ));
    let url = site.url_with("x", &site.token, "/repository.git");
    fs::remove_file(site.file(".netrc")).unwrap();
    run(&mut git(
        site.home.path(),
        &["clone", "--quiet", &url, "by-url"],
    ));
    for name in ["by-netrc", "by-url"] {
        assert_eq!(fs::read(site.file(name).join("f")).unwrap(), b"content");
    }
}

#[test]
#[ignore = "needs apt; run by cargo xtask test"]
fn apt_reads_a_repository_with_its_auth_conf() {
    let site = Restricted::start();
    site.server.write(
        "repository/Packages",
        "Package: a\nVersion: 1\nArchitecture: all\n",
    );
    let (host, folder) = (site.server.address(), site.home.path().display());
    for name in [
        "lists/partial",
        "cache/archives/partial",
        "etc/auth.conf.d",
        "etc/sources.d",
    ] {
        fs::create_dir_all(site.file(name)).unwrap();
    }
    fs::write(
        site.file("etc/auth.conf"),
        format!("machine http://{host} login ci password {}\n", site.token),
    )
    .unwrap();
    let source = format!("deb [trusted=yes] http://{host}/repository ./\n");
    fs::write(site.file("etc/sources.list"), source).unwrap();
    fs::write(site.file("status"), "").unwrap();
    let options = [
        format!("Dir::Etc::SourceList={folder}/etc/sources.list"),
        format!("Dir::Etc::SourceParts={folder}/etc/sources.d"),
        format!("Dir::Etc::NetRC={folder}/etc/auth.conf"),
        format!("Dir::Etc::NetRCParts={folder}/etc/auth.conf.d"),
        format!("Dir::State::Lists={folder}/lists"),
        format!("Dir::State::Status={folder}/status"),
        format!("Dir::Cache={folder}/cache"),
        "Acquire::GzipIndexes=false".to_owned(),
        "Debug::NoLocking=true".to_owned(),
        "APT::Sandbox::User=".to_owned(),
        "Acquire::http::Proxy=false".to_owned(),
    ];
    let mut apt = site.client("apt-get");
    apt.args(options.iter().flat_map(|option| ["-o", option]))
        .arg("update");
    let output = run(&mut apt);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let lists = fs::read_dir(site.file("lists")).unwrap();
    let names: Vec<_> = lists
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let packages = names.iter().find(|name| name.ends_with("Packages"));
    let packages = packages.unwrap_or_else(|| panic!("{names:?}: {told}"));
    let got = fs::read_to_string(site.file("lists").join(packages)).unwrap();
    assert!(got.contains("Package: a"), "{got}");
}

#[test]
#[ignore = "needs pip and python3; run by cargo xtask test"]
fn pip_downloads_with_a_netrc() {
    let site = Restricted::start();
    const WHEEL: &str = "import sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1], 'w') as wheel:\n\
        \x20   wheel.writestr('thing.py', 'x = 1\\n')\n\
        \x20   info = 'thing-1.0.dist-info/'\n\
        \x20   wheel.writestr(info + 'METADATA',\n\
        \x20       'Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n')\n\
        \x20   wheel.writestr(info + 'WHEEL',\n\
        \x20       'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        \x20   wheel.writestr(info + 'RECORD', '')\n";
    let name = "thing-1.0-py3-none-any.whl";
    fs::create_dir_all(site.server.site().join("simple/thing")).unwrap();
    let wheel = site.server.site().join("simple/thing").join(name);
    run(site.client("python3").args(["-c", WHEEL]).arg(&wheel));
    site.server.write(
        "simple/thing/index.html",
        format!("<a href=\"{name}\">{name}</a>"),
    );
    let mut pip = site.client("pip");
    pip.env("PIP_CONFIG_FILE", "/dev/null")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    pip.args([
        "download",
        "--no-deps",
        "--no-cache-dir",
        "--dest",
        "got",
        "--index-url",
    ]);
    run(pip
        .arg(site.url("/simple/"))
        .args(["--trusted-host", "127.0.0.1", "thing"]));
    written(&site.file("got").join(name), &fs::read(wheel).unwrap());
}

#[test]
#[ignore = "needs chromium; run by cargo xtask test"]
fn a_browser_shows_the_page_to_who_has_the_password() {
    let site = Restricted::start();
    site.server.write("page.html", "<title>t</title><p>inside");
    site.server.write("script.html", FETCHES);
    let dump = |url: &str, more: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().display().to_string();
        let mut chromium = site.client("chromium");
        chromium.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ]);
        chromium.args([
            "--disable-background-networking",
            "--disable-component-update",
        ]);
        chromium.args([
            "--timeout=20000",
            &format!("--user-data-dir={profile}"),
            "--dump-dom",
        ]);
        String::from_utf8(run(chromium.args(more).arg(url)).stdout).unwrap()
    };
    for url in [
        site.url_with("ci", &site.token, "/page.html"),
        site.url_with("anna", PASSWORD_IN_URL, "/page.html"),
    ] {
        let inside = dump(&url, &[]);
        assert!(inside.contains("inside"), "{inside}");
    }
    for url in [
        site.url("/page.html"),
        site.url_with("anna", "wrong", "/page.html"),
    ] {
        let refused = dump(&url, &[]);
        assert!(!refused.contains("inside"), "{refused}");
    }
    // A script sends them in a field. The time budget lets it finish before the page is dumped.
    let expires = SystemTime::now() + Duration::from_secs(600);
    let access = &site.server.options().sites[0].access;
    let link = signed_link(access, "/script.html", expires).unwrap();
    let login = BASE64_STANDARD.encode(format!("anna:{PASSWORD}"));
    for shown in [
        format!("Bearer%20{}", site.token),
        format!("Basic%20{login}"),
    ] {
        let url = format!("{}#{shown}", site.url(&link));
        let by_field = dump(&url, &["--virtual-time-budget=20000"]);
        assert!(by_field.contains(GRANTED), "{shown}: {by_field}");
    }
}

#[test]
#[ignore = "needs curl; run by cargo xtask test"]
fn curl_keeps_the_cookie_of_a_signed_folder() {
    let site = Restricted::start();
    let segment = content(2, 100_000);
    for name in [
        "live \u{fc}/index.html",
        "live \u{fc}/a;b/seg1.ts",
        "other/f",
    ] {
        site.server.write(name, &segment);
    }
    let expires = SystemTime::now() + Duration::from_secs(600);
    let access = &site.server.options().sites[0].access;
    let link = signed_link(access, "/live%20%C3%BC/", expires).unwrap();
    let folder = link.split('?').next().unwrap();
    let curl = |arguments: &[&str], target: &str| {
        let mut curl = site.client("curl");
        curl.args(["-s", "-o", "got", "-w", "%{http_code}"]);
        curl.args(arguments).arg(site.url(target));
        String::from_utf8(run(&mut curl).stdout).unwrap()
    };
    let part = format!("{folder}a;b/seg1.ts");
    assert_eq!(curl(&[], &part), "401");
    assert_eq!(curl(&["-c", "jar"], &link), "200");
    assert_eq!(curl(&["-b", "jar"], &part), "200");
    written(&site.file("got"), &segment);
    assert_eq!(curl(&["-b", "jar", "-I"], &part), "200");
    let archive = format!("{folder}?download=tar");
    assert_eq!(curl(&["-b", "jar"], &archive), "200");
    assert_eq!(curl(&["-b", "jar", "-c", "jar"], folder), "200");
    assert_eq!(curl(&["-b", "jar"], &part), "200", "it is kept");
    for outside in ["/other/f", "/live%20%C3%BC2", "/"] {
        assert_eq!(curl(&["-b", "jar"], outside), "401", "{outside}");
    }
    // The server rejects the cookie for other paths, too.
    let jar = fs::read_to_string(site.file("jar")).unwrap();
    assert!(jar.contains("#HttpOnly_127.0.0.1"), "{jar}");
    let value = jar.lines().last().unwrap().split('\t').next_back().unwrap();
    let cookie = format!("Cookie: underpass-signed={value}");
    assert_eq!(curl(&["-H", &cookie], "/other/f"), "401");
    assert_eq!(curl(&["-H", &cookie], &part), "200");
    let up = ["-H", &cookie, "--path-as-is"];
    assert_eq!(curl(&up, &format!("{folder}../other/f")), "401");
}

/// The text of the page after a granted request.
const GRANTED: &str = "200 &lt;title&gt;t&lt;/title&gt;&lt;p&gt;inside";

/// A page that shows the response to a request with the `Authorization` given after `#`.
const FETCHES: &str = "<title>s</title><pre id=p></pre><script>\
    fetch('/page.html', {headers: {Authorization: decodeURIComponent(location.hash.slice(1))}})\
    .then(async r => { p.textContent = r.status + ' ' + await r.text(); });</script>";
