//! The client's side of logins.

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
};
use kafka_protocol::protocol::StrBytes;
use sha2::{Digest, Sha256};

use crate::support::client::Client;

impl<S: Read + Write> Client<S> {
    /// Asks for a mechanism; returns the error code and the mechanisms of the broker.
    pub(crate) fn handshake(&mut self, mechanism: &str) -> (i16, Vec<String>) {
        let mechanism = StrBytes::from_string(mechanism.to_owned());
        let request = SaslHandshakeRequest::default().with_mechanism(mechanism);
        let response = self.ask(1, &request);
        let mechanisms = response.mechanisms.iter().map(ToString::to_string);
        (response.error_code, mechanisms.collect())
    }

    /// Sends a message of a mechanism.
    pub(crate) fn authenticate(&mut self, token: &[u8]) -> SaslAuthenticateResponse {
        let token = Bytes::copy_from_slice(token);
        let request = SaslAuthenticateRequest::default().with_auth_bytes(token);
        self.ask(2, &request)
    }

    /// Logs in by PLAIN; returns the error code.
    pub(crate) fn log_in_plainly(&mut self, user: &str, password: &str) -> i16 {
        let (code, _) = self.handshake("PLAIN");
        assert_eq!(code, 0, "PLAIN");
        let token = format!("\0{user}\0{password}");
        self.authenticate(token.as_bytes()).error_code
    }

    /// Logs in by SCRAM-SHA-256; returns the error code.
    pub(crate) fn log_in(&mut self, user: &str, password: &str) -> i16 {
        let (code, _) = self.handshake("SCRAM-SHA-256");
        assert_eq!(code, 0, "SCRAM-SHA-256");
        let first = format!("n={user},r=client");
        let challenge = self.authenticate(format!("n,,{first}").as_bytes());
        assert_eq!(challenge.error_code, 0);
        let challenge = str::from_utf8(&challenge.auth_bytes)
            .expect("text")
            .to_owned();
        let (last, signature) = scram_last(&first, &challenge, password);
        let response = self.authenticate(last.as_bytes());
        if response.error_code == 0 {
            assert_eq!(response.auth_bytes, signature.into_bytes());
        }
        response.error_code
    }
}

/// Returns the last message of a client to a challenge, and the response to it.
pub(crate) fn scram_last(first: &str, challenge: &str, password: &str) -> (String, String) {
    let field = |name: &str| {
        let mut fields = challenge.split(',');
        fields
            .find_map(|field| field.strip_prefix(name))
            .expect("a field")
    };
    let (nonce, salt) = (field("r="), STANDARD.decode(field("s=")).expect("a salt"));
    let iterations = field("i=").parse().expect("a number");
    let mut salted = [0; 32];
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, iterations, &mut salted);
    let key = hmac(&salted, b"Client Key");
    let begin = format!("c=biws,r={nonce}");
    let exchange = format!("{first},{challenge},{begin}");
    let signature = hmac(&Sha256::digest(&key), exchange.as_bytes());
    let proof = key.iter().zip(signature).map(|(one, other)| one ^ other);
    let proof = STANDARD.encode(proof.collect::<Vec<_>>());
    let server = hmac(&hmac(&salted, b"Server Key"), exchange.as_bytes());
    let end = format!("v={}", STANDARD.encode(server));
    (format!("{begin},p={proof}"), end)
}

fn hmac(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("a key");
    mac.chain_update(bytes).finalize().into_bytes().to_vec()
}
