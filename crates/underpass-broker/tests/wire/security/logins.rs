//! Logins, right and wrong, and requests before them.

use std::thread;

use kafka_protocol::messages::{
    ApiVersionsRequest, FetchRequest, MetadataRequest, SaslHandshakeRequest,
};

use super::acls::as_user;
use super::{
    AUTHORIZER, ILLEGAL_SASL_STATE, MECHANISMS, SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM, start,
};
use crate::support::broker::BrokerProcess;
use crate::support::client::{encoded, fetch_request, framed, raw};
use crate::support::login::scram_last;

const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;

/// The longest request before a login.
const BYTES_MAX: usize = 16 << 10;

/// Number of connections that do not log in.
const SILENT: usize = 1000;

#[test]
fn clients_that_log_in_are_served_and_others_are_not() {
    let broker = start("");
    let mut client = broker.connect();
    assert_eq!(client.ask(3, &ApiVersionsRequest::default()).error_code, 0);
    assert_eq!(client.log_in("anna", "secret"), 0);
    client.behave();
    let mut client = broker.connect();
    assert_eq!(client.log_in_plainly("ben", "0ther"), 0);
    client.behave();
    for (user, password) in [("anna", "0ther"), ("anna", "Secret"), ("carl", "secret")] {
        let mut client = broker.connect();
        assert_eq!(client.log_in(user, password), SASL_AUTHENTICATION_FAILED);
        client.expect_end();
        let mut client = broker.connect();
        assert_eq!(
            client.log_in_plainly(user, password),
            SASL_AUTHENTICATION_FAILED
        );
        client.expect_end();
    }
    let mut client = broker.connect();
    client.send_request(9, &MetadataRequest::default());
    client.expect_end();
    let mut client = broker.connect();
    assert_eq!(client.handshake("PLAIN").0, 0);
    client.send_request(9, &MetadataRequest::default());
    client.expect_end();
    let (_, log) = broker.stop_and_read();
    assert!(
        log.contains("Metadata of a client that is not logged in"),
        "{log}"
    );
    assert!(
        log.contains("wrong password of \"anna\", or no such user"),
        "{log}"
    );
    for secret in ["secret", "Secret", "0ther"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn mechanisms_are_listed_when_a_client_asks_for_another() {
    let broker = start("");
    for name in ["GSSAPI", "", "plain", "SCRAM-SHA-1"] {
        let mut client = broker.connect();
        let (code, mechanisms) = client.handshake(name);
        assert_eq!(code, UNSUPPORTED_SASL_MECHANISM);
        assert_eq!(mechanisms, MECHANISMS);
        client.expect_end();
    }
    broker.stop();
}

#[test]
fn requests_of_a_login_in_another_order_end_the_connection() {
    let broker = start("");
    let mut client = broker.connect();
    let refused = client.authenticate(b"\0anna\0secret");
    assert_eq!(refused.error_code, ILLEGAL_SASL_STATE);
    client.expect_end();
    let mut client = broker.connect();
    assert_eq!(client.handshake("PLAIN").0, 0);
    assert_eq!(client.handshake("PLAIN").0, ILLEGAL_SASL_STATE);
    client.expect_end();
    // An exchange does not continue after its end.
    let mut client = broker.connect();
    assert_eq!(client.log_in("anna", "secret"), 0);
    let refused = client.authenticate(b"\0anna\0secret");
    assert_eq!(refused.error_code, ILLEGAL_SASL_STATE);
    client.expect_end();
    // A login that begins again at once is refused, and the session stays.
    let mut client = broker.connect();
    assert_eq!(client.log_in("anna", "secret"), 0);
    assert_eq!(client.handshake("PLAIN").0, ILLEGAL_SASL_STATE);
    client.behave();
    broker.stop();
}

#[test]
fn damaged_messages_fail_like_wrong_passwords() {
    let broker = start("");
    for first in [
        "",
        "p=tls-unique,,n=anna,r=x",
        "n,a=ben,n=anna,r=x",
        "n,,n=a=b,r=x",
        "n,,m=x,n=anna,r=x",
        "n,,n=anna,r=x,tokenauth=true",
    ] {
        let mut client = broker.connect();
        assert_eq!(client.handshake("SCRAM-SHA-512").0, 0);
        let refused = client.authenticate(first.as_bytes());
        assert_eq!(refused.error_code, SASL_AUTHENTICATION_FAILED, "{first}");
        assert!(refused.auth_bytes.is_empty());
        client.expect_end();
    }
    for (from, to) in [
        ("c=biws", "c=eSws"),
        (",r=", ",r=x"),
        (",p=", ",p=AAAA"),
        (",p=", ",q="),
    ] {
        let mut client = broker.connect();
        assert_eq!(client.handshake("SCRAM-SHA-256").0, 0);
        let challenge = client.authenticate(b"n,,n=anna,r=x").auth_bytes;
        let challenge = str::from_utf8(&challenge).unwrap();
        let (last, _) = scram_last("n=anna,r=x", challenge, "secret");
        let refused = client.authenticate(last.replacen(from, to, 1).as_bytes());
        assert_eq!(refused.error_code, SASL_AUTHENTICATION_FAILED, "{to}");
        client.expect_end();
    }
    for token in [
        &b"anna\0secret"[..],
        b"\0anna\0secret\0",
        b"ben\0anna\0secret",
        b"\0\xff\0x",
    ] {
        let mut client = broker.connect();
        assert_eq!(client.handshake("PLAIN").0, 0);
        let refused = client.authenticate(token);
        assert_eq!(refused.error_code, SASL_AUTHENTICATION_FAILED);
        client.expect_end();
    }
    broker.stop();
}

#[test]
fn users_that_do_not_exist_get_a_challenge_like_others() {
    let broker = start("");
    let challenge = |user: &str| {
        let mut client = broker.connect();
        assert_eq!(client.handshake("SCRAM-SHA-256").0, 0);
        let first = format!("n,,n={user},r=x");
        let challenge = client.authenticate(first.as_bytes()).auth_bytes;
        let text = String::from_utf8(challenge.to_vec()).unwrap();
        text.split_once(",s=").unwrap().1.to_owned()
    };
    let (known, unknown) = (challenge("anna"), challenge("carl"));
    assert_eq!(known.len(), unknown.len());
    assert_eq!(challenge("carl"), unknown, "it is the same each time");
    assert_ne!(challenge("dora"), unknown);
    broker.stop();
}

#[test]
fn messages_without_headers_follow_version_0_of_the_handshake() {
    let broker = start("");
    let handshake = encoded(
        0,
        &SaslHandshakeRequest::default().with_mechanism("PLAIN".into()),
    );
    let mut client = broker.connect();
    client.send(&handshake);
    assert_eq!(&client.receive().unwrap()[4..6], [0, 0]);
    client.send(b"\0anna\0secret");
    assert_eq!(client.receive().unwrap(), &b""[..]);
    client.behave();
    // The message may come before the response to the handshake.
    let mut client = broker.connect();
    client.write(&[framed(&handshake), framed(b"\0anna\0secret")].concat());
    client.receive().unwrap();
    client.receive().unwrap();
    client.behave();
    for token in [&b"\0anna\0wrong"[..], b"\0"] {
        let mut client = broker.connect();
        client.send(&handshake);
        client.receive().unwrap();
        client.send(token);
        client.expect_end();
    }
    broker.stop();
}

#[test]
fn sessions_end_and_their_users_stay_the_same() {
    let broker = start("\"connections.max.reauth.ms\" = 1");
    let mut client = broker.connect();
    assert_eq!(client.handshake("PLAIN").0, 0);
    let done = client.authenticate(b"\0anna\0secret");
    assert_eq!((done.error_code, done.session_lifetime_ms), (0, 1));
    // The session has ended by the time that some request arrives.
    while client
        .try_write(&framed(&encoded(9, &MetadataRequest::default())))
        .is_ok()
    {
        if client.receive().is_none() {
            break;
        }
    }
    broker.stop();
    let broker = start("\"connections.max.reauth.ms\" = 3600000");
    for (user, code) in [("anna", 0), ("ben", SASL_AUTHENTICATION_FAILED)] {
        let mut client = broker.connect();
        assert_eq!(client.log_in("anna", "secret"), 0);
        client.behave();
        // Until a second has passed, another login is refused.
        while client.handshake("SCRAM-SHA-256").0 == ILLEGAL_SASL_STATE {
            client.behave();
        }
        let first = format!("n={user},r=x");
        let challenge = client
            .authenticate(format!("n,,{first}").as_bytes())
            .auth_bytes;
        let password = if user == "anna" { "secret" } else { "0ther" };
        let (last, _) = scram_last(&first, str::from_utf8(&challenge).unwrap(), password);
        assert_eq!(
            client.authenticate(last.as_bytes()).error_code,
            code,
            "{user}"
        );
        match code {
            0 => client.behave(),
            _ => client.expect_end(),
        }
    }
    broker.stop();
}

#[test]
fn a_listener_without_logins_says_so() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    assert_eq!(client.handshake("PLAIN"), (ILLEGAL_SASL_STATE, Vec::new()));
    let refused = client.authenticate(b"\0anna\0secret");
    assert_eq!(refused.error_code, ILLEGAL_SASL_STATE);
    client.behave();
    let (_, log) = broker.stop_and_read();
    assert!(log.contains("this listener has no SASL"), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

#[test]
fn requests_before_a_login_are_small() {
    let broker = start("");
    for bytes in [BYTES_MAX + 1, 512 << 10, 100 << 20, i32::MAX as usize] {
        let mut client = broker.connect();
        client.write(&(bytes as i32).to_be_bytes());
        client.expect_end();
        let mut client = broker.connect();
        assert_eq!(client.handshake("PLAIN").0, 0);
        client.write(&(bytes as i32).to_be_bytes());
        client.expect_end();
    }
    let mut client = broker.connect();
    client.send(&raw(17, 1, &[0xff; BYTES_MAX - 11]));
    client.expect_end();
    let mut client = broker.connect();
    assert_eq!(client.log_in("anna", "secret"), 0);
    let batch = crate::support::batch::batch(1, 600 << 10);
    client.create_topic("large");
    assert_eq!(client.produce("large", 0, batch), (0, 0));
    broker.stop();
}

#[test]
fn connections_that_do_not_log_in_are_closed_and_leave_room_for_others() {
    let broker = start("");
    let half = framed(&encoded(
        1,
        &SaslHandshakeRequest::default().with_mechanism("PLAIN".into()),
    ));
    let silent = (0..SILENT).map(|number| {
        let mut client = broker.connect();
        client.write(&half[..number % half.len()]);
        client
    });
    let mut silent: Vec<_> = silent.collect();
    let mut exchange = broker.connect();
    assert_eq!(exchange.handshake("SCRAM-SHA-256").0, 0);
    assert_eq!(exchange.authenticate(b"n,,n=anna,r=x").error_code, 0);
    silent.push(exchange);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = broker.connect();
            assert_eq!(client.log_in("anna", "secret"), 0);
            client.behave();
        });
    });
    silent.iter_mut().for_each(|client| client.expect_end());
    let (_, log) = broker.stop_and_read();
    assert!(log.contains("has not logged in in time"), "{log}");
}

#[test]
fn a_fetch_session_of_another_user_does_not_exist() {
    let broker = start(AUTHORIZER);
    let mut anna = as_user(&broker, "anna", "secret");
    anna.create_topic("t");
    let begun = fetch_request("t", 0, 0).with_session_epoch(0);
    let id = anna.ask(7, &begun).session_id;
    assert_ne!(id, 0);
    let named = |epoch| {
        FetchRequest::default()
            .with_session_id(id)
            .with_session_epoch(epoch)
    };
    let mut ben = as_user(&broker, "ben", "0ther");
    // A guessed ID names no topics, and the session cannot be ended.
    for (epoch, expected) in [(1, FETCH_SESSION_ID_NOT_FOUND), (0, 0), (-1, 0)] {
        let response = ben.ask(7, &named(epoch));
        assert_eq!(
            (response.error_code, response.responses.len()),
            (expected, 0)
        );
    }
    let continued = anna.ask(7, &named(1));
    assert_eq!((continued.error_code, continued.session_id), (0, id));
    broker.stop();
}
