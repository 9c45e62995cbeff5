//! The messages of an exchange, and the server's part in it.
//!
//! ```text
//!  client-first ─► server-first (nonce, salt, iterations)
//!  client-final (proof) ─► server-final (signature)
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::security::principal::NAME_BYTES_MAX;
use crate::security::random;
use crate::security::scram::{ScramCredential, ScramMechanism};

/// The longest nonce of a client, in bytes.
const NONCE_BYTES_MAX: usize = 1024;

/// The fault of a message; the client learns only that the login has failed.
pub(crate) type ScramFault = &'static str;

/// The first message of a client.
#[derive(Debug, PartialEq)]
pub(crate) struct ClientFirst<'a> {
    pub(crate) user: String,
    /// The part about channel binding and the identity to act as, repeated in the last message.
    header: &'a str,
    /// The rest.
    bare: &'a str,
    nonce: &'a str,
}

/// An exchange after its first two messages.
pub(crate) struct ScramExchange {
    pub(crate) user: String,
    mechanism: ScramMechanism,
    credential: ScramCredential,
    header: String,
    nonce: String,
    /// The first two messages.
    messages: String,
}

/// Reads the first message of a client.
///
/// # Errors
/// The fault: bad syntax, a mandatory extension, channel binding, a delegation token, or an
/// identity to act as that is not the user.
pub(crate) fn client_first(message: &[u8]) -> Result<ClientFirst<'_>, ScramFault> {
    let message = str::from_utf8(message).map_err(|_| "not UTF-8")?;
    let mut parts = message.splitn(3, ',');
    let (Some(binding), Some(identity), Some(bare)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err("expected a header, a name and a nonce");
    };
    match binding {
        "n" | "y" => {}
        _ if binding.starts_with("p=") => return Err("channel binding is not supported"),
        _ => return Err("unknown kind of channel binding"),
    }
    let mut fields = bare.split(',');
    let name = fields.next().and_then(|field| field.strip_prefix("n="));
    let user = decoded_name(name.ok_or("expected a name")?)?;
    let nonce = fields.next().and_then(|field| field.strip_prefix("r="));
    let nonce = nonce
        .filter(|nonce| is_nonce(nonce))
        .ok_or("expected a nonce")?;
    if fields.any(|field| field.starts_with("tokenauth=")) {
        return Err("delegation tokens are not supported");
    }
    if !identity.is_empty() {
        let identity = identity.strip_prefix("a=").ok_or("expected an identity")?;
        if decoded_name(identity)? != user {
            return Err("the client asks to act as another user");
        }
    }
    Ok(ClientFirst {
        user,
        header: &message[..message.len() - bare.len()],
        bare,
        nonce,
    })
}

/// Decodes a name, in which a comma is `=2C` and an equals sign `=3D`.
fn decoded_name(name: &str) -> Result<String, ScramFault> {
    let mut parts = name.split('=');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_at_checked(2) {
            Some(("2C", rest)) => decoded.extend([",", rest]),
            Some(("3D", rest)) => decoded.extend(["=", rest]),
            _ => return Err("an equals sign in the name is not encoded"),
        }
    }
    match decoded.is_empty() || decoded.len() > NAME_BYTES_MAX || decoded.contains('\0') {
        true => Err("the name is empty, too long or has a NUL"),
        false => Ok(decoded),
    }
}

fn is_nonce(nonce: &str) -> bool {
    let is_printable = nonce
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b',');
    is_printable && (1..=NONCE_BYTES_MAX).contains(&nonce.len())
}

impl ScramExchange {
    /// Starts the server's part with a new nonce. Returns its message, too.
    pub(crate) fn begin(
        first: &ClientFirst<'_>,
        mechanism: ScramMechanism,
        credential: ScramCredential,
    ) -> (ScramExchange, Vec<u8>) {
        let nonce = STANDARD.encode(random::bytes::<18>());
        ScramExchange::begin_with(first, mechanism, credential, &nonce)
    }

    fn begin_with(
        first: &ClientFirst<'_>,
        mechanism: ScramMechanism,
        credential: ScramCredential,
        nonce: &str,
    ) -> (ScramExchange, Vec<u8>) {
        let nonce = format!("{}{nonce}", first.nonce);
        let salt = STANDARD.encode(&credential.salt);
        let answer = format!("r={nonce},s={salt},i={}", credential.iterations);
        let exchange = ScramExchange {
            user: first.user.clone(),
            mechanism,
            credential,
            header: STANDARD.encode(first.header),
            nonce,
            messages: format!("{},{answer}", first.bare),
        };
        (exchange, answer.into_bytes())
    }

    /// Verifies the client's last message, and returns the server's.
    ///
    /// # Errors
    /// The fault: bad syntax, another nonce or header, or a wrong password.
    pub(crate) fn finish(&self, message: &[u8]) -> Result<Vec<u8>, ScramFault> {
        let message = str::from_utf8(message).map_err(|_| "not UTF-8")?;
        let (unproved, proof) = message.rsplit_once(",p=").ok_or("expected a proof")?;
        let mut fields = unproved.split(',');
        let header = fields.next().and_then(|field| field.strip_prefix("c="));
        if header != Some(&self.header) {
            return Err("expected the header of the first message");
        }
        let nonce = fields.next().and_then(|field| field.strip_prefix("r="));
        // librdkafka before 2.6.1 repeats its own nonce before that of the
        // exchange. Kafka accepts that, too: the proof covers what was sent.
        // https://github.com/confluentinc/librdkafka/pull/4895
        if !nonce.is_some_and(|nonce| nonce.ends_with(&self.nonce)) {
            return Err("expected the nonce of this exchange");
        }
        let proof = STANDARD
            .decode(proof)
            .map_err(|_| "the proof is not Base64")?;
        let exchange = format!("{},{unproved}", self.messages);
        let signature = self
            .credential
            .client_signature(self.mechanism, exchange.as_bytes());
        if proof.len() != signature.len() {
            return Err("the proof has another length");
        }
        let key: Vec<u8> = proof
            .iter()
            .zip(signature)
            .map(|(one, other)| one ^ other)
            .collect();
        if !self.credential.verify_client_key(self.mechanism, &key) {
            return Err("wrong password, or no such user");
        }
        let signature = self
            .credential
            .server_signature(self.mechanism, exchange.as_bytes());
        Ok(format!("v={}", STANDARD.encode(signature)).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";

    /// The exchange of RFC 7677, section 3, or the same with SHA-512.
    fn begun(mechanism: ScramMechanism) -> ScramExchange {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let salted = mechanism.salted(b"pencil", &salt, 4096);
        let credential = ScramCredential::of_salted(mechanism, 4096, &salt, &salted);
        let first = client_first(FIRST).unwrap();
        let nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let (exchange, answer) = ScramExchange::begin_with(&first, mechanism, credential, nonce);
        let expected = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        assert_eq!(answer, expected.as_bytes());
        exchange
    }

    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const PROOF_256: &str = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    #[test]
    fn the_exchange_of_rfc_7677() {
        let last = format!("{LAST},p={PROOF_256}");
        let end = begun(ScramMechanism::Sha256).finish(last.as_bytes());
        let expected = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(end.unwrap(), expected.as_bytes());
    }

    /// Computed by Python's hashlib.
    #[test]
    fn the_same_exchange_with_sha_512() {
        let last = format!("{LAST},p={}", PROOF_512);
        let end = begun(ScramMechanism::Sha512).finish(last.as_bytes());
        assert_eq!(end.unwrap(), format!("v={SIGNATURE_512}").as_bytes());
    }

    const PROOF_512: &str = "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN\
                             8PPC6wdp6dybEmDYXYTxwnYPJQ==";
    const SIGNATURE_512: &str = "ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLt\
                                 ifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==";

    #[test]
    fn last_messages_that_differ_in_anything_are_refused() {
        let exchange = begun(ScramMechanism::Sha256);
        let good = format!("{LAST},p={PROOF_256}");
        for (from, to) in [
            ("c=biws", "c=eSws"),
            ("c=biws,", ""),
            ("c=biws", "c="),
            ("k0,p", "k1,p"),
            ("k0,p", "k,p"),
            ("rOpr", "sOpr"),
            ("r=rOpr", "r=xrOpr"),
            (",p=", ",x=1,p="),
            (",p=dHzb", ",p=dHzc"),
            ("dVQ=", "dVQ"),
            ("dHzbZapW", ""),
            (",p=dHz", ",q=dHz"),
            ("c=biws,r", "r=biws,c"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good);
            assert!(exchange.finish(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(exchange.finish(b"").is_err());
        assert!(exchange.finish(b"\xff,p=").is_err());
        let empty = format!("{LAST},p=");
        assert!(exchange.finish(empty.as_bytes()).is_err());
    }

    #[test]
    fn a_client_may_repeat_its_own_nonce_before_that_of_the_exchange() {
        let exchange = begun(ScramMechanism::Sha256);
        let first = client_first(FIRST).unwrap();
        let last = LAST.replacen("r=", &format!("r={}", first.nonce), 1);
        let messages = format!("{},{last}", exchange.messages);
        let mechanism = ScramMechanism::Sha256;
        let salted = mechanism.salted(b"pencil", &exchange.credential.salt, 4096);
        let key = mechanism.hmac(&salted, b"Client Key");
        let signature = mechanism.hmac(&mechanism.hash(&key), messages.as_bytes());
        let proof: Vec<u8> = key
            .iter()
            .zip(signature)
            .map(|(one, other)| one ^ other)
            .collect();
        let last = format!("{last},p={}", STANDARD.encode(proof));
        assert!(exchange.finish(last.as_bytes()).is_ok());
    }

    #[test]
    fn first_messages_have_a_name_a_nonce_and_no_binding() {
        for (message, user) in [
            ("n,,n=anna,r=abc", "anna"),
            ("y,,n=anna,r=abc", "anna"),
            ("n,a=anna,n=anna,r=abc", "anna"),
            ("n,,n=a=2Cb=3Dc,r=abc", "a,b=c"),
            ("n,a=a=2Cb,n=a=2Cb,r=abc", "a,b"),
            ("n,,n=\u{e4},r=abc,x=extension", "\u{e4}"),
        ] {
            let first = client_first(message.as_bytes()).unwrap();
            assert_eq!((&*first.user, first.nonce), (user, "abc"));
        }
        for message in [
            "",
            "n",
            "n,,",
            "n,,n=anna",
            "n,,n=anna,",
            "n,,n=anna,r=",
            "n,,r=abc,n=anna",
            "n,,n=,r=abc",
            "n,,n=a=b,r=abc",
            "n,,n=a=2c,r=abc",
            "n,,n=a=,r=abc",
            "n,,n=a\0,r=abc",
            "n,,m=x,n=anna,r=abc",
            "n,a=ben,n=anna,r=abc",
            "n,x,n=anna,r=abc",
            "p=tls-unique,,n=anna,r=abc",
            "x,,n=anna,r=abc",
            "n,,n=anna,r=a\u{e4}",
            "n,,n=anna,r=a b",
            "n,,n=anna,r=abc,tokenauth=true",
        ] {
            assert!(client_first(message.as_bytes()).is_err(), "{message}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + NONCE_BYTES_MAX);
        assert!(client_first(format!("n,,n={long},r=abc").as_bytes()).is_err());
        assert!(client_first(format!("n,,n=anna,r={long}").as_bytes()).is_err());
    }

    #[test]
    fn nobody_logs_in_as_a_user_that_does_not_exist() {
        let mechanism = ScramMechanism::Sha256;
        let unusable = ScramCredential::unusable(mechanism, 4096, &[1; 16]);
        let first = client_first(FIRST).unwrap();
        let (exchange, _) = ScramExchange::begin(&first, mechanism, unusable);
        let begin = format!("c=biws,r={}", exchange.nonce);
        let messages = format!("{},{begin}", exchange.messages);
        // The proof that a client would send whose key were all zeros, and others.
        let signature = mechanism.hmac(&[0; 32], messages.as_bytes());
        for proof in [signature, vec![0; 32], vec![255; 32]] {
            let last = format!("{begin},p={}", STANDARD.encode(proof));
            assert!(exchange.finish(last.as_bytes()).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_a_fault(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = client_first(&bytes);
            prop_assert!(begun(ScramMechanism::Sha256).finish(&bytes).is_err());
        }

        #[test]
        fn names_survive_their_encoding(name in "[^\0]{1,40}") {
            let encoded = name.replace('=', "=3D").replace(',', "=2C");
            prop_assert_eq!(decoded_name(&encoded), Ok(name));
        }
    }
}
