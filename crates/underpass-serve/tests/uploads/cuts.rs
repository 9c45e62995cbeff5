//! Uploads that are cut at random and resumed.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use rustix::process::Signal;
use underpass_testkit::{Cases, HttpClient, SeededRandom, ServerProcess, assert_same, content};

use crate::client::{
    IETF_TYPE, TUS, TUS_TYPE, ask, create, head, look, offset, reset, server, target,
};
use crate::process::serve_apart;
use crate::support::Server;

const PATH: &str = "/in/";

/// A server that fails in its own way.
enum Victim {
    /// Its configuration is reloaded.
    Reloaded(Box<Server>),
    /// It is killed and started again.
    Killed(Option<ServerProcess>, tempfile::TempDir),
}

impl Victim {
    fn address(&self) -> SocketAddr {
        match self {
            Victim::Reloaded(server) => server.address(),
            Victim::Killed(server, _) => server.as_ref().unwrap().address(),
        }
    }

    fn root(&self) -> std::path::PathBuf {
        match self {
            Victim::Reloaded(server) => server.site(),
            Victim::Killed(_, folder) => folder.path().to_owned(),
        }
    }

    fn fail(&mut self) {
        match self {
            Victim::Reloaded(server) => server.server().reload(server.options()).unwrap(),
            Victim::Killed(server, folder) => {
                let killed = server.take().unwrap();
                killed.signal(Signal::KILL);
                drop(killed);
                *server = Some(serve_apart(folder.path()));
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    Reset,
    Closed,
    Failure,
    /// A newer request comes.
    Look,
    None,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protocol {
    Tus,
    Ietf,
}

impl Protocol {
    fn create(self, address: SocketAddr, file: &[u8]) -> String {
        match self {
            Protocol::Tus => create(address, PATH, "f", file.len()),
            Protocol::Ietf => {
                let path = format!("{PATH}f");
                let length = format!("Upload-Length: {}", file.len());
                let fields = ["Upload-Complete: ?0", &length];
                target(&path, &ask(address, &format!("PUT {path}"), &fields, ""))
            }
        }
    }

    fn fields(self, offset: usize) -> Vec<String> {
        let offset = format!("Upload-Offset: {offset}");
        let fields = match self {
            Protocol::Tus => [TUS, TUS_TYPE, &offset],
            Protocol::Ietf => ["Upload-Complete: ?1", IETF_TYPE, &offset],
        };
        fields.map(str::to_owned).to_vec()
    }
}

/// Sends the rest of a file, and ends in some way within it.
fn send_rest(
    victim: &mut Victim,
    (protocol, target): (Protocol, &str),
    rest: &[u8],
    from: usize,
    random: &mut SeededRandom,
) -> Cut {
    let cut = random.weighted(&[
        (3, Cut::Reset),
        (3, Cut::Closed),
        (2, Cut::Failure),
        (2, Cut::Look),
        (2, Cut::None),
    ]);
    let sent = match cut {
        Cut::None => rest.len(),
        _ => random.below(rest.len() + 1),
    };
    let is_chunked = random.chance(30);
    let mut client = HttpClient::connect(victim.address());
    let line = format!("PATCH {target}");
    let mut fields = protocol.fields(from);
    if is_chunked {
        fields.push("Transfer-Encoding: chunked".to_owned());
    }
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    client.send(head(&line, &fields, (!is_chunked).then_some(rest.len())));
    match is_chunked {
        false => client.send(&rest[..sent]),
        true => {
            for piece in rest[..sent].chunks(random.below(200_000) + 1) {
                client.send(format!("{:x}\r\n", piece.len()));
                client.send(piece);
                client.send("\r\n");
            }
            if let Cut::None = cut {
                client.send("0\r\n\r\n");
            }
        }
    }
    match cut {
        Cut::Reset => reset(client),
        Cut::Closed => drop(client),
        Cut::Failure => victim.fail(),
        Cut::Look => drop(look_at(victim.address(), protocol, target)),
        Cut::None => {
            // A request before it, which was cut, may be read by the server after it.
            if let Ok(response) = client.try_response("PATCH") {
                let is_expected = matches!(response.status, 201 | 204 | 409);
                assert!(is_expected, "{}", response.head);
            }
        }
    }
    cut
}

fn look_at(
    address: SocketAddr,
    protocol: Protocol,
    target: &str,
) -> underpass_testkit::HttpResponse {
    match protocol {
        Protocol::Tus => look(address, target),
        Protocol::Ietf => ask(address, &format!("HEAD {target}"), &[], ""),
    }
}

/// Uploads one file, and returns how often it was cut.
fn upload(victim: &mut Victim, protocol: Protocol, file: &[u8], random: &mut SeededRandom) -> u32 {
    let target = protocol.create(victim.address(), file);
    let path = victim.root().join("in/f");
    let (mut cuts, mut known) = (0, 0);
    while !path.exists() {
        let response = look_at(victim.address(), protocol, &target);
        if path.exists() {
            break;
        }
        assert_eq!(response.status, 204, "{}", response.head);
        let from = offset(&response);
        assert!(from >= known, "the offset went down from {known} to {from}");
        known = from;
        let random = &mut *random;
        match send_rest(victim, (protocol, &target), &file[from..], from, random) {
            Cut::None => {}
            _ => cuts += 1,
        }
    }
    cuts
}

fn leftovers(folder: &Path) -> usize {
    fs::read_dir(folder.join(".underpass-uploads")).map_or(0, Iterator::count)
}

#[test]
fn uploads_that_are_cut_anywhere_arrive_whole() {
    let cases = Cases::from_env("UNDERPASS_UPLOADS", 20);
    let mut cuts = 0;
    for number in cases.numbers {
        let mut random = SeededRandom::of_case(cases.seed, number);
        let protocol = random.pick(&[Protocol::Tus, Protocol::Ietf]);
        let mut victim = match number % 2 {
            0 => Victim::Reloaded(Box::new(server("sync = 'none'"))),
            _ => {
                let folder = tempfile::tempdir().unwrap();
                fs::create_dir(folder.path().join("in")).unwrap();
                Victim::Killed(Some(serve_apart(folder.path())), folder)
            }
        };
        let size = random.pick(&[1, 1000, 100_000, 3_000_000, 9_000_000]);
        let file = content(number, random.below(size) + 1);
        println!("case {number}: {protocol:?}, {} bytes", file.len());
        cuts += upload(&mut victim, protocol, &file, &mut random);
        let arrived = fs::read(victim.root().join("in/f")).unwrap();
        assert_same(&arrived, &file, "the file");
        let area = match victim {
            Victim::Reloaded(_) => victim.root().join("in"),
            Victim::Killed(..) => victim.root(),
        };
        underpass_testkit::wait_until("nothing left behind", || leftovers(&area) == 0);
    }
    assert!(cuts > 0, "nothing was cut");
}
