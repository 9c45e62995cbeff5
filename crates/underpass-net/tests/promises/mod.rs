//! Properties for any bytes before or after a TLS handshake, or in the files of certificates:
//! functions that panic if a property does not hold, for the tests below and for fuzzers (`fuzz/`
//! in the repository).
//!
//! Not a public interface: a part of the crate in its tests, and with the feature `fuzz`.

#![allow(missing_docs, reason = "hidden; what each promises stands beside it")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::{env, fs, process};

use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::{AlertDescription, ConnectionTrafficSecrets, ContentType, SupportedCipherSuite};

use crate::tls::acceptor::TlsAcceptor;
use crate::tls::handshake::verdict;
use crate::tls::records::{CONTENT_BYTES_MAX, Opener, RECORD_BYTES_MAX, RecordForm, Sealer};
use crate::tls::self_signed::load_or_make;
use crate::tls::settings::{CertificateFiles, TlsOptions};
use crate::tls::shared::TlsShared;

const SUITES: [SupportedCipherSuite; 4] = [
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

fn secrets(suite: SupportedCipherSuite) -> (u64, ConnectionTrafficSecrets) {
    let (key, iv) = (AeadKey::from([7; 32]), Iv::new([9; 12]));
    let is_chacha = suite == SUITES[1] || suite == SUITES[3];
    let secrets = match is_chacha {
        true => ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv },
        false => ConnectionTrafficSecrets::Aes256Gcm { key, iv },
    };
    (3, secrets)
}

fn opener(suite: SupportedCipherSuite) -> Opener {
    Opener::new(suite, secrets(suite)).expect("a known cipher")
}

/// Bytes that were not sealed are never opened, and sealed ones are opened unchanged, whatever
/// their type and padding; a modified record is not. The first three bytes are the suite, the type,
/// and the modification.
pub fn records(data: &[u8]) {
    let Some((&[suite, kind, change], bytes)) = data.split_first_chunk::<3>() else {
        return;
    };
    let suite = SUITES[usize::from(suite) % SUITES.len()];
    match opener(suite).length(bytes) {
        Ok(None) => assert!(
            bytes.len() < RECORD_BYTES_MAX,
            "nothing is waited for forever"
        ),
        Ok(Some(length)) => {
            let record = &mut bytes[..length].to_vec();
            opener(suite)
                .open(record)
                .expect_err("nobody has sealed it");
        }
        Err(_) => {
            let head = opener(suite).length(&bytes[..5]);
            assert!(head.is_err(), "its head says so");
        }
    }

    let content = &bytes[..bytes.len().min(CONTENT_BYTES_MAX)];
    let record = sealed(suite, kind, content);
    let expected = meant(suite, kind, content);
    let length = opener(suite).length(&record);
    let is_framed = suite.tls13().is_some() || (21..=23).contains(&kind);
    assert_eq!(length.is_ok(), is_framed, "{length:?}");
    let mut copy = record.clone();
    let opened = opener(suite).open(&mut copy);
    let opened = opened.map(|(kind, range)| (u8::from(kind), copy[range].to_vec()));
    assert_eq!(opened, expected);
    let mut changed = record;
    let at = usize::from(change) % changed.len();
    // The version has no meaning; with another length it would be another record.
    if at >= 5 || (at == 0 && suite.tls13().is_none()) {
        changed[at] ^= 1 << (change % 8);
        opener(suite)
            .open(&mut changed)
            .expect_err("it was changed");
    }
}

fn sealed(suite: SupportedCipherSuite, kind: u8, content: &[u8]) -> Vec<u8> {
    let secrets = secrets(suite);
    let form = RecordForm::of(suite, &secrets.1);
    let mut record = vec![0; form.before() + content.len() + form.behind()];
    let mut sealer = Sealer::new(form, secrets).expect("a known cipher");
    let sealed = sealer.seal(ContentType::from(kind), content, &mut record);
    sealed.expect("it has room");
    record
}

/// Returns the expected content: in TLS 1.3 the type is the last byte that is not zero, and not
/// change_cipher_spec, which is never encrypted (RFC 9846, section 5).
fn meant(
    suite: SupportedCipherSuite,
    kind: u8,
    content: &[u8],
) -> Result<(u8, Vec<u8>), AlertDescription> {
    if suite.tls13().is_none() {
        return Ok((kind, content.to_vec()));
    }
    let inner = [content, &[kind]].concat();
    let last = inner.iter().rposition(|byte| *byte != 0);
    let last = last.filter(|last| inner[*last] != 20);
    let last = last.ok_or(AlertDescription::UnexpectedMessage)?;
    match inner[last] {
        // ChangeCipherSpec is never encrypted (RFC 8446, section 5).
        20 => Err(AlertDescription::UnexpectedMessage),
        kind => Ok((kind, inner[..last].to_vec())),
    }
}

/// A folder for one certificate, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("underpass-promises-{}-{number}", process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder for temporary files");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// However the start of a connection is split over reads, the server's verdict and the requested
/// name are the same. The first three bytes are the sizes of the reads.
pub fn hello(data: &[u8]) {
    static ACCEPTOR: OnceLock<TlsAcceptor> = OnceLock::new();
    let acceptor = ACCEPTOR.get_or_init(|| {
        let folder = Folder::new();
        let files = CertificateFiles::in_folder(&folder.0);
        load_or_make(&files, &default_provider()).expect("a certificate");
        let options = TlsOptions::of(files.cert, files.key);
        TlsAcceptor::load(&options, &[b"http/1.1"], &Arc::default()).expect("an acceptor")
    });
    let Some((sizes, bytes)) = data.split_first_chunk::<3>() else {
        return;
    };
    let whole = verdict(acceptor, &mut [bytes].into_iter());
    let mut rest = bytes;
    let mut sizes = sizes.iter().cycle();
    let mut parts = std::iter::from_fn(|| {
        let size = 1 + usize::from(*sizes.next()?);
        let part;
        (part, rest) = rest.split_at(size.min(rest.len()));
        Some(part).filter(|part| !part.is_empty())
    });
    assert_eq!(whole, verdict(acceptor, &mut parts));
}

/// Whatever the files of a certificate and its key contain, they are accepted or rejected with one
/// line, which has no part of the key. A zero byte separates the files.
pub fn pem(data: &[u8]) {
    let (cert, key) = data.split_at(
        data.iter()
            .position(|byte| *byte == 0)
            .unwrap_or(data.len()),
    );
    let folder = Folder::new();
    let files = TlsOptions::of(folder.0.join("cert"), folder.0.join("key"));
    fs::write(&files.certificates[0].cert, cert).expect("a file");
    fs::write(&files.certificates[0].key, key).expect("a file");
    let shared: Arc<TlsShared> = Arc::default();
    match TlsAcceptor::load(&files, &[], &shared) {
        Ok(acceptor) => assert!(acceptor.certificates()[0].chain_length > 0),
        Err(error) => {
            let error = error.to_string();
            assert!(error.len() < 1_000 && !error.contains('\n'), "{error}");
            let mut secrets = key.windows(24);
            let is_told = |part: &[u8]| {
                let part = String::from_utf8_lossy(part);
                part.bytes().all(|byte| byte.is_ascii_alphanumeric()) && error.contains(&*part)
            };
            assert!(!secrets.any(is_told), "{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const PARTS: &[&[u8]] = &[
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x16\x03\x01\x00\x02\x01\x00",
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x14\x03\x03\x00\x01\x01",
        b"\x17\x03\x03\x00\x01a",
        b"\x16\x03\x01\xff\xff",
        b"-----BEGIN CERTIFICATE-----\n",
        b"-----END CERTIFICATE-----\n",
        b"-----BEGIN PRIVATE KEY-----\n",
        b"-----END PRIVATE KEY-----\n",
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
        b"MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQ\n",
        b"MAA=\n",
        b"\0",
    ];

    #[test]
    fn a_key_whose_lines_were_joined_is_not_quoted() {
        let key = "-----BEGIN PRIVATE KEY-----MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQ";
        let folder = Folder::new();
        let path = folder.0.join("joined");
        fs::write(&path, key).expect("a file");
        let error = TlsAcceptor::load(&TlsOptions::of(&path, &path), &[], &Arc::default());
        let error = error.map(drop).unwrap_err().to_string();
        assert!(
            !error.contains("77, 73") && !error.contains("MIGH"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn any_record(
            head in any::<[u8; 3]>(),
            content in vec(any::<u8>(), 0..300),
            zeros in vec(Just(0), 0..9),
        ) {
            records(&[&head[..], &content, &zeros].concat());
            records(&[&head[..], &[23, 3, 3, 0, 20], &content].concat());
        }

        #[test]
        fn any_beginning(
            head in any::<[u8; 3]>(),
            parts in vec(select(PARTS), 0..6),
            more in vec(any::<u8>(), 0..20),
        ) {
            hello(&[&head, &parts.concat()[..], &more].concat());
        }

        #[test]
        fn any_files(parts in vec(select(PARTS), 0..12), more in vec(any::<u8>(), 0..20)) {
            pem(&[parts.concat(), more].concat());
        }
    }
}
