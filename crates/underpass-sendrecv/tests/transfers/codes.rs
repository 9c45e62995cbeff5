//! Codes: the right one, wrong ones, and sides in between.

use std::fs;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::runtime::{Builder, Runtime};
use underpass::{Piece, Policy};
use underpass_net::{
    Address, Connection, ConnectionLimits, Connector, Inherited, ListenAt, ListenerConfig,
    Protocol, ReadOutcome, Server, ServerConfig, ServerKey, TlsAcceptor, TlsConnector, TlsShared,
    WhileDraining, self_signed_in, start,
};
use underpass_sendrecv::{
    Attributes, Encryption, Error, Ticket, TransferCode, TransferEvent, push, redeem,
};
use underpass_testkit::{WAIT_MAX, content, wait_for, within};

use super::kit::{CuttingProxy, Folders, Waiting, items, options, receive, send};
use crate::code::pake::{self, PAKE_BYTES, PakeKey};
use crate::secret::{Prover, hex_of, hex_text};

/// Waits for the next code of a waiting side, and returns the number of wrong ones before it.
fn next_code(waiting: &Waiting) -> (TransferCode, usize) {
    let mut wrong = 0;
    wait_for("code", || {
        let mut events = waiting.progress.take_events().into_iter();
        events.find_map(|event| match event {
            TransferEvent::Code(code) => Some((code, wrong)),
            TransferEvent::WrongCode { .. } => {
                wrong += 1;
                None
            }
            _ => None,
        })
    })
}

/// Returns another code with the same number.
fn other_than(code: &TransferCode) -> TransferCode {
    let guess = |words| format!("{}-{words}", code.number()).parse().unwrap();
    let guess: TransferCode = guess("lamp-river-goose");
    assert_ne!(guess, *code, "the guess was right");
    guess
}

fn redeemed(code: &TransferCode, at: SocketAddr) -> Result<Ticket, Error> {
    let redeemed = redeem(code, &[at], &ConnectionLimits::default());
    redeemed.map(|(ticket, answered)| {
        assert_eq!(answered, at);
        ticket
    })
}

#[test]
fn a_code_leads_to_the_ticket_until_the_transfer_is_complete() {
    within(|| {
        let folders = Folders::new();
        let path = folders.from().join("report");
        fs::write(&path, content(1, 300_000)).unwrap();
        let items = items(&[path]);
        let waiting = folders.receiver(Encryption::TlsByCode);
        let (code, _) = next_code(&waiting);
        // A side that is started again uses the same code.
        for _ in 0..2 {
            assert_eq!(redeemed(&code, waiting.address()).unwrap(), waiting.ticket);
        }
        send(&options(&waiting.ticket, None), &items).unwrap();
        waiting.complete();
        let waiting = folders.sender(&items, Encryption::TlsByCode);
        let (code, _) = next_code(&waiting);
        let ticket = redeemed(&code, waiting.address()).unwrap();
        fs::remove_file(folders.to().join("report")).unwrap();
        receive(&options(&ticket, None), &folders.target()).unwrap();
        waiting.complete();
        let found = fs::read(folders.to().join("report")).unwrap();
        assert!(found == content(1, 300_000));
    });
}

#[test]
fn a_sender_that_is_started_again_with_the_code_continues() {
    within(|| {
        let folders = Folders::new();
        let path = folders.from().join("image");
        fs::write(&path, content(4, 20_000_000)).unwrap();
        let items = items(&[path]);
        let waiting = folders.receiver(Encryption::TlsByCode);
        let (code, _) = next_code(&waiting);
        let proxy = CuttingProxy::start(waiting.address(), 3, 1000, 9_000_000);
        let start = |to| {
            let ticket = redeemed(&code, waiting.address()).unwrap();
            let mut once = options(&ticket, to);
            once.retry_timeout = std::time::Duration::ZERO;
            let progress = Arc::default();
            let sent = push(&once, &items, Attributes::Usual, &progress);
            (sent, progress.take_events())
        };
        while proxy.passed.load(Relaxed) < 5_000_000 {
            start(Some(proxy.address)).0.unwrap_err();
        }
        let (sent, events) = start(None);
        sent.unwrap();
        let is_continued =
            |event: &TransferEvent| matches!(event, TransferEvent::Continued { bytes: 1.., .. });
        assert!(events.iter().any(is_continued), "{events:?}");
        waiting.complete();
        let found = fs::read(folders.to().join("image")).unwrap();
        assert!(found == content(4, 20_000_000));
    });
}

#[test]
fn a_wrong_code_ends_the_code_and_the_next_one_works() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::TlsByCode);
        let (code, _) = next_code(&waiting);
        let wrong = redeemed(&other_than(&code), waiting.address()).unwrap_err();
        assert!(matches!(wrong, Error::WrongCode), "{wrong}");
        assert_eq!(wrong.exit_code(), 9);
        // The right one is of no use any more, before and after there is another.
        let late = redeemed(&code, waiting.address()).unwrap_err();
        assert!(late.to_string().contains("used up"), "{late}");
        let (next, wrong) = next_code(&waiting);
        assert_eq!((next.number(), wrong), (code.number() + 1, 1));
        let late = redeemed(&code, waiting.address()).unwrap_err();
        assert!(matches!(late, Error::CodeRefused { .. }), "{late}");
        assert_eq!(late.exit_code(), 9);
        assert_eq!(redeemed(&next, waiting.address()).unwrap(), waiting.ticket);
        waiting.stop();
    });
}

#[test]
fn a_side_without_a_code_says_so() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::Tls);
        let code = "1-lamp-river-goose".parse().unwrap();
        let refused = redeemed(&code, waiting.address()).unwrap_err();
        assert!(refused.to_string().contains("--code"), "{refused}");
        waiting.stop();
        let waiting = folders.receiver(Encryption::None);
        let refused = redeemed(&code, waiting.address()).unwrap_err();
        assert_eq!(refused.exit_code(), 7, "{refused}");
        waiting.stop();
    });
}

/// A client that sends requests as they are.
struct RawClient {
    runtime: Runtime,
    connection: Connection,
}

impl RawClient {
    fn connect(to: SocketAddr) -> RawClient {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let connection = runtime.block_on(encrypted(
            &Connector::new(Policy::default(), &ConnectionLimits::default()),
            to,
        ));
        RawClient {
            runtime,
            connection,
        }
    }

    fn server_key(&self) -> [u8; 32] {
        self.connection.tls().unwrap().server_key.unwrap()
    }

    /// Sends a request of the exchange, and returns the head of its response.
    fn post(&mut self, fields: &str) -> String {
        let head = format!("POST /-/code HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
        let connection = &mut self.connection;
        self.runtime.block_on(async {
            connection.outbox().push(Piece::Bytes(head.into_bytes()));
            connection.flush().await.unwrap();
            head_of(connection).await.expect("a response")
        })
    }

    /// Sends the first request, and returns the key of a code.
    fn begin(&mut self, code: &TransferCode) -> (PakeKey, String) {
        let key = self.server_key();
        let (exchange, message) = pake::begin(Prover::Connector, code, &key);
        let fields = format!(
            "Underpass-Code: {}\r\nUnderpass-Pake: {}",
            code.number(),
            hex_text(&message)
        );
        let response = self.post(&fields);
        let answer = field(&response, "Underpass-Pake").expect("a message");
        let answer = hex_of::<PAKE_BYTES>(answer.as_bytes()).unwrap();
        (pake::finish(exchange, &answer).unwrap(), fields)
    }

    /// Sends the second request.
    fn confirm(&mut self, key: &PakeKey) -> String {
        let proof = key.confirmation(Prover::Connector, b"").to_hex();
        self.post(&format!("Underpass-Proof: {proof}"))
    }
}

async fn encrypted(connector: &Connector, to: SocketAddr) -> Connection {
    let connected = connector.connect(&Address::Tcp(to), WAIT_MAX).await;
    let mut connection = connected.unwrap();
    let client = TlsConnector::new(ServerKey::Any).unwrap();
    connection.start_tls(&client).await.unwrap();
    connection
}

/// Takes a head from the input of a connection; none at its end.
async fn head_of(connection: &mut Connection) -> Option<String> {
    loop {
        let input = connection.input();
        if let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&input[..end + 4]).into_owned();
            // Texts of responses follow with their head.
            let length = field(&head, "Content-Length").map_or(0, |text| text.parse().unwrap());
            connection.consume(end + 4);
            while connection.input().len() < length {
                connection.fill(WhileDraining::Continues).await.ok()?;
            }
            connection.consume(length);
            return Some(head);
        }
        connection.start_deadline(WAIT_MAX);
        match connection.fill(WhileDraining::Continues).await {
            Ok(ReadOutcome::Bytes(_)) => {}
            Ok(ReadOutcome::End) | Err(_) => return None,
        }
    }
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut lines = head.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn status(head: &str) -> &str {
    &head[9..12]
}

#[test]
fn a_code_has_one_guess_over_all_connections() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::TlsByCode);
        let (code, _) = next_code(&waiting);
        let mut clients: Vec<_> = (0..20)
            .map(|_| RawClient::connect(waiting.address()))
            .collect();
        let wrong = other_than(&code);
        let keys: Vec<_> = clients
            .iter_mut()
            .map(|client| client.begin(&wrong).0)
            .collect();
        let answers = clients.iter_mut().zip(&keys);
        let answers: Vec<_> = answers.map(|(client, key)| client.confirm(key)).collect();
        assert_eq!(status(&answers[0]), "403");
        for answer in &answers[1..] {
            assert_eq!(status(answer), "410", "{answer}");
        }
        let (_, wrong) = next_code(&waiting);
        assert_eq!(wrong, 1);
        waiting.stop();
    });
}

#[test]
fn what_was_said_in_one_exchange_is_of_no_use_in_another() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::TlsByCode);
        let (code, _) = next_code(&waiting);
        let mut client = RawClient::connect(waiting.address());
        let (key, first) = client.begin(&code);
        let done = client.confirm(&key);
        assert_eq!(
            field(&done, "Underpass-Ticket"),
            Some(&*waiting.ticket.to_string())
        );
        assert_eq!(status(&client.confirm(&key)), "400", "it is over");
        let mut replayed = RawClient::connect(waiting.address());
        assert_eq!(status(&replayed.post(&first)), "204");
        let refused = replayed.confirm(&key);
        assert_eq!(status(&refused), "403", "{refused}");
        assert_eq!(field(&refused, "Underpass-Ticket"), None);
        assert_eq!(next_code(&waiting).1, 1);
        waiting.stop();
    });
}

#[test]
fn hostile_fields_are_refused_and_are_no_guess() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::TlsByCode);
        let (code, _) = next_code(&waiting);
        let number = code.number();
        // No point of the curve has the second coordinate 2.
        let point = |byte: &str| format!("{byte}02{}", "00".repeat(31));
        let ours = hex_text(&pake::begin(Prover::Listener, &code, &[0; 32]).1);
        for fields in [
            String::new(),
            format!("Underpass-Code: {number}"),
            format!("Underpass-Code: {number}\r\nUnderpass-Pake: "),
            format!("Underpass-Code: {number}\r\nUnderpass-Pake: 41"),
            format!(
                "Underpass-Code: {number}\r\nUnderpass-Pake: {}",
                point("41")
            ),
            format!(
                "Underpass-Code: {number}\r\nUnderpass-Pake: {}",
                point("42")
            ),
            format!("Underpass-Code: {number}\r\nUnderpass-Pake: {ours}"),
            format!(
                "Underpass-Code: {number}\r\nUnderpass-Pake: {}",
                "é".repeat(33)
            ),
            format!(
                "Underpass-Code: {}\r\nUnderpass-Pake: {}",
                u64::MAX,
                point("41")
            ),
            format!("Underpass-Code: -1\r\nUnderpass-Pake: {}", point("41")),
            format!("Underpass-Proof: {}", "0".repeat(64)),
        ] {
            let mut client = RawClient::connect(waiting.address());
            let answer = client.post(&fields);
            assert!(
                ["400", "410"].contains(&status(&answer)),
                "{fields}: {answer}"
            );
            // After a first request that failed, the second one is refused.
            let answer = client.post(&format!("Underpass-Proof: {}", "0".repeat(64)));
            assert_eq!(status(&answer), "400", "{fields}: {answer}");
        }
        let mut client = RawClient::connect(waiting.address());
        let (_, _) = client.begin(&code);
        assert_eq!(status(&client.post("Underpass-Proof: xyz")), "400");
        assert_eq!(redeemed(&code, waiting.address()).unwrap(), waiting.ticket);
        waiting.stop();
    });
}

#[test]
fn a_hundred_guesses_are_few() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::TlsByCode);
        let (code, _) = next_code(&waiting);
        let (mut number, mut guesses) = (code.number(), 0);
        for _ in 0..100 {
            let guess = format!("{number}-lamp-river-goose").parse().unwrap();
            match redeemed(&guess, waiting.address()).unwrap_err() {
                Error::WrongCode => (number, guesses) = (number + 1, guesses + 1),
                Error::CodeRefused { .. } => {}
                other => panic!("{other}"),
            }
        }
        // Each delay is twice the former one: ten take a quarter of an hour.
        assert!((1..10).contains(&guesses), "{guesses} guesses");
        waiting.stop();
    });
}

/// A side in between, with another key: it decrypts what one says, and encrypts it for the
/// other.
#[derive(Clone)]
struct InBetween(SocketAddr);

struct Silent;

impl AddAssign<&Silent> for Silent {
    fn add_assign(&mut self, _other: &Silent) {}
}

impl Protocol for InBetween {
    type Worker = SocketAddr;
    type Service = ();
    type Summary = Silent;

    fn worker(&self) -> SocketAddr {
        self.0
    }

    async fn serve_connection(to: Rc<SocketAddr>, (): (), mut client: Connection) {
        let mut server = encrypted(&Connector::of(&client), *to).await;
        while let Some(asked) = head_of(&mut client).await {
            server.outbox().push(Piece::Bytes(asked.into_bytes()));
            server.flush().await.unwrap();
            let Some(said) = head_of(&mut server).await else {
                return;
            };
            let said = said.replace("Content-Length: ", "X-Length: ");
            let said = said.replace("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n");
            client.outbox().push(Piece::Bytes(said.into_bytes()));
            client.flush().await.unwrap();
        }
    }

    fn finish(_worker: &SocketAddr) -> Silent {
        Silent
    }
}

fn in_between(to: SocketAddr, folder: &std::path::Path) -> Server<Silent> {
    let protocols: [&[u8]; 1] = [b"http/1.1"];
    let options = self_signed_in(folder).unwrap();
    let acceptor = TlsAcceptor::load(&options, &protocols, &Arc::<TlsShared>::default());
    let at = ListenAt::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let config = ServerConfig {
        protocol: InBetween(to),
        listeners: vec![ListenerConfig {
            tls: Some(Arc::new(acceptor.unwrap())),
            ..ListenerConfig::new(at, ())
        }],
        workers: 1,
        policy: Policy::default(),
        limits: ConnectionLimits::default(),
    };
    start(&config, Inherited::default()).unwrap()
}

#[test]
fn a_side_in_between_is_a_wrong_guess() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::TlsByCode);
        let (code, _) = next_code(&waiting);
        let relay = in_between(waiting.address(), &folders.from());
        let Some(Address::Tcp(at)) = relay.addresses().into_iter().next() else {
            panic!("no address");
        };
        let failed = redeemed(&code, at).unwrap_err();
        assert!(matches!(failed, Error::WrongCode), "{failed}");
        let (next, wrong) = next_code(&waiting);
        assert_eq!(wrong, 1);
        // Without it the next code works.
        assert_eq!(redeemed(&next, waiting.address()).unwrap(), waiting.ticket);
        relay.shutdown().escalate();
        relay.shutdown().escalate();
        relay.join();
        waiting.stop();
    });
}
