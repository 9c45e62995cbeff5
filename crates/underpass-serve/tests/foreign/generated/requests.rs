//! Random requests: usual ones in unusual spellings. Each oddity has a name that the rules about
//! differences refer to.

use underpass_testkit::SeededRandom;

/// A request with its properties.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The bytes to send; `{tag}` stands for the server's own entity-tag of `file`.
    pub(crate) text: Vec<u8>,
    pub(crate) method: &'static str,
    pub(crate) file: &'static str,
    pub(crate) delivery: Delivery,
    /// The names of its oddities.
    pub(crate) oddities: Vec<&'static str>,
}

/// The way a request and its successor are written to the socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Delivery {
    /// The successor is sent after the response.
    Apart,
    /// Both are sent in one write.
    Pipelined,
    /// It is split in two at this byte.
    Split(usize),
}

/// Draws a request.
pub(crate) fn request(dice: &mut SeededRandom) -> Asked {
    let mut draft = Draft::new(dice);
    let method = draft.method();
    let file = draft.file();
    let target = draft.target(method, file);
    let version = draft.version();
    let mut text = draft.empty_lines();
    text.extend(draft.line(method, &target, version));
    let line_end = text.len();
    draft.host(version);
    draft.harmless();
    draft.connection(version);
    draft.conditions();
    draft.range(file);
    draft.odd_field();
    let mut body = draft.body(version);
    for field in draft.fields.drain(..) {
        text.extend(field);
        text.extend(b"\r\n");
    }
    if draft.oddities.contains(&"no head") {
        text.truncate(line_end);
        body.clear();
    } else {
        text.extend(b"\r\n");
    }
    let mut oddities = draft.oddities;
    if oddities.contains(&"bare LF") {
        text.retain(|&byte| byte != b'\r');
    }
    let delivery = match dice.below(4) {
        0 => Delivery::Split(dice.below(text.len().max(2))),
        1 => Delivery::Pipelined,
        _ => Delivery::Apart,
    };
    // Whether a response precedes the rest of a body depends on timing.
    let delivery = match body.is_empty() {
        true => delivery,
        false => Delivery::Apart,
    };
    text.extend(body);
    oddities.sort_unstable();
    oddities.dedup();
    Asked {
        text,
        method,
        file,
        delivery,
        oddities,
    }
}

const FILES: [&str; 16] = [
    "/f.txt",
    "/f.txt",
    "/f.txt",
    "/f.txt",
    "/large.txt",
    "/large.txt",
    "/page.html",
    "/empty.txt",
    "/dir/",
    "/dir/f.txt",
    "/dir",
    "/bare",
    "/bare/",
    "/none",
    "/a\\b;x=1+",
    "/.well-known/x",
];

const ODD_FILES: [(&str, &str); 8] = [
    ("/.hidden", "hidden"),
    ("/.git/config", "hidden"),
    ("/.git", "hidden"),
    ("/dir/.x/f", "hidden"),
    ("/out.txt", "link out"),
    ("/out/secret.txt", "link out"),
    ("/f.txt/", "nothing"),
    ("/f.txt/x", "nothing"),
];

struct Draft<'d> {
    dice: &'d mut SeededRandom,
    oddities: Vec<&'static str>,
    fields: Vec<Vec<u8>>,
}

impl<'d> Draft<'d> {
    fn new(dice: &'d mut SeededRandom) -> Draft<'d> {
        Draft {
            dice,
            oddities: Vec::new(),
            fields: Vec::new(),
        }
    }

    fn is_odd(&mut self, name: &'static str) {
        self.oddities.push(name);
    }

    fn field(&mut self, field: impl Into<Vec<u8>>) {
        self.fields.push(field.into());
    }

    fn method(&mut self) -> &'static str {
        let (method, oddity) = match self.dice.below(100) {
            0..=76 => return "GET",
            77..=88 => ("HEAD", "HEAD"),
            89..=91 => ("OPTIONS", "OPTIONS"),
            92..=95 => {
                let known = ["POST", "PUT", "DELETE", "PATCH", "TRACE"];
                (self.dice.pick(&known), "method not allowed")
            }
            96 => ("CONNECT", "method not allowed"),
            97..=98 => {
                let unknown = ["FETCH", "get", "PROPFIND", "M-SEARCH", "GETS", "MKCOL"];
                (self.dice.pick(&unknown), "unknown method")
            }
            _ => (self.dice.pick(&["G(T", "GE\tT", "G\"T"]), "not a token"),
        };
        self.is_odd(oddity);
        method
    }

    fn file(&mut self) -> &'static str {
        if self.dice.chance(92) {
            return self.dice.pick(&FILES);
        }
        let (file, oddity) = self.dice.pick(&ODD_FILES);
        self.is_odd(oddity);
        file
    }

    fn target(&mut self, method: &str, file: &'static str) -> Vec<u8> {
        if method == "CONNECT" {
            return b"b:80".to_vec();
        }
        let mut target = self.spelt(file);
        if self.dice.chance(4) {
            let wrong = [
                "/../x",
                "/%2e%2e/f.txt",
                "/..%2ff.txt",
                "/a/../..",
                "/%",
                "/%4",
                "/%zz",
                "/f%00.txt",
                "/f\u{1}.txt",
                "/f\u{7f}.txt",
                "*",
                "f.txt",
                "/f.txt /x",
            ];
            target = self.dice.pick(&wrong).as_bytes().to_vec();
            self.is_odd("wrong path");
        }
        if self.dice.chance(15) {
            let queries = ["?a=b", "?a=b&c=/../", "??", "?%zz", "?a%20b", "?\u{fc}"];
            target.extend(self.dice.pick(&queries).bytes());
        } else if self.dice.chance(1) {
            target.push(b'?');
            self.is_odd("empty query");
        } else if self.dice.chance(1) {
            target.extend(b"#top");
            self.is_odd("fragment");
        } else if self.dice.chance(1) {
            target.push(b'?');
            target.extend(vec![b'q'; 9000]);
            self.is_odd("long line");
        }
        if self.dice.chance(6) && target.starts_with(b"/") {
            let (authority, oddity) = self.dice.pick(&[
                ("http://b", None),
                ("HTTP://b.example:80", None),
                ("http://[::1]:8080", None),
                ("https://b", Some("https")),
                ("ftp://b", Some("other scheme")),
                ("http://u@b", Some("host")),
                ("http://b:x", Some("host")),
                ("http://b:65536", Some("host")),
                ("http://[1:2]", Some("host")),
                ("http://b%zz", Some("host")),
                ("http://[v1.a]:80", None),
                ("http://b_c", Some("host of odd letters")),
                ("http://b;c=%41", Some("host of odd letters")),
                ("http://", Some("host")),
            ]);
            self.oddities.extend(oddity);
            target.splice(0..0, authority.bytes());
        }
        target
    }

    /// Respells a path with escapes, dot segments and additional slashes.
    fn spelt(&mut self, path: &str) -> Vec<u8> {
        let mut spelt = Vec::new();
        let plain = self.dice.chance(50);
        for byte in path.bytes() {
            if plain {
                spelt.push(byte);
                continue;
            }
            match (byte, self.dice.below(24)) {
                (_, 0) => spelt.extend(format!("%{byte:02x}").bytes()),
                (_, 1) => spelt.extend(format!("%{byte:02X}").bytes()),
                (b'/', 2) => spelt.extend(b"//"),
                (b'/', 3) => spelt.extend(b"/./"),
                (b'/', 4) => spelt.extend(b"/x/../"),
                (b'/', 5) => spelt.extend(b"/%2e/"),
                (b'/', 6) => spelt.extend(b"/x/%2E./"),
                (b'/', 7) => spelt.extend(b"/dir%2f..//"),
                _ => spelt.push(byte),
            }
        }
        match spelt.starts_with(b"/") {
            true => spelt,
            false => path.as_bytes().to_vec(),
        }
    }

    fn version(&mut self) -> &'static str {
        let odd = [
            "HTTP/1.10",
            "HTTP/01.1",
            "HTTP/1.1x",
            "HTTP/1.",
            "HTTP/1",
            "http/1.1",
            "HTTP/0.9",
            "HTTP/2.0",
            "HTTP/3.0",
            "HTTP/1.1 ",
            "HTTP/1.1\t",
            "",
        ];
        match self.dice.below(100) {
            0..=87 => "HTTP/1.1",
            88..=93 => "HTTP/1.0",
            94..=96 => self.dice.pick(&["HTTP/1.2", "HTTP/1.9"]),
            _ => {
                let version = self.dice.pick(&odd);
                self.is_odd(match version {
                    "" => "no head",
                    "HTTP/1.1 " => "blanks",
                    _ => "version",
                });
                version
            }
        }
    }

    fn empty_lines(&mut self) -> Vec<u8> {
        match self.dice.below(100) {
            0 => b"\r\n".to_vec(),
            1 => b"\r\n\r\n".to_vec(),
            2 => {
                self.is_odd("blanks");
                self.dice.pick(&["\r\n\r\n\r\n", "\n"]).into()
            }
            _ => Vec::new(),
        }
    }

    fn line(&mut self, method: &str, target: &[u8], version: &str) -> Vec<u8> {
        let gap: &[u8] = match self.dice.below(200) {
            0 => b"  ",
            1 => b"\t",
            _ => b" ",
        };
        if gap != b" " {
            self.is_odd("blanks");
        }
        if self.dice.chance(1) {
            self.is_odd("bare LF");
        }
        let version = [gap, version.as_bytes()].concat();
        let version = match version == b" " {
            true => Vec::new(),
            false => version,
        };
        [method.as_bytes(), b" ", target, &version, b"\r\n"].concat()
    }

    fn host(&mut self, version: &str) {
        let hosts = [
            "Host: a",
            "Host: a",
            "HOST:a",
            "host:  a.example:8080 ",
            "Host: [::1]:80",
            "Host: [v1.a]",
            "Host: 127.0.0.1",
        ];
        let odd = [
            "Host:",
            "Host: a/b",
            "Host: a b",
            "Host: u@a",
            "Host: a:8x",
            "Host: [::1",
            "Host: a:1:2",
            "Host: a:65536",
            "Host: a%zz",
            "Host: [1:2]",
            "Host: [ab..cd]",
            "Host: [v1]",
            "Host: a\r\nHost: a",
            "Host: a\r\nHost: b",
            "X: y",
        ];
        if self.dice.below(200) == 0 {
            self.field("Host: a..b");
            self.is_odd("host of empty labels");
        } else if self.dice.chance(95) {
            if version != "HTTP/1.0" || self.dice.chance(50) {
                let host = self.dice.pick(&hosts);
                self.field(host);
            }
        } else {
            let host = self.dice.pick(&odd);
            self.field(host);
            self.is_odd("host");
        }
    }

    fn harmless(&mut self) {
        for _ in 0..self.dice.below(4) {
            let field = self.dice.pick(&[
                "User-Agent: curl/8",
                "Accept: */*",
                "Accept-Encoding: gzip, br",
                "X-Empty:",
                "x_under: score",
                "X: \u{e9}\u{ff}\tx",
                "Cookie: a=b; c=\"d\"",
                "Referer: http://x/",
                "Cache-Control: no-cache",
                "Upgrade: h2c",
            ]);
            self.field(field);
        }
    }

    fn connection(&mut self, version: &str) {
        let (percent, choices): (usize, &[&str]) = match version {
            "HTTP/1.0" => (60, &["keep-alive", "Keep-Alive", "close", "keep-alive, x"]),
            _ => (
                6,
                &[
                    "close",
                    "Close",
                    "keep-alive",
                    "x, close",
                    "upgrade",
                    "keep-alive, close",
                ],
            ),
        };
        if self.dice.chance(percent) {
            let choice = self.dice.pick(choices);
            self.field(format!("Connection: {choice}"));
        } else if self.dice.chance(1) {
            self.field("Connection: x-close");
            self.is_odd("connection option");
        }
    }

    fn conditions(&mut self) {
        const DATES: [&str; 6] = [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:36 GMT",
            "Sun, 06 Nov 1994 08:49:38 GMT",
            "yesterday",
        ];
        const TAGS: [&str; 8] = [
            "{tag}",
            "{tag}",
            "W/{tag}",
            "*",
            "\"x\"",
            "\"x\", {tag}",
            "\"x\", \"y\"",
            "unquoted",
        ];
        if self.dice.chance(12) {
            let tags = self.dice.pick(&TAGS);
            self.field(format!("If-None-Match: {tags}"));
            self.is_odd("If-None-Match");
            if self.dice.chance(8) {
                self.field("If-None-Match: {tag}");
                self.is_odd("two lines of tags");
            }
        }
        if self.dice.chance(10) {
            let date = self.dice.pick(&DATES);
            self.field(format!("If-Modified-Since: {date}"));
            self.is_odd(match date == DATES[4] {
                true => "later date",
                false => "If-Modified-Since",
            });
        }
        if self.dice.chance(7) {
            let tags = self.dice.pick(&TAGS);
            self.field(format!("If-Match: {tags}"));
            self.is_odd("If-Match");
        }
        if self.dice.chance(7) {
            let date = self.dice.pick(&DATES);
            self.field(format!("If-Unmodified-Since: {date}"));
            self.is_odd("If-Unmodified-Since");
            if date == DATES[5] {
                self.is_odd("no date");
            }
        }
        if self.dice.chance(7) {
            let all = [&DATES[..], &TAGS[..]].concat();
            let state = self.dice.pick(&all);
            self.field(format!("If-Range: {state}"));
        }
    }

    fn range(&mut self, file: &str) {
        if !self.dice.chance(35) || self.oddities.contains(&"connection option") {
            return;
        }
        self.is_odd("Range");
        let size = match file {
            "/large.txt" => super::LARGE,
            "/page.html" => super::PAGE.len(),
            "/empty.txt" => {
                self.is_odd("range of nothing");
                0
            }
            "/dir/" | "/dir/f.txt" | "/.well-known/x" => 5,
            "/a\\b;x=1+" => 3,
            _ => 1000,
        };
        let value = match self.dice.below(100) {
            0..=59 => self.member(size),
            60..=91 => {
                let count = 2 + self.dice.below(5);
                let members: Vec<_> = (0..count).map(|_| self.member(size)).collect();
                members.join(self.dice.pick(&[",", ", "]))
            }
            92 => {
                self.is_odd("many ranges");
                let count = self.dice.pick(&[17, 60, 128, 129, 200]);
                let members: Vec<_> = (0..count).map(|_| self.dice.below(1000)).collect();
                members
                    .iter()
                    .map(|at| format!("{at}-{at}"))
                    .collect::<Vec<_>>()
                    .join(",")
            }
            _ => {
                self.is_odd("invalid range");
                let odd = [
                    "", "abc", "-", "5-2", "0-9,x", "0-9-", "+0-9", "0 - 9", "--5", ",,0-9", ",",
                    "0-9,",
                ];
                self.dice.pick(&odd).to_owned()
            }
        };
        self.oddities.extend(range_oddities(&value, size));
        let unit = match self.dice.below(40) {
            0 => "items=",
            1 => "BYTES=",
            2 => "bytes =",
            _ => "bytes=",
        };
        self.field(format!("Range: {unit}{value}"));
        if self.dice.chance(1) {
            self.field("Range: bytes=0-9");
            self.is_odd("two lines");
        }
    }

    fn member(&mut self, size: usize) -> String {
        let first = self.dice.below(size + 20);
        match self.dice.below(20) {
            0 => format!("-{}", self.dice.below(size + 20)),
            1 => format!("{first}-"),
            2 => format!("{first}-99999999999999999999999"),
            3 => "99999999999999999999999-".into(),
            4 => format!("{first}-{}", self.dice.below(size + 20)),
            _ => format!("{first}-{}", first + self.dice.below(40)),
        }
    }

    fn odd_field(&mut self) {
        let (field, oddity): (&[u8], _) = match self.dice.below(300) {
            0 => (b"A : b", "field"),
            1 => (b": b", "field"),
            2 => (b"A: b\r\n folded", "field"),
            3 => (b"no colon", "field"),
            4 => (b"A(: b", "field"),
            5 => (b"A: b\x01", "field"),
            6 => (b"A: b\0c", "field"),
            7 => (b"A: b\rc", "field"),
            8 => (b"A: b\r", "blanks"),
            9 => (b"A: b\nB: c", "blanks"),
            10 => (b"Expect: 100-continue", "Expect"),
            11 => (b"Expect: 200-ok", "Expect"),
            12 => (b"\xc3: b", "field"),
            13 => {
                let lines = "B: c\r\n".repeat(120);
                self.field(lines.trim_end());
                self.is_odd("many fields");
                return;
            }
            14 => {
                self.field(format!("Cookie: {}", "c".repeat(9000)));
                self.is_odd("long line");
                return;
            }
            15 => (b"Content-Type: a/b\r\nContent-Type: a/b", "two lines"),
            16 => (b"Origin: http://a\r\norigin: http://b", "two lines"),
            17 => (
                b"Authorization: Basic eA==\r\nAuthorization: x",
                "two lines",
            ),
            18 => {
                let date = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT";
                self.field(date);
                (date.as_bytes(), "two lines")
            }
            19 => (b"If-Range: \"x\"\r\nIf-Range: \"x\"", "two lines"),
            _ => return,
        };
        self.field(field);
        self.is_odd(oddity);
    }

    /// Announces a body and returns it.
    fn body(&mut self, version: &str) -> Vec<u8> {
        let length = self.dice.below(100);
        let content = vec![b'b'; length];
        match self.dice.below(100) {
            0..=3 => {
                self.field(format!("Content-Length: {length}"));
                content
            }
            4..=6 => {
                self.field("Transfer-Encoding: chunked");
                if version == "HTTP/1.0" {
                    self.is_odd("framing");
                }
                self.chunks(length)
            }
            7 => self.wrong_chunks(),
            8..=9 => self.wrong_framing(),
            _ => Vec::new(),
        }
    }

    fn chunks(&mut self, length: usize) -> Vec<u8> {
        let mut body = Vec::new();
        let mut left = length;
        while left > 0 {
            let size = 1 + self.dice.below(left);
            let extension = self.dice.pick(&["", "", ";a", ";a=b;c=\"d\""]);
            body.extend(format!("{size:x}{extension}\r\n").bytes());
            body.extend(vec![b'b'; size]);
            body.extend(b"\r\n");
            left -= size;
        }
        let end = self.dice.pick(&[
            "0\r\n\r\n",
            "0\r\nT: x\r\n\r\n",
            "000\r\n\r\n",
            "0;x\r\n\r\n",
        ]);
        body.extend(end.bytes());
        body
    }

    fn wrong_chunks(&mut self) -> Vec<u8> {
        self.field("Transfer-Encoding: chunked");
        self.is_odd("chunks");
        let odd = [
            "0x5\r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            " 5\r\nhello\r\n0\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello!\r\n0\r\n\r\n",
            "00000000000000005\r\nhello\r\n0\r\n\r\n",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\n folded\r\n\r\n",
            "g\r\n\r\n",
        ];
        self.dice.pick(&odd).into()
    }

    fn wrong_framing(&mut self) -> Vec<u8> {
        self.is_odd("framing");
        let odd = [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5, 5",
            "Content-Length: +5",
            "Content-Length: -5",
            "Content-Length: 0x5",
            "Content-Length: 99999999999999999999",
            "Content-Length:",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: chunked;q=1",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: \x0bchunked",
        ];
        let field = self.dice.pick(&odd);
        self.field(field);
        b"0\r\n\r\n".to_vec()
    }
}

/// Returns the oddities of a set of ranges that looks valid at first sight.
fn range_oddities(set: &str, size: usize) -> Vec<&'static str> {
    let mut oddities = Vec::new();
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for member in set.split(',').map(str::trim) {
        let Some((first, last)) = member.split_once('-') else {
            continue;
        };
        if last.len() > 20 {
            oddities.push("large end");
        }
        let number = |digits: &str| digits.parse::<usize>().unwrap_or(usize::MAX);
        let (first, last) = match (first, last) {
            ("", last) => (size.saturating_sub(number(last)), size),
            (first, "") => (number(first), size),
            (first, last) => (number(first), number(last)),
        };
        if last < first {
            oddities.push("invalid range");
        }
        if spans
            .iter()
            .any(|known| known.0 <= last && first <= known.1)
        {
            oddities.push("overlap");
        }
        spans.push((first, last.min(size.saturating_sub(1))));
    }
    oddities
}
