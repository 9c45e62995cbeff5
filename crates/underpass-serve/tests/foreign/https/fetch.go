// Prints the SHA-256 of what a URL has: URL, file of the authority, version.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	pem, err := os.ReadFile(os.Args[2])
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	if os.Args[3] == "1.2" {
		config.MaxVersion = tls.VersionTLS12
	}
	var hash []byte
	for round := 0; round < 2; round++ {
		// A connection for each, so that the second one is resumed.
		transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
		response, err := (&http.Client{Transport: transport}).Get(os.Args[1])
		check(err)
		if round > 0 && !response.TLS.DidResume {
			check(fmt.Errorf("not resumed"))
		}
		digest := sha256.New()
		_, err = io.Copy(digest, response.Body)
		check(err)
		hash = digest.Sum(nil)
	}
	fmt.Printf("%x\n", hash)
}
