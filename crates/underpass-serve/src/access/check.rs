//! What is wrong with the access to sites, and who would get what.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use underpass_net::ListenAt;
use unicode_normalization::UnicodeNormalization;

use crate::access::grantee::{Asker, Grantee};
use crate::access::links::{LinkScope, ShownLink};
use crate::access::options::AccessOptions;
use crate::access::rules::{AccessVerdict, TreePattern};
use crate::access::secret_files::{self, exposed, served};
use crate::access::store::SiteAccess;
use crate::error::Error;
use crate::options::{ServerOptions, SiteOptions};
use crate::request::Scheme;
use crate::request::forwarded::ClientPlace;
use crate::request::path::SitePath;
use crate::request::request_line::Method;
use crate::site::sites::ServedSites;

/// Options of access that contradict others. What sites themselves contradict is found when they
/// are opened.
pub(crate) fn mistakes(options: &ServerOptions) -> Option<Error> {
    let served = served(options, "the file of secrets", files(options).cloned());
    if served.is_some() {
        return served;
    }
    let mut grantees = options.sites.iter().flat_map(|site| &site.access.rules);
    let by_certificate = grantees.any(|rule| {
        let mut allowed = rule.allow.iter();
        allowed.any(|one| matches!(one, Grantee::Certificate(_)))
    });
    (by_certificate && options.tls.client_ca.is_none()).then(|| {
        Error::Config(
            "access: a rule allows certificates, and there is no `tls.client-ca` that could have \
             issued them"
                .to_owned(),
        )
    })
}

/// Files that the user that root is about to become may not read: what fails later.
pub(crate) fn unreadable(options: &ServerOptions) -> Vec<Error> {
    let hint = "changes of it are not noticed; make it readable for that user (mode 0640 and that \
                group)";
    secret_files::unreadable(options, files(options), hint)
}

/// What works, and may not be what is meant.
pub(crate) fn warnings(options: &ServerOptions) -> Vec<String> {
    let keys = options.sites.iter().flat_map(|site| &site.access.link_keys);
    let mut warnings: Vec<_> = keys
        .filter_map(|key| exposed("the key of signed links", key))
        .collect();
    warnings.extend(options.sites.iter().flat_map(|site| unknown(&site.access)));
    warnings.extend(options.sites.iter().flat_map(absent));
    warnings.extend(unencrypted(options));
    warnings
}

/// Users and tokens that rules name and files do not, and files that let nobody in.
fn unknown(access: &AccessOptions) -> Vec<String> {
    let Ok(Some(open)) = SiteAccess::open(access) else {
        return Vec::new();
    };
    let (_, present) = open.present();
    let users = present.passwords.as_ref();
    let now = SystemTime::now();
    let mut unknown = present.warnings(access);
    for grantee in access.rules.iter().flat_map(|rule| &rule.allow) {
        let (kind, name) = match grantee {
            Grantee::User(Some(name)) if !users.is_some_and(|file| file.has(name)) => {
                ("user", name)
            }
            Grantee::Token(Some(name)) if !present.tokens.has(name, now) => ("valid token", name),
            _ => continue,
        };
        unknown.push(format!(
            "access: a rule allows the {kind} {name}, which its file does not contain"
        ));
    }
    unknown
}

/// Paths of rules that lead to nothing on the disk.
fn absent(site: &SiteOptions) -> Vec<String> {
    let rules = site.access.rules.iter().enumerate();
    let paths = rules.flat_map(|(number, rule)| {
        let paths = rule.paths.iter().filter_map(TreePattern::path);
        paths.map(move |path| (number + 1, path))
    });
    let absent = paths.filter(|(_, path)| {
        let spellings = [path.nfc().collect::<String>(), path.nfd().collect()];
        let mut found = spellings
            .iter()
            .map(|path| site.root.join(path).symlink_metadata());
        !found.any(|found| found.is_ok())
    });
    let root = site.root.display();
    let warning = |(number, path)| {
        format!(
            "access: rule {number} is about /{path}, and there is nothing of that name in {root}"
        )
    };
    absent.map(warning).collect()
}

/// Passwords and tokens that everyone on the way can read.
fn unencrypted(options: &ServerOptions) -> Option<String> {
    let mut access = options.sites.iter().map(|site| &site.access);
    let is_secret = access.any(|access| access.has_users() || access.tokens.is_some());
    let mut listen = options.listen.iter();
    let redirects = crate::https::port(options, &[]).is_some();
    let open = listen.find(|listen| match &listen.at {
        ListenAt::Tcp(address) => {
            listen.spoken(options) == Scheme::Http && !address.ip().is_loopback() && !redirects
        }
        _ => false,
    })?;
    is_secret.then(|| {
        format!(
            "passwords and tokens reach {open} unencrypted, and everyone on the way can read them; \
             serve HTTPS (--cert and --key, or --tls-self-signed), or listen on 127.0.0.1 behind a \
             server that does"
        )
    })
}

fn files(options: &ServerOptions) -> impl Iterator<Item = &PathBuf> {
    let access = options.sites.iter().map(|site| &site.access);
    access.flat_map(AccessOptions::files)
}

/// A question about access: may somebody read something?
#[derive(Clone, Debug)]
pub struct AccessQuestion {
    /// The host name of the request; the first site answers for all others.
    pub host: Option<String>,
    /// `user:anna`, `token:ci`, `certificate:NAME`, `links` for somebody with a signed link to this
    /// very thing, or nobody known.
    pub asker: Option<Grantee>,
    /// Where the client is; nothing if that is not known.
    pub client: Option<ClientPlace>,
    /// GET or HEAD.
    pub method: String,
    /// The path of the request, percent-encoded.
    pub path: String,
}

/// The answer to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessDecision {
    /// Whether the rules let him.
    pub is_granted: bool,
    /// The rule that decided, from 1; none if no rule is about it, or there are none.
    pub rule: Option<usize>,
    /// Whether there are rules at all.
    pub is_restricted: bool,
}

/// Answers `question` by the rules of `options`, for the name that the path itself has: whether
/// there is anything, and where links lead, is not looked at.
///
/// # Errors
/// What of the question makes no sense or is missing, and [`Error`] for sites that cannot be
/// opened.
pub fn decide_access(
    options: &ServerOptions,
    question: &AccessQuestion,
) -> Result<AccessDecision, Error> {
    let wrong = |what: String| Error::Config(what);
    let sites = ServedSites::open(&options.sites)?;
    let host = question.host.as_ref().map(String::as_bytes);
    let site = &sites.all[sites.names.number_of(host)];
    let path = question.path.split('?').next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(wrong(format!("{path}: a path begins with a slash")));
    }
    let path = SitePath::parse(path.as_bytes());
    let path = path.map_err(|error| wrong(format!("{}: {}", question.path, error.why)))?;
    let method = match &*question.method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        other => return Err(wrong(format!("{other} is not GET or HEAD"))),
    };
    let Some(access) = &site.access else {
        return Ok(AccessDecision {
            is_granted: true,
            rule: None,
            is_restricted: false,
        });
    };
    let asker = asker(question, access, &path).map_err(wrong)?;
    if question.client.is_none() && access.rules.ask_for_network(path.bytes(), method) {
        return Err(wrong(
            "it depends on the network of the client: say where that is by --from ADDRESS or \
             --from unix"
                .to_owned(),
        ));
    }
    let (verdict, rule) = access.rules.decide(path.bytes(), method, &asker);
    Ok(AccessDecision {
        is_granted: verdict == AccessVerdict::Granted,
        rule: rule.map(|number| number + 1),
        is_restricted: true,
    })
}

/// Whoever is asked about, if the files know him.
fn asker(question: &AccessQuestion, access: &SiteAccess, path: &SitePath) -> Result<Asker, String> {
    let (_, present) = access.present();
    let mut asker = Asker {
        ..Asker::at(question.client.unwrap_or(ClientPlace::Unknown(None)))
    };
    let known = |is_known: bool, kind: &str, name: &str| match is_known {
        true => Ok(Some(Arc::from(name))),
        false => Err(format!("there is no {kind} {name}")),
    };
    match &question.asker {
        None | Some(Grantee::Everyone) => {}
        Some(Grantee::User(Some(name))) => {
            let users = present.passwords.as_ref();
            asker.user = known(users.is_some_and(|file| file.has(name)), "user", name)?;
        }
        Some(Grantee::Token(Some(name))) => {
            asker.token = known(
                present.tokens.has(name, SystemTime::now()),
                "valid token",
                name,
            )?;
        }
        Some(Grantee::Certificate(Some(name))) => asker.certificate = Some(Arc::clone(name)),
        Some(Grantee::Links) => {
            asker.link = ShownLink::Valid(LinkScope::File(path.bytes().to_vec()));
        }
        Some(Grantee::User(None) | Grantee::Token(None) | Grantee::Certificate(None)) => {
            return Err("expected one: user:NAME, token:NAME or certificate:NAME".to_owned());
        }
    }
    Ok(asker)
}
