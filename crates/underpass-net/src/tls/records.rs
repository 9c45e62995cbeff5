//! TLS records, sealed and opened (RFC 8446, section 5; RFC 5246, section 6.2).
//!
//! ```text
//!  TLS 1.3             header 5 │            content │ type 1 │ tag 16
//!  TLS 1.2, GCM        header 5 │ explicit nonce 8 │ content │ tag 16
//!  TLS 1.2, ChaCha20   header 5 │            content │ tag 16
//! ```
//!
//! The nonce of a record is the initial vector, whose last eight bytes are combined with the number
//! of the record by exclusive or; in TLS 1.2 with AES-GCM these eight are the explicit nonce. A
//! number is used once: [`Sealer`] owns its key and its number, no two of them have the same key,
//! and the number rises with every attempt to seal, even a failed one. Content is sealed from one
//! buffer into another: plaintext is never sent.

use std::ops::Range;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, TlsProtocolId,
    TlsRecordSealingKey, UnboundKey,
};
use rustls::crypto::cipher::{AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    SupportedCipherSuite,
};

/// The bytes of a record header, including the record length.
pub(crate) const HEADER_BYTES: usize = 5;

/// The maximum bytes of content (RFC 8446, section 5.1).
pub(crate) const CONTENT_BYTES_MAX: usize = 16 << 10;

/// The maximum bytes of a record (RFC 5246, section 6.2.3).
pub(crate) const RECORD_BYTES_MAX: usize = HEADER_BYTES + CONTENT_BYTES_MAX + 2048;

const TAG_BYTES: usize = 16;
const EXPLICIT_NONCE_BYTES: usize = 8;

/// The layout of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RecordForm {
    Tls13,
    Tls12Gcm,
    Tls12ChaCha20,
}

impl RecordForm {
    pub(crate) fn of(
        suite: SupportedCipherSuite,
        secrets: &ConnectionTrafficSecrets,
    ) -> RecordForm {
        match (suite, secrets) {
            (SupportedCipherSuite::Tls13(_), _) => RecordForm::Tls13,
            (_, ConnectionTrafficSecrets::Chacha20Poly1305 { .. }) => RecordForm::Tls12ChaCha20,
            _ => RecordForm::Tls12Gcm,
        }
    }

    /// Returns the bytes before the content.
    pub(crate) fn before(self) -> usize {
        match self {
            RecordForm::Tls13 | RecordForm::Tls12ChaCha20 => HEADER_BYTES,
            RecordForm::Tls12Gcm => HEADER_BYTES + EXPLICIT_NONCE_BYTES,
        }
    }

    /// Returns the bytes after the content.
    pub(crate) fn behind(self) -> usize {
        match self {
            RecordForm::Tls13 => 1 + TAG_BYTES,
            RecordForm::Tls12Gcm | RecordForm::Tls12ChaCha20 => TAG_BYTES,
        }
    }
}

/// The encryption of records in one direction, with one key.
pub(crate) struct Sealer {
    key: SealingKey,
    iv: [u8; NONCE_LEN],
    /// The number of the next record.
    number: u64,
    form: RecordForm,
}

enum SealingKey {
    /// AES-GCM: rejects a number that is not higher than the one before.
    Counting(TlsRecordSealingKey),
    /// ChaCha20, which the other type does not support.
    Plain(LessSafeKey),
}

impl Sealer {
    /// Creates a sealer that continues after `number` records with these secrets.
    ///
    /// # Errors
    /// The cipher is unknown, or its key has another length.
    pub(crate) fn new(
        form: RecordForm,
        (number, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Sealer, Error> {
        let algorithm = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { .. } => &AES_128_GCM,
            ConnectionTrafficSecrets::Aes256Gcm { .. } => &AES_256_GCM,
            _ => &CHACHA20_POLY1305,
        };
        let (key, iv) = parts(secrets)?;
        let iv = iv.as_ref().try_into().map_err(|_| WRONG_KEY)?;
        let key = match algorithm == &CHACHA20_POLY1305 {
            true => UnboundKey::new(algorithm, key.as_ref())
                .map(|key| SealingKey::Plain(LessSafeKey::new(key))),
            false => SealingKey::counting(algorithm, key.as_ref(), iv, number),
        };
        Ok(Sealer {
            key: key.map_err(|_| WRONG_KEY)?,
            iv,
            number,
            form,
        })
    }

    pub(crate) fn form(&self) -> RecordForm {
        self.form
    }

    /// Returns the number of the next record, which is that of records sealed with this key.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the initial vector, which differs for each key.
    #[cfg(test)]
    pub(crate) fn iv(&self) -> [u8; NONCE_LEN] {
        self.iv
    }

    /// Seals `content` into `record`, which has exactly the length of the result.
    pub(crate) fn seal(
        &mut self,
        kind: ContentType,
        content: &[u8],
        record: &mut [u8],
    ) -> Result<(), Error> {
        let (before, behind) = (self.form.before(), self.form.behind());
        let fits = record.len() == before + content.len() + behind;
        let next = self
            .number
            .checked_add(1)
            .filter(|_| fits && content.len() <= CONTENT_BYTES_MAX);
        let number = std::mem::replace(&mut self.number, next.ok_or(Error::EncryptError)?);
        let nonce = nonce(&self.iv, number);
        let opaque = record.len() - HEADER_BYTES;
        let (head, rest) = record.split_at_mut(before);
        let (sealed, end) = rest.split_at_mut(content.len());
        let kind = [u8::from(kind)];
        let mut pseudo_header = [0; 8 + HEADER_BYTES];
        let (aad, inner) = match self.form {
            RecordForm::Tls13 => {
                head.copy_from_slice(&header(APPLICATION_DATA, opaque));
                (&*head, &kind[..])
            }
            RecordForm::Tls12Gcm | RecordForm::Tls12ChaCha20 => {
                let (header_bytes, explicit) = head.split_at_mut(HEADER_BYTES);
                header_bytes.copy_from_slice(&header(kind[0], opaque));
                explicit.copy_from_slice(&nonce[NONCE_LEN - explicit.len()..]);
                pseudo_header[..8].copy_from_slice(&number.to_be_bytes());
                pseudo_header[8..].copy_from_slice(&header(kind[0], content.len()));
                (&pseudo_header[..], &[][..])
            }
        };
        self.key.seal(nonce, aad, content, sealed, inner, end)
    }
}

const APPLICATION_DATA: u8 = 23;

fn header(kind: u8, length: usize) -> [u8; HEADER_BYTES] {
    // At most 16 KiB plus the overhead.
    let [high, low] = (length as u16).to_be_bytes();
    // The version field of all records of TLS 1.2 and 1.3 (RFC 8446, section 5.1).
    [kind, 3, 3, high, low]
}

fn nonce(iv: &[u8; NONCE_LEN], number: u64) -> [u8; NONCE_LEN] {
    let (mut nonce, number) = (*iv, number.to_be_bytes());
    for (byte, digit) in nonce[NONCE_LEN - number.len()..].iter_mut().zip(number) {
        *byte ^= digit;
    }
    nonce
}

impl SealingKey {
    /// Uses the TLS 1.3 protocol for TLS 1.2 too, for which rustls derives nonces in the same way.
    /// The key takes the first nonce that it sees for that of number 0. If rustls has used that
    /// number, the nonce is passed again, and the resulting tag is dropped: two published tags with
    /// one nonce would reveal the authentication key.
    fn counting(
        algorithm: &'static aws_lc_rs::aead::Algorithm,
        key: &[u8],
        iv: [u8; NONCE_LEN],
        number: u64,
    ) -> Result<SealingKey, aws_lc_rs::error::Unspecified> {
        let mut key = TlsRecordSealingKey::new(algorithm, TlsProtocolId::TLS13, key)?;
        if number > 0 {
            let nonce = Nonce::assume_unique_for_key(iv);
            drop(key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut [])?);
        }
        Ok(SealingKey::Counting(key))
    }

    fn seal(
        &mut self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        content: &[u8],
        sealed: &mut [u8],
        inner: &[u8],
        end: &mut [u8],
    ) -> Result<(), Error> {
        let (nonce, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(aad));
        let made = match self {
            SealingKey::Counting(key) => {
                key.seal_out_of_place_scatter(nonce, aad, content, sealed, inner, end)
            }
            SealingKey::Plain(key) => {
                key.seal_out_of_place_scatter(nonce, aad, content, sealed, inner, end)
            }
        };
        made.map_err(|_| Error::EncryptError)
    }
}

/// The decryption of records in the other direction, with rustls's decrypter.
pub(crate) struct Opener {
    decrypter: Box<dyn MessageDecrypter>,
    number: u64,
    form: RecordForm,
}

impl Opener {
    /// Creates an opener that continues after `number` records with these secrets.
    ///
    /// # Errors
    /// The cipher is unknown.
    pub(crate) fn new(
        suite: SupportedCipherSuite,
        (number, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Opener, Error> {
        let form = RecordForm::of(suite, &secrets);
        let (key, iv) = parts(secrets)?;
        let decrypter = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
            SupportedCipherSuite::Tls12(suite) => {
                let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
                suite.aead_alg.decrypter(key, &iv.as_ref()[..fixed])
            }
        };
        Ok(Opener {
            decrypter,
            number,
            form,
        })
    }

    /// Returns the length of the first record in `bytes`; `None` until it is complete.
    ///
    /// # Errors
    /// The alert for a header that is invalid at this point.
    pub(crate) fn length(&self, bytes: &[u8]) -> Result<Option<usize>, AlertDescription> {
        let [kind, major, _, high, low, ..] = bytes else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (is_expected, most) = match self.form {
            RecordForm::Tls13 => (*kind == APPLICATION_DATA, CONTENT_BYTES_MAX + 256),
            RecordForm::Tls12Gcm | RecordForm::Tls12ChaCha20 => (
                matches!(kind, 21..=APPLICATION_DATA),
                RECORD_BYTES_MAX - HEADER_BYTES,
            ),
        };
        match () {
            () if !is_expected => Err(AlertDescription::UnexpectedMessage),
            () if *major != 3 => Err(AlertDescription::ProtocolVersion),
            () if length > most => Err(AlertDescription::RecordOverflow),
            () => Ok(Some(HEADER_BYTES + length).filter(|length| *length <= bytes.len())),
        }
    }

    /// Opens a whole record in place. Returns its type, and the position of its content.
    ///
    /// # Errors
    /// The alert for a record that was not sealed by the peer.
    pub(crate) fn open(
        &mut self,
        record: &mut [u8],
    ) -> Result<(ContentType, Range<usize>), AlertDescription> {
        let (head, opaque) = record.split_at_mut(HEADER_BYTES);
        let message = InboundOpaqueMessage::new(head[0].into(), ProtocolVersion::TLSv1_2, opaque);
        let opened = self.decrypter.decrypt(message, self.number);
        let opened = opened.map_err(|error| match error {
            Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
            Error::PeerMisbehaved(_) | Error::InvalidMessage(_) => {
                AlertDescription::UnexpectedMessage
            }
            _ => AlertDescription::BadRecordMac,
        })?;
        let content = self.form.before()..self.form.before() + opened.payload.len();
        let kind = opened.typ;
        self.number = self
            .number
            .checked_add(1)
            .ok_or(AlertDescription::InternalError)?;
        Ok((kind, content))
    }
}

fn parts(secrets: ConnectionTrafficSecrets) -> Result<(AeadKey, Iv), Error> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(Error::General("a cipher that is not known".into())),
    }
}

/// A key or an initial vector whose length does not match its cipher.
const WRONG_KEY: Error = Error::EncryptError;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::crypto::CryptoProvider;
    use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, default_provider};
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
        SignatureAlgorithm,
    };

    use super::*;

    /// Returns all suites of one kind of certificate; the other one has the same records.
    fn suites() -> Vec<SupportedCipherSuite> {
        let mut suites = ALL_CIPHER_SUITES.to_vec();
        suites.retain(|suite| suite.usable_for_signature_algorithm(SignatureAlgorithm::ECDSA));
        assert_eq!(suites.len(), 6);
        suites
    }

    /// Performs a handshake in memory. Returns the server's sealing key, and the client's copy of
    /// it.
    fn keys(suite: SupportedCipherSuite) -> [ConnectionTrafficSecrets; 2] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let provider = Arc::new(CryptoProvider {
            cipher_suites: vec![suite],
            ..default_provider()
        });
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[suite.version()])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[suite.version()])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .unwrap();
        (
            client.enable_secret_extraction,
            server.enable_secret_extraction,
        ) = (true, true);
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        while client.wants_write() || server.wants_write() {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            client.write_tls(&mut theirs).unwrap();
            server.write_tls(&mut ours).unwrap();
            client.read_tls(&mut &ours[..]).unwrap();
            client.process_new_packets().unwrap();
            server.read_tls(&mut &theirs[..]).unwrap();
            server.process_new_packets().unwrap();
        }
        let (client, server) = (
            client.dangerous_extract_secrets(),
            server.dangerous_extract_secrets(),
        );
        [server.unwrap().tx.1, client.unwrap().rx.1]
    }

    #[derive(Clone, Debug)]
    enum Attempt {
        /// A record with this many bytes of content.
        Whole(usize),
        /// Room that is this many bytes larger or smaller than the record.
        WrongRoom(usize, bool),
        /// More content than fits into a record.
        TooLong,
    }

    fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
        let attempt = prop_oneof![
            3 => (0_usize..100).prop_map(Attempt::Whole),
            1 => (16_300..=CONTENT_BYTES_MAX).prop_map(Attempt::Whole),
            1 => (1_usize..10, any::<bool>()).prop_map(|(by, more)| Attempt::WrongRoom(by, more)),
            1 => Just(Attempt::TooLong),
        ];
        prop::collection::vec(attempt, 1..20)
    }

    /// Generates start numbers for records: any, and those at either end.
    fn starts() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..3, any::<u64>(), u64::MAX - 12..=u64::MAX]
    }

    /// Returns the record, or `None` if it could not be sealed.
    fn attempt(sealer: &mut Sealer, attempt: &Attempt) -> Option<(Vec<u8>, Vec<u8>)> {
        let length = match attempt {
            Attempt::Whole(length) => *length,
            Attempt::WrongRoom(..) => 100,
            Attempt::TooLong => CONTENT_BYTES_MAX + 1,
        };
        let content: Vec<_> = (0..length).map(|at| at as u8).collect();
        let room = sealer.form().before() + length + sealer.form().behind();
        let room = match attempt {
            Attempt::WrongRoom(by, true) => room + by,
            Attempt::WrongRoom(by, false) => room - by,
            _ => room,
        };
        let mut record = vec![0; room];
        let sealed = sealer.seal(ContentType::ApplicationData, &content, &mut record);
        let is_possible = matches!(attempt, Attempt::Whole(_));
        assert!(is_possible || sealed.is_err(), "{attempt:?}");
        sealed.ok().map(|()| (content, record))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(150)
        })]

        #[test]
        fn numbers_rise_and_a_record_opens_under_its_own_alone(
            suite in 0..suites().len(),
            start in starts(),
            attempts in attempts(),
        ) {
            let suite = suites()[suite];
            let [ours, theirs] = keys(suite);
            let form = RecordForm::of(suite, &ours);
            let mut sealer = Sealer::new(form, (start, ours)).unwrap();
            let mut opener = Opener::new(suite, (start, theirs)).unwrap();
            let mut nonces = HashSet::new();
            for one in &attempts {
                let number = sealer.number();
                let Some((content, record)) = attempt(&mut sealer, one) else {
                    prop_assert!(sealer.number() >= number);
                    // The last number is never used: none could follow it.
                    let is_possible = matches!(one, Attempt::Whole(_)) && number < u64::MAX;
                    prop_assert!(!is_possible, "{:?} as number {}", one, number);
                    continue;
                };
                prop_assert_eq!(sealer.number(), number + 1);
                prop_assert!(nonces.insert(nonce(&sealer.iv, number)));
                for wrong in [number.wrapping_sub(1), number + 1, number ^ (1 << 40)] {
                    opener.number = wrong;
                    prop_assert!(opener.open(&mut record.clone()).is_err(), "{}", wrong);
                }
                opener.number = number;
                let mut opened = record.clone();
                let (kind, at) = opener.open(&mut opened).expect("its own number");
                prop_assert_eq!(kind, ContentType::ApplicationData);
                prop_assert_eq!(&opened[at], &content[..]);
            }
        }
    }
}
