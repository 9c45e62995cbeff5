//! The messages at the start and at the end of `underpass serve`, the addresses by which other
//! machines reach a server that listens on all interfaces, and QR codes of them.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};
use underpass_net::{Address, Confinement, machine_addresses};
use underpass_serve::{CertificatePin, FileServer, Scheme, ServeSummary, ServerOptions};

use crate::layout::{counted, monitoring};

/// Returns the message at the start: the addresses, warnings, the details, and how to stop.
pub(super) fn greeting(
    options: &ServerOptions,
    server: &FileServer,
    confinement: &Confinement,
    details: Option<String>,
) -> String {
    let shown = match &options.sites[..] {
        [site] => site.root.display().to_string(),
        sites => format!("{} sites", sites.len()),
    };
    let mut lines = vec![format!("serving {shown} on {}", place(&server.addresses()))];
    if let Some(monitoring) = monitoring(&server.running().operator_addresses()) {
        lines[0] += &format!("; {monitoring}");
    }
    lines.extend(uploads(options));
    let mut warnings = Vec::new();
    if rustix::process::geteuid().is_root() {
        warnings.push("running as root, choose another user with --user NAME".to_owned());
    }
    if let Confinement::Impossible(_) = confinement {
        warnings.push(confinement.to_string());
    }
    if !warnings.is_empty() {
        lines.push(format!("warning: {}", warnings.join("; ")));
    }
    let hint = match details {
        Some(_) => "",
        None => "; -v shows more",
    };
    lines.extend(details);
    lines.push(format!("press Ctrl-C to stop{hint}"));
    lines.join("\n")
}

/// Returns where files are taken in, and what else may be done there.
fn uploads(options: &ServerOptions) -> Option<String> {
    let areas = options.sites.iter().flat_map(|site| &site.uploads);
    let areas: Vec<String> = areas
        .map(|area| {
            let place = match area.path.as_str() {
                "" => "anywhere (--upload=/FOLDER limits them)".to_owned(),
                path => format!("in /{path}"),
            };
            let may = [("overwrite", area.overwrite), ("delete", area.delete)];
            let may = may.iter().filter(|(_, may)| *may);
            may.fold(place, |text, (what, _)| format!("{text}, {what}"))
        })
        .collect();
    (!areas.is_empty()).then(|| format!("uploads: {}", areas.join("; ")))
}

/// Returns the number of workers, their confinement, and how bodies are sent.
pub(super) fn details(options: &ServerOptions, confinement: &Confinement, bodies: &str) -> String {
    let workers = options.workers;
    let workers = workers.map_or_else(underpass_net::cores, NonZeroUsize::get);
    let workers = counted(workers as u64, "worker");
    format!("{workers}\n{confinement}\n{bodies}")
}

/// Formats each address for use in a browser, or in curl with `--unix-socket`.
pub(super) fn place(addresses: &[(Scheme, Address)]) -> String {
    let mut seen = HashSet::new();
    let mut shown: Vec<String> = addresses
        .iter()
        .flat_map(|(scheme, address)| match address {
            Address::Tcp(address) => {
                let all = reachable(*address).into_iter();
                all.map(|address| url(*scheme, &address)).collect()
            }
            Address::Unix(_) => vec![address.to_string()],
        })
        .collect();
    shown.retain(|url| seen.insert(url.clone()));
    shown.join(", ")
}

pub(super) fn url(scheme: Scheme, address: &SocketAddr) -> String {
    format!("{}://{address}/", scheme.name())
}

/// Returns how clients recognise the generated certificate.
pub(super) fn self_signed(pin: &CertificatePin, url: Option<&str>, user: Option<&str>) -> String {
    let CertificatePin {
        fingerprint,
        public_key,
    } = pin;
    let url = url.unwrap_or("https://localhost/");
    let user = user.map_or_else(String::new, |user| format!("-u {user} "));
    format!(
        "certificate made by this server, SHA-256 {fingerprint}\n\
         curl --insecure --pinnedpubkey '{public_key}' {user}{url}"
    )
}

/// Returns the number of requests, and how all bodies were sent.
pub(super) fn farewell(summary: &ServeSummary) -> String {
    let requests = counted(summary.requests, "request");
    format!("stopped after {requests}: {summary}")
}

/// Returns the addresses that reach `listening`, the best first; itself unless it is a wildcard.
pub(super) fn reachable(listening: SocketAddr) -> Vec<SocketAddr> {
    match listening.ip().is_unspecified() {
        true => of_all(listening, &machine_addresses()),
        false => vec![listening],
    }
}

/// Returns addresses that other machines reach first, loopback last. Link-local ones need a zone
/// and are left out.
fn of_all(listening: SocketAddr, machine: &[IpAddr]) -> Vec<SocketAddr> {
    let is_reachable = |address: &&IpAddr| match address {
        IpAddr::V4(four) => !four.is_loopback() && !four.is_link_local(),
        IpAddr::V6(six) => {
            listening.is_ipv6() && !six.is_loopback() && !six.is_unicast_link_local()
        }
    };
    let mut found: Vec<_> = machine
        .iter()
        .copied()
        .filter(|ip| is_reachable(&ip))
        .collect();
    // IPv4 first: shorter to type.
    found.sort_by_key(IpAddr::is_ipv6);
    found.push(Ipv4Addr::LOCALHOST.into());
    let port = listening.port();
    found
        .into_iter()
        .map(|ip| SocketAddr::new(ip, port))
        .collect()
}

/// Draws `text` as a QR code of half blocks with the margin that readers need. `None` if the text
/// is too long, which an address never is.
pub(super) fn qr_code(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    // Most terminals are dark: a drawn block is light.
    let drawn = code
        .render::<Dense1x2>()
        .dark_color(Dense1x2::Light)
        .light_color(Dense1x2::Dark)
        .build();
    Some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_fits_a_small_terminal() {
        let code = qr_code("http://192.168.100.100:65535/").unwrap();
        assert!(code.lines().count() <= 20, "{code}");
        let widths: Vec<_> = code.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{code}");
        assert!(qr_code(&"x".repeat(4000)).is_none());
    }

    fn shown(listening: &str, machine: &[&str]) -> Vec<String> {
        let machine: Vec<IpAddr> = machine.iter().map(|ip| ip.parse().unwrap()).collect();
        let all = of_all(listening.parse().unwrap(), &machine);
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn addresses_that_others_reach_are_shown_and_short_ones_first() {
        let machine = [
            "127.0.0.1",
            "fe80::1",
            "2001:db8::1",
            "192.0.2.7",
            "169.254.0.1",
            "::1",
        ];
        assert_eq!(
            shown("0.0.0.0:80", &machine),
            ["192.0.2.7:80", "127.0.0.1:80"]
        );
        assert_eq!(
            shown("[::]:80", &machine),
            ["192.0.2.7:80", "[2001:db8::1]:80", "127.0.0.1:80"]
        );
    }

    #[test]
    fn a_machine_without_a_network_reaches_itself() {
        assert_eq!(shown("0.0.0.0:80", &["127.0.0.1"]), ["127.0.0.1:80"]);
        assert_eq!(shown("[::]:80", &[]), ["127.0.0.1:80"]);
    }

    #[test]
    fn a_specific_address_is_shown_unchanged() {
        let one = SocketAddr::from(([127, 0, 0, 1], 8080));
        assert_eq!(reachable(one), [one]);
        assert!(!reachable(SocketAddr::from(([0; 4], 1))).is_empty());
    }
}
