//! Responses that name their mechanism.

use underpass_serve::Explain;

use crate::support::{Server, pattern};

const GET: &str = "GET /small HTTP/1.1\r\nHost: a\r\n\r\nGET /large HTTP/1.1\r\nHost: a\r\n\r\n\
                   GET /none HTTP/1.1\r\nHost: a\r\n\r\n";
const SIZE: usize = 1 << 20;

#[test]
fn an_answer_names_its_plan_and_the_measured_account_of_the_previous_one() {
    let server = Server::with(|options| options.explain = Explain::On);
    server.write("small", pattern(100));
    server.write("large", pattern(SIZE));
    let mut client = server.connect();
    client.send(GET);
    let small = client.response();
    assert!(small.body == pattern(100));
    let plan = small.field("underpass-plan").unwrap();
    assert!(plan.starts_with("joined with its head"), "{plan}");
    assert_eq!(small.field("underpass-previous"), None);
    let large = client.response();
    assert!(large.body == pattern(SIZE));
    let plan = large.field("underpass-plan").unwrap();
    assert!(
        plan.starts_with("splice, sendfile, read_write; in the page cache;"),
        "{plan}"
    );
    assert!(
        plan.contains("not clone (the sink is not a regular file)"),
        "{plan}"
    );
    let previous = large.field("underpass-previous").unwrap();
    assert!(
        previous.starts_with("100 bytes by read_write (2 calls)"),
        "{previous}"
    );
    let none = client.response();
    assert_eq!((none.status, none.field("underpass-plan")), (404, None));
    let previous = none.field("underpass-previous").unwrap();
    assert!(
        previous.starts_with(&format!("{SIZE} bytes by splice")),
        "{previous}"
    );
}

#[test]
fn what_is_made_while_it_is_sent_reports_how_and_what_was_moved() {
    let server = Server::with(|options| options.explain = Explain::On);
    server.write("d/large", pattern(SIZE));
    let mut client = server.connect();
    let mut previous: Option<String> = None;
    for (target, plan, moved) in [
        (
            "/d/",
            "produced in memory while it is sent",
            " bytes from memory".to_owned(),
        ),
        (
            "/d/?format=json",
            "produced in memory while it is sent",
            " bytes from memory".to_owned(),
        ),
        (
            "/d/?download=tar",
            "produced while it is sent: contents leave as files do, the rest from memory",
            format!("{SIZE} bytes by splice"),
        ),
        (
            "/d/?download=tar.zst",
            "produced in memory while it is sent: contents are read and compressed",
            " bytes from memory".to_owned(),
        ),
        ("/none", "", String::new()),
    ] {
        let answer = client.get(target);
        let reported = answer.field("underpass-plan").unwrap_or_default();
        assert_eq!(reported, plan, "{target}");
        let before = answer.field("underpass-previous").map(str::to_owned);
        match previous.replace(moved) {
            None => assert_eq!(before, None),
            Some(moved) => {
                let before = before.unwrap();
                assert!(
                    before.contains(&moved) && !before.starts_with('0'),
                    "{before}"
                );
            }
        }
    }
}

#[test]
fn a_listing_is_no_response_with_nothing_to_move() {
    let server = Server::with(|options| options.explain = Explain::On);
    server.write("d/f", "f");
    let mut client = server.connect();
    client.send("GET /d/ HTTP/1.0\r\nConnection: close\r\n\r\n");
    let listing = client.response().body.len();
    let mut client = server.connect();
    let previous = |client: &mut underpass_testkit::HttpClient| {
        let answer = client.get("/none");
        answer.field("underpass-previous").unwrap().to_owned()
    };
    client.get("/d/");
    let made = previous(&mut client);
    let bytes = made.strip_suffix(" bytes from memory").unwrap();
    // Including the sizes of its chunks.
    assert!(bytes.parse::<usize>().unwrap() >= listing, "{made}");
    let text = "404 Not Found: there is no such file\n".len();
    assert_eq!(previous(&mut client), format!("{text} bytes from memory"));
    client.ask_head("/none");
    assert_eq!(previous(&mut client), "nothing to move");
    let summary = server.stop().to_string();
    assert!(summary.ends_with(" bytes from memory"), "{summary}");
}

#[test]
fn a_plan_is_right_where_the_fields_themselves_change_it() {
    let server = Server::with(|options| options.explain = Explain::On);
    for size in (7000..8192).step_by(100) {
        server.write("f", pattern(size));
        let mut client = server.connect();
        client.send("GET /f HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (answer, next) = (client.response(), client.response());
        assert!(answer.body == pattern(size));
        let joined = answer
            .field("underpass-plan")
            .unwrap()
            .starts_with("joined");
        let previous = next.field("underpass-previous").unwrap();
        assert_eq!(
            joined,
            previous.contains("read_write"),
            "{size}: {previous}"
        );
    }
}

#[test]
fn nothing_is_explained_unless_it_is_asked_for() {
    let server = Server::start();
    server.write("f", pattern(SIZE));
    let answer = server.get("/f");
    assert!(
        !answer.head.to_lowercase().contains("underpass"),
        "{}",
        answer.head
    );
}
