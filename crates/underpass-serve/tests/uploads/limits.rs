//! Limits of uploads that keep one client from taking the room of others.

use underpass_serve::{ServerOptions, SiteOptions, UploadOptions};
use underpass_testkit::{HttpResponse, assert_private_mounts, mount};

use crate::client::{TUS, ask, create, look, named, server, target};
use crate::tus::{basic, with_users_and};

fn text(response: &HttpResponse) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

#[test]
fn one_user_has_a_share_of_unfinished_uploads_in_both_protocols() {
    let (server, _files) = with_users_and(", unfinished-per-client-max = 2");
    let at = server.address();
    let [anna, ben] = ["anna", "ben"].map(basic);
    let post = |who: &str, name: &str| {
        let fields = [TUS, "Upload-Length: 6", who, &named(name)];
        ask(at, "POST /in/", &fields, "")
    };
    let first = target("/in/", &post(&anna, "a"));
    let put = |who: &str| ask(at, "PUT /in/b", &["Upload-Complete: ?0", who], "");
    assert_eq!(put(&anna).status, 201);
    for refused in [post(&anna, "c"), put(&anna)] {
        assert_eq!(refused.status, 503, "{}", refused.head);
        assert!(refused.field("retry-after").is_some(), "{}", refused.head);
        assert!(text(&refused).contains("your uploads"), "{refused:?}");
    }
    // What is there goes on, and others are not concerned.
    assert_eq!(
        ask(at, &format!("HEAD {first}"), &[TUS, &anna], "").status,
        204
    );
    assert_eq!(post(&ben, "d").status, 201);
    let cancelled = ask(at, &format!("DELETE {first}"), &[TUS, &anna], "");
    assert_eq!(cancelled.status, 204);
    assert_eq!(post(&anna, "e").status, 201);
    assert_eq!(post(&anna, "f").status, 503);
}

#[test]
fn a_network_has_half_of_the_unfinished_uploads() {
    let server = server("unfinished-max = 4");
    let at = server.address();
    create(at, "/in/", "a", 3);
    let kept = create(at, "/in/", "b", 3);
    let fields = [TUS, "Upload-Length: 3", &named("c")];
    assert_eq!(ask(at, "POST /in/", &fields, "").status, 503);
    let mut other = underpass_testkit::HttpClient::connect_from([127, 0, 0, 9], at);
    other.send(crate::client::head("POST /in/", &fields, None));
    assert_eq!(other.response().status, 201);
    assert_eq!(look(at, &kept).status, 204);
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn mounts_that_prevent_or_slow_uploads_are_told_of() {
    assert_private_mounts();
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions {
        sites: vec![SiteOptions {
            uploads: vec![UploadOptions {
                keep_free: 0,
                ..UploadOptions::default()
            }],
            ..SiteOptions::of(folder.path())
        }],
        ..ServerOptions::of(folder.path())
    };
    mount(&["-t", "tmpfs", "-o", "ro", "none"], folder.path());
    let wrong = underpass_serve::check(&options);
    let [wrong] = &wrong[..] else {
        panic!("{wrong:?}")
    };
    let wrong = wrong.to_string();
    assert!(
        wrong.contains("mounted read-only; mount it for writing"),
        "{wrong}"
    );
    mount(&["-t", "tmpfs", "none"], folder.path());
    assert!(underpass_serve::check(&options).is_empty());
    assert!(underpass_serve::warnings(&options).is_empty());
    let partial = folder.path().join(".underpass-uploads");
    std::fs::create_dir(&partial).unwrap();
    mount(&["-t", "tmpfs", "-o", "mode=0700", "none"], &partial);
    let odd = underpass_serve::warnings(&options);
    let [odd] = &odd[..] else { panic!("{odd:?}") };
    assert!(
        odd.contains("is on another file system than its folder"),
        "{odd}"
    );
}
