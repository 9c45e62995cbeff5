//! The errors of a server as messages with advice.

use std::path::Path;

use rustix::io::Errno;
use underpass_net::{Error as Net, TlsError};
use underpass_serve::Error;

/// Returns whether the folder looks like a port, as in `python -m http.server PORT`.
fn is_port(folder: &Path) -> bool {
    folder
        .to_str()
        .is_some_and(|name| name.parse::<u16>().is_ok())
}

/// Returns whether the folder is the word after `--upload`, whose value needs an equals sign.
fn follows_upload(folder: &Path) -> bool {
    let words: Vec<_> = std::env::args_os().collect();
    words.windows(2).any(|pair| {
        let [option, word] = pair else { return false };
        (option == "--upload" || option == "-u") && Path::new(word) == folder
    })
}

/// Formats an error, followed by advice.
pub(super) fn with_advice(error: &Error) -> String {
    if let Error::OnlyCertificates(error) = error {
        return only_certificates(&with_advice(error));
    }
    if let Error::Root { path, .. } = error
        && follows_upload(path)
    {
        let path = path.display();
        return format!(
            "{error}; the served folder is an argument of its own, and what follows --upload needs \
             an equals sign: --upload={path}"
        );
    }
    match advice(error) {
        Some(advice) => format!("{error}; {advice}"),
        None => error.to_string(),
    }
}

fn advice(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::Root { path, .. } if is_port(path) => {
            "choose a folder that exists; the option --port chooses the port"
        }
        Error::Root { .. } => "choose a folder that exists and is readable",
        Error::NoBeneath { .. } => {
            "this needs Linux 5.6 or later and a seccomp filter that allows openat2"
        }
        Error::Log { .. } => "choose a file in a writable folder with --log-file FILE",
        Error::Status { .. } => {
            "choose another address with --status ADDR:PORT or --status unix:PATH"
        }
        Error::SecretServed { .. } => "move it to a folder that is not served",
        Error::Thread { .. } => "raise the limit on threads (ulimit -u, TasksMax=)",
        Error::Fixed { .. } => {
            "send SIGUSR2 instead: a new process takes over without losing a connection"
        }
        Error::NoSite => "add a [[site]] with a root",
        Error::NameTaken { .. } => "remove it from one of them",
        Error::Tls(error) => return tls_advice(error),
        Error::Net(error) => return net_advice(error),
        Error::OnlyCertificates(_)
        | Error::File { .. }
        | Error::Several(_)
        | Error::Limits { .. }
        | Error::Config(_)
        | Error::ConfigFile { .. }
        | Error::Site { .. } => return None,
    })
}

fn net_advice(error: &Net) -> Option<&'static str> {
    Some(match error {
        Net::AddressTaken { .. } => "stop that process, or choose another port with --port PORT",
        Net::AddressOurs { .. } => {
            "choose another port, or stop the server and start it with the new address"
        }
        Net::AddressNotHere { .. } => {
            "choose an address of this machine with --listen ADDR:PORT, or :PORT for all"
        }
        Net::PortForbidden { .. } => "choose a port of 1024 or higher with --port PORT",
        Net::PathTaken { .. } => {
            "stop that process, or choose another path with --listen unix:/path"
        }
        Net::NoSocketThere { .. } => "remove it, or choose another path with --listen unix:/path",
        Net::NotActivated { .. } => {
            "start the service by a socket unit; FileDescriptorName= sets the name"
        }
        Net::Worker { source, .. }
            if source.raw_os_error() == Some(Errno::MFILE.raw_os_error()) =>
        {
            "raise the limit on descriptors (ulimit -n, LimitNOFILE=), or lower --workers"
        }
        Net::Generations { .. } => "try again after running downloads have completed",
        Net::User { .. } => {
            "--user names a user of this machine, as NAME or NAME:GROUP; --auth and --users are \
             for logins"
        }
        Net::Confine { .. } => "choose --confine auto to serve without full confinement",
        _ => return None,
    })
}

/// Returns the message of a failed reload that renewed only the certificates.
pub(super) fn only_certificates(why: &str) -> String {
    format!("only the certificates were renewed: {why}")
}

/// Returns advice for errors of HTTPS.
fn tls_advice(error: &TlsError) -> Option<&'static str> {
    Some(match error {
        TlsError::NoCertificate => {
            "name them with --cert FILE and --key FILE, or in [[tls.certificate]], or have one \
             made with --tls-self-signed"
        }
        TlsError::SelfSignedBeside => "leave out either tls.self-signed or [[tls.certificate]]",
        TlsError::Write { .. } => {
            "name a folder that this user may write with STATE_DIRECTORY, or XDG_STATE_HOME, which \
             root does not use"
        }
        TlsError::Mismatch { .. } => {
            "name the file with the server's own certificate first, and the key it was made for"
        }
        TlsError::Read { .. } => "choose a file that exists and is readable",
        _ => return None,
    })
}
