// SPDX-License-Identifier: MIT

package compat

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// certificate writes the certificate that net/http/httptest uses for 127.0.0.1, and its key. It returns their
// files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pair := server.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		key:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestTokensHTTP2: streams of one connection of HTTP/2 are charged exactly. A stream that its client resets
// is charged what was counted by then.
func TestTokensHTTP2(t *testing.T) {
	cert, key := certificate(t)
	g := serveTokens(t, hostileProvider(t), hostileRules, "--tls-cert", cert, "--tls-key", key)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the certificate of this test
		ForceAttemptHTTP2: true,
	}}
	defer client.CloseIdleConnections()
	g.client, g.url = client, "https://"+g.host
	var all sync.WaitGroup
	const streams, leavers = 100, 10
	for i := range streams {
		all.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			events := "30"
			if i < leavers {
				events = "100000"
			}
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, g.url+chatPath, strings.NewReader(events))
			r.Header.Set("Authorization", fmt.Sprint("Bearer h2-", i))
			answer, err := client.Do(r)
			if err != nil || answer.ProtoMajor != 2 {
				t.Error(answer, err)
				return
			}
			defer answer.Body.Close()
			if i < leavers {
				_, err = io.ReadFull(answer.Body, make([]byte, 1000))
				leave()
			} else {
				_, err = io.Copy(io.Discard, answer.Body)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if !testproc.Becomes(func() bool { return g.unsettled(t, "chat") >= leavers }) || g.unsettled(t, "chat") != leavers {
		t.Errorf("%d unsettled, want %d", g.unsettled(t, "chat"), leavers)
	}
	for i := range streams {
		got := g.charged(t, chatPath, fmt.Sprint("h2-", i))
		if i < leavers && (got < 50 || got > 10_000) || i >= leavers && got != 70 {
			t.Errorf("stream %d: %d charged", i, got)
		}
	}
}
