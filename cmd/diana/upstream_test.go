// SPDX-License-Identifier: MIT

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/diana-limiter/diana/internal/testproc"
)

// startTLS starts an upstream that speaks HTTP/2 and HTTP/1.1 over TLS. It answers with its protocol.
func startTLS(t *testing.T, files pairFiles) *httptest.Server {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(files.cert, files.key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, r.Proto)
			return
		}
		if ws, err := websocket.Accept(w, r, nil); err == nil {
			_ = ws.Write(r.Context(), websocket.MessageText, []byte(r.Proto))
			_ = ws.CloseNow()
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// trusting starts a gateway that trusts a certificate.
func trusting(t *testing.T, files pairFiles, upstream string, flags ...string) *served {
	t.Helper()
	s := &served{file: filepath.Join(t.TempDir(), "diana.yaml"), env: []string{"SSL_CERT_FILE=" + files.cert}}
	write(t, s.file, []byte("limits: []"))
	s.begin(t, append([]string{"--upstream", upstream, "--listen", "127.0.0.1:0"}, flags...)...)
	testproc.Eventually(t, s.listens)
	return s
}

// An upstream with TLS chooses HTTP/2. A WebSocket uses HTTP/1.1.
func TestUpstreamOverTLS(t *testing.T) {
	t.Parallel()
	files := writePair(t, t.TempDir(), "upstream", inAnHour())
	upstream := startTLS(t, files)
	g := trusting(t, files, upstream.URL)
	if status, body := g.send(t, "GET", ""); status != 200 || body != "HTTP/2.0" {
		t.Errorf("%d %q", status, body)
	}
	ws, _, err := websocket.Dial(t.Context(), strings.Replace(g.url, "http:", "ws:", 1), nil) //nolint:bodyclose // it has no body but the WebSocket
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if _, text, err := ws.Read(t.Context()); err != nil || string(text) != "HTTP/1.1" {
		t.Errorf("%q, %v", text, err)
	}
}

// The log says what is wrong with an upstream that does not speak the protocol of its URL.
func TestUpstreamSpeaksSomethingElse(t *testing.T) {
	t.Parallel()
	files := writePair(t, t.TempDir(), "upstream", inAnHour())
	secure := strings.TrimPrefix(startTLS(t, files).URL, "https://")
	plain := strings.TrimPrefix(newMember(t, "a").URL, "http://")
	calls, _ := startCalls(t, nil)
	for name, test := range map[string]struct{ upstream, log string }{
		"no HTTP":         {"http://" + greeting(t), `(malformed HTTP response \\"SSH-2.0-OpenSSH_9.2\\"|the upstream sends before it is asked)`},
		"no TLS":          {"https://" + plain, "the upstream speaks no TLS, expected the scheme http or h2c"},
		"no HTTP/2":       {"h2c://" + plain, "the upstream speaks no HTTP/2 without TLS, expected the scheme http"},
		"HTTP/2 alone":    {"http://" + calls, "(the upstream speaks HTTP/2 alone, expected|for HTTP/2 alone use) the scheme h2c"},
		"not trusted":     {"https://" + secure, "x509: certificate signed by unknown authority"},
		"nothing listens": {unused(t), "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := serve(t, "limits: []", test.upstream)
			if status, body := g.send(t, "GET", ""); status != 502 || strings.Contains(body, "127.0.0.1") {
				t.Errorf("%d %s", status, body)
			}
			line := regexp.MustCompile(`level=ERROR msg=upstream error=.*` + test.log)
			if !testproc.Becomes(func() bool { return line.MatchString(g.log.String()) }) {
				t.Errorf("the log does not say %q", test.log)
			}
		})
	}
}

// greeting starts a server that greets a client in a protocol that is not HTTP.
func greeting(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprint(conn, "SSH-2.0-OpenSSH_9.2\r\n")
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	return l.Addr().String()
}
