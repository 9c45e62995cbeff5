//! The results of `cargo xtask release`: the binaries, one of them in an empty root, and the image
//! as read by another program. Built without optimization, which takes a minute.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use underpass_testkit::copy_program;

const IMAGE: &str = "underpass.oci.tar";

/// The user of the image.
const USER: &str = "65532:65532";

#[test]
#[ignore = "needs root, tar and skopeo; run by cargo xtask test"]
fn the_binary_needs_nothing_and_the_image_is_one_to_others() {
    let made = tempfile::tempdir().expect("a folder");
    release(made.path(), &["--profile", "dev"]);
    let (binary, image) = (made.path().join("underpass"), made.path().join(IMAGE));

    let alone = alone(&binary);
    serves_as_somebody_else(&alone);
    knows_no_names(&alone);
    an_unknown_name_is_reported(&binary);
    doctor_reports(&alone);
    bench_is_found_next_to_it(&binary);

    let unpacked = tempfile::tempdir().expect("a folder");
    taken_apart(&image, unpacked.path());
    let reported = chrooted(unpacked.path(), &["/usr/bin/underpass", "--version"]);
    assert!(reported.status.success(), "{reported:?}");

    let again = tempfile::tempdir().expect("a folder");
    let program = binary.to_str().expect("a path in UTF-8");
    release(again.path(), &["--program", program]);
    let same = fs::read(again.path().join(IMAGE)).expect("an image");
    assert!(
        fs::read(&image).expect("an image") == same,
        "not the same twice"
    );
}

fn release(output: &Path, arguments: &[&str]) {
    let status = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["release", "--output"])
        .arg(output)
        .args(arguments)
        .status()
        .expect("xtask starts");
    assert!(status.success(), "see above");
}

/// Makes a root with the binary and a file, and nothing else: no `/proc`, no `/etc`, no library.
fn alone(binary: &Path) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(root.path(), all).expect("permissions");
    copy_program(binary, &root.path().join("underpass"));
    fs::create_dir(root.path().join("srv")).expect("a folder");
    fs::write(root.path().join("srv/f"), content()).expect("a file");
    root
}

fn content() -> Vec<u8> {
    (0..300_000_u32).flat_map(u32::to_le_bytes).collect()
}

fn chroot(root: &Path, arguments: &[&str]) -> Command {
    let mut chroot = Command::new("chroot");
    chroot.arg(root).args(arguments).env_clear();
    chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    chroot
}

fn chrooted(root: &Path, arguments: &[&str]) -> Output {
    chroot(root, arguments).output().expect("chroot starts")
}

/// A server that is killed if the test fails before its end.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command line that serves as a user, whose name or number must follow.
const SERVE_AS: [&str; 6] = [
    "/underpass",
    "serve",
    "/srv",
    "--listen",
    "127.0.0.1:0",
    "--user",
];

fn serves_as_somebody_else(root: &TempDir) {
    let mut chroot = chroot(root.path(), &SERVE_AS);
    chroot.arg(USER);
    let mut server = Server(chroot.stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut greeting = String::new();
    let output = server.0.stdout.take().expect("its output");
    let mut output = BufReader::new(output);
    output.read_line(&mut greeting).expect("a greeting");
    let (_, address) = greeting.split_once("http://").expect("an address");
    let end = address.find(|byte: char| !byte.is_ascii_digit() && !".:".contains(byte));
    let address = &address[..end.unwrap_or(address.len())];

    let mut socket = TcpStream::connect(address).expect("it listens");
    let request = b"GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    socket.write_all(request).expect("it is asked");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("an answer");
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n");
    let body = &answer[head.expect("a head") + 4..];
    assert_eq!(Sha256::digest(body), Sha256::digest(content()));

    let status = fs::read_to_string(format!("/proc/{}/status", server.0.id())).expect("it runs");
    for line in [
        "Uid:\t65532\t65532\t65532\t65532",
        "Gid:\t65532\t65532\t65532\t65532",
    ] {
        assert!(status.contains(line), "{status}");
    }
}

/// Checks that looking up a user name fails with a message if there is no list of names.
fn knows_no_names(root: &TempDir) {
    let mut chroot = chroot(root.path(), &SERVE_AS);
    let reported = chroot.arg("nobody").output().expect("chroot starts");
    assert_eq!(reported.status.code(), Some(1), "{reported:?}");
    let why = String::from_utf8_lossy(&reported.stderr);
    assert!(why.contains("use numbers, UID:GID"), "{why}");
}

/// Checks it also on machines with user databases that a static program cannot load.
fn an_unknown_name_is_reported(binary: &Path) {
    for user in ["no-such-user", "nobody:no-such-group", "4000000000"] {
        let mut serve = Command::new(binary);
        serve.args(["serve", ".", "--listen", "127.0.0.1:0", "--user", user]);
        let reported = serve.output().expect("it starts");
        assert_eq!(reported.status.code(), Some(1), "{user}: {reported:?}");
        let why = String::from_utf8_lossy(&reported.stderr);
        assert!(why.contains("there is no"), "{user}: {why}");
    }
}

fn doctor_reports(root: &TempDir) {
    let reported = chrooted(root.path(), &["/underpass", "doctor", "--json", "/srv"]);
    assert!(reported.status.success(), "{reported:?}");
    let report: Value = serde_json::from_slice(&reported.stdout).expect("JSON");
    assert!(report.is_object(), "{report}");
}

/// `underpass bench` runs the program in the same folder.
fn bench_is_found_next_to_it(binary: &Path) {
    let mut bench = Command::new(binary);
    bench
        .args(["bench", "--version"])
        .env("PATH", "/nonexistent");
    let found = bench.output().expect("it starts");
    let name = String::from_utf8_lossy(&found.stdout);
    assert!(name.starts_with("underpass-bench "), "{found:?}");
}

/// Reads and copies the image with another program, which checks hashes, and unpacks the layer.
fn taken_apart(image: &Path, root: &Path) {
    let image = format!("oci-archive:{}", image.display());
    let inspected = skopeo(&["inspect", "--config", &image]);
    let config = &inspected["config"];
    assert_eq!(config["User"], USER, "{inspected}");
    assert_eq!(config["Entrypoint"][0], "/usr/bin/underpass");
    assert_eq!(config["Cmd"][0], "serve");
    assert!(config["ExposedPorts"]["8080/tcp"].is_object());
    let copies = tempfile::tempdir().expect("a folder");
    let copy = format!("dir:{}", copies.path().display());
    let status = Command::new("skopeo")
        .args(["copy", "--quiet", "--insecure-policy", &image, &copy])
        .status()
        .expect("skopeo starts");
    assert!(status.success(), "see above");
    let layers = skopeo(&["inspect", &image]);
    let layer = layers["Layers"][0].as_str().expect("a layer");
    let layer = copies.path().join(layer.trim_start_matches("sha256:"));
    let mut tar = Command::new("tar");
    let status = tar.arg("-xf").arg(layer).arg("-C").arg(root).status();
    assert!(status.expect("tar starts").success(), "see above");
    let licence = root.join("usr/share/doc/underpass/LICENSES-DEPENDENCIES");
    let licences = fs::read_to_string(licence).expect("licences");
    assert!(licences.contains("tokio v") && licences.contains("Permission is hereby granted"));
}

fn skopeo(arguments: &[&str]) -> Value {
    let output = Command::new("skopeo").args(arguments).output();
    let output = output.expect("skopeo starts");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}
