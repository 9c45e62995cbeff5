//! Finds problems of certificates and keys before clients do.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use underpass_http::calendar::minutes;
use underpass_http::fields::validator::FileTime;
use underpass_net::{CertificateFacts, ChainFault};

use crate::error::Error;
use crate::options::ServerOptions;
use crate::options::secret_files::{self, exposed, served};

/// The time before expiry from which a warning is logged; certbot renews 30 days before.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 86_400);

/// The severity of a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FindingLevel {
    /// Clients reject the certificate.
    Mistake,
    Warning,
}

/// Returns the reasons for which clients reject these certificates.
pub(crate) fn mistakes(certificates: &[CertificateFacts]) -> Vec<Error> {
    let mistakes = at_level(certificates, FindingLevel::Mistake);
    let error = |(facts, what): (&CertificateFacts, _)| Error::File {
        path: facts.files.cert.clone(),
        what,
    };
    mistakes.map(error).collect()
}

fn at_level(
    certificates: &[CertificateFacts],
    wanted: FindingLevel,
) -> impl Iterator<Item = (&CertificateFacts, String)> {
    let now = SystemTime::now();
    let all = certificates.iter().flat_map(move |facts| {
        let found = found(facts, now).into_iter();
        found.map(move |(level, what)| (facts, level, what))
    });
    all.filter_map(move |(facts, level, what)| (level == wanted).then_some((facts, what)))
}

/// Returns an error for each file that the later user may not read: reloads would fail.
pub(crate) fn unreadable(options: &ServerOptions, certificates: &[CertificateFacts]) -> Vec<Error> {
    let hint = "a renewed certificate is not noticed; have a deploy hook copy certificate and key \
                to a folder that this user may read, the key with mode 0640 and that group \
                (docs/tls.md), or restart the server after each renewal";
    let files = certificates.iter().map(|facts| &facts.files);
    let files = files.flat_map(|files| [&files.cert, &files.key]);
    secret_files::unreadable(options, files.chain(&options.tls.client_ca), hint)
}

/// Returns the warnings of a server with these certificates, and its [`mistakes`].
pub(crate) fn warnings(options: &ServerOptions, certificates: &[CertificateFacts]) -> Vec<String> {
    let mistakes = mistakes(certificates);
    let unreadable = unreadable(options, certificates);
    let errors = mistakes.iter().chain(&unreadable);
    let mut warnings: Vec<_> = errors.map(Error::to_string).collect();
    warnings.extend(cautions(options, certificates));
    warnings
}

/// Returns the problems of certificates that have just been reread.
pub(crate) fn of_renewed(certificates: &[CertificateFacts]) -> Vec<String> {
    let mistakes = mistakes(certificates);
    let mistakes = mistakes.iter().map(Error::to_string);
    mistakes.chain(soon_refused(certificates)).collect()
}

/// Returns warnings about settings that work but may not be intended.
pub(crate) fn cautions(options: &ServerOptions, certificates: &[CertificateFacts]) -> Vec<String> {
    let mut warnings = soon_refused(certificates);
    if options.tls.hsts.is_some() && certificates.is_empty() {
        warnings.push(
            "tls.hsts is sent over HTTPS only, and this server has no certificate: set \
             [[tls.certificate]] or tls.self-signed"
                .to_owned(),
        );
    }
    let keys = certificates.iter().map(|facts| &facts.files.key);
    warnings.extend(keys.filter_map(|key| exposed("the private key", key)));
    warnings.extend(uncovered(options, certificates));
    warnings.extend(unplaced(options, certificates));
    warnings
}

fn soon_refused(certificates: &[CertificateFacts]) -> Vec<String> {
    let warnings = at_level(certificates, FindingLevel::Warning);
    let shown =
        |(facts, what): (&CertificateFacts, _)| format!("{}: {what}", facts.files.cert.display());
    warnings.map(shown).collect()
}

/// Returns the problems of a certificate at the time `now`.
fn found(facts: &CertificateFacts, now: SystemTime) -> Vec<(FindingLevel, String)> {
    let (begin, end) = (date(facts.not_before), date(facts.not_after));
    let mut found = Vec::new();
    if facts.not_after <= now {
        let what = format!("the certificate expired on {end}; renew it");
        found.push((FindingLevel::Mistake, what));
    } else if facts.not_after <= now + EXPIRY_WARNING {
        let what = format!("the certificate expires on {end}; renew it");
        found.push((FindingLevel::Warning, what));
    }
    if facts.not_before > now {
        let what = format!("the certificate is not valid before {begin}; is the clock right?");
        found.push((FindingLevel::Mistake, what));
    }
    if facts.names.is_empty() && facts.addresses.is_empty() {
        let what = "the certificate is for no name: clients compare subjectAltName alone, and \
                    refuse to go on; have it issued with subjectAltName=DNS:NAME";
        found.push((FindingLevel::Warning, what.to_owned()));
    }
    for fault in &facts.faults {
        found.push(match fault {
            ChainFault::Unreadable => {
                let what = "a certificate behind the first one cannot be read; use the file that \
                            the authority has issued";
                (FindingLevel::Mistake, what.to_owned())
            }
            ChainFault::Order { number } => {
                let what = format!(
                    "certificate {number} is not signed by certificate {}; order them from the \
                     server's own to the one that the root has signed",
                    number + 1
                );
                (FindingLevel::Mistake, what)
            }
            ChainFault::NoIntermediate => {
                let what = "the intermediate certificates are missing, and clients that do not \
                            know them refuse this one; use fullchain.pem instead of cert.pem";
                (FindingLevel::Warning, what.to_owned())
            }
            ChainFault::Authority => {
                let what = "it is the certificate of an authority, which some clients refuse for \
                            a server; have it issue one for the server";
                (FindingLevel::Warning, what.to_owned())
            }
        });
    }
    found
}

/// Formats a time in UTC.
fn date(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
    let time = FileTime {
        seconds,
        nanoseconds: 0,
    };
    format!("{} UTC", minutes(time))
}

/// Warns of site names that no certificate covers.
fn uncovered(options: &ServerOptions, certificates: &[CertificateFacts]) -> Vec<String> {
    let covers = |name: &str| {
        let address: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
        certificates.iter().any(|facts| match address {
            Some(address) => facts.addresses.contains(&address),
            None => facts.is_for(name),
        })
    };
    if certificates.is_empty() {
        return Vec::new();
    }
    let names = options.sites.iter().flat_map(|site| &site.names);
    let names = names.filter(|name| !covers(name.as_str()));
    names
        .map(|name| {
            format!(
                "no certificate is for the name {name} of a site, and clients refuse to go on; \
                 have one issued for it and add it as [[tls.certificate]]"
            )
        })
        .collect()
}

/// Warns of certificate names without a site. A first site without names serves all other names.
fn unplaced(options: &ServerOptions, certificates: &[CertificateFacts]) -> Vec<String> {
    let first = options.sites.first();
    let Some(first) = first.filter(|site| !site.names.is_empty() && !options.tls.self_signed)
    else {
        return Vec::new();
    };
    let sites = options.sites.iter().flat_map(|site| &site.names);
    let sites: Vec<_> = sites.map(|name| name.as_str()).collect();
    let mut seen = HashSet::new();
    let names = certificates
        .iter()
        .flat_map(|facts| facts.names.iter().map(move |name| (facts, name)));
    let names = names.filter(|(_, name)| {
        let is_placed = sites.iter().any(|site| are_for_the_same(site, name));
        !is_placed && seen.insert(*name)
    });
    names
        .map(|(facts, name)| {
            format!(
                "{} is for the name {name}, which no site has: the first site, {}, answers for it; \
                 add it to the names of the site that it belongs to",
                facts.files.cert.display(),
                first.root.display()
            )
        })
        .collect()
}

/// Whether some host name matches both, each a name or a wildcard.
fn are_for_the_same(site: &str, certificate: &str) -> bool {
    let below = |name: &str, ending: &str| {
        let before = name.strip_suffix(ending);
        before.is_some_and(|before| before.ends_with('.'))
    };
    site == certificate
        || (site.strip_prefix("*.")).is_some_and(|ending| below(certificate, ending))
        || (certificate.strip_prefix("*.")).is_some_and(|ending| below(site, ending))
}

/// Returns an error for a key in a served folder: anyone who guesses its name could read it.
pub(crate) fn served_key(options: &ServerOptions) -> Option<Error> {
    let keys = options.tls.files().into_iter().map(|files| files.key);
    served(options, "the private key", keys)
}
