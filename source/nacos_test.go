// SPDX-License-Identifier: MIT

package source_test

import (
	"crypto/md5"
	"encoding/hex"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/source"
	"github.com/diana-limiter/diana/source/sourcetest"
)

// The recipe for Nacos in docs/sources.md passes the tests of sourcetest, with the server below.
func TestNacos(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, func(t *testing.T) sourcetest.Remote {
		n := &nacos{token: "hidden-token"}
		s := serve(t, false, n)
		return sourcetest.Remote{
			Kind:     source.HTTP(),
			Options:  source.Options{URL: recipe(t, s.addr), Token: token("hidden-token")},
			Put:      func(text []byte) { n.publish(source.Document{Text: text, Exists: true}) },
			Delete:   func() { n.publish(source.Document{}) },
			Stop:     s.stop,
			Start:    s.start,
			ReadOnly: true,
		}
	})
}

// A token can be in the URL, as Nacos' documentation has it. Then no error contains it.
func TestNacosTokenInURL(t *testing.T) {
	t.Parallel()
	n := &nacos{token: "hidden-second"}
	n.publish(source.Document{Text: []byte("text"), Exists: true})
	s := serve(t, false, n)
	for token, want := range map[string]string{"hidden-first": "403 Forbidden", "hidden-second": ""} {
		u := recipe(t, s.addr)
		u.RawQuery += "&accessToken=" + token
		d, err := open(t, source.HTTP(), source.Options{URL: u}).Get(t.Context())
		switch {
		case want == "" && (err != nil || string(d.Text) != "text"):
			t.Errorf("found %+v, %v", d, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden")):
			t.Errorf("found %+v, %v, expected %s", d, err, want)
		}
	}
}

// While Nacos writes a document, it answers 409, which is not an absent document. It refuses PUT.
func TestNacosRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t, false, &nacos{token: "hidden-token", writes: true})
	src := open(t, source.HTTP(), source.Options{URL: recipe(t, s.addr), Token: token("hidden-token")})
	if d, err := src.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "409 Conflict") {
		t.Errorf("found %+v, %v", d, err)
	}
	if err := src.Put(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "405 Method Not Allowed") {
		t.Errorf("found %v", err)
	}
}

// recipe returns the URL in docs/sources.md, for a server at addr.
func recipe(t *testing.T, addr string) *url.URL {
	t.Helper()
	page, err := os.ReadFile("../docs/sources.md")
	must(t, err)
	text := regexp.MustCompile(`url: (http://\S+/nacos/v1/cs/configs\S+)\n  token: file:`).FindSubmatch(page)
	if text == nil {
		t.Fatal("docs/sources.md has no recipe for Nacos")
	}
	u := parseURL(t, string(text[1]))
	u.Host = addr
	return u
}

// nacos answers like interface v1 of a Nacos with one document, as its documentation says. It sends
// the text whatever the conditions of a request are. Without a document it answers 404 with another
// text, during a write 409, and for a wrong token 403.
type nacos struct {
	token string

	mu       sync.Mutex // guards the rest
	now      source.Document
	modified time.Time
	writes   bool
}

func (n *nacos) publish(d source.Document) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now, n.modified = d, time.Now()
}

func (n *nacos) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	now, modified, writes := n.now, n.modified, n.writes
	n.mu.Unlock()
	q := r.URL.Query()
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		token = q.Get("accessToken")
	}
	switch {
	case r.URL.Path != "/nacos/v1/cs/configs":
		http.Error(w, "no such path", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodPost && r.Method != http.MethodDelete:
		http.Error(w, "Request method 'PUT' not supported", http.StatusMethodNotAllowed)
	case token != n.token:
		http.Error(w, "user not found! "+token, http.StatusForbidden)
	case q.Get("dataId") == "" || q.Get("group") == "":
		http.Error(w, "Required String parameter 'dataId' is not present", http.StatusBadRequest)
	case writes:
		http.Error(w, "requested file is being modified, please try later.", http.StatusConflict)
	case !now.Exists:
		http.Error(w, "config data not exist", http.StatusNotFound)
	default:
		sum := md5.Sum(now.Text)
		w.Header().Set("Content-MD5", hex.EncodeToString(sum[:]))
		w.Header().Set("Config-Type", "yaml")
		w.Header().Set("Cache-Control", "no-cache,no-store")
		w.Header().Set("Last-Modified", modified.UTC().Format(http.TimeFormat))
		_, _ = w.Write(now.Text) // the client may disconnect before the end
	}
}
