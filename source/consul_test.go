// SPDX-License-Identifier: MIT

package source_test

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/source"
)

// fakeConsul is one key of a Consul, with the HTTP API of Consul.
type fakeConsul struct {
	token string // that requests must have

	mu      sync.Mutex // guards the rest
	now     source.Document
	entry   uint64        // ModifyIndex of the key
	index   uint64        // of the whole store
	changed chan struct{} // closed at the next change
	queries []string      // of all requests
}

func newFakeConsul(token string) *fakeConsul {
	c := &fakeConsul{token: token, changed: make(chan struct{})}
	c.index = 10 // other keys have changed before
	return c
}

func (c *fakeConsul) change(d source.Document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(d)
}

// set changes the key while the lock is held. Then another key changes.
func (c *fakeConsul) set(d source.Document) {
	c.now = d
	c.entry = c.index + 1
	c.index += 2
	close(c.changed)
	c.changed = make(chan struct{})
}

// swap writes the key if its ModifyIndex is cas, and if it is absent for 0. It reports whether.
func (c *fakeConsul) swap(cas string, text []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.Exists && cas != strconv.FormatUint(c.entry, 10) || !c.now.Exists && cas != "0" {
		return false
	}
	c.set(source.Document{Text: text, Exists: true})
	return true
}

// restart sets the index and the document, as a restart without data does.
func (c *fakeConsul) restart(d source.Document, index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.index, c.entry = d, index, index
}

func (c *fakeConsul) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.queries...)
}

func (c *fakeConsul) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Consul-Token") != c.token {
		http.Error(w, "rpc error making call: Permission denied", http.StatusForbidden)
		return
	}
	if r.URL.Path != "/v1/kv/diana/limits of all" {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	if r.Method == http.MethodPut {
		text, err := io.ReadAll(r.Body)
		written := err == nil
		if written && query.Has("cas") {
			written = c.swap(query.Get("cas"), text)
		} else if written {
			c.change(source.Document{Text: text, Exists: true})
		}
		_, _ = io.WriteString(w, strconv.FormatBool(written)+"\n") // the client may have disconnected
		return
	}
	c.mu.Lock()
	c.queries = append(c.queries, r.URL.RawQuery)
	c.mu.Unlock()
	asked, _ := strconv.ParseUint(query.Get("index"), 10, 64)
	wait, err := time.ParseDuration(query.Get("wait"))
	if err != nil && asked > 0 {
		wait = 5 * time.Minute
	}
	end := time.NewTimer(wait + rand.N(wait/16+1))
	defer end.Stop()
	for waits := asked > 0; waits; {
		c.mu.Lock()
		changed, index := c.changed, c.index
		c.mu.Unlock()
		if index > asked {
			break
		}
		select {
		case <-changed:
		case <-end.C:
			waits = false
		case <-r.Context().Done():
			return
		}
	}
	c.mu.Lock()
	now, index, entry := c.now, c.index, c.entry
	c.mu.Unlock()
	w.Header().Set("X-Consul-Index", strconv.FormatUint(index, 10))
	if !now.Exists {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if !query.Has("raw") {
		_ = json.NewEncoder(w).Encode([]map[string]any{{ // the client may disconnect before the end
			"LockIndex": 0, "Key": "diana/limits of all", "Flags": 0, "Value": now.Text,
			"CreateIndex": 1, "ModifyIndex": entry,
		}})
		return
	}
	_, _ = w.Write(now.Text) // the client may disconnect before the end
}

// The 404 of another server is not a deleted key.
func TestConsulIsAnother(t *testing.T) {
	t.Parallel()
	s := serve(t, false, http.NotFoundHandler())
	src := open(t, source.Consul(), source.Options{URL: parseURL(t, "consul://"+s.addr+"/key")})
	if d, err := src.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "expected the address of a Consul agent") {
		t.Errorf("found %+v, %v", d, err)
	}
	s = serve(t, false, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "false\n") // read below
	}))
	src = open(t, source.Consul(), source.Options{URL: parseURL(t, "consul://"+s.addr+"/key")})
	if err := src.Put(t.Context(), nil); err == nil {
		t.Error("a key that was not written is said to be")
	}
}

// A query never has the index 0, nor an index from before Consul was wiped.
func TestConsulIndex(t *testing.T) {
	t.Parallel()
	c := newFakeConsul("")
	s := serve(t, false, c)
	src := open(t, source.Consul(), source.Options{URL: parseURL(t, "consul://"+s.addr+"/diana/limits%20of%20all")})
	c.restart(source.Document{Text: []byte("first"), Exists: true}, 0)
	d, err := src.Get(t.Context())
	must(t, err)
	must(t, src.Wait(t.Context(), d)) // polls, without a query
	c.restart(source.Document{Text: []byte("second"), Exists: true}, 1000)
	d, err = src.Get(t.Context())
	must(t, err)
	c.restart(source.Document{Text: []byte("third"), Exists: true}, 5)
	must(t, src.Wait(t.Context(), d))
	d, err = src.Get(t.Context())
	must(t, err)
	c.change(source.Document{Text: []byte("fourth"), Exists: true})
	must(t, src.Wait(t.Context(), d))
	if got, want := strings.Join(c.asked(), " "), "raw= raw= index=1000&raw=&wait=6s raw= index=5&raw=&wait=6s"; got != want {
		t.Errorf("asked %s\nexpected %s", got, want)
	}
}

// The rate of queries is limited, even if the index grows all the time.
func TestConsulRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var answers int
		src := open(t, source.Consul(), source.Options{URL: parseURL(t, "consul://h/diana")})
		source.Replace(src, func(*http.Request) (*http.Response, error) {
			answers++
			return &http.Response{
				StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("text")),
				Header: http.Header{"X-Consul-Index": {strconv.Itoa(answers)}},
			}, nil
		})
		for begin := time.Now(); time.Since(begin) < time.Minute; {
			d, err := src.Get(t.Context())
			must(t, err)
			must(t, src.Wait(t.Context(), d))
		}
		if answers > 60*2*25 {
			t.Errorf("asked %d times in a minute", answers)
		}
	})
}
