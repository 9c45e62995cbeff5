//! Monitoring of the real binary: its log and log rotation, metrics, addresses.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use underpass_testkit::{
    ChildProcess, ExitReport, HttpClient, ServerProcess, assert_contains, wait_until, within,
};

use crate::support::{BINARY, Server, serve, underpass};

fn failure(arguments: &[&str]) -> ExitReport {
    serve(&[&["--listen", "127.0.0.1:0"], arguments].concat())
}

#[test]
fn a_log_goes_to_standard_output_and_only_where_it_is_asked_for() {
    for (options, lines) in [(&[][..], 0), (&["--log"], 1), (&["--log=json"], 1)] {
        let server = Server::with(options);
        server.write("f", "f");
        assert_eq!(server.get("/f?logged").body, b"f");
        let end = server.stop();
        end.assert_success();
        let logged = end.output.lines().filter(|line| line.contains("logged"));
        assert_eq!(logged.count(), lines, "{options:?}: {}", end.output);
        // A reader of the log gets nothing else.
        let (said, not_said) = match lines {
            0 => (&end.output, &end.errors),
            _ => (&end.errors, &end.output),
        };
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("stopped after 1 request"), "{last}");
        assert_eq!(not_said.lines().count(), lines, "{options:?}: {not_said}");
    }
}

/// The reader of its output has stopped: a suspended terminal, or a log collector that hangs.
#[test]
fn output_that_nobody_reads_delays_no_request_and_no_end() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "f").unwrap();
    let socket = folder.path().join("socket");
    let (reader, mut full) = std::io::pipe().unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&full, 4096).unwrap();
    full.write_all(&vec![b'x'; size]).unwrap();
    for stream in ["output", "errors", "both"] {
        let mut command = underpass();
        let listen = format!("unix:{}", socket.display());
        command.args(["serve", "--workers", "1", "--listen", &listen]);
        for setting in ["trusted=unix", "protocol=required"] {
            command.arg("--set");
            command.arg(format!("connections.proxy.{setting}"));
        }
        command.arg(folder.path()).stdin(Stdio::null());
        let stuck = || full.try_clone().unwrap();
        match stream {
            "output" => command.stdout(stuck()).stderr(Stdio::null()),
            "errors" => command.stdout(Stdio::null()).stderr(stuck()),
            _ => command.stdout(stuck()).stderr(stuck()),
        };
        let mut server = command.spawn().unwrap();
        let process = Pid::from_child(&server);
        wait_until("socket", || UnixStream::connect(&socket).is_ok());
        for _ in 0..3 {
            // The worker warns about it.
            let mut client = HttpClient::connect_unix(&socket);
            client.send("no header\r\n\r\n");
            let _closed_or_reset = client.read_to_end();
            let mut client = HttpClient::connect_unix(&socket);
            client.send("PROXY UNKNOWN\r\nGET /f HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().body, b"f", "{stream}");
        }
        // By now it could only have reported its address.
        wait_until("handling of signals", || catches(process, Signal::TERM));
        rustix::process::kill_process(process, Signal::HUP).unwrap();
        rustix::process::kill_process(process, Signal::TERM).unwrap();
        let status = within(move || server.wait()).unwrap();
        assert!(status.success(), "{stream}: {status}");
    }
    drop(reader);
}

fn catches(process: Pid, signal: Signal) -> bool {
    let status = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = fs::read_to_string(status).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught & (1 << (signal.as_raw() - 1)) != 0
}

/// Runs the server with its log on standard output, which is closed.
#[test]
fn a_log_that_is_not_taken_stops_nothing_and_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "f").unwrap();
    let errors = folder.path().join("errors");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = underpass();
    command.args([
        "serve",
        "--log",
        "--workers",
        "1",
        "--listen",
        "127.0.0.1:0",
    ]);
    command.arg(folder.path()).stdout(writer);
    let mut server = command
        .stderr(fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    drop((command, reader));
    let said = || fs::read_to_string(&errors).unwrap();
    wait_until("greeting", || said().contains("press Ctrl-C to stop"));
    let greeting = said();
    let address = greeting.split("http://").nth(1).unwrap();
    let address: SocketAddr = address.split('/').next().unwrap().parse().unwrap();
    let mut client = HttpClient::connect(address);
    assert_eq!(client.get("/f").body, b"f");
    wait_until("report", || said().contains("cannot write the access log"));
    for _ in 0..3 {
        assert_eq!(client.get("/f").body, b"f");
    }
    rustix::process::kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    drop(client);
    assert!(within(move || server.wait()).unwrap().success());
    let said = said();
    for (words, times) in [
        (
            "cannot write the access log standard output, lines are lost: ",
            1,
        ),
        ("4 lines of the access log standard output were lost", 1),
    ] {
        assert_eq!(said.matches(words).count(), times, "{words}: {said}");
    }
}

/// The reader of the log pauses, or stops for good.
#[test]
fn every_line_that_a_reader_does_not_take_is_counted() {
    // More than two queues of 4 MiB: the second one fills up while the thread writes the first.
    const REQUESTS: usize = 700;
    let target = format!("/f?{}", "q".repeat(16_000));
    for recovers in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f"), "f").unwrap();
        let [errors, socket] = ["errors", "socket"].map(|name| folder.path().join(name));
        let (mut reader, mut full) = std::io::pipe().unwrap();
        let size = rustix::pipe::fcntl_setpipe_size(&full, 4096).unwrap();
        full.write_all(&vec![b'x'; size]).unwrap();
        let mut command = underpass();
        let listen = format!("unix:{}", socket.display());
        command.args(["serve", "--log", "--workers", "1", "--listen", &listen]);
        command.arg(folder.path()).stdout(full);
        let stderr = fs::File::create(&errors).unwrap();
        let mut server = command.stderr(stderr).spawn().unwrap();
        drop(command);
        let process = Pid::from_child(&server);
        wait_until("socket", || UnixStream::connect(&socket).is_ok());
        let mut client = HttpClient::connect_unix(&socket);
        for _ in 0..REQUESTS {
            assert_eq!(client.get(&target).body, b"f");
        }
        drop(client);
        let said = || fs::read_to_string(&errors).unwrap();
        wait_until("warning", || said().contains("are dropped"));
        wait_until("handling of signals", || catches(process, Signal::TERM));
        let stop = || rustix::process::kill_process(process, Signal::TERM).unwrap();
        let mut written = 0;
        if recovers {
            let read = std::thread::spawn(move || {
                let mut content = String::new();
                reader.read_to_string(&mut content).unwrap();
                content.lines().count()
            });
            // Before the end, too.
            wait_until("report", || said().contains(" standard output were lost"));
            stop();
            assert!(within(move || server.wait()).unwrap().success());
            written = read.join().unwrap();
        } else {
            stop();
            // It does not wait for the reader. Two signals in quick succession would count as one.
            wait_until("the stop", || UnixStream::connect(&socket).is_err());
            stop();
            assert!(within(move || server.wait()).unwrap().success());
        }
        let said = said();
        assert_eq!(said.matches("are dropped").count(), 1, "{said}");
        let lost: Vec<_> = said
            .lines()
            .filter(|line| line.contains("were lost"))
            .collect();
        let [lost] = lost[..] else {
            panic!("one report: {said}");
        };
        let lost = lost.split(' ').find_map(|word| word.parse::<usize>().ok());
        assert_eq!(lost.unwrap() + written, REQUESTS, "{recovers}: {said}");
    }
}

#[test]
fn no_workers_are_refused_in_plain_words() {
    for number in ["0", "none"] {
        let end = failure(&["--workers", number, "."]);
        end.assert_failed(2, &["--workers", "expected a number from 1; leave it out"]);
    }
}

#[test]
fn habits_of_other_servers_are_answered_with_the_way_here() {
    let tool = |arguments: &[&str]| underpass_testkit::run(underpass().args(arguments));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for (arguments, tip) in [
        (&["serve", folder, "8000"][..], "'serve DIR -p PORT'"),
        (&["serve", "-d", folder], "'serve DIR'"),
        (&["serve", "--directory", folder], "'serve DIR'"),
        (&[folder], "'underpass serve DIR'"),
        (&["--serve", folder], "'underpass serve DIR'"),
        (&["http"], "'underpass serve DIR'"),
        (&["serve", "-p", "x", folder], "expected a number from 0"),
        (&["serve", "--join", "2MiB", folder], "at most 1MiB"),
    ] {
        let end = tool(arguments);
        end.assert_failed(2, &[tip]);
        assert!(!end.errors.contains("similar"), "{arguments:?}: {end:?}");
    }
}

#[test]
fn a_signal_has_the_file_opened_anew() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = Server::with(&["--log-file", log.to_str().unwrap()]);
    server.write("f", "f");
    let mut socket = server.connect();
    socket.get("/f?old");
    let old = folder.path().join("log.1");
    fs::rename(&log, &old).unwrap();
    server.signal(Signal::USR1);
    wait_until("new log", || log.exists());
    socket.get("/f?new");
    let end = server.stop();
    end.assert_clean();
    let [old, new] = [old, log].map(|path| fs::read_to_string(path).unwrap());
    assert!(new.contains("\"GET /f?new HTTP/1.1\" 200 1 "), "{new}");
    assert_eq!(format!("{old}{new}").lines().count(), 2, "{old}{new}");
}

#[test]
fn a_log_behind_a_link_is_created_there_and_the_link_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("logs")).unwrap();
    let (link, log) = (path("link"), path("logs/log"));
    symlink("logs/log", &link).unwrap();
    let server = Server::with(&["--log-file", link.to_str().unwrap()]);
    server.write("f", "f");
    let mut socket = server.connect();
    let mut all = String::new();
    for part in 0..3 {
        socket.get(&format!("/f?{part}"));
        let old = path(&format!("logs/log.{part}"));
        fs::rename(&log, &old).unwrap();
        server.signal(Signal::USR1);
        wait_until("new log", || log.exists());
        // The old log is complete once the new one exists.
        all += &fs::read_to_string(old).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
    socket.get("/f?3");
    server.stop().assert_clean();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    all += &fs::read_to_string(log).unwrap();
    for part in 0..4 {
        let line = format!("\"GET /f?{part} HTTP/1.1\" 200 1 ");
        assert_eq!(all.matches(&line).count(), 1, "{all}");
    }
}

#[test]
fn a_log_to_standard_output_by_its_path_is_in_its_file_across_rotations() {
    let is_link = || fs::symlink_metadata("/dev/stdout").unwrap().is_symlink();
    assert!(is_link());
    for redirection in [">", ">>"] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("f"), "f").unwrap();
        let (socket, output) = (path("socket"), path("output"));
        let listen = format!("unix:{}", socket.display());
        let script = format!("exec \"$@\" {redirection}\"$0\"");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(&output);
        shell
            .arg(BINARY)
            .args(["serve", "--log-file", "/dev/stdout"]);
        shell.args(["--listen", &listen]).arg(folder.path());
        let server = ChildProcess::spawn(&mut shell);
        server.hear("press Ctrl-C to stop");
        let mut client = HttpClient::connect_unix(&socket);
        client.get("/f?0");
        wait_until("line", || {
            fs::read_to_string(&output).unwrap().contains("/f?0")
        });
        let old = path("output.1");
        fs::rename(&output, &old).unwrap();
        server.signal(Signal::USR1);
        for part in 1..20 {
            client.get(&format!("/f?{part}"));
        }
        server.signal(Signal::TERM);
        let end = server.end();
        end.assert_success();
        assert_contains(&end.errors, &["stopped after 20 requests"]);
        assert!(is_link());
        assert!(!output.exists(), "whoever rotates it has the file");
        let said = fs::read_to_string(old).unwrap();
        for part in 0..20 {
            let line = format!("\"GET /f?{part} HTTP/1.1\" 200 1 ");
            assert_eq!(said.matches(&line).count(), 1, "{said}");
        }
        let lines = said.lines().filter(|line| line.contains("GET /f?"));
        assert_eq!(lines.count(), 20);
    }
}

#[test]
fn the_signal_for_logs_ends_no_server_that_has_none() {
    let server = Server::start();
    server.signal(Signal::USR1);
    server.write("f", "f");
    assert_eq!(server.get("/f").body, b"f");
    server.stop().assert_success();
}

#[test]
fn metrics_are_served_where_the_greeting_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("status");
    let address = format!("unix:{}", path.display());
    let server = Server::with(&["--status", &address]);
    assert_eq!(
        HttpClient::connect_unix(&path).get("/health").text(),
        "ok\n"
    );
    let reported = format!("; metrics and health on {address}\n");
    assert_contains(server.greeting(), &[&reported]);
}

#[test]
fn a_log_or_address_that_cannot_be_opened_is_refused_with_what_to_do() {
    for usage in [
        &["--log=xml"][..],
        &["--status", "90900"],
        &["--status", "unix:"],
    ] {
        failure(usage).assert_failed(2, &[]);
    }
    for (options, said) in [
        (
            ["--log-file", "/nowhere/log"],
            ["/nowhere/log", "--log-file FILE"],
        ),
        (
            ["--status", "192.0.2.1:1"],
            ["192.0.2.1:1", "--status unix:PATH"],
        ),
    ] {
        failure(&options).assert_failed(1, &said);
    }
}

#[test]
fn a_plan_is_called_one_and_a_trial_names_what_was_tried() {
    let server = Server::with(&["-v"]);
    assert_contains(server.greeting(), &["(planned, not tried)"]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "content").unwrap();
    let mut command = underpass();
    command.current_dir(folder.path());
    let server = ServerProcess::spawn(command.args(["serve", "--listen", ":0", "--qr", "-v"]));
    server.signal(Signal::INT);
    let greeting = server.greeting().to_owned();
    let end = server.end();
    end.assert_success();
    let said = greeting + &end.output;
    let drawn = said.lines().filter(|line| line.contains('█'));
    assert!(drawn.count() > 12, "no code: {said}");
    assert!(said.contains("(tried with a.txt)"), "{said}");
    assert!(
        said.contains("http://") && !said.contains("http://0.0.0.0") && !said.contains("[::]"),
        "{said}"
    );
}

/// Returns the TCP address after `metrics and health on`.
fn status_address(text: &str) -> SocketAddr {
    let (_, address) = text.split_once("metrics and health on http://").unwrap();
    let address = address.split_whitespace().next().unwrap();
    address.parse().unwrap()
}

#[test]
fn the_port_of_metrics_is_printed_and_stays_through_reload_and_upgrade() {
    let mut server = Server::with(&["--status", "127.0.0.1:0"]);
    let first = status_address(server.greeting());
    assert_ne!(first, server.address());
    server.signal(Signal::HUP);
    assert_eq!(status_address(&server.hear("reloaded; ")), first);
    for _ in 0..2 {
        server.upgrade();
        let health = HttpClient::connect(first).get("/health");
        assert_eq!(health.body, b"ok\n");
    }
    server.write("f", "f");
    assert_eq!(server.get("/f").body, b"f");
}

#[test]
fn a_reload_reports_the_new_address_of_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("u.toml");
    let configure = |status: &str| {
        let text = format!("[status]\nlisten = {status:?}\n[[site]]\nroot = \".\"\n");
        fs::write(&config, text).unwrap();
    };
    configure("127.0.0.1:0");
    let mut tool = underpass();
    tool.args(["serve", "--listen", "127.0.0.1:0", "--config"]);
    let server = ServerProcess::spawn(tool.arg(&config));
    let path = folder.path().join("status");
    configure(&format!("unix:{},mode=0620", path.display()));
    server.signal(Signal::HUP);
    let told = server.hear("reloaded; ");
    let place = format!("metrics and health on unix:{}", path.display());
    assert!(told.contains(&place), "{told}");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o620
    );
    assert_eq!(HttpClient::connect_unix(&path).get("/ready").status, 200);
    server.stop();
}
