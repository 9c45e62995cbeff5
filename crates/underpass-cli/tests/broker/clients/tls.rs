//! A client over TLS.

use underpass_testkit::assert_contains;

use super::COUNT;
use super::broker::Broker;
use super::client::{Kcat, MODES};
use super::records::Contents;
use crate::tls::Identity;

const NAME: &str = "localhost";

#[test]
#[ignore = "needs Kafka and kcat; run by cargo xtask test"]
fn a_client_that_trusts_the_certificate_writes_and_reads() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [cert, other] = folders.each_ref().map(|it| it.path().join("cert.pem"));
    let options = folders
        .each_ref()
        .map(|it| Identity::new(&[NAME]).write(it.path()));
    let broker = Broker::with(&options[0].each_ref().map(String::as_str));
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
