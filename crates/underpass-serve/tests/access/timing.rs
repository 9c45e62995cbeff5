//! Whether response times reveal secrets.

use std::time::{Duration, Instant};

use underpass_testkit::{HttpClient, SeededRandom};

use super::{AccessFiles, basic, bearer, support::Server, user_line};

const TRIES: usize = 10_000;

/// The number of attempts allowed per client in quick succession.
const TRIES_PER_CLIENT: usize = 10;

/// Deviation from one half due to chance: five standard deviations for this number of tries.
const CHANCE: f64 = 0.03;

/// Target and credentials of a try.
type Request<'r> = &'r dyn Fn(usize) -> (String, String);

/// Sends requests of two kinds in random order, and returns the share of pairs in which the second
/// one took longer. One half means that the time reveals nothing, however busy the machine is. All
/// requests must be rejected with the same status.
fn share_of_longer(server: &Server, kinds: [Request<'_>; 2], tries: usize) -> f64 {
    let (mut random, mut refusal) = (SeededRandom::new(14), None);
    let mut times = [(); 2].map(|()| Vec::<Duration>::new());
    for client in 0..tries / TRIES_PER_CLIENT {
        let [.., high, low] = (client as u32).to_be_bytes();
        let mut client = HttpClient::connect_from([127, 1, high, low], server.address());
        for _ in 0..TRIES_PER_CLIENT {
            let kind = random.below(2_usize);
            let (target, shown) = kinds[kind](times[kind].len());
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{shown}\r\n\r\n");
            let start = Instant::now();
            client.send(request);
            let response = client.response();
            times[kind].push(start.elapsed());
            let refusal = refusal.get_or_insert(response.status);
            assert_eq!(response.status, *refusal, "{target} {shown}");
        }
    }
    assert!(matches!(refusal, Some(401 | 403)), "{refusal:?}");
    let [first, mut second] = times;
    second.sort_unstable();
    let shorter = |time: &Duration| second.partition_point(|other| other <= time);
    let longer: usize = first.iter().map(|time| second.len() - shorter(time)).sum();
    longer as f64 / (first.len() * second.len()) as f64
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn the_time_of_a_response_does_not_depend_on_what_is_secret() {
    let files = AccessFiles::new();
    // The default is argon2id, here at a cost that keeps the test short.
    let hash = "$argon2id$v=19$m=64,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$\
                i3y5UjOsmZkQeN0qVeuRz7zHjuGQ0YwbGkkQZ0sF3pQ";
    files.write("users", &format!("anna:{hash}\nben:{hash}\n"));
    let server = files.server(
        "rewrite = [{from = '/moved/*', to = '/secret/*'}]\n\
         try = [{paths = ['/tried/**'], files = ['/secret{path}']}]\n",
        "[[site.access.rule]]\npaths = ['/secret']\nallow = ['user:ben']\n\
         [[site.access.rule]]\nallow = ['users', 'tokens', 'links']\n",
    );
    server.write("f", "f");
    server.write("secret/there", "f");
    server.write("secret/tried/there", "f");
    let signed = files.signed("/f");
    let forged = |at: usize| {
        let (before, old) = signed.split_at(at);
        let new = if old.starts_with('A') { 'B' } else { 'A' };
        (format!("{before}{new}{}", &old[1..]), "X: y".to_owned())
    };
    let signature = signed.rfind('.').unwrap() + 1;
    let login = |user: &str, number: usize| ("/f".to_owned(), basic(user, &number.to_string()));
    let token = |token: &str| ("/f".to_owned(), bearer(token));
    let denied = |target: &str| (target.to_owned(), bearer("secret"));
    let cases: [(&str, [Request<'_>; 2]); 6] = [
        (
            "users",
            [&|number| login("anna", number), &|number| {
                login("eric", number)
            }],
        ),
        ("tokens", [&|_| token("secreX"), &|_| token("Xecret")]),
        (
            "signatures",
            [&|_| forged(signed.len() - 2), &|_| forged(signature)],
        ),
        (
            "files",
            [&|_| denied("/secret/there"), &|_| denied("/secret/wrong")],
        ),
        (
            "rewritten files",
            [&|_| denied("/moved/there"), &|_| denied("/moved/wrong")],
        ),
        (
            "tried files",
            [&|_| denied("/tried/there"), &|_| denied("/tried/wrong")],
        ),
    ];
    for (what, kinds) in cases {
        let share = share_of_longer(&server, kinds, TRIES);
        println!("{what}: {share:.3}");
        assert!((share - 0.5).abs() < CHANCE, "{what}: {share}");
    }
}

/// Checks the measurement itself: a real difference is detected.
#[test]
fn a_hash_that_costs_more_than_others_shows_in_the_time() {
    let files = AccessFiles::new();
    let dear = bcrypt::hash_with_salt("carl", 8, *b"0123456789abcdef").unwrap();
    let dear = dear.format_for_version(bcrypt::Version::TwoY);
    let users = format!("{}\ncarl:{dear}", user_line("anna", "anna"));
    files.write("users", &users);
    let server = files.server("", "");
    let login = |user: &str, number: usize| ("/f".to_owned(), basic(user, &number.to_string()));
    let kinds: [Request<'_>; 2] = [&|number| login("anna", number), &|number| {
        login("carl", number)
    }];
    let share = share_of_longer(&server, kinds, 200);
    assert!(share > 0.75, "{share}");
}
