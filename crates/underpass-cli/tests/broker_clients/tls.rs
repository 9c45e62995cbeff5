//! A client over TLS.

use std::fs;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair};
use underpass_testkit::assert_contains;

use crate::COUNT;
use crate::broker::Broker;
use crate::client::{Kcat, MODES};
use crate::records::Contents;

const NAME: &str = "localhost";

/// Writes a self-signed certificate for [`NAME`] as `NAME.cert`, and its key.
fn write_identity(folder: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let parameters = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let write = |kind: &str, pem: String| {
        fs::write(folder.join(format!("{name}.{kind}")), pem).unwrap();
    };
    write("cert", certificate.pem());
    write("key", key.serialize_pem());
}

#[test]
#[ignore = "needs Kafka and kcat; run by cargo xtask test"]
fn a_client_that_trusts_the_certificate_writes_and_reads() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ours", "other"] {
        write_identity(folder.path(), name);
    }
    let [cert, key, other] =
        ["ours.cert", "ours.key", "other.cert"].map(|name| folder.path().join(name));
    let options = [
        "--cert",
        cert.to_str().unwrap(),
        "--key",
        key.to_str().unwrap(),
    ];
    let broker = Broker::with(&options);
    let by_number = broker.address();
    let address = by_number.replace("127.0.0.1", NAME);

    let (kcat, topic) = (Kcat::over_tls(&address, &cert), "secured");
    let mut first = 0;
    for mode in MODES {
        kcat.produce(topic, first..first + COUNT, mode);
        first += COUNT;
    }
    let expected = Contents::of(0..first).read_from(0);
    assert_eq!(kcat.consume(topic, "beginning"), expected);
    assert_eq!(kcat.consume_as_member(topic, "readers"), expected);

    for (stranger, words) in [
        (
            Kcat::over_tls(&address, &other),
            "certificate verify failed",
        ),
        (
            Kcat::over_tls(&by_number, &cert),
            "certificate verify failed",
        ),
        (Kcat::of(&address), "Failed to acquire metadata"),
    ] {
        let report = stranger.list();
        assert_ne!(report.code, Some(0), "{stranger:?}: {report:?}");
        assert_contains(&report.errors, &[words]);
    }
    broker.end();
}
