// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/internal/testproc"
)

// pairFiles are a certificate and its key in two files.
type pairFiles struct{ cert, key string }

// newPair returns a certificate for 127.0.0.1 with this name, and its key, in PEM.
func newPair(t *testing.T, name string, expires time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Now().Add(-48 * time.Hour),
		NotAfter:     expires,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// writePair writes a new pair to cert.pem and key.pem of a folder.
func writePair(t *testing.T, dir, name string, expires time.Time) pairFiles {
	t.Helper()
	cert, key := newPair(t, name, expires)
	files := pairFiles{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	write(t, files.cert, cert)
	write(t, files.key, key)
	return files
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// inAnHour is when certificates of these tests expire.
func inAnHour() time.Time { return time.Now().Add(time.Hour) }

// over returns a client that accepts any certificate, and speaks HTTP/2 or HTTP/1.1 alone.
func over(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// shownName returns the name in the certificate that a server shows.
func shownName(address string) string {
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// A gateway with a certificate speaks TLS 1.2 and up, with HTTP/2, HTTP/1.1 and WebSockets inside.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			ws, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			kind, text, _ := ws.Read(r.Context())
			_ = ws.Write(r.Context(), kind, append(text, " again"...))
			_ = ws.CloseNow()
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Header.Get("X-Forwarded-Proto"), r.Method, body)
	}))
	t.Cleanup(upstream.Close)
	files := writePair(t, t.TempDir(), "first", inAnHour())
	g := serve(t, "limits: []", upstream.URL, "--tls-cert", files.cert, "--tls-key", files.key)
	address := strings.TrimPrefix(g.url, "https://")
	for _, version := range []int{1, 2} {
		answer, err := over(t, version == 2).Post(g.url, "text/plain", strings.NewReader("a body"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.ProtoMajor != version || answer.StatusCode != 200 || string(body) != "https POST a body" {
			t.Errorf("HTTP/%d: %s %d %q", version, answer.Proto, answer.StatusCode, body)
		}
	}
	ws, _, err := websocket.Dial(t.Context(), "wss://"+address, &websocket.DialOptions{HTTPClient: over(t, false)}) //nolint:bodyclose // it has no body but the WebSocket
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if err := ws.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := ws.Read(t.Context()); err != nil || string(text) != "hello again" {
		t.Errorf("%q, %v", text, err)
	}
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		if err == nil {
			conn.Close()
		}
		if (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	answer, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != 400 || !strings.Contains(string(body), "HTTPS") {
		t.Errorf("HTTP without TLS: %d %s", answer.StatusCode, body)
	}
	if strings.Contains(g.log.String(), "handshake") {
		t.Error("a failed handshake is logged as an error")
	}
}

// The listener for other gateways has the same certificate. The administrators' has none.
func TestServeTLSCheck(t *testing.T) {
	t.Parallel()
	files := writePair(t, t.TempDir(), "first", inAnHour())
	g := &served{file: filepath.Join(t.TempDir(), "diana.yaml")}
	write(t, g.file, []byte("limits: []"))
	g.begin(t, "--check", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--tls-cert", files.cert, "--tls-key", files.key)
	lines := g.lines(t, 3)
	if !strings.HasPrefix(lines[2], "diana: check on https://") || !strings.HasPrefix(lines[1], "diana: admin on http://") {
		t.Fatalf("%q", lines)
	}
	answer, err := over(t, true).Get(strings.TrimPrefix(lines[2], "diana: check on ") + "/check")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 || answer.ProtoMajor != 2 {
		t.Errorf("%s %d", answer.Proto, answer.StatusCode)
	}
}

// The gateway uses a new pair however it is replaced, and keeps the old one while the new one is broken.
func TestServeTLSReload(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	folder := func(name string) string {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		return at
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name+".new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	writePair(t, folder("v1"), "v1", inAnHour())
	writePair(t, folder("v2"), "v2", inAnHour())
	link("v1", "..data")
	link("..data/cert.pem", "cert.pem")
	link("..data/key.pem", "key.pem")
	g := serve(t, "limits: []", upstream.URL, "--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"))
	address := strings.TrimPrefix(g.url, "https://")
	shows := func(name string) {
		t.Helper()
		if !testproc.Becomes(func() bool { return shownName(address) == name }) {
			t.Errorf("the certificate is %s, want %s", shownName(address), name)
		}
	}
	shows("v1")
	link("v2", "..data") // as Kubernetes does
	shows("v2")

	cert, key := newPair(t, "v3", inAnHour()) // as certbot does: each file is replaced by a link to another one
	write(t, filepath.Join(dir, "v3-cert.pem"), cert)
	write(t, filepath.Join(dir, "v3-key.pem"), key)
	link("v3-cert.pem", "cert.pem")
	link("v3-key.pem", "key.pem")
	shows("v3")

	link("v2/key.pem", "key.pem") // not the key of v3
	broken := func() int { return strings.Count(g.log.String(), `msg="TLS certificate not changed"`) }
	testproc.Eventually(t, func() bool { return broken() > 0 })
	shows("v3")
	if !strings.Contains(g.log.String(), "does not match the certificate in") {
		t.Error("the log does not say why")
	}
	write(t, filepath.Join(dir, "v3-cert.pem"), []byte("no certificate")) // broken in another way: a second line
	testproc.Eventually(t, func() bool { return broken() > 1 })
	writePair(t, dir, "v4", time.Now().Add(-time.Hour)) // in place, through the links
	shows("v4")
	testproc.Eventually(t, func() bool { return strings.Contains(g.log.String(), `msg="the TLS certificate has expired"`) })
	if n := broken(); n != 2 {
		t.Errorf("%d lines for two broken pairs", n)
	}
	if at := g.metric(t, "diana_tls_certificate_expiry_timestamp_seconds"); at > float64(time.Now().Unix()) {
		t.Errorf("the metric says %v", at)
	}
}

// Slow clients over TLS are cut off as others are.
func TestServeCutsSlowClientsOverTLS(t *testing.T) {
	t.Parallel()
	inside := make(chan struct{}, 10)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/body":
			inside <- struct{}{}
			exchange.ReadsAll(w, r)
		case "/endless":
			inside <- struct{}{}
			exchange.Endless(w, r)
		}
	}))
	t.Cleanup(upstream.Close)
	files := writePair(t, t.TempDir(), "first", inAnHour())
	g := serve(t, exchange.FewSlots, upstream.URL, "--tls-cert", files.cert, "--tls-key", files.key, "--read-timeout", "1s", "--write-timeout", "1s")
	next := func() int {
		answer, err := over(t, false).Get(g.url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	var clients []*tls.Conn
	for i := range 4 {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(g.url, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		text := "POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf"
		if i%2 == 1 {
			text = "GET /endless HTTP/1.1\r\nHost: here\r\n\r\n"
		}
		_, _ = io.WriteString(conn, text)
		<-inside
		clients = append(clients, conn)
	}
	if status := next(); status != http.StatusServiceUnavailable {
		t.Error("a fifth request gets", status)
	}
	if !testproc.Becomes(func() bool { return next() == http.StatusOK }) {
		t.Fatal("no slot is ever free again")
	}
	answer, err := http.ReadResponse(bufio.NewReader(clients[0]), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestTimeout {
		t.Error("a client that sends half a body gets", answer.StatusCode)
	}
}

// A pipe in place of a file ends the start. In place of a file that was used it changes nothing, and the gateway
// still uses the next files.
func TestServeTLSPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := writePair(t, dir, "first", inAnHour())
	pipe := filepath.Join(dir, "pipe")
	if err := exec.Command("mkfifo", pipe).Run(); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--tls-cert", pipe, "--tls-key", files.key}, {"--tls-cert", files.cert, "--tls-key", pipe}} {
		if _, stderr := fails(t, flags...); !strings.Contains(stderr, pipe+" is no regular file, expected a file with a ") {
			t.Errorf("%q", stderr)
		}
	}
	g := serve(t, "limits: []", nothing(t), "--tls-cert", files.cert, "--tls-key", files.key)
	if err := os.Rename(pipe, files.cert); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, func() bool { return strings.Contains(g.log.String(), "is no regular file") })
	if err := os.Remove(files.cert); err != nil {
		t.Fatal(err)
	}
	writePair(t, dir, "second", inAnHour())
	address := strings.TrimPrefix(g.url, "https://")
	testproc.Eventually(t, func() bool { return shownName(address) == "second" })
}
