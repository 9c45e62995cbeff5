//! Nothing outside the served folder can be read, with any spelling and at any time.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat, renameat_with};
use underpass_serve::{ServerOptions, serve};
use underpass_testkit::{HttpClient, WAIT_MAX};

use crate::support::{Probe, Server, State};

const SECRET: &str = "the secret";
const PUBLIC: &str = "for everybody";

/// Starts a site with secrets next to it.
fn site() -> Server {
    with_secrets(Server::start())
}

fn with_secrets(server: Server) -> Server {
    server.write("probe", "probe");
    server.write("file", PUBLIC);
    server.write("dir/file", PUBLIC);
    fs::write(server.outside().join("secret"), SECRET).unwrap();
    fs::create_dir(server.outside().join("beside")).unwrap();
    fs::write(server.outside().join("beside/file"), SECRET).unwrap();
    server
}

#[test]
fn no_spelling_of_dots_leads_out() {
    let server = site();
    let ups = [
        "..",
        "%2e%2e",
        "%2E.",
        ".%2e",
        "..%2f..",
        "..%5c..",
        "..;",
        "%c0%ae%c0%ae",
        "%252e%252e",
    ];
    let joints = ["/", "%2f", "//", "/./", "\\", "%5c"];
    for before in ["/", "/dir/", "/dir/file/", "//", "/./", "/%2e/"] {
        for up in ups {
            for joint in joints {
                for times in 1..4 {
                    let climb = format!("{up}{joint}").repeat(times);
                    let answer = server.get(&format!("{before}{climb}secret"));
                    assert!(
                        matches!(answer.status, 400 | 404),
                        "{before}{climb}: {}",
                        answer.head
                    );
                }
            }
        }
    }
}

#[test]
fn links_inside_are_followed_and_links_outside_are_not() {
    let server = site();
    let root = server.site();
    let outside = server.outside().canonicalize().unwrap();
    let absolute = |name: &str| outside.join(name).to_str().unwrap().to_owned();
    for (link, to, status) in [
        ("to-file", "file", 200),
        ("to-dir", "dir", 301),
        ("dir/up", "../file", 200),
        ("chain-1", "chain-2", 200),
        ("chain-2", "dir/up", 200),
        ("out", "../secret", 404),
        ("out-dir", "../beside", 404),
        ("dir/out", "../../secret", 404),
        ("out-and-in", "../site/file", 404),
        ("absolute", &absolute("secret"), 404),
        ("absolute-inside", &absolute("site/file"), 404),
        ("out-chain", "out", 404),
        ("dangling", "nowhere", 404),
        ("loop", "loop", 404),
        ("everything", "/", 404),
        ("proc", "/proc/self/cwd/Cargo.toml", 404),
    ] {
        symlink(to, root.join(link)).unwrap();
        if to.starts_with("chain") {
            continue;
        }
        let answer = server.get(&format!("/{link}"));
        assert_eq!(answer.status, status, "{link}");
        if status == 200 {
            assert_eq!(answer.body, PUBLIC.as_bytes());
        }
    }
    assert_eq!(server.get("/chain-1").body, PUBLIC.as_bytes());
    assert_eq!(server.get("/to-dir/file").body, PUBLIC.as_bytes());
    for target in [
        "/out-dir/file",
        "/everything/etc/passwd",
        "/to-dir/../../secret",
        "/out-dir/",
    ] {
        assert!(matches!(server.get(target).status, 400 | 404), "{target}");
    }
}

#[test]
fn links_that_only_proc_has_are_not_followed() {
    let options = ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        workers: NonZeroUsize::new(1),
        ..ServerOptions::of("/proc")
    };
    let server = serve(&options).unwrap();
    let running = server.running();
    let ask = |target: &str| {
        let mut client = HttpClient::connect(running.address().unwrap());
        client.get(target)
    };
    assert_eq!(ask("/self/status").status, 200);
    for target in [
        &["/self/", "root", "/etc/passwd"].concat(),
        "/self/cwd/Cargo.toml",
        "/self/exe",
        "/self/fd/0",
    ] {
        assert_eq!(ask(target).status, 404, "{target}");
    }
}

#[test]
fn what_is_no_file_is_not_opened() {
    let server = site();
    let root = server.site();
    let fifo = root.join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = UnixListener::bind(root.join("socket")).unwrap();
    let (report, opened) = std::sync::mpsc::channel();
    let path = fifo.clone();
    let writer = std::thread::spawn(move || {
        let mut writer = fs::OpenOptions::new().write(true).open(path).unwrap();
        report.send(()).unwrap();
        writer.write_all(b"for the reader").unwrap();
    });
    let mut client = server.connect();
    for _ in 0..100 {
        for name in ["fifo", "socket", "?download=tar"] {
            let status = if name.starts_with('?') { 200 } else { 404 };
            assert_eq!(client.get(&format!("/{name}")).status, status, "{name}");
            assert_eq!(client.state(), State::Open);
        }
    }
    assert!(
        opened.try_recv().is_err(),
        "the server is the FIFO's reader"
    );
    assert_eq!(fs::read(&fifo).unwrap(), b"for the reader");
    opened.recv_timeout(WAIT_MAX).unwrap();
    writer.join().unwrap();
}

/// Hidden names count in the request, not in the target of a link: whoever makes a link with a
/// visible name wants its target to be visible. Kubernetes volumes consist of such links.
#[test]
fn a_link_shows_a_hidden_target_and_nothing_hidden_beneath_it() {
    let layout = |server: &Server| {
        server.write("..2026_11_22/config/a.json", "a");
        server.write("..2026_11_22/config/.git/secret", SECRET);
        let root = server.site();
        symlink("..2026_11_22", root.join("..data")).unwrap();
        symlink("..data/config", root.join("config")).unwrap();
        symlink("..data/config/a.json", root.join("a.json")).unwrap();
        symlink(".", root.join("self")).unwrap();
    };
    let server = site();
    layout(&server);
    for (target, status) in [
        ("/a.json", 200),
        ("/config/a.json", 200),
        ("/self/config/a.json", 200),
        ("/config/.git/secret", 404),
        ("/self/..data/config/a.json", 404),
        ("/..data/config/a.json", 404),
        ("/..2026_11_22/config/a.json", 404),
        ("/config/%2egit/secret", 404),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
    let listed = |target: &str| String::from_utf8(server.get(target).body).unwrap();
    assert!(listed("/?format=json").contains("\"config\""));
    assert!(!listed("/?format=json").contains("..data"));
    assert!(!listed("/config/?format=json").contains(".git"));
    let strict = with_secrets(Server::configured("symlinks = 'none'"));
    layout(&strict);
    for target in ["/a.json", "/config/a.json", "/self/config/a.json"] {
        assert_eq!(strict.get(target).status, 404, "{target}");
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_device_is_not_found() {
    let server = site();
    let path = server.site().join("null");
    let null = rustix::fs::makedev(1, 3);
    mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR, null).unwrap();
    let queue = inotify::init(CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&queue, &path, WatchFlags::OPEN).unwrap();
    let mut client = server.connect();
    for target in ["/null", "/null?digest=sha-256", "/null/"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    for target in ["/", "/?download=tar"] {
        let answer = client.get(target);
        assert_eq!(answer.status, 200, "{target}");
        assert!(!answer.body.is_empty(), "{target}");
    }
    assert_eq!(client.state(), State::Open);
    // Some devices act when they are opened.
    let is_opened = || {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        inotify::Reader::new(&queue, &mut buffer).next().is_ok()
    };
    assert!(!is_opened(), "the server has opened the device");
    fs::File::open(&path).unwrap();
    assert!(is_opened(), "the queue reports what is opened");
}

#[test]
fn a_folder_swapped_for_a_link_while_serving_does_not_open_the_way() {
    swap(site(), 3_000, Opens::Nothing);
}

#[test]
fn nor_where_no_link_is_followed_at_all() {
    swap(
        with_secrets(Server::configured("symlinks = 'none'")),
        200,
        Opens::Nothing,
    );
}

#[test]
fn where_all_links_are_followed_a_swap_leads_where_it_leads() {
    swap(
        with_secrets(Server::configured("symlinks = 'all'")),
        200,
        Opens::Secrets,
    );
}

/// The effect of following a link to the outside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Opens {
    Nothing,
    Secrets,
}

/// Stops the swapping threads, even if the test fails, since the scope waits for them.
struct Ends<'d>(&'d AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Repeatedly swaps a folder for a link to the outside while its files are requested, until both
/// have been seen.
fn swap(server: Server, names: usize, opens: Opens) {
    let (folder, link) = (server.site().join("swapped"), server.site().join("other"));
    fs::create_dir(&folder).unwrap();
    // Many names, since a name that is kept open is not resolved again for a moment.
    for name in 0..names {
        fs::write(folder.join(name.to_string()), PUBLIC).unwrap();
        fs::write(server.outside().join(format!("beside/{name}")), SECRET).unwrap();
    }
    symlink("../beside", &link).unwrap();
    let done = AtomicBool::new(false);
    let (mut found, mut secrets, mut missing) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let _ends = Ends(&done);
        let mut client = server.connect();
        let start = Instant::now();
        for (requests, name) in (0..names).cycle().enumerate() {
            let other = match opens {
                Opens::Nothing => missing,
                Opens::Secrets => secrets,
            };
            let is_seen = found > 0 && other > 0;
            if requests >= names && (is_seen || start.elapsed() > WAIT_MAX) {
                break;
            }
            let answer = client.get(&format!("/swapped/{name}"));
            match answer.status {
                200 if answer.body == SECRET.as_bytes() => secrets += 1,
                200 => found += 1,
                // A name that is renamed faster than it resolves gets 503.
                404 | 503 => missing += 1,
                _ => panic!("{answer:?}"),
            }
        }
    });
    let other = match opens {
        Opens::Nothing => missing,
        Opens::Secrets => secrets,
    };
    assert!(
        found > 0 && other > 0,
        "nothing was swapped in time: {found}, {other}"
    );
    assert_eq!(secrets > 0, opens == Opens::Secrets);
}

#[test]
fn parents_swapped_and_moved_at_every_level_do_not_open_the_way() {
    const REQUESTS: usize = 400;
    const CLIENTS: usize = 3;
    let server = site();
    let (root, outside) = (server.site(), server.outside().to_owned());
    for (top, content) in [(root.join("a"), PUBLIC), (outside.join("beside/a"), SECRET)] {
        fs::create_dir_all(top.join("b/c")).unwrap();
        for name in 0..REQUESTS * CLIENTS {
            fs::write(top.join(format!("b/c/{name}")), content).unwrap();
        }
    }
    // On each level a link to the same level next to the site.
    symlink("../beside/a", root.join("top")).unwrap();
    symlink("../../beside/a/b", root.join("a/middle")).unwrap();
    symlink("../../../beside/a/b/c", root.join("a/b/bottom")).unwrap();
    // A link that climbs within the site unless its folder is moved.
    symlink("../../a/b/c", root.join("a/b/within")).unwrap();
    // Swaps are done in open folders: paths change meanwhile, and would sometimes move files from
    // outside into the site.
    let open = |path: &str| fs::File::open(root.join(path)).unwrap();
    let (top, a, b) = (open("."), open("a"), open("a/b"));
    let done = AtomicBool::new(false);
    let swap = |folder: &fs::File, one: &str, other: &str| {
        while !done.load(Ordering::Relaxed) {
            // The name may have been moved away.
            let _ = renameat_with(folder, one, folder, other, RenameFlags::EXCHANGE);
            std::thread::yield_now();
        }
    };
    let found: usize = std::thread::scope(|scope| {
        scope.spawn(|| swap(&top, "a", "top"));
        scope.spawn(|| swap(&a, "b", "middle"));
        scope.spawn(|| swap(&b, "c", "bottom"));
        scope.spawn(|| {
            // Out of the site and back, so that `..` within it temporarily leads elsewhere.
            let moved = outside.join("moved");
            while !done.load(Ordering::Relaxed) {
                let _ = renameat(&a, "b", CWD, &moved);
                let _ = renameat(CWD, &moved, &a, "b");
                std::thread::yield_now();
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let names = number * REQUESTS..(number + 1) * REQUESTS;
                    let mut client = server.connect();
                    names.map(|name| served(&mut client, name)).sum::<usize>()
                })
            })
            .collect();
        let found: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        // Stops the swapping threads before a client's panic ends this one; the scope joins them.
        done.store(true, Ordering::Relaxed);
        found.into_iter().map(Result::unwrap).sum()
    });
    assert!(found > 0, "nothing was ever found");
}

/// Requests a name in two ways; returns the number of times it was found.
fn served(client: &mut HttpClient, name: usize) -> usize {
    let targets = [format!("/a/b/c/{name}"), format!("/a/b/within/{name}")];
    let statuses = targets.map(|target| {
        let answer = client.get(&target);
        assert!(!answer.body.starts_with(SECRET.as_bytes()), "{target}");
        // 403: opened after it was moved out, where confined workers may not read it.
        assert!(matches!(answer.status, 200 | 403 | 404 | 503), "{answer:?}");
        answer.status
    });
    statuses.iter().filter(|&&status| status == 200).count()
}

#[test]
fn the_served_folder_stays_the_same_when_it_is_renamed() {
    let server = site();
    let moved = server.outside().join("moved");
    fs::rename(server.site(), &moved).unwrap();
    fs::create_dir(server.site()).unwrap();
    fs::write(server.site().join("file"), SECRET).unwrap();
    assert_eq!(server.get("/file").body, PUBLIC.as_bytes());
}
