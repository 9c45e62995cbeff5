"""Prints the SHA-256 of what a URL has: URL, file of the authority, version."""

import hashlib
import http.client
import ssl
import sys
import urllib.parse

url, authority, version = sys.argv[1:]
parts = urllib.parse.urlsplit(url)
context = ssl.create_default_context(cafile=authority)
context.maximum_version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[version]
connection = http.client.HTTPSConnection(parts.netloc, context=context)
for _ in range(2):
    connection.request("GET", parts.path)
    digest = hashlib.sha256(connection.getresponse().read())
# The end is announced: without, unwrap() is an error.
connection.request("GET", parts.path, headers={"Connection": "close"})
raw = connection.sock
response = connection.getresponse()
digest = hashlib.sha256(response.read())
print(digest.hexdigest())
