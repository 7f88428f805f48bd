// SPDX-License-Identifier: MIT

package console

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

// Clients that send a body and pause hold a bounded part of the memory, and nobody who has the token has to wait for
// them.
func TestBodiesShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = mostBody - 1
		var reading int64
		slow := func(h http.Handler, from string, length int64, fields ...string) (code func() int, end func()) {
			body, send := io.Pipe()
			r := httptest.NewRequest("POST", "/api/v1/validate", body)
			r.RemoteAddr, r.ContentLength, r.Host = from, length, "127.0.0.1"
			r.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(fields); i += 2 {
				r.Header.Set(fields[i], fields[i+1])
			}
			w := httptest.NewRecorder()
			go h.ServeHTTP(w, r)
			synctest.Wait()
			return func() int { synctest.Wait(); return w.Code }, func() { send.Close(); synctest.Wait() }
		}
		for _, test := range []struct {
			name, token, from string
			fields            []string
			length            int64
			want              int64
		}{
			{"strangers", "", "192.0.2.%d:1", nil, size, 2},
			{"strangers of unknown length", "", "192.0.2.%d:1", nil, -1, 2},
			{"one stranger", "", "192.0.2.1:%d", nil, 10, 1},
			{"one stranger of a network", "", "[2001:db8::%x%%eth0]:1", nil, 10, 1},
			{"strangers of IPv6", "", "[2001:db8:0:%x::1]:1", nil, size, 2},
			{"this machine", "", "127.0.0.1:%d", nil, size, 8},
			{"with the token", "s3cret-of-the-operators", "192.0.2.%d:1", []string{"Authorization", "Bearer s3cret-of-the-operators"}, size, 8},
			{"without the token", "s3cret-of-the-operators", "192.0.2.%d:1", nil, size, 0},
		} {
			a := NewAccess(newSite(test.token).access.options)
			h := a.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				reading++
				_, _ = io.ReadAll(r.Body)
				reading--
			}))
			var ends []func()
			for n := range 20 {
				code, end := slow(h, fmt.Sprintf(test.from, n+1), test.length, test.fields...)
				ends = append(ends, end)
				if got := code(); int64(n) >= test.want && got != http.StatusServiceUnavailable && got != http.StatusUnauthorized {
					t.Errorf("%s: body %d gets %d", test.name, n+1, got)
				}
			}
			if reading != test.want {
				t.Errorf("%s: %d bodies are read at once, want %d", test.name, reading, test.want)
			}
			if test.want < 8 { // the bodies are of strangers
				reads := reading
				_, end := slow(h, "127.0.0.1:99", 10)
				if reading != reads+1 {
					t.Errorf("%s: a body of this machine is not read", test.name)
				}
				end()
			}
			for _, end := range ends {
				end()
			}
			if reading != 0 || a.bodies.strangers != 0 || a.bodies.trusted != 0 || len(a.bodies.sending) != 0 {
				t.Errorf("%s: %+v is still in use", test.name, a.bodies.sending)
			}
		}
	})
}

// A body that begins a session is short, because its sender has no token yet.
func TestSessionBodyIsShort(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	body := `{"token": "s3cret-of-the-operators", "mode": "` + strings.Repeat("x", mostSession) + `"}`
	if w := s.send("POST", sessionPath, elsewhere, body); w.Code != http.StatusRequestEntityTooLarge {
		t.Error(w.Code)
	}
}

// The OpenAPI document says that a request with a body can get 503.
func TestDocumentedWithoutMemory(t *testing.T) {
	t.Parallel()
	var d struct {
		Paths map[string]map[string]struct{ RequestBody, Responses map[string]any }
	}
	if err := json.Unmarshal(document, &d); err != nil {
		t.Fatal(err)
	}
	for path, methods := range d.Paths {
		for method, operation := range methods {
			if operation.RequestBody != nil && "/api/v1"+path != sessionPath && operation.Responses["503"] == nil {
				t.Errorf("%s %s: the document does not have the status 503", method, path)
			}
		}
	}
}
