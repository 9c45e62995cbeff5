//! Checks the access options of sites, and decides access to a path.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use underpass_http::path::{PathForm, SitePath};
use underpass_http::request::request_line::{Method, WriteMethod};
use underpass_http::scheme::Scheme;
use underpass_net::ListenAt;
use unicode_normalization::UnicodeNormalization;

use crate::access::forwarded::ClientPlace;
use crate::access::grantee::{Asker, Grantee};
use crate::access::links::{LinkScope, ShownLink};
use crate::access::options::AccessOptions;
use crate::access::rules::{AccessRules, AccessVerdict, TreePattern};
use crate::access::store::SiteAccess;
use crate::error::Error;
use crate::options::secret_files::{self, exposed, served};
use crate::options::{ServerOptions, SiteOptions};
use crate::site::sites::ServedSites;

/// Returns the first contradiction among access options. Contradictions within a site are found
/// when it is opened.
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

/// Returns an error for each file that the later user may not read: reloads would fail.
pub(crate) fn unreadable(options: &ServerOptions) -> Vec<Error> {
    let hint = "changes of it are not noticed; make it readable for that user (mode 0640 and that \
                group)";
    secret_files::unreadable(options, files(options), hint)
}

/// Returns warnings about options that work but may not be intended.
pub(crate) fn warnings(options: &ServerOptions) -> Vec<String> {
    let keys = options.sites.iter().flat_map(|site| &site.access.link_keys);
    let mut warnings: Vec<_> = keys
        .filter_map(|key| exposed("the key of signed links", key))
        .collect();
    warnings.extend(options.sites.iter().flat_map(|site| unknown(&site.access)));
    warnings.extend(options.sites.iter().flat_map(absent));
    warnings.extend(unencrypted(options));
    warnings.extend(open_to_all(options));
    warnings
}

/// Warns of users and tokens that rules name but files lack, and of files that let nobody in.
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

/// Warns of paths in rules that do not exist on disk.
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

/// Warns of passwords and tokens that are sent over the network unencrypted.
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

/// Returns a warning if everyone who reaches the server may upload files.
fn open_to_all(options: &ServerOptions) -> Option<String> {
    let mut sites = options.sites.iter();
    let site = sites.find(|site| !site.uploads.is_empty() && !site.access.is_configured())?;
    let mut listen = options.listen.iter();
    let reached = listen.find(|listen| match &listen.at {
        ListenAt::Tcp(address) => !address.ip().is_loopback(),
        _ => false,
    })?;
    let root = site.root.display();
    Some(format!(
        "everyone who reaches {reached} may upload files to {root}; let only some by --auth USER \
         or by access rules"
    ))
}

fn files(options: &ServerOptions) -> impl Iterator<Item = &PathBuf> {
    let access = options.sites.iter().map(|site| &site.access);
    access.flat_map(AccessOptions::files)
}

/// A question about access: may a client read a path?
#[derive(Clone, Debug)]
pub struct AccessQuestion {
    /// The host name of the request; for an unknown name, the first site decides.
    pub host: Option<String>,
    /// `user:anna`, `token:ci`, `certificate:NAME`, `links` for the holder of a signed link to this
    /// very path, or `None` for an anonymous client.
    pub asker: Option<Grantee>,
    /// The client's location; `None` if unknown.
    pub client: Option<ClientPlace>,
    /// GET, HEAD, PUT or DELETE.
    pub method: String,
    /// The path of the request, percent-encoded.
    pub path: String,
}

/// The answer to an [`AccessQuestion`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessDecision {
    /// Whether the rules grant access.
    pub is_granted: bool,
    /// The number of the rule that decided, from 1; `None` if no rule applies or no rules exist.
    pub rule: Option<usize>,
    /// Whether the site restricts access.
    pub is_restricted: bool,
}

/// Answers `question` by the rules of `options`, for the path as given: neither its existence nor
/// the targets of links are checked.
///
/// # Errors
/// A part of the question is invalid or missing, or an [`Error`] for sites that cannot be opened.
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
        "PUT" => Method::Write(WriteMethod::Put),
        "DELETE" => Method::Write(WriteMethod::Delete),
        other => return Err(wrong(format!("{other} is not GET, HEAD, PUT or DELETE"))),
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

/// Returns the identity asked about, if the files know it.
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

/// Returns warnings for a link to `target`: no rule lets it in, or no such file or folder exists.
pub fn link_warnings(site: &SiteOptions, target: &str) -> Vec<String> {
    let path = target.split('?').next().unwrap_or_default();
    let Ok(path) = SitePath::parse(path.as_bytes()) else {
        return Vec::new();
    };
    let shown = format!("/{}", String::from_utf8_lossy(path.bytes()));
    let holder = Asker {
        link: ShownLink::Valid(LinkScope::File(path.bytes().to_vec())),
        ..Asker::at(ClientPlace::Unknown(None))
    };
    let rules = AccessRules::new(site.access.effective_rules());
    let let_in = match rules.decide(path.bytes(), Method::Get, &holder) {
        _ if rules.ask_for_network(path.bytes(), Method::Get) => None,
        (AccessVerdict::Granted, _) => None,
        (AccessVerdict::Refused(_), Some(number)) => Some(format!(
            "the link will be refused: rule {} decides about {shown}, and does not allow links",
            number + 1
        )),
        (AccessVerdict::Refused(_), None) => Some(format!(
            "the link will be refused: no rule is about {shown}"
        )),
    };
    let there = std::fs::metadata(site.root.join(OsStr::from_bytes(path.bytes())));
    let is_there = match (there, path.form()) {
        (Ok(there), PathForm::File) if there.is_dir() => Some(format!(
            "{shown} is a folder, and the link is for a file of that name; sign {shown}/ for \
             everything in the folder"
        )),
        (Ok(there), PathForm::Folder) if !there.is_dir() => Some(format!(
            "{shown} is a file, and the link is for a folder; sign it without the slash"
        )),
        (Err(error), _) if error.kind() == ErrorKind::NotFound => {
            let root = site.root.display();
            Some(format!("there is nothing at {shown} in {root} yet"))
        }
        _ => None,
    };
    [let_in, is_there].into_iter().flatten().collect()
}
