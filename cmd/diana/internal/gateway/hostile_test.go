// SPDX-License-Identifier: MIT

package gateway

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
)

// A request's trailers reach the upstream without those that forge an identity, a cost or an
// origin: announced or not, in any spelling, from any client.
func TestForgedTrailersAreDropped(t *testing.T) {
	t.Parallel()
	const limits = `
identity: {account: [header:X_Account, cookie:sid], device: [header:X-Device], trusted_proxies: [127.0.0.1]}
limits:
  - url: /
    bandwidth: {rate: 100m, actor: header:X-Paced}
    rules:
      - {rpu: 1000, actor: account}
      - {rpu: 1000, actor: device}
      - {rpu: 1000, actor: header:X-Tenant}
      - {rpu: 1000, cost: header:X-Cost}
`
	forged := []string{
		"X-Forwarded-For", "x-forwarded-for", "X_Forwarded_For", "X-Forwarded-Host", "X-Forwarded-Anything", "Forwarded", "X-Real-IP",
		"X-Request-Id", "X-Account", "x_account", "X-Device", "X_Device", "X-Tenant", "X-Cost", "X-Paced", "Cookie",
		"Authorization", "Host", "Connection", "Keep-Alive", "Upgrade", "TE", "Transfer-Encoding", "Content-Length", "Content-Type",
	}
	honest := []string{"X-Checksum", "X-Signature"}
	got := make(chan http.Header, 1)
	r := start(t, limits, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
	}))
	announcedOK := slices.DeleteFunc(slices.Clone(forged), func(f string) bool { // net/http refuses to read these
		return f == "Transfer-Encoding" || f == "Content-Length"
	})
	for name, announced := range map[string][]string{
		"announced":        append(announcedOK, honest...),
		"honest announced": honest,
		"one announced":    honest[:1],
		"none announced":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			text := "POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
			if announced != nil {
				text += "Trailer: " + strings.Join(announced, ", ") + "\r\n"
			}
			text += "\r\n4\r\nbody\r\n0\r\n"
			for _, f := range append(slices.Clone(forged), honest...) {
				text += f + ": 7\r\n"
			}
			_, answer := r.raw(text + "\r\n")
			if line, err := answer.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
				t.Fatal(line, err)
			}
			var want []string // net/http passes on no trailers if none is announced
			if announced != nil {
				want = honest
			}
			trailer := <-got
			for _, f := range want {
				if trailer.Get(f) != "7" {
					t.Errorf("%s is lost: %v", f, trailer)
				}
				trailer.Del(f)
			}
			if len(trailer) > 0 {
				t.Errorf("the upstream gets %v", trailer)
			}
		})
	}
}

// The gateway answers with 502 for an upstream with an invalid status, and keeps running.
func TestUpstreamStatusIsNone(t *testing.T) {
	t.Parallel()
	const end = "Content-Length: 0\r\nConnection: close\r\n\r\n"
	for _, answer := range []string{
		"HTTP/1.1 099 Odd\r\n" + end,
		"HTTP/1.1 000 Odd\r\n" + end,
		"HTTP/1.1 001 Odd\r\n" + end,
		"HTTP/1.1 +99 Odd\r\n" + end,
		"HTTP/1.1 -99 Odd\r\n" + end,
		"HTTP/1.1 99 Odd\r\n" + end,
		"HTTP/1.1 1000 Odd\r\n" + end,
		"HTTP/1.1 20O OK\r\n" + end,
		"HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n" + end,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade:\r\n\r\n",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 20) + "HTTP/1.1 099 Odd\r\n" + end,
	} {
		t.Run(strings.ReplaceAll(answer[max(len(answer)-60, 0):], "\r\n", " "), func(t *testing.T) {
			t.Parallel()
			r := startTo(t, generous, "http://"+exchange.Answering(t, answer))
			for _, fields := range [][]string{nil, {"Connection: Upgrade", "Upgrade: h2c"}} {
				wantProblem(t, r.get("/", fields...), http.StatusBadGateway)
			}
			if strings.Contains(r.log.String(), "panic") {
				t.Error(r.log.String())
			}
		})
	}
	t.Run("999", func(t *testing.T) {
		t.Parallel()
		r := startTo(t, generous, "http://"+exchange.Answering(t, "HTTP/1.1 999 Odd\r\n"+end))
		if a := r.get("/"); a.Status != 999 {
			t.Error(a)
		}
	})
}
