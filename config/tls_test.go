// SPDX-License-Identifier: MIT

package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tlsServer starts a server that tells the subject of who calls, and writes ca.pem,
// cert.pem and cert.key to a folder: it signs itself, and clients may be the same.
func tlsServer(t *testing.T) (s *httptest.Server, dir string) {
	t.Helper()
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, c := range r.TLS.PeerCertificates {
			_, _ = io.WriteString(w, c.Subject.String())
		}
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	dir = t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.pem":   {Type: "CERTIFICATE", Bytes: s.Certificate().Raw},
		"cert.pem": {Type: "CERTIFICATE", Bytes: s.Certificate().Raw},
		"cert.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s, dir
}

// get makes a connection of its own, and returns what the server says.
func get(s *httptest.Server, c *tls.Config) (string, error) {
	client := http.Client{Transport: &http.Transport{TLSClientConfig: c.Clone(), DisableKeepAlives: true}}
	answer, err := client.Get(s.URL)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	return string(text), err
}

func TestTLSLoad(t *testing.T) {
	t.Parallel()
	s, dir := tlsServer(t)
	ca, cert, key := dir+"/ca.pem", dir+"/cert.pem", dir+"/cert.key"
	for _, row := range []struct {
		tls       TLS
		want, err string
	}{
		{TLS{CA: ca}, "", ""},
		{TLS{CA: ca, ServerName: "example.com"}, "", ""},
		{TLS{CA: ca, Certificate: cert, Key: key}, "O=Acme Co", ""},
		{TLS{CA: ca, ServerName: "other.example"}, "", "not other.example"},
		{TLS{}, "", "signed by unknown authority"},
	} {
		c, err := row.tls.Load()
		if err != nil {
			t.Fatalf("%+v: %v", row.tls, err)
		}
		if c.MinVersion != tls.VersionTLS12 || c.InsecureSkipVerify {
			t.Errorf("%+v: version %x", row.tls, c.MinVersion)
		}
		got, err := get(s, c)
		if got != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%+v: %q, %v; want %q, %s", row.tls, got, err, row.want, row.err)
		}
	}
	if c, err := (*TLS)(nil).Load(); c != nil || err != nil {
		t.Errorf("none: %v, %v", c, err)
	}

	// The certificate is read for each connection.
	c, err := (&TLS{CA: ca, Certificate: cert, Key: key}).Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if _, err := get(s, c); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("without its key: %v", err)
	}
}

func TestTLSLoadErrors(t *testing.T) {
	t.Parallel()
	_, dir := tlsServer(t)
	if err := os.WriteFile(dir+"/no.pem", []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		tls  TLS
		want string
	}{
		{TLS{CA: "DIR/absent"}, "open DIR/absent: no such file or directory"},
		{TLS{CA: "DIR/no.pem"}, "DIR/no.pem: expected certificates in PEM, found none"},
		{TLS{CA: "DIR/cert.key"}, "DIR/cert.key: expected certificates in PEM, found none"},
		{TLS{Certificate: "DIR/absent", Key: "DIR/cert.key"}, "open DIR/absent: no such file or directory"},
		{TLS{Certificate: "DIR/cert.pem", Key: "DIR/absent"}, "open DIR/absent: no such file or directory"},
		{TLS{Certificate: "DIR/no.pem", Key: "DIR/cert.key"}, "certificate DIR/no.pem with key DIR/cert.key: tls: failed to find any PEM data in certificate input"},
		{TLS{Certificate: "DIR/cert.pem", Key: "DIR/no.pem"}, "certificate DIR/cert.pem with key DIR/no.pem: tls: failed to find any PEM data in key input"},
	} {
		for _, file := range []*string{&row.tls.CA, &row.tls.Certificate, &row.tls.Key} {
			*file = strings.Replace(*file, "DIR", dir, 1)
		}
		c, err := row.tls.Load()
		if c != nil || err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != row.want {
			t.Errorf("%+v: %v, want %s", row.tls, err, row.want)
		}
	}
}

// With AnyName a certificate may have any name, but an authority must have signed it.
func TestTLSAnyName(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		tls TLS
		ok  bool
	}{
		{TLS{CA: ca, ServerName: AnyName}, true},
		{TLS{CA: ca, ServerName: "another.host"}, false},
		{TLS{ServerName: AnyName}, false},
	} {
		c, err := test.tls.Load()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", server.Listener.Addr().String(), c)
		if (err == nil) != test.ok {
			t.Errorf("%+v: %v", test.tls, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}
