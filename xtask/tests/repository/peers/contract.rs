//! The contract of the programs of `peers/`, described in `peers/README.md`, tested as a client,
//! like `underpass bench`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use sha2::{Digest, Sha256};
use underpass_testkit::{free_address, wait_for};

/// A size that is not a multiple of any buffer.
const FILE_BYTES: usize = 3 * 1024 * 1024 + 17;

/// A variant of a program, from the table of `cargo xtask peers`.
pub(crate) struct Variant {
    experiment: String,
    name: String,
    command: String,
}

/// Compiles the programs of a language and returns the command of each variant.
pub(crate) fn variants(kit: &str) -> Vec<Variant> {
    let table = include_str!("../../../../peers/peers.toml");
    let table: toml::Table = table.parse().expect("a table");
    let entries = |list: &str| table[list].as_array().expect("a list").iter();
    let text = |value: &toml::Value| value.as_str().expect("a text").to_owned();
    let kits = entries("kits").filter(|one| text(&one["name"]) == kit);
    for step in kits
        .filter_map(|one| one.get("build")?.as_array())
        .flatten()
    {
        let status = start(&text(step)).status().expect("it starts");
        assert!(status.success(), "{}", text(step));
    }
    let peers = entries("servers").chain(entries("porters"));
    let peers = peers.filter(|one| text(&one["kit"]) == kit);
    let variants = peers.flat_map(|one| {
        let experiments = one["in"].as_array().expect("a list").iter();
        experiments.map(move |experiment| Variant {
            experiment: text(experiment),
            name: text(&one["name"]),
            command: text(&one["command"]),
        })
    });
    let variants: Vec<_> = variants.collect();
    assert!(!variants.is_empty());
    variants
}

pub(crate) fn check_porters(variants: &[Variant]) {
    let folder = tempfile::tempdir().expect("a folder");
    let sha256 = make_file(&folder.path().join("from"));
    for variant in variants {
        println!("{} {}", variant.experiment, variant.name);
        match variant.experiment.as_str() {
            "socket" => check_sender(variant, folder.path(), &sha256),
            "copy" => check_copier(variant, folder.path(), &sha256),
            _ => {}
        }
    }
}

fn check_sender(variant: &Variant, folder: &Path, sha256: &[u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut porter = Porter::start(variant);
    let file = folder.join("from").display().to_string();
    let none = folder.join("none").display().to_string();
    for _ in 0..2 {
        let receiver = thread::spawn({
            let listener = listener.try_clone().expect("a listener");
            move || hash(listener.accept().expect("a connection").0)
        });
        let job = ["send", &file, &address];
        assert_eq!(
            porter.job(&job),
            format!("ok {FILE_BYTES}"),
            "{}",
            variant.name
        );
        assert_eq!(
            receiver.join().expect("received"),
            sha256,
            "{}",
            variant.name
        );
        porter.fails(&["send", &none, &free_address().to_string()], variant);
        porter.fails(&["send", &file, &free_address().to_string()], variant);
        porter.fails(&["fetch", &file, &address], variant);
    }
    porter.end(variant);
}

fn check_copier(variant: &Variant, folder: &Path, sha256: &[u8]) {
    let mut porter = Porter::start(variant);
    let path = |name: &str| folder.join(name).display().to_string();
    let (from, to, none) = (path("from"), path("to"), path("none"));
    fs::write(&to, vec![1; 2 * FILE_BYTES]).expect("a longer file that is in the way");
    for times in [3, 1] {
        let answer = porter.job(&["copy", &from, &to, &times.to_string()]);
        assert_eq!(
            answer,
            format!("ok {}", times * FILE_BYTES),
            "{}",
            variant.name
        );
        let copy = File::open(&to).expect("a copy");
        assert_eq!(hash(copy), sha256, "{}", variant.name);
        porter.fails(&["copy", &none, &to, "1"], variant);
        porter.fails(&["copy", &from, &path("none/to"), "1"], variant);
        porter.fails(&["fetch", &from, &to, "1"], variant);
    }
    porter.end(variant);
}

/// Checks that files arrive in full, several times over one connection, after any other request.
pub(crate) fn check_servers(variants: &[Variant]) {
    let folder = tempfile::tempdir().expect("a folder");
    let large = make_file(&folder.path().join("large"));
    fs::write(folder.path().join("small"), "small").expect("a file");
    for variant in variants
        .iter()
        .filter(|variant| variant.experiment == "serve")
    {
        println!("serve {}", variant.name);
        let (server, address) = start_server(variant, folder.path());
        let mut connection = BufReader::new(connect(&address));
        for _ in 0..3 {
            let (status, body) = ask(&mut connection, "/large");
            assert_eq!(
                (status, hash(&body[..])),
                (200, large.clone()),
                "{}",
                variant.name
            );
            assert_eq!(ask(&mut connection, "/none").0, 404, "{}", variant.name);
            assert_eq!(ask(&mut connection, "/small"), (200, b"small".to_vec()));
        }
        drop(connection);
        drop(server);
    }
}

/// A server that ends with the test, even if it fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_server(variant: &Variant, root: &Path) -> (Server, String) {
    let address = free_address().to_string();
    let command = variant
        .command
        .replace("{root}", &root.display().to_string())
        .replace("{address}", &address);
    let server = start(&command).stdin(Stdio::null()).spawn();
    (Server(server.expect("it starts")), address)
}

/// Tries until the server listens.
fn connect(address: &str) -> TcpStream {
    wait_for("server", || TcpStream::connect(address).ok())
}

fn ask(connection: &mut BufReader<TcpStream>, path: &str) -> (u16, Vec<u8>) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n");
    connection
        .get_mut()
        .write_all(request.as_bytes())
        .expect("sent");
    let (mut status, mut length) = (0, 0);
    for line in connection
        .by_ref()
        .lines()
        .map(|line| line.expect("a line"))
    {
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].parse().expect("a status");
        } else if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.parse().expect("a length");
        } else if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).expect("a body");
    (status, body)
}

struct Porter {
    child: Child,
    jobs: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Porter {
    fn start(variant: &Variant) -> Self {
        let mut command = start(&variant.command);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let jobs = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut porter = Self {
            child,
            jobs,
            answers,
        };
        let ready = porter.answer();
        let words: Vec<_> = ready.split(' ').collect();
        assert!(
            words[0] == "ready" && words.len() > 2,
            "{}: {ready:?}",
            variant.name
        );
        porter
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim_end_matches('\n').to_owned()
    }

    fn job(&mut self, words: &[&str]) -> String {
        writeln!(self.jobs, "{}", words.join("\t")).expect("it reads");
        self.answer()
    }

    fn fails(&mut self, words: &[&str], variant: &Variant) {
        let answer = self.job(words);
        assert!(
            answer.starts_with("failed "),
            "{}: {answer:?}",
            variant.name
        );
    }

    fn end(mut self, variant: &Variant) {
        drop(self.jobs);
        let status = self.child.wait().expect("it ended");
        assert!(status.success(), "{}: {status}", variant.name);
    }
}

/// Returns a command that runs in the root of the workspace, as the bench does.
fn start(command: &str) -> Command {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    command.args(words).current_dir(root.expect("a workspace"));
    command
}

fn make_file(path: &Path) -> Vec<u8> {
    let mut content = vec![0; FILE_BYTES];
    let mut random = File::open("/dev/urandom").expect("/dev/urandom");
    random.read_exact(&mut content).expect("random bytes");
    fs::write(path, &content).expect("a file");
    hash(&content[..])
}

fn hash(mut from: impl Read) -> Vec<u8> {
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer).expect("bytes") {
            0 => return sha256.finalize().to_vec(),
            count => sha256.update(&buffer[..count]),
        }
    }
}
