//! What the configuration of a site says, ready to be asked.
//!
//! ```text
//!  path ─► redirect? ─► rewrite ─► hidden? ─► what is there ─► label: type, fields, recipe of tags
//! ```
//!
//! Everything here is pure. What an answer says of a file by its name alone (its **label**) is
//! written out when the file is opened, so that patterns cost nothing while it is kept open.

use std::collections::BTreeMap;

use serde::Deserialize;

mod compress;
mod cors;
mod extras;
mod field;
mod host_name;
mod immutable;
mod pattern;
mod redirect;
mod tries;
mod url_path;

pub use compress::MediaPattern;
pub use cors::{CorsOptions, Origin, Token};
pub use field::{FieldName, FieldValue};
pub use host_name::HostName;
pub use pattern::Pattern;
pub use redirect::{Redirect, Rewrite};
pub use tries::{Candidate, TryRule};
pub use url_path::{FileName, UrlPath};

pub(crate) use compress::{Compress, Compressible, usual_bytes_min, usual_types};
pub(crate) use cors::Cors;
pub(crate) use extras::{Archives, Extras, Hashes, Listings, Sight};
pub(crate) use field::push_field;
pub(crate) use host_name::Names;
pub(crate) use redirect::{Asked, Redirection, Rewritten};
pub(crate) use tries::Sought;

use crate::http::coding::Coding;
use crate::http::mime::{MediaType, Types};
use crate::http::status::Status;
use crate::options::SiteOptions;
use crate::request::path::SitePath;
use crate::site::precompressed::is_compressed;
use immutable::is_hash_named;

/// `Cache-Control` for files by pattern; the first rule that matches a file decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheRule {
    /// The files it is about.
    pub paths: Vec<Pattern>,
    /// The value, `public, max-age=3600`.
    pub control: FieldValue,
}

/// A field of answers with files, by pattern. Of several rules with one name the first that
/// matches decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRule {
    /// The files it is about.
    pub paths: Vec<Pattern>,
    /// The field.
    pub name: FieldName,
    /// Its value.
    pub value: FieldValue,
}

/// Fields that tell browsers to be careful, sent with every answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SecurityOptions {
    /// `X-Content-Type-Options: nosniff`: browsers must not guess what a file is.
    pub nosniff: bool,
    /// `X-Frame-Options`, for browsers that don't know `frame-ancestors`.
    pub frame_options: Option<FieldValue>,
    /// `Referrer-Policy`.
    pub referrer_policy: Option<FieldValue>,
    /// `Content-Security-Policy`.
    pub content_security_policy: Option<FieldValue>,
}

impl Default for SecurityOptions {
    /// Nothing but `nosniff`: the others change what pages may do.
    fn default() -> SecurityOptions {
        SecurityOptions {
            nosniff: true,
            frame_options: None,
            referrer_policy: None,
            content_security_policy: None,
        }
    }
}

/// What entity-tags are made of.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Etag {
    /// Modification time, size and inode: nothing that changed is missed.
    #[default]
    MtimeSizeInode,
    /// Modification time and size: copies of a file on several hosts have the same, if they were
    /// copied with their times. A file that is replaced by one of equal size and time is taken for
    /// the old one.
    MtimeSize,
}

/// What becomes of names that begin with a dot, `.well-known` excepted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Hidden {
    /// They are not there.
    #[default]
    Denied,
    /// They are served as all others.
    Shown,
}

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Symlinks {
    /// None: a link is not there, nor what is behind it.
    None,
    /// Relative ones that stay beneath the root.
    #[default]
    Inside,
    /// All, wherever they lead: whoever may write to the folder chooses what is served.
    All,
}

/// A status that may have a page of its own.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(try_from = "String")]
pub struct PageStatus(u16);

/// Those a site answers with. Requests that cannot be read are for no site.
const PAGES: &[(u16, Status)] = &[
    (403, Status::Forbidden),
    (404, Status::NotFound),
    (405, Status::MethodNotAllowed),
    (406, Status::NotAcceptable),
    (412, Status::PreconditionFailed),
    (416, Status::RangeNotSatisfiable),
    (417, Status::ExpectationFailed),
    (500, Status::InternalServerError),
    (501, Status::NotImplemented),
    (503, Status::ServiceUnavailable),
];

impl PageStatus {
    /// Checks a status.
    ///
    /// # Errors
    /// One that never has a page, in words.
    pub fn parse(status: &str) -> Result<PageStatus, String> {
        let number = status.parse().unwrap_or(0);
        match PAGES.iter().any(|(code, _)| *code == number) {
            true => Ok(PageStatus(number)),
            false => {
                let all: Vec<_> = PAGES.iter().map(|(code, _)| code.to_string()).collect();
                Err(format!(
                    "{status:?} has no page; those that may: {}",
                    all.join(", ")
                ))
            }
        }
    }
}

impl TryFrom<String> for PageStatus {
    type Error = String;

    fn try_from(status: String) -> Result<PageStatus, String> {
        PageStatus::parse(&status)
    }
}

/// The rules of one site.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) index: Vec<FileName>,
    pub(crate) fallback: Option<SitePath>,
    pub(crate) pretty: bool,
    pub(crate) symlinks: Symlinks,
    pub(crate) precompressed: Vec<Coding>,
    pub(crate) compress: Compress,
    pub(crate) cors: Cors,
    pub(crate) extras: Extras,
    /// What answers without a file have.
    pub(crate) plain_fields: Vec<u8>,
    /// The same, where the answer is about a file that may be there in several codings.
    pub(crate) varied_fields: Vec<u8>,
    /// What all answers have.
    security: Vec<u8>,
    careful: SecurityOptions,
    etag: Etag,
    hidden: Hidden,
    download: bool,
    immutable: bool,
    types: Types,
    cache: Vec<CacheRule>,
    headers: Vec<HeaderRule>,
    redirects: Vec<Redirect>,
    rewrites: Vec<Rewrite>,
    tries: Vec<TryRule>,
    pages: Vec<(Status, SitePath)>,
}

/// What a site says of a file by its name alone.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) media: MediaType,
    /// What answers with the file and those that it has not changed have in common.
    pub(crate) fields: Vec<u8>,
    pub(crate) etag: Etag,
    pub(crate) coding: Option<Coding>,
    pub(crate) compressible: Compressible,
}

impl Rules {
    /// Makes rules of options.
    ///
    /// # Errors
    /// Options that contradict each other, in words.
    pub(crate) fn new(options: &SiteOptions) -> Result<Rules, String> {
        let cors = Cors::new(&options.cors)?;
        let security = Guard::of(&options.security).fields();
        let by_origin = cors.varies().then_some("Origin");
        let codes = !options.precompressed.is_empty() || !options.compress.is_empty();
        let by_coding = codes.then_some("Accept-Encoding");
        let (mut plain_fields, mut varied_fields) = (security.clone(), security.clone());
        push_vary(&mut plain_fields, &[by_origin]);
        push_vary(&mut varied_fields, &[by_coding, by_origin]);
        for (key, codings) in [
            ("precompressed", &options.precompressed),
            ("compress", &options.compress),
        ] {
            let twice = |(n, coding)| codings[..n].contains(coding);
            if codings.iter().enumerate().any(twice) {
                return Err(format!("{key}: a coding stands twice"));
            }
        }
        options.tries.iter().try_for_each(TryRule::check)?;
        Ok(Rules {
            index: options.index.clone(),
            fallback: options.fallback.as_ref().map(|file| file.path().clone()),
            pretty: options.pretty,
            symlinks: options.symlinks,
            precompressed: options.precompressed.clone(),
            compress: Compress::of(options),
            cors,
            plain_fields,
            varied_fields,
            security,
            careful: options.security.clone(),
            extras: Extras::of(options),
            etag: options.etag,
            hidden: options.hidden,
            download: options.download,
            immutable: options.immutable,
            types: Types::new(&options.types),
            cache: options.cache.clone(),
            headers: options.headers.clone(),
            redirects: options.redirects.clone(),
            rewrites: options.rewrites.clone(),
            tries: options.tries.clone(),
            pages: pages(&options.error_pages),
        })
    }

    /// Where the client is sent instead: the first redirect that is about this path.
    pub(crate) fn redirected(&self, path: &SitePath, query: Option<&[u8]>) -> Option<Redirection> {
        let mut redirects = self.redirects.iter();
        redirects.find_map(|redirect| redirect.meet(path, query))
    }

    /// What is looked for: the first rewrite that is about this path is made, and no other.
    pub(crate) fn rewritten(&self, path: SitePath) -> Rewritten {
        let mut rewrites = self.rewrites.iter();
        let rewritten = rewrites.find_map(|rewrite| rewrite.meet(&path));
        let asked = Asked::Same;
        rewritten.unwrap_or(Rewritten { path, asked })
    }

    /// Whether a client that is sent to `path` is neither sent on nor answered with another one:
    /// only there may a rewrite send it, or two rules could send it back and forth.
    pub(crate) fn is_final(&self, path: &SitePath) -> bool {
        self.redirected(path, None).is_none() && self.rewritten(path.clone()).path == *path
    }

    /// What `path` may lead to, if a rule says so: the first that is about it.
    pub(crate) fn tries(&self, path: &SitePath) -> Option<&[Candidate]> {
        let key = match self.tries[..] {
            [] => return None,
            _ => path.key(),
        };
        let is_about = |rule: &&TryRule| rule.paths.iter().any(|pattern| pattern.matches(&key));
        let rule = self.tries.iter().find(is_about)?;
        Some(&rule.files)
    }

    /// Whether there is nothing at a path whatever is there.
    pub(crate) fn hides(&self, path: &SitePath) -> bool {
        self.hidden == Hidden::Denied && path.is_hidden()
    }

    /// What of a folder may be seen.
    pub(crate) fn sight(&self) -> Sight {
        Sight {
            hidden: self.hidden,
            symlinks: self.symlinks,
        }
    }

    /// The fields of an answer that is made here and not found: as for files, but that browsers
    /// never guess what it is, and that what `own` says goes before what the site says.
    pub(crate) fn made_fields(&self, own: Own) -> Vec<u8> {
        let guard = Guard::of(&self.careful);
        let guard = Guard {
            nosniff: true,
            referrer_policy: guard.referrer_policy.or(own.referrer_policy),
            content_security_policy: own
                .content_security_policy
                .or(guard.content_security_policy),
            ..guard
        };
        let mut fields = guard.fields();
        let by_origin = self.cors.varies().then_some("Origin");
        push_vary(&mut fields, &[own.varies_by, by_origin]);
        fields
    }

    /// Whether anything is sent in a content coding.
    pub(crate) fn codes(&self) -> bool {
        !self.precompressed.is_empty() || !self.compress.is_off()
    }

    /// Whether `?download` is heeded.
    pub(crate) fn offers_downloads(&self) -> bool {
        self.download
    }

    /// The page of a status.
    pub(crate) fn page(&self, status: Status) -> Option<&SitePath> {
        let mut pages = self.pages.iter();
        pages.find(|(of, _)| *of == status).map(|(_, path)| path)
    }

    /// What is said of the file at `path`, or of its copy in a coding.
    pub(crate) fn label(&self, path: &[u8], coding: Option<Coding>) -> Label {
        let mut fields = self.security.clone();
        let control = self.cache_control(path);
        if let Some(control) = control {
            push_field(&mut fields, "Cache-Control", control);
        }
        self.push_headers(&mut fields, path);
        let media = self.types.of(path);
        let compressible = match coding.is_some() || is_compressed(path) {
            true => Compressible::No,
            false => self.compress.is_for(&media, control),
        };
        let by_coding = !self.precompressed.is_empty() || compressible == Compressible::Yes;
        let vary = [
            by_coding.then_some("Accept-Encoding"),
            self.cors.varies().then_some("Origin"),
        ];
        push_vary(&mut fields, &vary);
        Label {
            media,
            fields,
            etag: self.etag,
            coding,
            compressible,
        }
    }

    fn cache_control(&self, path: &[u8]) -> Option<&str> {
        let mut rules = self.cache.iter();
        match rules.find(|rule| matches_any(&rule.paths, path)) {
            Some(rule) => Some(rule.control.as_str()),
            None if self.immutable && is_hash_named(path) => Some(IMMUTABLE),
            None => None,
        }
    }

    fn push_headers(&self, fields: &mut Vec<u8>, path: &[u8]) {
        let matching = |rule: &&HeaderRule| matches_any(&rule.paths, path);
        let matching: Vec<_> = self.headers.iter().filter(matching).collect();
        for (number, rule) in matching.iter().enumerate() {
            if !matching[..number]
                .iter()
                .any(|earlier| earlier.name.is(&rule.name))
            {
                push_field(fields, rule.name.as_str(), rule.value.as_str());
            }
        }
    }
}

/// A year, which is what "for ever" is spelt as, and no question asked on reloading (RFC 8246).
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

fn matches_any(patterns: &[Pattern], path: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(path))
}

/// What an answer that is made here says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// The request field that it depends on.
    pub(crate) varies_by: Option<&'static str>,
    /// Where the site says none.
    pub(crate) referrer_policy: Option<&'static str>,
    /// Whatever the site says: nothing else is known to fit it.
    pub(crate) content_security_policy: Option<&'static str>,
}

/// The fields that tell browsers to be careful, with the values they have.
#[derive(Clone, Copy, Debug)]
struct Guard<'o> {
    nosniff: bool,
    frame_options: Option<&'o str>,
    referrer_policy: Option<&'o str>,
    content_security_policy: Option<&'o str>,
}

impl<'o> Guard<'o> {
    fn of(options: &'o SecurityOptions) -> Guard<'o> {
        let said = |value: &'o Option<FieldValue>| value.as_ref().map(FieldValue::as_str);
        Guard {
            nosniff: options.nosniff,
            frame_options: said(&options.frame_options),
            referrer_policy: said(&options.referrer_policy),
            content_security_policy: said(&options.content_security_policy),
        }
    }

    fn fields(self) -> Vec<u8> {
        let mut fields = Vec::new();
        for (name, value) in [
            ("X-Content-Type-Options", self.nosniff.then_some("nosniff")),
            ("X-Frame-Options", self.frame_options),
            ("Referrer-Policy", self.referrer_policy),
            ("Content-Security-Policy", self.content_security_policy),
        ] {
            if let Some(value) = value {
                push_field(&mut fields, name, value);
            }
        }
        fields
    }
}

/// All that an answer depends on, in one line.
fn push_vary(fields: &mut Vec<u8>, names: &[Option<&str>]) {
    let names: Vec<_> = names.iter().copied().flatten().collect();
    if !names.is_empty() {
        push_field(fields, "Vary", &names.join(", "));
    }
}

fn pages(options: &BTreeMap<PageStatus, UrlPath>) -> Vec<(Status, SitePath)> {
    let page = |(status, path): (&PageStatus, &UrlPath)| {
        let known = PAGES.iter().find(|(code, _)| *code == status.0);
        known.map(|(_, status)| (*status, path.path().clone()))
    };
    options.iter().filter_map(page).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(site: &str, path: &str) -> String {
        let text = format!("[[site]]\n{site}");
        let options = crate::Options::parse(&text).unwrap();
        let rules = Rules::new(&options.sites[0]).unwrap();
        String::from_utf8(rules.label(path.as_bytes(), None).fields).unwrap()
    }

    #[test]
    fn nothing_but_nosniff_by_default() {
        assert_eq!(fields("", "a.css"), "\r\nX-Content-Type-Options: nosniff");
        assert_eq!(fields("security.nosniff = false", "a.css"), "");
    }

    #[test]
    fn the_first_cache_rule_decides_and_hashes_come_last() {
        let site = "security.nosniff = false\nimmutable = true\ncache = [\n\
                    {paths = ['/a/*.css'], control = 'one'},\n\
                    {paths = ['*.css', '*.js'], control = 'two'}]";
        for (path, control) in [
            ("a/x.css", "\r\nCache-Control: one"),
            ("b/x.css", "\r\nCache-Control: two"),
            ("b/x.3f9ab2c1.js", "\r\nCache-Control: two"),
            (
                "x.3f9ab2c1.png",
                "\r\nCache-Control: public, max-age=31536000, immutable",
            ),
            ("x.png", ""),
        ] {
            assert_eq!(fields(site, path), control, "{path}");
        }
    }

    #[test]
    fn a_field_stands_once() {
        let site = "security.nosniff = false\nheader = [\n\
                    {paths = ['/a'], name = 'X-A', value = '1'},\n\
                    {paths = ['/**'], name = 'x-a', value = '2'},\n\
                    {paths = ['/**'], name = 'X-B', value = '3'}]";
        assert_eq!(fields(site, "a"), "\r\nX-A: 1\r\nX-B: 3");
        assert_eq!(fields(site, "b"), "\r\nx-a: 2\r\nX-B: 3");
    }

    #[test]
    fn what_an_answer_depends_on_is_one_line() {
        let site = "security.nosniff = false\nprecompressed = ['br']\n\
                    cors.origins = ['https://a.example']";
        assert_eq!(fields(site, "a"), "\r\nVary: Accept-Encoding, Origin");
    }
}
