//! DELETE, MKCOL, COPY and MOVE, and who may do what.

use std::fs;

use crate::put::{assert_nothing_partial, put, request, server};
use crate::support::Server;

fn ask(server: &Server, method: &str, target: &str, fields: &str) -> u16 {
    server.ask(request(method, target, fields, b"")).status
}

#[test]
fn trees_are_changed_where_that_is_allowed() {
    let server = server("overwrite = true\ndelete = true");
    server.write("d/e/f", "content");
    server.write("g", "other");
    let to = |path: &str| format!("Destination: http://a{path}\r\n");
    for (method, target, fields, status) in [
        ("MKCOL", "/new/", String::new(), 201),
        ("MKCOL", "/new", String::new(), 405),
        ("MKCOL", "/no/new", String::new(), 409),
        ("COPY", "/g", to("/new/g"), 201),
        ("COPY", "/g", to("/new/g"), 204),
        (
            "COPY",
            "/g",
            format!("{}Overwrite: F\r\n", to("/new/g")),
            412,
        ),
        ("COPY", "/d", to("/copy"), 409),
        ("MOVE", "/d/e", to("/new/e"), 201),
        ("MOVE", "/new", to("/new/e/new"), 409),
        (
            "MOVE",
            "/g",
            "Destination: http://other/x\r\n".to_owned(),
            400,
        ),
        ("MOVE", "/g", "Destination: /../x\r\n".to_owned(), 400),
        ("MOVE", "/g", String::new(), 400),
        ("MOVE", "/missing", to("/x"), 404),
        ("DELETE", "/new/e/", String::new(), 204),
        ("DELETE", "/new/e", String::new(), 404),
        ("DELETE", "/", String::new(), 403),
    ] {
        let got = ask(&server, method, target, &fields);
        assert_eq!(got, status, "{method} {target} {fields}");
    }
    assert_eq!(fs::read(server.site().join("new/g")).unwrap(), b"other");
    assert!(!server.site().join("new/e").exists());
    assert_nothing_partial(&server);
}

#[test]
fn nothing_is_removed_or_replaced_by_default() {
    let server = server("");
    server.write("f", "content");
    server.write("g", "other");
    let to = "Destination: /g\r\n";
    assert_eq!(ask(&server, "DELETE", "/f", ""), 403);
    assert_eq!(ask(&server, "MOVE", "/f", "Destination: /new\r\n"), 403);
    assert_eq!(ask(&server, "COPY", "/f", to), 412);
    assert_eq!(ask(&server, "COPY", "/f", "Destination: /new\r\n"), 201);
    assert_eq!(fs::read(server.site().join("g")).unwrap(), b"other");
    assert_eq!(put(&server, "/f", "", b"x").status, 409);
}

#[test]
fn rules_are_asked_about_methods_and_destinations() {
    let server = Server::with(|options| {
        let folder = options.sites[0].root.parent().unwrap();
        let users = folder.join("users");
        fs::write(
            &users,
            underpass_serve::password_line("anna", b"secret").unwrap(),
        )
        .unwrap();
        let text = format!(
            "[[site]]\n[[site.upload]]\nkeep-free = 0\ndelete = true\noverwrite = true\n\
             [site.access]\nusers = {users:?}\n\
             rule = [{{paths = ['/box'], methods = ['PUT'], allow = ['everyone']}},\n\
                     {{paths = ['/box'], allow = ['users']}},\n\
                     {{paths = ['/fixed'], methods = ['PUT', 'DELETE'], allow = []}},\n\
                     {{paths = ['*.key'], allow = []}},\n\
                     {{paths = ['/open', '/whole', '/common'], allow = ['everyone']}},\n\
                     {{methods = ['GET'], allow = ['everyone']}}]"
        );
        let parsed = underpass_serve::ServerOptions::parse(&text).unwrap();
        let site = &mut options.sites[0];
        site.uploads.clone_from(&parsed.sites[0].uploads);
        site.access = parsed.sites[0].access.clone();
    });
    server.write("fixed/f", "content");
    server.write("open/f", "content");
    server.write("whole/part/a.key", "secret");
    server.write("common/d/f", "content");
    let anna = "Authorization: Basic YW5uYTpzZWNyZXQ=\r\n";
    assert_eq!(put(&server, "/box/new", "", b"x").status, 201);
    assert_eq!(server.get("/box/new").status, 401);
    assert_eq!(server.get_with("/box/new", anna.trim_end()).status, 200);
    assert_eq!(ask(&server, "DELETE", "/box/new", ""), 401);
    assert_eq!(put(&server, "/fixed/new", "", b"x").status, 403);
    assert_eq!(put(&server, "/fixed/new", anna, b"x").status, 403);
    for (method, from, to, status) in [
        // Out of what may be read by some only.
        ("COPY", "/box/new", "/open/new", 401),
        ("MOVE", "/box/new", "/open/new", 401),
        // Into and out of what stays as it is.
        ("COPY", "/open/f", "/fixed/f", 403),
        ("MOVE", "/open/f", "/fixed/f", 403),
        ("MOVE", "/fixed/f", "/open/g", 403),
        ("COPY", "/fixed/f", "/open/g", 201),
        // The name of a folder is its parent's.
        ("MOVE", "/common", "/open/common", 403),
        ("DELETE", "/common", "/x", 403),
        ("MOVE", "/common/d", "/common/e", 201),
        // A rule about a part of a tree holds for the tree.
        ("MOVE", "/whole", "/open/whole", 403),
        ("DELETE", "/whole", "/x", 403),
    ] {
        let fields = format!("Destination: {to}\r\n");
        assert_eq!(
            ask(&server, method, from, &fields),
            status,
            "{method} {from} {to}"
        );
    }
    assert_eq!(ask(&server, "DELETE", "/box/new", anna), 204);
    assert_eq!(fs::read(server.site().join("fixed/f")).unwrap(), b"content");
}

#[test]
fn an_area_within_another_stays_where_it_is() {
    let server = Server::with(|options| {
        let site = &mut options.sites[0];
        fs::create_dir_all(site.root.join("p/inner")).unwrap();
        let text = "[[site]]\n[[site.upload]]\nkeep-free = 0\ndelete = true\n\
                    [[site.upload]]\npath = \"/p/inner\"\nkeep-free = 0";
        let parsed = underpass_serve::ServerOptions::parse(text).unwrap();
        site.uploads.clone_from(&parsed.sites[0].uploads);
    });
    for (method, target) in [("MOVE", "/p"), ("DELETE", "/p"), ("DELETE", "/p/inner")] {
        let fields = "Destination: /q\r\n";
        assert_eq!(
            ask(&server, method, target, fields),
            403,
            "{method} {target}"
        );
    }
    assert!(server.site().join("p/inner").exists());
}
