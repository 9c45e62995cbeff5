//! Generated rules compared with a simple model.

use std::fmt::Write as _;

use underpass_serve::Grantee;
use underpass_serve::{AccessQuestion, ServerOptions, decide_access};
use underpass_testkit::{Cases, HttpClient, SeededRandom, in_parallel};

use super::{AccessFiles, basic, bearer};

/// The files on the site.
const FILES: [&str; 9] = [
    "f",
    "a/f",
    "a/g.key",
    "a/b/f",
    "a/b/g.key",
    "b/f",
    "b/a/f",
    "b/a/b/g.key",
    "c.key/f",
];

/// Returns whether a pattern matches a path.
type Covers = fn(&str) -> bool;

/// Patterns, with their meaning in the model.
const PATTERNS: [(&str, Covers); 9] = [
    ("/a", |path| is_beneath(path, "a")),
    ("/a/", |path| is_beneath(path, "a")),
    ("/a/b/**", |path| is_beneath(path, "a/b")),
    ("/b/a", |path| is_beneath(path, "b/a")),
    ("a", |path| path.split('/').any(|name| name == "a")),
    ("*.key", |path| {
        path.split('/').any(|name| name.ends_with(".key"))
    }),
    ("/*/b", |path| {
        let names: Vec<_> = path.split('/').collect();
        names.len() > 1 && names[1] == "b"
    }),
    ("/**", |_| true),
    ("/f", |path| is_beneath(path, "f")),
];

fn is_beneath(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Clients: their credentials, and the words of `allow` that include them.
const ASKERS: [(&str, &[&str]); 4] = [
    ("", &[]),
    ("anna", &["users", "user:anna"]),
    ("ben", &["users", "user:ben"]),
    ("ci", &["tokens", "token:ci"]),
];

const GRANTEES: [&str; 7] = [
    "everyone",
    "users",
    "user:anna",
    "user:ben",
    "tokens",
    "token:ci",
    "links",
];

/// Networks, and whether they contain the test's client.
const NETWORKS: [(&str, bool); 3] = [("127.0.0.0/8", true), ("10.0.0.0/8", false), ("::1", false)];

struct ModelRule {
    patterns: Vec<usize>,
    methods: Vec<&'static str>,
    networks: Vec<usize>,
    allow: Vec<&'static str>,
}

impl ModelRule {
    fn generated(random: &mut SeededRandom) -> ModelRule {
        let some = |random: &mut SeededRandom, most: usize| {
            (0..random.below(most + 1)).collect::<Vec<_>>()
        };
        ModelRule {
            patterns: some(random, 2)
                .iter()
                .map(|_| random.below(PATTERNS.len()))
                .collect(),
            methods: match random.below(6) {
                0 => vec!["GET"],
                1 => vec!["HEAD"],
                _ => Vec::new(),
            },
            networks: match random.below(4) {
                0 => vec![random.below(NETWORKS.len())],
                _ => Vec::new(),
            },
            allow: some(random, 3)
                .iter()
                .map(|_| random.pick(&GRANTEES))
                .collect(),
        }
    }

    fn text(&self) -> String {
        let quoted = |words: Vec<&str>| {
            let words: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
            words.join(", ")
        };
        let mut text = "[[site.access.rule]]\n".to_owned();
        let patterns: Vec<_> = self
            .patterns
            .iter()
            .map(|&number| PATTERNS[number].0)
            .collect();
        if !patterns.is_empty() {
            writeln!(text, "paths = [{}]", quoted(patterns)).unwrap();
        }
        writeln!(text, "methods = [{}]", quoted(self.methods.clone())).unwrap();
        let networks = self
            .networks
            .iter()
            .map(|&number| NETWORKS[number].0)
            .collect();
        writeln!(text, "networks = [{}]", quoted(networks)).unwrap();
        writeln!(text, "allow = [{}]", quoted(self.allow.clone())).unwrap();
        text
    }

    fn is_about(&self, path: &str, method: &str) -> bool {
        let by_path = |&number: &usize| (PATTERNS[number].1)(path);
        let by_network = |&number: &usize| NETWORKS[number].1;
        let by_method =
            self.methods.contains(&method) || (method == "HEAD" && self.methods.contains(&"GET"));
        (self.patterns.is_empty() || self.patterns.iter().any(by_path))
            && (self.methods.is_empty() || by_method)
            && (self.networks.is_empty() || self.networks.iter().any(by_network))
    }
}

/// Generates at most so many rules; one that matches every request is the last.
fn generated(random: &mut SeededRandom, most: usize) -> Vec<ModelRule> {
    let mut rules = Vec::new();
    for _ in 0..1 + random.below(most) {
        let rule = ModelRule::generated(random);
        let is_everything = |&number: &usize| PATTERNS[number].0 == "/**";
        let is_about_all = (rule.patterns.is_empty() || rule.patterns.iter().any(is_everything))
            && rule.methods.is_empty()
            && rule.networks.is_empty();
        rules.push(rule);
        if is_about_all {
            break;
        }
    }
    rules
}

fn is_granted(rules: &[ModelRule], path: &str, method: &str, kinds: &[&str]) -> bool {
    let first = rules.iter().find(|rule| rule.is_about(path, method));
    first.is_some_and(|rule| {
        let mut allow = rule.allow.iter();
        allow.any(|one| *one == "everyone" || kinds.contains(one))
    })
}

#[test]
fn ten_thousand_sets_of_rules_are_decided_as_the_model_does() {
    let files = AccessFiles::new();
    let Cases { seed, numbers } = Cases::from_env("UNDERPASS_ACCESS_RULES", 10_000);
    in_parallel(4, numbers, |_, number| {
        let mut random = SeededRandom::of_case(seed, number);
        let rules = generated(&mut random, 5);
        let text: String = rules.iter().map(ModelRule::text).collect();
        let options =
            ServerOptions::parse(&format!("[[site]]\n{}", files.site("", &text))).unwrap();
        for _ in 0..3 {
            let (path, method) = (random.pick(&FILES), random.pick(&["GET", "HEAD"]));
            let (who, kinds) = random.pick(&ASKERS);
            let asker = kinds.get(1).map(|kind| Grantee::parse(kind).unwrap());
            let question = AccessQuestion {
                host: None,
                asker,
                client: Some("127.0.0.1".parse().unwrap()),
                method: method.to_owned(),
                path: format!("/{path}"),
            };
            let decided = decide_access(&options, &question).unwrap();
            let granted = is_granted(&rules, path, method, kinds);
            assert_eq!(
                decided.is_granted, granted,
                "{seed} {number}: {method} {path} {who}\n{text}"
            );
            let about = rules.iter().position(|rule| rule.is_about(path, method));
            assert_eq!(decided.rule, about.map(|rule| rule + 1), "{text}");
        }
    });
}

#[test]
fn generated_rules_mean_what_a_plain_reading_makes_of_them() {
    let files = AccessFiles::new();
    let Cases { seed, numbers } = Cases::from_env("UNDERPASS_ACCESS", 400);
    in_parallel(4, numbers, |_, number| {
        let mut random = SeededRandom::of_case(seed, number);
        let rules = generated(&mut random, 4);
        let text: String = rules.iter().map(ModelRule::text).collect();
        let server = files.server("", &text);
        for name in FILES {
            server.write(name, name);
        }
        let mut client = HttpClient::connect(server.address());
        for _ in 0..40 {
            let (path, method) = (random.pick(&FILES), random.pick(&["GET", "HEAD"]));
            let (who, kinds) = random.pick(&ASKERS);
            let shown = match who {
                "" => "X: y".to_owned(),
                "ci" => bearer("secret"),
                user => basic(user, user),
            };
            client.send(format!(
                "{method} /{path} HTTP/1.1\r\nHost: a\r\n{shown}\r\n\r\n"
            ));
            let response = client.try_response(method).unwrap();
            let granted = is_granted(&rules, path, method, kinds);
            let what = format!("case {seed} {number}: {method} {path} by {who:?}\n{text}");
            assert_eq!(
                response.status == 200,
                granted,
                "{what} {}",
                response.status
            );
            assert!(granted || [401, 403].contains(&response.status), "{what}");
        }
    });
}
