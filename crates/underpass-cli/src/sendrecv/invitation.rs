//! The lines by which the other side finds a waiting one.

use std::net::SocketAddr;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use underpass_sendrecv::{Item, ItemKind, Security, Ticket, TransferCode, shown};

/// The purpose of a waiting side.
pub(super) enum Offering {
    /// It receives into this folder.
    Folder(PathBuf),
    /// It sends these items.
    Items(Vec<Item>),
}

/// The lines for the other side.
pub(super) struct InvitationLines {
    pub(super) ticket: Ticket,
    pub(super) offering: Offering,
}

impl InvitationLines {
    /// Returns the lines with the ticket, for this program and for curl.
    pub(super) fn of_ticket(&self) -> String {
        let mut lines = self.lines(&self.ticket.to_string());
        let Some(address) = self.ticket.sockets().next() else {
            return lines;
        };
        let (pinned, url) = (pinned(&self.ticket), url(&self.ticket, address));
        match &self.offering {
            Offering::Folder(_) => lines += &format!("\n  curl {pinned}-T FILE {url}"),
            Offering::Items(items) => {
                for item in items {
                    if let ItemKind::File(_) = item.kind {
                        let name = encoded(&item.name);
                        lines += &format!("\n  curl {pinned}-C - -O {url}{name}");
                    }
                }
            }
        }
        lines
    }

    /// Returns the lines with the code and an address.
    pub(super) fn of_code(&self, code: &TransferCode) -> String {
        let mut addresses = self.ticket.sockets().map(|address| address.to_string());
        let first = addresses.next().unwrap_or("HOST:PORT".to_owned());
        let mut lines = self.lines(&format!("{}@{first}", *code.text()));
        let others = Vec::from_iter(addresses);
        if !others.is_empty() {
            lines += &format!("\nother addresses of this machine: {}", others.join(", "));
        }
        lines
    }

    fn lines(&self, invitation: &str) -> String {
        match &self.offering {
            Offering::Folder(folder) => format!(
                "receiving into {}; on the other machine:\n  underpass send FILE... {invitation}",
                folder.display().to_string().escape_debug(),
            ),
            Offering::Items(items) => {
                let names = items.iter().map(|item| shown(&item.name));
                format!(
                    "offering {}; on the other machine:\n  underpass recv {invitation}",
                    Vec::from_iter(names).join(", ")
                )
            }
        }
    }
}

fn url(ticket: &Ticket, address: SocketAddr) -> String {
    let scheme = match ticket.security {
        Security::Encrypted { .. } => "https",
        Security::Plain => "http",
    };
    format!("{scheme}://{address}/{}/", ticket.secret.token())
}

fn encoded(name: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    name.bytes()
        .map(|byte| match is_plain(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// Returns the options by which curl recognizes the waiting side. curl checks the key even with
/// `-k`, which is needed because no authority has signed the certificate.
fn pinned(ticket: &Ticket) -> String {
    match &ticket.security {
        Security::Encrypted { key_sha256 } => {
            let pin = STANDARD.encode(key_sha256);
            format!("--fail-with-body -k --pinnedpubkey 'sha256//{pin}' --noproxy '*' ")
        }
        Security::Plain => "--fail-with-body --noproxy '*' ".to_owned(),
    }
}
