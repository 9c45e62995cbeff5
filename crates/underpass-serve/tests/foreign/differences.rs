//! Differences from nginx 1.22: for each reason, the requests with nginx's responses.

pub(crate) type Differences = &'static [(&'static str, &'static str)];

pub(crate) const DIFFERENCES: &[(&str, Differences)] = &[
    (
        "RFC 9110, section 5.3: lines of one list field are one list",
        &[(r"If-None-Match: 'x'\r\nIf-None-Match: {tag}", "400 closed")],
    ),
    (
        "RFC 9110, section 13.2.2: with a tag the date is ignored",
        &[
            (
                r"If-None-Match: {tag}\r\nIf-Modified-Since: {earlier}",
                "200 whole open",
            ),
            (
                r"If-Match: {tag}\r\nIf-Unmodified-Since: {earlier}",
                "412 closed",
            ),
        ],
    ),
    (
        "RFC 9110, section 13.1.3: not modified since is not the same as modified at",
        &[("If-Modified-Since: {later}", "200 whole open")],
    ),
    (
        "412 says nothing about the connection; nginx closes it",
        &[
            ("If-Match: 'x'", "412 closed"),
            ("If-Match: W/{tag}", "412 closed"),
            (
                r"If-Match: 'x'\r\nIf-Unmodified-Since: {date}",
                "412 closed",
            ),
            ("If-Unmodified-Since: {earlier}", "412 closed"),
            (r"If-Match: 'x'\r\nRange: bytes=0-9", "412 closed"),
            (
                r"HEAD /f.txt HTTP/1.1\r\nHost: a\r\nIf-Match: 'x'\r\n\r\n",
                "412 closed",
            ),
        ],
    ),
    (
        "RFC 9110, section 15.5.6: 405 names what is allowed",
        &[
            (
                r"POST /f.txt HTTP/1.1\r\nHost: a\r\nIf-Match: 'x'\r\n\r\n",
                "405 open",
            ),
            (r"POST /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 open"),
            (r"PUT /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 open"),
            (r"DELETE /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 open"),
            (r"PATCH /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 open"),
            (r"TRACE /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 closed"),
            (r"CONNECT b:80 HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        ],
    ),
    (
        "RFC 9110, section 9.3.7: OPTIONS is answered",
        &[
            (
                r"OPTIONS /f.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9\r\n\r\n",
                "405 open",
            ),
            (r"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
            (r"OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n", "405 open"),
        ],
    ),
    (
        "RFC 9110, section 14.2: ranges are for GET",
        &[(
            r"HEAD /f.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9\r\n\r\n",
            "206 0-9/1000 open",
        )],
    ),
    (
        "RFC 9110, sections 14.1.2 and 5.6.1: a large end is the end, empty members are skipped",
        &[
            ("Range: bytes=5-99999999999999999999", "416 */1000 open"),
            ("Range: bytes=,,0-9", "416 */1000 open"),
        ],
    ),
    (
        "an invalid range, or a set with one, is ignored (RFC 9110, section 14.2, allows either)",
        &[
            ("Range: bytes=5-2", "416 */1000 open"),
            ("Range: bytes=abc", "416 */1000 open"),
            ("Range: bytes=0-9,5-2", "206 0-9/1000 open"),
            ("Range: bytes=0-9,x", "416 */1000 open"),
        ],
    ),
    (
        "RFC 9110, section 5.3: lines of a field that is no list cannot be joined",
        &[(r"Range: bytes=0-9\r\nRange: bytes=0-9", "206 0-9/1000 open")],
    ),
    (
        "RFC 3986, section 3.2.2: brackets hold an address, and ports are numbers of 16 bits",
        &[
            (
                r"GET /f.txt HTTP/1.1\r\nHost: x:99999\r\n\r\n",
                "200 whole open",
            ),
            (
                r"GET /f.txt HTTP/1.1\r\nHost: x%zz\r\n\r\n",
                "200 whole open",
            ),
            (
                r"GET /f.txt HTTP/1.1\r\nHost: [1:2]\r\n\r\n",
                "200 whole open",
            ),
            (
                r"GET http://x:99999/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
                "200 whole open",
            ),
            (
                r"GET http://[1:2]/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
                "200 whole open",
            ),
        ],
    ),
    (
        "RFC 9110, section 14.2: overlapping ranges may be merged, excessive sets ignored",
        &[
            ("Range: bytes=0-9,5-14", "206 parts 0-9/1000 5-14/1000 open"),
            (
                "Range: bytes=0-9,0-9,0-9",
                "206 parts 0-9/1000 0-9/1000 0-9/1000 open",
            ),
            (
                "Range: bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14,16-16,18-18,2… 934 bytes",
                "206 parts 0-0/1000 2-2/1000 4-4/1000 6-6/1000 8-8/1000 10-10/100… 1581 bytes",
            ),
            (
                "Range: bytes=900-900,898-898,896-896,894-894,892-892,890-890,888… 148 bytes",
                "206 parts 900-900/1000 898-898/1000 896-896/1000 894-894/1000 89… 235 bytes",
            ),
        ],
    ),
    (
        "RFC 9110, section 7.4: another scheme's URL is misdirected here",
        &[(
            r"GET https://b/f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            "200 whole open",
        )],
    ),
    (
        "RFC 9112, section 3.2: an invalid Host is refused",
        &[
            (
                r"GET /f.txt HTTP/1.1\r\nHost: u@a\r\n\r\n",
                "200 whole open",
            ),
            (
                r"GET /f.txt HTTP/1.1\r\nHost: a:8x\r\n\r\n",
                "200 whole open",
            ),
        ],
    ),
    (
        "RFC 9110, section 9.1: 501 for a method nobody knows",
        &[
            (r"FETCH /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "405 open"),
            (r"get /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "400 closed"),
        ],
    ),
    (
        "RFC 9110, section 15.6.6: 505 for a version that is not spoken",
        &[(r"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400 closed")],
    ),
    (
        "RFC 9112, section 2.3: a version is one digit each; there is no HTTP/0.9",
        &[
            (r"GET /f.txt HTTP/1.10\r\nHost: a\r\n\r\n", "200 whole open"),
            (r"GET /HTTP/\r\n", "no answer"),
        ],
    ),
    (
        "RFC 9112, sections 2.2 and 3: whitespace and line ends are read in one way only",
        &[
            (
                r"\r\n\r\n\r\nGET /f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
                "200 whole open",
            ),
            (
                r"\nGET /f.txt HTTP/1.1\r\nHost: a\r\n\r\n",
                "200 whole open",
            ),
            (r"GET  /f.txt HTTP/1.1\r\nHost: a\r\n\r\n", "200 whole open"),
            (r"GET /f.txt HTTP/1.1 \r\nHost: a\r\n\r\n", "200 whole open"),
            (r"… A: b\r\r\n\r\n", "200 whole open"),
            (r"… A: b\nB: c\r\n\r\n", "200 whole open"),
            (r"GET /f.txt HTTP/1.1\nHost: a\n\n", "200 whole open"),
        ],
    ),
    (
        "other bounds on lines, heads and fields, and RFC 6585, section 5: 431 for heads",
        &[
            (
                "GET /f.txt?qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq… 16033 bytes",
                "414 closed",
            ),
            (
                "… Cookie: cccccccccccccccccccccccccccccccccccccccccccccccccccccc… 30042 bytes",
                "400 closed",
            ),
            (
                "… Cookie: cccccccccccccccccccccccccccccccccccccccccccccccccccccc… 40042 bytes",
                "400 closed",
            ),
            (
                r"… A: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r… 632 bytes",
                "200 whole open",
            ),
            (
                r"… A: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r… 3032 bytes",
                "200 whole open",
            ),
        ],
    ),
    (
        "RFC 9112, section 6.3: 400 for a coding that leaves the length unknown; nginx says 501",
        &[
            (r"… Transfer-Encoding: identity\r\n\r\n", "501 closed"),
            (r"… Transfer-Encoding: x\r\n\r\n", "501 closed"),
            (
                r"… Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
                "501 closed",
            ),
            (
                r"… Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
                "501 closed",
            ),
            (
                r"… Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
                "501 closed",
            ),
            (
                r"… Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
                "501 closed",
            ),
            (
                r"… Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
                "501 closed",
            ),
        ],
    ),
    (
        "RFC 9112, section 7.1: a chunk's size line has one form",
        &[
            (
                r"… Transfer-Encoding: chunked\r\n\r\n00000000000000005\r\nhello\r… 91 bytes",
                "200 whole open",
            ),
            (
                r"… Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
                "200 whole open",
            ),
            (
                r"… Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
                "200 whole open",
            ),
        ],
    ),
    (
        "bodies that nobody wants are read up to 64 KiB, their extras up to 16 KiB",
        &[
            (
                r"… Content-Length: 65537\r\n\r\nbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb… 65592 bytes",
                "200 whole open",
            ),
            (
                r"… Transfer-Encoding: chunked\r\n\r\n10000\r\nbbbbbbbbbbbbbbbbbbb… 65616 bytes",
                "200 whole open",
            ),
            (
                r"… Transfer-Encoding: chunked\r\n\r\n5;eeeeeeeeeeeeeeeeeeeeeeeeee… 20076 bytes",
                "200 whole open",
            ),
            (
                r"… Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n",
                "413 closed",
            ),
        ],
    ),
    (
        "RFC 9110, sections 5.1 and 5.5: names are tokens, values have no control bytes",
        &[
            (r"… A(: b\r\n\r\n", "200 whole open"),
            (r"… A: b\x01\r\n\r\n", "200 whole open"),
        ],
    ),
    (
        "RFC 9110, section 10.1.1: 100 where a body follows, 417 for what is not known",
        &[
            (r"… Expect: 100-continue\r\n\r\n", "100 then 200"),
            (r"… Expect: 200-ok\r\n\r\n", "200 whole open"),
            (
                r"POST /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
                "405 open",
            ),
            (
                r"FETCH /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
                "405 open",
            ),
            (
                r"PUT /f.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConten… 73 bytes",
                "405 then 400",
            ),
        ],
    ),
    (
        "RFC 9112, section 3.2: a target has no fragment",
        &[(
            r"GET /f.txt#top HTTP/1.1\r\nHost: a\r\n\r\n",
            "200 whole open",
        )],
    ),
    (
        "names that begin with a dot are hidden",
        &[
            (
                r"GET /.hidden HTTP/1.1\r\nHost: a\r\n\r\n",
                "200 'hidden' open",
            ),
            (
                r"GET /.git/config HTTP/1.1\r\nHost: a\r\n\r\n",
                "200 'hidden' open",
            ),
            (
                r"GET /.git HTTP/1.1\r\nHost: a\r\n\r\n",
                "301 to /.git/ open",
            ),
        ],
    ),
];
