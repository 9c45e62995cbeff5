//! Logins, users and rights.

mod acls;
mod logins;
mod rights;
mod users;

use std::fs;

use tempfile::TempDir;

use crate::support::broker::BrokerProcess;

/// The error codes.
const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
const ILLEGAL_SASL_STATE: i16 = 34;
const SASL_AUTHENTICATION_FAILED: i16 = 58;
const CLUSTER_AUTHORIZATION_FAILED: i16 = 31;

/// Access rules, with `anna` as the super user.
const AUTHORIZER: &str = "[authorizer]\n\"super.users\" = ['User:anna']\n";

const MECHANISMS: [&str; 3] = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"];

/// A listener with logins.
const LISTENER: &str = "[[listener]]\nat = '127.0.0.1:0'\npasswords-in-clear = true\n\
                        sasl = ['SCRAM-SHA-256', 'SCRAM-SHA-512', 'PLAIN']\n";

/// Starts a broker whose clients must log in as `anna` with the password `secret`, or `ben` with
/// `0ther`.
#[track_caller]
fn start(more: &str) -> BrokerProcess {
    start_in(tempfile::tempdir().unwrap(), more)
}

#[track_caller]
fn start_in(folder: TempDir, more: &str) -> BrokerProcess {
    let users = [("anna", "secret"), ("ben", "0ther")];
    let lines = users
        .map(|(user, password)| underpass_broker::user_lines(user, password.as_bytes()).unwrap());
    let file = folder.path().join("users");
    // As Windows editors write it.
    let text = lines.join("\n").replace('\n', "\r\n");
    fs::write(&file, format!("\u{feff}{text}")).unwrap();
    let config = format!("{LISTENER}[sasl]\nusers = {file:?}\n{more}");
    BrokerProcess::start_with(folder, &config)
}
