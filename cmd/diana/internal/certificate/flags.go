// SPDX-License-Identifier: MIT

package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Flags are the flags of serve for TLS with clients.
type Flags struct {
	Cert string `name:"tls-cert" placeholder:"FILE" help:"Certificate in PEM, and those of its authorities behind it. With it all listeners but the administrators' speak TLS, and HTTP/2 and HTTP/1.1 inside. Read again when it changes."`
	Key  string `name:"tls-key" placeholder:"FILE" help:"Private key of the certificate, in PEM."`
	CA   string `name:"tls-client-ca" placeholder:"FILE" help:"Certificates in PEM of the authorities of clients, for rules that count by cert:cn, cert:san or cert:fingerprint. A client may show no certificate, but none of another authority."`
	H2C  bool   `name:"h2c" help:"Accept HTTP/2 without TLS beside HTTP/1.1, from clients that know that the gateway speaks it."`
}

// Valid returns an error if one of the flags needs another one.
func (f *Flags) Valid() error {
	switch {
	case f.Cert != "" && f.Key == "":
		return errors.New("--tls-cert: expected --tls-key too, the file with the private key of the certificate")
	case f.Cert == "" && f.Key != "":
		return errors.New("--tls-key: expected --tls-cert too, the file with the certificate of the key")
	case f.CA != "" && f.Cert == "":
		return errors.New("--tls-client-ca: expected --tls-cert too, because clients show certificates over TLS")
	case f.Cert != "" && f.H2C:
		return errors.New("--h2c: expected without --tls-cert, because clients use HTTP/2 over TLS")
	}
	return nil
}

// Open returns the one of the flags, or nil if there is none.
func (f *Flags) Open(logger *slog.Logger) (*Pair, error) {
	if f.Cert == "" {
		return nil, nil
	}
	return Open(f.Cert, f.Key, f.CA, logger)
}

// Config returns the configuration of a TLS server that speaks these protocols. Each handshake gets the
// certificate that is active then.
func (p *Pair) Config(protocols ...string) *tls.Config {
	c := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.active.Load(), nil },
	}
	if p.caFile == "" {
		return c
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	c.SessionTicketsDisabled = true // a resumed session would keep the certificate of an authority that is gone
	each := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := each.Clone()
		now.ClientCAs = p.clients.Load()
		return now, nil
	}
	return c
}

// loadAuthorities returns the authorities of clients that a file has.
func loadAuthorities(file string) (*x509.CertPool, error) {
	text, err := readRegular(file)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %w, expected a file with certificates in PEM", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tls-client-ca: %s has no certificate, expected a PEM block CERTIFICATE", file)
	}
	return pool, nil
}

// loadKeyPair returns the certificate with its key that two files have. Errors name the file, what it has,
// and what it should have.
func loadKeyPair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := readRegular(certFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w, expected a file with a certificate in PEM", err)
	}
	key, err := readRegular(keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w, expected a file with a private key in PEM", err)
	}
	if !hasBlock(cert, "CERTIFICATE") {
		return nil, fmt.Errorf("--tls-cert: %s has no certificate, expected a PEM block CERTIFICATE", certFile)
	}
	if isEncrypted(key) {
		return nil, fmt.Errorf("--tls-key: the key in %s is encrypted, expected one without a passphrase", keyFile)
	}
	if !hasBlock(key, "PRIVATE KEY") {
		return nil, fmt.Errorf("--tls-key: %s has no private key, expected a PEM block PRIVATE KEY", keyFile)
	}
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err == nil:
		return &pair, nil
	case strings.Contains(err.Error(), "does not match"): // crypto/tls has no type for it
		return nil, fmt.Errorf("--tls-key: the key in %s does not match the certificate in %s, expected its private key", keyFile, certFile)
	}
	return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w, expected a certificate and its private key", certFile, keyFile, err)
}

// hasBlock reports whether a text has a PEM block whose type ends in kind, such as EC PRIVATE KEY.
func hasBlock(text []byte, kind string) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, kind) {
			return true
		}
	}
	return false
}

// isEncrypted reports whether a text has a private key with a passphrase, in PKCS #8 or in the older form of
// OpenSSL.
func isEncrypted(text []byte) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}

// untimely returns why clients do not accept a certificate now, or "".
func untimely(leaf *x509.Certificate, now time.Time) string {
	switch {
	case now.After(leaf.NotAfter):
		return "the TLS certificate has expired"
	case now.Before(leaf.NotBefore):
		return "the TLS certificate is not valid yet"
	}
	return ""
}

// Expiry returns the metric of when the certificate expires.
func (p *Pair) Expiry() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "diana_tls_certificate_expiry_timestamp_seconds",
		Help: "When the active TLS certificate expires, in seconds since 1970.",
	}, func() float64 { return float64(p.active.Load().Leaf.NotAfter.Unix()) })
}
