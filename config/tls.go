// SPDX-License-Identifier: MIT

package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
	"go.yaml.in/yaml/v4"
)

// TLS says how to secure connections to a server. The zero value trusts the authorities of the system,
// shows no certificate, and expects the name of the host in the certificate of the server.
type TLS struct {
	CA          string // PEM file of who signs the server's certificate; empty: the system's authorities
	Certificate string // PEM file shown to the server; empty: none
	Key         string // PEM file of the certificate's key
	ServerName  string // expected in the server's certificate; empty: its host; AnyName in programs
}

// AnyName is the ServerName that accepts each name in a certificate that an authority has signed.
const AnyName = "*"

// Load reads the files. Later each connection that needs the certificate reads it and its key again,
// because certificates are often replaced before they expire. The authorities are read only once. The
// error names the file. Load of nil returns nil, which means no TLS.
func (t *TLS) Load() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		text, err := readFile(t.CA, bounds.MaxConfig)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: expected certificates in PEM, found none", t.CA)
		}
	}
	if t.ServerName == AnyName {
		c.ServerName = ""
		c.InsecureSkipVerify = true // VerifyConnection does all but for the name
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyAuthority(c.RootCAs, s.PeerCertificates) }
	}
	if t.Certificate != "" {
		if _, err := t.pair(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.pair() }
	}
	return c, nil
}

// verifyAuthority returns an error if no authority has signed the certificate of a server. nil means those of the system.
func verifyAuthority(roots *x509.CertPool, chain []*x509.Certificate) error {
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(o)
	return err
}

// pair reads the certificate and its key.
func (t *TLS) pair() (*tls.Certificate, error) {
	certificate, err := readFile(t.Certificate, bounds.MaxConfig)
	if err != nil {
		return nil, err
	}
	key, err := readFile(t.Key, bounds.MaxConfig)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", t.Certificate, t.Key, err)
	}
	return &pair, nil
}

func readTLS(v value) *TLS {
	if !v.given() {
		return nil
	}
	if v.node.Kind != yaml.MappingNode {
		v.expected("a mapping (" + strings.Join(tlsKeys.names(), ", ") + "), or {} for TLS by the system's authorities")
		return nil
	}
	m := v.mapping()
	return &TLS{
		CA:          readPEMFile(m.get("ca")),
		Certificate: readPEMFile(m.get("certificate")),
		Key:         readPEMFile(m.get("key")),
		ServerName:  readServerName(m.get("server_name")),
	}
}

// readPEMFile reads the path of a file. No message shows the content of a PEM file that someone wrote here
// instead of its path, because a key is a secret.
func readPEMFile(v value) string {
	v.hide = v.given() && strings.Contains(v.node.Value, "-----BEGIN")
	path, ok := v.text()
	if ok && (v.hide || strings.ContainsAny(path, "\n\x00")) {
		v.fail("%s: expected the path of a PEM file, found what looks like its contents", v.key)
	}
	return path
}

func readServerName(v value) string {
	name, ok := v.text()
	if _, err := netip.ParseAddr(name); ok && err != nil && strings.ContainsAny(name, " /:@*") {
		v.expected("the name of a host, without port")
	}
	return name
}
