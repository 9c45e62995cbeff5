//! Clients installed by `cargo xtask test --install`, and commands that run them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the path of a file below the cache folder.
pub(crate) fn installed(name: &str) -> PathBuf {
    let chosen = env::var_os("UNDERPASS_CLIENTS").map(PathBuf::from);
    chosen.unwrap_or_else(default_folder).join(name)
}

fn default_folder() -> PathBuf {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(env::var_os("HOME").unwrap()).join(".cache");
    cache.unwrap_or_else(home).join("underpass-clients")
}

/// Returns the path of a file in `tests/broker/clients/programs`.
pub(crate) fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broker/clients/programs");
    folder.join(name)
}

/// Returns a command that runs a class of Kafka 4.3.
pub(crate) fn java(class: &str) -> Command {
    java_by("java", class)
}

/// Returns a command that runs a class of Kafka, or of the client in `programs`, with the jars in a
/// folder. The small heap and the simple compiler make short runs fast.
pub(crate) fn java_by(folder: &str, class: &str) -> Command {
    let jars = installed(folder).join("*");
    let mut command = Command::new("java");
    command
        .args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
        .arg("-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info")
        .arg("-classpath")
        .arg(format!(
            "{}:{}",
            jars.display(),
            installed("java-client").display()
        ))
        .arg(class)
        .stdin(Stdio::null());
    command
}
