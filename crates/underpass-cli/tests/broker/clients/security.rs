//! Kafka's tools with logins, users and access rules.

use std::fs;
use std::path::{Path, PathBuf};

use underpass_testkit::{assert_contains, run};

use super::broker::Broker;
use super::installed::java;
use crate::logins::hashed;

const ACLS: &str = "org.apache.kafka.tools.AclCommand";
const CONFIGS: &str = "kafka.admin.ConfigCommand";
const PRODUCER: &str = "org.apache.kafka.tools.ProducerPerformance";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";

/// Writes the configuration of a client that logs in by SCRAM-SHA-512.
fn client(folder: &Path, user: &str, password: &str) -> PathBuf {
    let file = folder.join(format!("{user}.properties"));
    let module = "org.apache.kafka.common.security.scram.ScramLoginModule";
    let text = format!(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n\
         sasl.jaas.config={module} required username=\"{user}\" password=\"{password}\";\n"
    );
    fs::write(&file, text).unwrap();
    file
}

/// Runs a tool as a user, and checks its exit code and parts of its output.
#[track_caller]
fn tool(broker: &Broker, (class, login): (&str, &Path), words: &str, code: i32, parts: &[&str]) {
    let mut command = java(class);
    command.args(["--bootstrap-server", &broker.address(), "--command-config"]);
    command.arg(login).args(words.split_whitespace());
    let report = run(&mut command);
    assert_eq!(report.code, Some(code), "{class} {words}: {report:#?}");
    let all = report.output + &report.errors;
    assert_contains(&all, parts);
}

#[test]
#[ignore = "needs Kafka; run by cargo xtask test"]
fn kafkas_tools_manage_users_and_rules_which_its_clients_obey() {
    let folder = tempfile::tempdir().unwrap();
    let [users, config] = ["users", "underpass.toml"].map(|name| folder.path().join(name));
    fs::write(&users, hashed("anna", "secret")).unwrap();
    let rules = "[authorizer]\n\"super.users\" = ['User:anna']\n\
                 [sasl]\n\"connections.max.reauth.ms\" = 2000\n";
    fs::write(&config, rules).unwrap();
    let options = [&config, &users].map(|path| path.display().to_string());
    let broker = Broker::with(&["--config", &options[0], "--users", &options[1]]);
    let anna = client(folder.path(), "anna", "secret");
    let ben = client(folder.path(), "ben", "0ther");
    let of_users = "--entity-type users --entity-name ben";
    let add = format!("--alter {of_users} --add-config SCRAM-SHA-512=[password=0ther]");
    let done = &["Completed updating config for user ben."];
    tool(&broker, (CONFIGS, &anna), &add, 0, done);
    let described = &["SCRAM credential configs for user-principal 'ben' are SCRAM-SHA-512"];
    let describe = format!("--describe {of_users}");
    tool(&broker, (CONFIGS, &anna), &describe, 0, described);
    let write = "--topic orders-1 --num-records 3000 --record-size 100 --throughput 1000";
    let denied = &["Not authorized to access topics: [orders-1]"];
    let few = "--topic orders-1 --num-records 3 --record-size 100 --throughput 1000";
    tool(&broker, (PRODUCER, &ben), few, 0, denied);
    let list = "--list";
    tool(
        &broker,
        (ACLS, &ben),
        list,
        1,
        &["ClusterAuthorizationException"],
    );
    let add = "--add --force --allow-principal User:ben --producer --topic orders- \
               --resource-pattern-type prefixed";
    tool(&broker, (ACLS, &anna), add, 0, &["operation=WRITE"]);
    // Longer than a session: the client logs in again on its connection.
    tool(&broker, (PRODUCER, &ben), write, 0, &["3000 records sent"]);
    let read = "--topic orders-1 --group g --from-beginning --max-messages 3000";
    tool(
        &broker,
        (CONSUMER, &ben),
        read,
        0,
        &["GroupAuthorizationException"],
    );
    let add = "--add --force --allow-principal User:ben --consumer --topic orders-1 --group g";
    tool(&broker, (ACLS, &anna), add, 0, &["operation=READ"]);
    tool(
        &broker,
        (CONSUMER, &ben),
        read,
        0,
        &["Processed a total of 3000 messages"],
    );
    let rules = &[
        "name=orders-, patternType=PREFIXED",
        "name=g, patternType=LITERAL",
    ];
    tool(&broker, (ACLS, &anna), list, 0, rules);
    let remove = "--remove --force --allow-principal User:ben --consumer --topic orders-1 \
                  --group g";
    tool(&broker, (ACLS, &anna), remove, 0, &[]);
    tool(
        &broker,
        (CONSUMER, &ben),
        read,
        0,
        &["GroupAuthorizationException"],
    );
    let remove = format!("--alter {of_users} --delete-config SCRAM-SHA-512");
    tool(&broker, (CONFIGS, &anna), &remove, 0, done);
    let failed = &["SaslAuthenticationException"];
    tool(&broker, (ACLS, &ben), list, 1, failed);
}
