//! All rules of one site, compiled from its options.

use crate::access::audience::Audience;
use crate::rules::compress::{Compressible, CompressionRules};
use crate::rules::cors::{CorsRules, UploadsOffered};
use crate::rules::exposure::{Extras, Hidden, Symlinks, Visibility};
use crate::rules::header_rules::{HeaderRule, ProducedFields, SecurityOptions};
use crate::rules::immutable::is_hash_named;
use crate::rules::mime::MediaTypes;
use crate::rules::pattern::Pattern;
use crate::rules::redirect::{MatchedRedirect, RequestedPath, RewrittenPath};
use crate::rules::tries::{Candidate, TryRule};
use underpass_http::fields::coding::{Coding, is_compressed};
use underpass_http::fields::writer::push_field;
use underpass_http::path::SitePath;
use underpass_http::status::Status;

use crate::options::SiteOptions;
use crate::rules::EtagRecipe;

/// The rules of one site: its options, and everything derived from them once.
#[derive(Debug)]
pub(crate) struct SiteRules {
    pub(crate) options: SiteOptions,
    /// Whether content codings are used at all.
    pub(crate) codes: bool,
    pub(crate) compress: CompressionRules,
    pub(crate) cors: Option<CorsRules>,
    /// The audience of produced responses, which depend on the requester.
    pub(crate) audience: Audience,
    pub(crate) extras: Extras,
    /// The fields of responses without a file.
    pub(crate) plain_fields: Vec<u8>,
    /// The same for a response about a file that may exist in several codings.
    pub(crate) varied_fields: Vec<u8>,
    /// The fields of all responses.
    security: Vec<u8>,
    types: MediaTypes,
}

/// The part of a response that depends on a file's name alone.
#[derive(Debug)]
pub(crate) struct RepresentationHeaders {
    /// `Content-Type`, preceded by a line break.
    pub(crate) content_type: Vec<u8>,
    /// Fields of 200, 206 and 304 responses for the file.
    pub(crate) fields: Vec<u8>,
    pub(crate) etag: EtagRecipe,
    pub(crate) coding: Option<Coding>,
    pub(crate) compressible: Compressible,
}

impl SiteRules {
    /// Compiles options.
    ///
    /// # Errors
    /// A description of contradicting options.
    pub(crate) fn new(options: &SiteOptions) -> Result<SiteRules, String> {
        let uploads = match options.uploads.is_empty() {
            true => UploadsOffered::No,
            false => UploadsOffered::Yes,
        };
        let cors = CorsRules::new(&options.cors, uploads)?;
        let security = options.security.fields(ProducedFields::default());
        let by_origin = varies_by_origin(&cors);
        let codes = !options.precompressed.is_empty() || !options.compress.is_empty();
        let by_coding = codes.then_some("Accept-Encoding");
        let (mut plain_fields, mut varied_fields) = (security.clone(), security.clone());
        let audience = Audience::of(&options.access);
        push_vary(&mut plain_fields, &[by_origin, audience.varies()]);
        push_vary(
            &mut varied_fields,
            &[by_coding, by_origin, audience.varies()],
        );
        if let Some(control) = audience.restrict(None) {
            push_field(&mut plain_fields, "Cache-Control", &*control);
            push_field(&mut varied_fields, "Cache-Control", &*control);
        }
        for (key, codings) in [
            ("precompressed", &options.precompressed),
            ("compress", &options.compress),
        ] {
            let twice = |(n, coding)| codings[..n].contains(coding);
            if codings.iter().enumerate().any(twice) {
                return Err(format!("{key}: a coding is listed twice"));
            }
        }
        options.tries.iter().try_for_each(TryRule::check)?;
        if options.access.is_configured() && options.symlinks == Symlinks::All {
            return Err(
                "access: rules cannot hold where links lead anywhere; set `symlinks` to inside or \
                 none"
                    .to_owned(),
            );
        }
        Ok(SiteRules {
            options: options.clone(),
            codes,
            compress: CompressionRules::new(
                &options.compress,
                options.compress_bytes_min,
                &options.compress_types,
            ),
            cors,
            audience,
            extras: Extras {
                listing: options.listing.into(),
                archives: options.archives.unwrap_or(options.listing).into(),
                hashes: options.hashes.into(),
            },
            plain_fields,
            varied_fields,
            security,
            types: MediaTypes::new(&options.types),
        })
    }

    /// Returns the first redirect that applies to this path.
    pub(crate) fn redirected(
        &self,
        path: &SitePath,
        query: Option<&[u8]>,
    ) -> Option<MatchedRedirect> {
        let mut redirects = self.options.redirects.iter();
        redirects.find_map(|redirect| redirect.meet(path, query))
    }

    /// Applies the first rewrite that matches this path, and no other.
    pub(crate) fn rewritten(&self, path: SitePath) -> RewrittenPath {
        let mut rewrites = self.options.rewrites.iter();
        let rewritten = rewrites.find_map(|rewrite| rewrite.meet(&path));
        let asked = RequestedPath::Same;
        rewritten.unwrap_or(RewrittenPath { path, asked })
    }

    /// Whether `path` is neither redirected nor rewritten: only then may a rewrite redirect to it,
    /// or two rules could redirect in a cycle.
    pub(crate) fn is_final(&self, path: &SitePath) -> bool {
        self.redirected(path, None).is_none() && self.rewritten(path.clone()).path == *path
    }

    /// Returns the candidates for `path` of the first `try` rule that applies to it.
    pub(crate) fn tries(&self, path: &SitePath) -> Option<&[Candidate]> {
        let key = path.key();
        let is_about = |rule: &&TryRule| rule.paths.iter().any(|pattern| pattern.matches(&key));
        let rule = self.options.tries.iter().find(is_about)?;
        Some(&rule.files)
    }

    /// Whether a path is hidden, whether or not it exists.
    pub(crate) fn hides(&self, path: &SitePath) -> bool {
        match self.options.hidden {
            Hidden::Denied => path.is_hidden(),
            Hidden::Shown => {
                let mut names = path.bytes().split(|&byte| byte == b'/');
                names.any(|name| self.sight().hides(name))
            }
        }
    }

    /// The value of `Allow`.
    pub(crate) fn allowed_methods(&self) -> &'static [u8] {
        match self.options.uploads.is_empty() {
            true => b"GET, HEAD, OPTIONS",
            false => b"GET, HEAD, OPTIONS, PUT, POST, PATCH, DELETE, MKCOL, COPY, MOVE",
        }
    }

    /// Returns which entries of a folder are visible.
    pub(crate) fn sight(&self) -> Visibility {
        Visibility {
            hidden: self.options.hidden,
            symlinks: self.options.symlinks,
        }
    }

    /// Returns the fields of a produced response: as for files, with `nosniff` always, and with the
    /// fields of `own`.
    pub(crate) fn made_fields(&self, own: ProducedFields) -> Vec<u8> {
        let security = SecurityOptions {
            nosniff: true,
            ..self.options.security.clone()
        };
        let mut fields = security.fields(own);
        let by_origin = varies_by_origin(&self.cors);
        push_vary(
            &mut fields,
            &[own.varies_by, by_origin, self.audience.varies()],
        );
        fields
    }

    /// Returns the page for a status.
    pub(crate) fn page(&self, status: Status) -> Option<&SitePath> {
        let mut pages = self.options.error_pages.iter();
        let page = pages.find(|(of, _)| of.status() == status);
        page.map(|(_, page)| page.path())
    }

    /// Returns the label of the file at `path`, or of its copy in a coding.
    pub(crate) fn label(
        &self,
        path: &[u8],
        coding: Option<Coding>,
        audience: Audience,
    ) -> RepresentationHeaders {
        let mut fields = self.security.clone();
        let control = audience.restrict(self.cache_control(path));
        let control = control.as_deref();
        if let Some(control) = control {
            push_field(&mut fields, "Cache-Control", control);
        }
        self.push_headers(&mut fields, path);
        let media = self.types.of(path);
        let compressible = match coding.is_some() || is_compressed(path) {
            true => Compressible::No,
            false => self.compress.is_for(&media, control),
        };
        let by_coding = !self.options.precompressed.is_empty() || compressible == Compressible::Yes;
        let vary = [
            by_coding.then_some("Accept-Encoding"),
            varies_by_origin(&self.cors),
            audience.varies(),
        ];
        push_vary(&mut fields, &vary);
        let mut content_type = Vec::new();
        push_field(&mut content_type, "Content-Type", &media);
        RepresentationHeaders {
            content_type,
            fields,
            etag: self.options.etag,
            coding,
            compressible,
        }
    }

    fn cache_control(&self, path: &[u8]) -> Option<&str> {
        let mut rules = self.options.cache.iter();
        match rules.find(|rule| matches_any(&rule.paths, path)) {
            Some(rule) => Some(rule.control.as_str()),
            None if self.options.immutable && is_hash_named(path) => Some(IMMUTABLE),
            None => None,
        }
    }

    fn push_headers(&self, fields: &mut Vec<u8>, path: &[u8]) {
        let matching = |rule: &&HeaderRule| matches_any(&rule.paths, path);
        let matching: Vec<_> = self.options.headers.iter().filter(matching).collect();
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

/// A year, the conventional value for "forever", without revalidation on reload (RFC 8246).
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

fn matches_any(patterns: &[Pattern], path: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(path))
}

fn varies_by_origin(cors: &Option<CorsRules>) -> Option<&'static str> {
    cors.as_ref()
        .is_some_and(CorsRules::varies)
        .then_some("Origin")
}

/// Appends `Vary` with all request fields that the response depends on.
fn push_vary(fields: &mut Vec<u8>, names: &[Option<&str>]) {
    let names: Vec<_> = names.iter().copied().flatten().collect();
    if !names.is_empty() {
        push_field(fields, "Vary", names.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(site: &str) -> SiteRules {
        let text = format!("[[site]]\n{site}");
        let options = crate::ServerOptions::parse(&text).unwrap();
        SiteRules::new(&options.sites[0]).unwrap()
    }

    fn fields(site: &str, path: &str) -> String {
        String::from_utf8(
            rules(site)
                .label(path.as_bytes(), None, Audience::Everyone)
                .fields,
        )
        .unwrap()
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
    fn what_is_made_here_is_never_guessed_at_and_says_its_own_first() {
        let made = |site: &str, own| String::from_utf8(rules(site).made_fields(own)).unwrap();
        let nosniff = "\r\nX-Content-Type-Options: nosniff";
        for site in ["", "security.nosniff = false"] {
            assert_eq!(made(site, ProducedFields::default()), nosniff);
        }
        let own = ProducedFields {
            varies_by: Some("Accept"),
            referrer_policy: Some("same-origin"),
            content_security_policy: Some("own"),
        };
        let site = "security.referrer-policy = 'origin'\n\
                    security.content-security-policy = 'theirs'\n\
                    cors.origins = ['https://a.example']";
        let expected = "\r\nReferrer-Policy: origin\r\nContent-Security-Policy: own\
                        \r\nVary: Accept, Origin";
        assert_eq!(made(site, own), format!("{nosniff}{expected}"));
    }

    #[test]
    fn what_is_compressed_already_is_not_compressed_again() {
        let rules = rules("compress = ['gzip']\ncompress-types = ['*']");
        let compressible = |path: &str, coding| {
            rules
                .label(path.as_bytes(), coding, Audience::Everyone)
                .compressible
        };
        assert_eq!(compressible("a.css", None), Compressible::Yes);
        assert_eq!(compressible("a.css", Some(Coding::Br)), Compressible::No);
        assert_eq!(compressible("a.css.br", None), Compressible::No);
    }

    #[test]
    fn what_an_answer_depends_on_is_one_line() {
        let site = "security.nosniff = false\nprecompressed = ['br']\n\
                    cors.origins = ['https://a.example']";
        assert_eq!(fields(site, "a"), "\r\nVary: Accept-Encoding, Origin");
    }
}
