//! Sessions whose socket is full, whose turns are cancelled, and whose keys change all the time.
//! The other side is rustls, which opens each record with its expected number: a missing or
//! repeated record, or a second one with the same number, is an error there.

use std::collections::HashMap;
use std::fs;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, version};
use tempfile::TempDir;
use tokio::runtime::Builder;
use underpass::drive::tokio::Sender;
use underpass::kernel_tls::{Cipher, Rekeying, SendingSupport, Version};
use underpass::{FileRange, Piece, Policy, SharedFile};
use underpass_testkit::{WAIT_MAX, assert_same, content};

use super::*;
use crate::io::step_gate::StepGate;
use crate::tls::acceptor::TlsAcceptor;
use crate::tls::handshake::HandshakeInProgress;
use crate::tls::info::{OffloadOutcome, SealedBy};
use crate::tls::offload::Offload;
use crate::tls::settings::{OffloadMode, TlsOptions};

const SUITES: [SupportedCipherSuite; 5] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// A certificate, a server's configuration for it, and the file that it sends.
struct Site {
    folder: TempDir,
    acceptor: TlsAcceptor,
    certificate: CertificateDer<'static>,
    file: Arc<SharedFile>,
    body: Vec<u8>,
}

impl Site {
    fn new() -> Site {
        Site::with(OffloadMode::Off)
    }

    fn with(offload: OffloadMode) -> Site {
        Site::of(&KeyPair::generate().unwrap(), offload)
    }

    fn of(key: &KeyPair, offload: OffloadMode) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(key).unwrap();
        let [cert, key_file, body_file] =
            ["crt", "key", "body"].map(|name| folder.path().join(name));
        fs::write(&cert, certificate.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        let body = content(3, 1_100_000);
        fs::write(&body_file, &body).unwrap();
        Site {
            acceptor: {
                let mut options = TlsOptions::of(&cert, key_file);
                options.offload = offload;
                TlsAcceptor::load(&options, &[], &Arc::default()).unwrap()
            },
            certificate: CertificateDer::from_pem_file(cert).unwrap(),
            file: SharedFile::new(fs::File::open(body_file).unwrap().into()),
            body,
            folder,
        }
    }

    fn client(&self, suite: SupportedCipherSuite) -> ClientConnection {
        let mut provider = default_provider();
        provider.cipher_suites = vec![suite];
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[match suite.tls13() {
                Some(_) => &version::TLS13,
                None => &version::TLS12,
            }])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
    }

    /// Returns a session on the server's socket, and a client on the other one.
    async fn connect(&self, suite: SupportedCipherSuite) -> (TlsSession, PlainSocket, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        set_socket_send_buffer_size(&ours, 20_000).unwrap();
        set_socket_recv_buffer_size(&theirs, 20_000).unwrap();
        let socket = PlainSocket::new(ours.into());
        let mut connection = self.client(suite);
        let shaking = HandshakeInProgress::accepting(&self.acceptor, &socket, Vec::new()).unwrap();
        let client = tokio::task::spawn_blocking(move || {
            while connection.is_handshaking() || connection.wants_write() {
                connection.complete_io(&mut &theirs).unwrap();
            }
            theirs.set_nonblocking(true).unwrap();
            Client {
                connection,
                socket: theirs,
                received: Vec::new(),
                is_closed: false,
            }
        });
        let result = shaking.run(&StepGate::default()).await.unwrap();
        let session = TlsSession::new(result);
        session.state.borrow_mut().key_records_max = match suite.tls13() {
            Some(_) => 7,
            None => u64::MAX,
        };
        (session, socket, client.await.unwrap())
    }
}

/// A client whose socket is read and written without waiting.
struct Client {
    connection: ClientConnection,
    socket: TcpStream,
    received: Vec<u8>,
    /// Whether the server has announced its end.
    is_closed: bool,
}

impl Client {
    /// Reads at most `most` bytes from the socket.
    fn read(&mut self, most: usize) {
        let mut room = vec![0; most.min(1 << 20)];
        while let Ok(read @ 1..) = (&self.socket).read(&mut room) {
            self.open(&room[..read]);
            if most < 1 << 20 {
                return;
            }
        }
    }

    /// Waits for data that the server's socket still holds.
    fn read_until(&mut self, is_there: impl Fn(&Client) -> bool) {
        self.socket.set_nonblocking(false).unwrap();
        self.socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        let mut room = vec![0; 1 << 16];
        while !is_there(self) {
            let read = (&self.socket).read(&mut room).expect("more");
            assert!(read > 0, "the end");
            self.open(&room[..read]);
        }
    }

    fn open(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes).unwrap();
            let state = self.connection.process_new_packets();
            self.is_closed = state.expect("records in order").peer_has_closed();
            let _none_left = self.connection.reader().read_to_end(&mut self.received);
        }
    }

    fn write(&mut self) {
        while self.connection.wants_write() && self.connection.write_tls(&mut &self.socket).is_ok()
        {
        }
    }
}

fn worker() -> WorkerBuffers {
    WorkerBuffers::new(Policy::default())
}

#[derive(Clone, Debug)]
enum Deed {
    /// The server adds this many bytes to its outbox, from the file or from memory.
    Owe(usize, bool),
    /// It sends a turn, cancelled after this many polls.
    Turn(u64, usize),
    /// It reads once.
    Receive,
    /// The client reads this many bytes.
    Read(usize),
    /// It updates its key, requests the server's update, and sends a byte.
    Update,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        (1_usize..200_000, any::<bool>()).prop_map(|(len, is_file)| Deed::Owe(len, is_file)),
        (1_u64..1_000_000, 1_usize..4).prop_map(|(most, polls)| Deed::Turn(most, polls)),
        Just(Deed::Receive),
        (1_usize..60_000).prop_map(Deed::Read),
        Just(Deed::Update),
    ];
    prop::collection::vec(deed, 1..60)
}

/// Polls a turn up to `polls` times. Returns whether it has ended.
async fn poll_turn(
    (session, socket): (&TlsSession, &PlainSocket),
    outbox: &mut Outbox,
    worker: &WorkerBuffers,
    most: u64,
    polls: usize,
) -> bool {
    let mut turn = Box::pin(session.turn(socket, outbox, worker, most));
    for _ in 0..polls {
        let polled = poll_fn(|task| Poll::Ready(turn.as_mut().poll(task))).await;
        if let Poll::Ready(turned) = polled {
            turned.unwrap();
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// The number of the next record under each key so far.
#[derive(Default)]
struct Numbers(HashMap<[u8; 12], u64>);

impl Numbers {
    fn check(&mut self, session: &TlsSession) {
        let state = session.state.borrow();
        let Sealing::UserSpace(sealer) = &state.sealing else {
            return;
        };
        let last = self.0.entry(sealer.iv()).or_default();
        assert!(sealer.number() >= *last, "{} after {last}", sealer.number());
        *last = sealer.number();
    }
}

async fn play(site: &Site, suite: SupportedCipherSuite, deeds: &[Deed]) {
    let (session, socket, mut client) = site.connect(suite).await;
    let (worker, mut outbox) = (worker(), Outbox::new());
    let (mut expected, mut input) = (Vec::new(), Vec::with_capacity(INPUT_BYTES_START));
    let mut numbers = Numbers::default();
    for deed in deeds {
        match *deed {
            Deed::Owe(len, is_file) => {
                let offset = expected.len() % (site.body.len() - len);
                let bytes = &site.body[offset..offset + len];
                expected.extend_from_slice(bytes);
                outbox.push(match is_file {
                    false => Piece::Bytes(bytes.to_vec()),
                    true => Piece::Range(FileRange {
                        file: Arc::clone(&site.file),
                        offset: offset as u64,
                        len: len as u64,
                    }),
                });
            }
            Deed::Turn(most, polls) => {
                poll_turn((&session, &socket), &mut outbox, &worker, most, polls).await;
            }
            Deed::Receive => {
                input.clear();
                let _nothing_there = session.read_now(&socket, &mut input);
            }
            Deed::Read(most) => client.read(most),
            Deed::Update if suite.tls13().is_some() => {
                client.connection.refresh_traffic_keys().unwrap();
                client.connection.writer().write_all(b"a").unwrap();
                client.write();
            }
            Deed::Update => {}
        }
        // Responses do not accumulate: at most a batch and some records of a few bytes wait.
        let waiting = session.state.borrow().unsent.unsent().len();
        assert!(waiting <= SEALED_BATCH_BYTES + 5_000, "{waiting}");
        numbers.check(&session);
    }
    while !outbox.is_empty() {
        poll_turn((&session, &socket), &mut outbox, &worker, u64::MAX, 1).await;
        numbers.check(&session);
        client.read(usize::MAX);
    }
    client.read_until(|client| client.received.len() >= expected.len());
    assert_same(&client.received, &expected, "what arrives");
    assert_eq!(outbox.sent_bytes(), expected.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig {
        max_shrink_iters: 50,
        failure_persistence: None,
        ..ProptestConfig::with_cases(40)
    })]

    #[test]
    fn every_number_is_used_once_and_every_byte_arrives(
        suite in 0..SUITES.len(),
        deeds in deeds(),
    ) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let site = Site::new();
        runtime.block_on(play(&site, SUITES[suite], &deeds));
        drop(site.folder);
    }
}

#[test]
fn a_key_that_has_sealed_enough_is_changed_and_where_that_cannot_be_nothing_more_is_sent() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let site = Site::new();
    runtime.block_on(async {
        let worker = worker();
        for suite in SUITES {
            let (session, socket, mut client) = site.connect(suite).await;
            session.state.borrow_mut().key_records_max = 3;
            let mut outbox = Outbox::new();
            outbox.push(Piece::Bytes(site.body.clone()));
            let sent = loop {
                let mut turn = Box::pin(session.turn(&socket, &mut outbox, &worker, u64::MAX));
                match poll_fn(|task| Poll::Ready(turn.as_mut().poll(task))).await {
                    Poll::Ready(turned) => break turned,
                    Poll::Pending => client.read(usize::MAX),
                }
                drop(turn);
                tokio::task::yield_now().await;
            };
            match suite.tls13() {
                Some(_) => {
                    client.read_until(|client| client.received.len() >= site.body.len());
                    assert_same(&client.received, &site.body, "the body");
                }
                // The server's Finished was the first record.
                None => assert_eq!(sent.unwrap_err().fault, Fault::PeerGone),
            }
            let state = session.state.borrow();
            assert!(matches!(&state.sealing, Sealing::UserSpace(sealer) if sealer.number() <= 4));
        }
    });
}

#[test]
fn the_end_is_announced_once_the_socket_takes_it() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let site = Site::new();
    runtime.block_on(async {
        for suite in SUITES {
            let (session, socket, mut client) = site.connect(suite).await;
            let full = loop {
                let mut state = session.state.borrow_mut();
                state
                    .push(ContentType::ApplicationData, &[7; 1000], 0)
                    .unwrap();
                if let Err(full) = state.send(&socket) {
                    break full;
                }
            };
            assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
            let refused = session.close(&socket).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
            while session.close(&socket).is_err() {
                client.read(usize::MAX);
                tokio::task::yield_now().await;
            }
            client.read_until(|client| client.is_closed);
        }
    });
}

/// After a full socket records are sealed one by one, so that at most one waits; later in batches
/// again.
#[test]
fn after_a_full_socket_at_most_one_record_waits_as_long_as_caution_lasts() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let site = Site::new();
    runtime.block_on(async {
        for suite in SUITES {
            let (session, socket, mut client) = site.connect(suite).await;
            session.state.borrow_mut().key_records_max = u64::MAX;
            set_socket_send_buffer_size(&socket, 1 << 20).unwrap();
            let (worker, mut outbox) = (worker(), Outbox::new());
            let body = site.body.repeat(5);
            outbox.push(Piece::Bytes(body.clone()));
            let batch = |outbox: &Outbox| session.state.borrow().batch(&socket, outbox, &worker);
            assert_eq!(batch(&outbox), SEALED_BATCH_BYTES);
            let state = || {
                let state = session.state.borrow();
                (state.caution, state.unsent.unsent().len())
            };
            let mut cautious = 0;
            while !outbox.is_empty() {
                let (caution, before) = state();
                let turn = poll_turn((&session, &socket), &mut outbox, &worker, u64::MAX, 1);
                let is_over = turn.await;
                let (_, waiting) = state();
                if caution > 0 && !outbox.is_empty() {
                    assert!(waiting <= before.max(RECORD_BYTES_MAX), "{waiting}");
                    assert_eq!(batch(&outbox), CONTENT_BYTES_MAX);
                    cautious += 1;
                }
                // Full, or all sent.
                assert!(is_over || state().0 > 0);
                client.read(30_000);
            }
            assert!(cautious > 10, "{cautious}");
            client.read_until(|client| client.received.len() >= body.len());
            assert_same(&client.received, &body, "the body");
            // Afterwards, batches have their full size again.
            outbox.push(Piece::Bytes(body));
            worker.sealed_caution.set(1);
            assert_eq!(batch(&outbox), CONTENT_BYTES_MAX, "that of all connections");
            worker.sealed_caution.set(0);
            session.state.borrow_mut().caution = 0;
            assert_eq!(batch(&outbox), SEALED_BATCH_BYTES);
        }
    });
}

/// The client of each connection occupies a thread until its handshake is complete.
#[test]
fn a_long_signature_is_made_by_another_thread_and_a_short_one_by_the_worker() {
    let rsa = |size| KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size).unwrap();
    for (key, is_long) in [
        (KeyPair::generate().unwrap(), false),
        (rsa(RsaKeySize::_2048), false),
        (rsa(RsaKeySize::_3072), true),
    ] {
        let started = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&started);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_start(move || _ = count.fetch_add(1, Ordering::Relaxed))
            .build()
            .unwrap();
        let site = Site::of(&key, OffloadMode::Off);
        runtime.block_on(site.connect(SUITES[0]));
        let threads = started.load(Ordering::Relaxed);
        assert_eq!(threads > 1, is_long, "{threads}: {:?}", key.algorithm());
    }
}

/// A kernel that supports every suite, and cannot replace a key.
fn promising() -> Arc<Offload> {
    let versions = [Version::Tls12, Version::Tls13];
    let suites = versions.map(|version| Cipher::ALL.map(|cipher| (version, cipher)));
    Offload::untested(SendingSupport {
        suites: suites.into_iter().flatten().collect(),
        rekeying: Rekeying::Absent,
    })
}

/// Sends the whole outbox from user space, to a client that must receive `expected`.
async fn send_all(
    (session, socket): (&TlsSession, &PlainSocket),
    outbox: &mut Outbox,
    client: &mut Client,
    expected: &[u8],
) {
    let worker = worker();
    while !outbox.is_empty() {
        poll_turn((session, socket), outbox, &worker, u64::MAX, 1).await;
        client.read(usize::MAX);
    }
    client.read_until(|client| client.received.len() >= expected.len());
    assert_same(&client.received, expected, "the body");
}

#[test]
fn a_hand_over_that_is_refused_leaves_the_session_with_the_process_and_is_counted() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut site = Site::new();
    // A kernel with TLS accepts the hand-over.
    let has_kernel = underpass::kernel_tls::probe_sending().is_ok();
    runtime.block_on(async {
        for suite in SUITES {
            for (records_max, outcome) in [
                (50, OffloadOutcome::RecordLimit),
                (u64::MAX, OffloadOutcome::AttachRefused),
            ] {
                if outcome == OffloadOutcome::AttachRefused && has_kernel {
                    continue;
                }
                let offload = promising();
                site.acceptor.set_offload(Arc::clone(&offload));
                let (session, socket, mut client) = site.connect(suite).await;
                session.state.borrow_mut().key_records_max = records_max;
                let mut outbox = Outbox::new();
                outbox.push(Piece::Range(FileRange {
                    file: Arc::clone(&site.file),
                    offset: 0,
                    len: site.body.len() as u64,
                }));
                assert_eq!(session.sealed_by(&outbox), SealedBy::Kernel);
                let sealed_by = session.hand_over(&socket, &outbox);
                assert_eq!(sealed_by, SealedBy::UserSpace, "{suite:?}");
                assert_eq!(session.sealed_by(&outbox), SealedBy::UserSpace);
                let counted = offload.counts();
                let counted: Vec<_> = counted.iter().filter(|(_, count)| *count > 0).collect();
                assert_eq!(counted, [&(outcome, 1)], "{suite:?}");
                session.state.borrow_mut().key_records_max = u64::MAX;
                send_all((&session, &socket), &mut outbox, &mut client, &site.body).await;
            }
        }
    });
}

/// The kernel seals no more with one key than the process, up to the interval between checks.
#[test]
#[ignore = "needs kernel TLS; run by cargo xtask test"]
fn a_key_that_the_kernel_has_is_replaced_in_time_or_the_connection_ends() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let site = Site::with(OffloadMode::Require);
        let (worker, kernel) = (worker(), underpass::kernel_tls::probe_sending().unwrap());
        for suite in SUITES {
            let (session, socket, mut client) = site.connect(suite).await;
            session.state.borrow_mut().key_records_max = 100;
            // With room for less than two packets, each record waits for the cork's timer.
            set_socket_send_buffer_size(&socket, 1 << 20).unwrap();
            set_socket_recv_buffer_size(&client.socket, 1 << 20).unwrap();
            let (mut outbox, mut sender) = (Outbox::new(), Sender::new());
            let (len, count) = (site.body.len() as u64, 10);
            for _ in 0..count {
                let file = Arc::clone(&site.file);
                outbox.push(Piece::Range(FileRange {
                    file,
                    offset: 0,
                    len,
                }));
            }
            let sealed_by = session.hand_over(&socket, &outbox);
            assert_eq!(sealed_by, SealedBy::Kernel, "{suite:?}");
            let sent = loop {
                let turn = session.kernel_turn(&mut sender, &socket, &mut outbox, &worker, 1);
                let mut turn = Box::pin(turn);
                match poll_fn(|task| Poll::Ready(turn.as_mut().poll(task))).await {
                    Poll::Ready(Ok(Turn::More)) => {}
                    Poll::Ready(turned) => break turned,
                    Poll::Pending => client.read(usize::MAX),
                }
                drop(turn);
                tokio::task::yield_now().await;
            };
            let is_replaced = suite.tls13().is_some() && kernel.rekeying == Rekeying::Works;
            match is_replaced {
                true => {
                    sent.unwrap();
                    let all = site.body.repeat(count);
                    client.read_until(|client| client.received.len() >= all.len());
                    assert_same(&client.received, &all, "the bodies");
                }
                false => assert_eq!(sent.unwrap_err().fault, Fault::PeerGone),
            }
        }
    });
}
