//! DELETE, MKCOL, COPY and MOVE, and who may do what.

use std::fs;

use underpass_testkit::{assert_private_mounts, mount};

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
        ("COPY", "/g", to("/x/../g"), 403),
        ("MOVE", "/g", to("/g"), 403),
        ("MOVE", "/d", to("/d/"), 403),
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
fn a_part_of_a_folder_is_not_removed_or_moved() {
    let server = server("delete = true");
    server.write("d/f", "content");
    let to = "Destination: /e\r\n";
    for depth in ["0", "1", "x", "0\r\nDepth: infinity"] {
        let depth = format!("Depth: {depth}\r\n");
        assert_eq!(ask(&server, "DELETE", "/d", &depth), 400, "{depth}");
        assert_eq!(ask(&server, "MOVE", "/d", &(depth + to)), 400);
    }
    assert_eq!(
        ask(&server, "MOVE", "/d/f", "Depth: 0\r\nDestination: /d/g\r\n"),
        201
    );
    assert_eq!(
        ask(&server, "MOVE", "/d", &format!("Depth: Infinity\r\n{to}")),
        201
    );
    assert_eq!(ask(&server, "DELETE", "/e/g", "Depth: 0\r\n"), 204);
    assert_eq!(ask(&server, "DELETE", "/e", "Depth: infinity\r\n"), 204);
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

#[test]
fn what_is_wrong_with_a_destination_is_told() {
    let server = server("overwrite = true\ndelete = true");
    server.write("f", "content");
    for (fields, words) in [
        ("", "missing, or there twice"),
        (
            "Destination: /a\r\nDestination: /b\r\n",
            "missing, or there twice",
        ),
        ("Destination: http://other/x\r\n", "pass the Host field on"),
        ("Destination: x\r\n", "neither a path"),
        ("Destination: ./x/y\r\n", "neither a path"),
        ("Destination: /../x\r\n", "neither a path"),
        ("Destination: /x?y\r\n", "encode ? as %3F"),
        ("Destination: ./x#y\r\n", "encode ? as %3F"),
    ] {
        let answer = server.ask(request("MOVE", "/f", fields, b""));
        assert_eq!(answer.status, 400, "{fields}");
        assert!(answer.text().contains(words), "{fields}: {}", answer.text());
    }
    assert!(server.site().join("f").exists());
}

#[test]
fn a_folder_has_no_body() {
    let server = server("");
    let mut client = server.connect();
    client.send(request(
        "MKCOL",
        "/new/",
        "Content-Type: text/xml\r\n",
        b"<x/>",
    ));
    assert_eq!(client.response().status, 415);
    assert!(!server.site().join("new").exists());
    client.send(request("MKCOL", "/new/", "", b""));
    assert_eq!(client.response().status, 201);
}

#[test]
fn names_with_encoded_characters_are_those_that_were_sent() {
    let server = server("delete = true");
    for (sent, name) in [
        ("/a%252Fb", "a%2Fb"),
        ("/c%3Fd%23e", "c?d#e"),
        ("/%25", "%"),
        ("/f%3Ag;h%20i", "f:g;h i"),
        ("/%252e%252e%252Fj", "%2e%2e%2Fj"),
    ] {
        let stored = put(&server, sent, "", b"content");
        assert_eq!(stored.status, 201, "{sent}: {}", stored.text());
        assert!(server.site().join(name).is_file(), "{sent}");
        let location = stored.field("location").unwrap();
        let target = location.strip_prefix('.').unwrap();
        assert_eq!(server.get(target).body, b"content", "{sent}: {location}");
        assert_eq!(ask(&server, "DELETE", target, ""), 204, "{location}");
    }
}

#[test]
fn folders_follow_the_mode_of_files_and_replaced_files_keep_theirs() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |server: &Server, name: &str| {
        let metadata = server.site().join(name).metadata().unwrap();
        metadata.permissions().mode() & 0o777
    };
    let shared = crate::put::server("mode = '0640'");
    assert_eq!(put(&shared, "/made/f", "", b"").status, 201);
    assert_eq!(ask(&shared, "MKCOL", "/other", ""), 201);
    let modes = ["made", "made/f", "other"].map(|name| mode(&shared, name));
    assert_eq!(modes, [0o750, 0o640, 0o750]);
    let plain = crate::put::server("overwrite = true");
    plain.write("secret", "old");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(plain.site().join("secret"), private).unwrap();
    assert_eq!(put(&plain, "/secret", "", b"new").status, 204);
    assert_eq!(mode(&plain, "secret"), 0o600);
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_folder_with_a_mount_stays_and_files_move_into_it() {
    assert_private_mounts();
    let server = server("delete = true");
    server.write("d/e/f", "content");
    fs::create_dir(server.site().join("d/mnt")).unwrap();
    mount(&["-t", "tmpfs", "none"], &server.site().join("d/mnt"));
    server.write("d/mnt/g", "mounted");
    assert_eq!(ask(&server, "DELETE", "/d", ""), 409);
    assert_eq!(server.get("/d/e/f").body, b"content");
    assert_eq!(ask(&server, "DELETE", "/d/mnt/g", ""), 204);
    // A file may be mounted, too: what cannot be removed keeps its name.
    server.write("m/f", "below");
    server.write("m/g", "");
    mount(
        &["--bind", server.site().join("d/e/f").to_str().unwrap()],
        &server.site().join("m/f"),
    );
    assert_eq!(ask(&server, "DELETE", "/m", ""), 409);
    assert_eq!(server.get("/m/f").body, b"content");
    // Files are moved to another file system, folders are not.
    let to = |path: &str| format!("Destination: {path}\r\n");
    assert_eq!(ask(&server, "MOVE", "/d/e/f", &to("/d/mnt/f")), 201);
    assert_eq!(server.get("/d/mnt/f").body, b"content");
    assert_eq!(server.get("/d/e/f").status, 404);
    assert_eq!(ask(&server, "MOVE", "/d/e", &to("/d/mnt/e")), 409);
    assert!(server.site().join("d/e").is_dir());
    assert_nothing_partial(&server);
}
