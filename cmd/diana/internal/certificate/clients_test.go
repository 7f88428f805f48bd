// SPDX-License-Identifier: MIT

package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/config"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	pair := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign returns a certificate with its key, which signs itself if the authority has none.
func (a *authority) sign(t *testing.T, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func writePEM(t *testing.T, path, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A certificate of the authority proves who the client is. Another one ends the handshake, and none proves nothing.
// Another authority counts as soon as the file is read, also for a client with a session.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	server := ours.sign(t, &x509.Certificate{DNSNames: []string{"example.com"}})
	folder := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(folder, "ca.pem")
	writePEM(t, ca, "CERTIFICATE", ours.cert.Raw)
	pair, err := Open(writePEM(t, filepath.Join(folder, "c.pem"), "CERTIFICATE", server.Certificate[0]),
		writePEM(t, filepath.Join(folder, "k.pem"), "PRIVATE KEY", key), ca, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, k := range config.DefaultVocabulary().Actors {
			if k.Kind == "cert" {
				_, _ = io.WriteString(w, k.Find(r, "cn")+" "+k.Find(r, "san")+" "+k.Find(r, "fingerprint"))
			}
		}
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = pair.Config("http/1.1")
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(ours.cert)
	cache := tls.NewLRUClientSessionCache(1)
	ask := func(cert *tls.Certificate) string {
		c := &tls.Config{RootCAs: roots, ServerName: "example.com", ClientSessionCache: cache, MinVersion: tls.VersionTLS12}
		if cert != nil {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
		}
		transport := &http.Transport{TLSClientConfig: c}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get(s.URL)
		if err != nil {
			return "no handshake"
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return strings.TrimSpace(string(text))
	}
	use := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	spiffe, _ := url.Parse("spiffe://example.com/ann")
	template := func() *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: "ann"}, DNSNames: []string{"ann.example.com"}, URIs: []*url.URL{spiffe}, ExtKeyUsage: use}
	}
	ann := ours.sign(t, template())
	late := template()
	late.NotAfter = time.Now().Add(-time.Hour)
	expired, forged, self := ours.sign(t, late), others.sign(t, template()), (&authority{}).sign(t, template())
	if got := ask(&ann); !strings.HasPrefix(got, "ann spiffe://example.com/ann ") || len(got) != len("ann spiffe://example.com/ann ")+64 {
		t.Errorf("%q", got)
	}
	for name, of := range map[string]*tls.Certificate{"expired": &expired, "of another authority": &forged, "signed by itself": &self} {
		if got := ask(of); got != "no handshake" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := ask(nil); got != "" {
		t.Errorf("without a certificate: %q", got)
	}
	writePEM(t, ca, "CERTIFICATE", others.cert.Raw)
	pair.look()
	pair.look()
	if got := ask(&ann); got != "no handshake" {
		t.Errorf("of the old authority: %q", got)
	}
	if got := ask(&forged); !strings.HasPrefix(got, "ann ") {
		t.Errorf("of the new authority: %q", got)
	}
	writePEM(t, ca, "NOTHING", nil)
	pair.look()
	pair.look()
	if got := ask(&forged); !strings.HasPrefix(got, "ann ") {
		t.Errorf("with a broken file: %q", got)
	}
}
