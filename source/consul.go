// SPDX-License-Identifier: MIT

package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// consulKind is the kind of a key in Consul. The key is the path of the URL without its first
// slash. The Source uses the HTTP API, over TLS if Options have TLS. It sends a Token in
// X-Consul-Token, and Credentials by basic authentication, for a proxy that needs it.
//
// Wait is a blocking query: Consul answers when the index of the key exceeds the index in the
// query. Consul's documentation has three rules for clients, which the Source keeps like this:
//
//   - It never sends an index of 0, which would not block; it polls instead.
//   - It forgets an index that goes backwards: Get sends none, and the next Wait sends the
//     index that Get has received.
//   - It limits the rate of queries, because an index can change when the key does not.
func consulKind() Kind {
	return Kind{
		Schemes: []string{"consul"},
		Form:    "consul://HOST:PORT/KEY",
		Check: func(u *url.URL) bool {
			return u.Hostname() != "" && strings.Trim(u.Path, "/") != "" && bare(u)
		},
		Open: func(o Options) (Source, error) {
			if err := checkCredentials(o); err != nil {
				return nil, err
			}
			u := &url.URL{Scheme: "http", Host: o.URL.Host, Path: "/v1/kv/" + strings.TrimPrefix(o.URL.Path, "/")}
			if o.TLS != nil {
				u.Scheme = "https"
			}
			if o.URL.Port() == "" {
				u.Host = net.JoinHostPort(o.URL.Hostname(), "8500")
			}
			return &consulKey{web: newWeb(o, func(h http.Header, token string) {
				h.Set("X-Consul-Token", token)
			}), url: u}, nil
		},
	}
}

const (
	// consulWait is how long Consul blocks a query when nothing changes. Consul adds up to a
	// sixteenth of it. If there is no answer consulSlack after that, the connection is dead.
	consulWait  = 6 * time.Second
	consulSlack = time.Second

	// After an answer, Wait pauses for a random time. This limits the rate of queries, and
	// spreads the gateways that learn of a change at the same moment.
	shortestConsulPause = 20 * time.Millisecond
	longestConsulPause  = 120 * time.Millisecond

	// largestEntry is the size of the largest key with its ModifyIndex: a document in base64, and
	// what Consul adds to it.
	largestEntry = (MaxSize+3)/3*4 + 16<<10
)

// consulKey is a key in Consul. The Version of its documents is Consul's index.
type consulKey struct {
	*web
	url *url.URL
}

func (k *consulKey) Get(ctx context.Context) (Document, error) { return k.query(ctx, url.Values{}) }

func (k *consulKey) query(ctx context.Context, options url.Values) (Document, error) {
	options.Set("raw", "")
	u := *k.url
	u.RawQuery = options.Encode()
	a, err := k.ask(ctx, http.MethodGet, &u, http.Header{}, nil)
	if err != nil {
		return Document{}, err
	}
	if a.status != http.StatusOK && a.status != http.StatusNotFound {
		return Document{}, a.unexpected()
	}
	// The 404 of another server must not look like a deleted key.
	index, err := strconv.ParseUint(a.header.Get("X-Consul-Index"), 10, 64)
	if err != nil {
		return Document{}, errors.New("the answer has no X-Consul-Index: expected the address of a Consul agent")
	}
	d := Document{Exists: a.status == http.StatusOK, Version: strconv.FormatUint(index, 10)}
	if d.Exists {
		d.Text = a.text
	}
	return d, nil
}

func (k *consulKey) Wait(ctx context.Context, d Document) error {
	if d.Version == "" || d.Version == "0" {
		return Poll(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, consulWait+consulWait/16+consulSlack)
	defer cancel()
	_, err := k.query(bounded, url.Values{"index": {d.Version}, "wait": {consulWait.String()}})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case bounded.Err() != nil:
		return errors.New("a blocking query got no answer")
	case err != nil:
		return err
	}
	return pause(ctx, shortestConsulPause, longestConsulPause)
}

func (k *consulKey) Put(ctx context.Context, text []byte) error {
	written, err := k.write(ctx, text, url.Values{})
	if err == nil && !written {
		err = errors.New("the key was not written")
	}
	return err
}

// write writes the key and returns what Consul reports.
func (k *consulKey) write(ctx context.Context, text []byte, options url.Values) (bool, error) {
	u := *k.url
	u.RawQuery = options.Encode()
	a, err := k.ask(ctx, http.MethodPut, &u, http.Header{}, text)
	if err == nil {
		err = a.done()
	}
	return err == nil && bytes.Equal(bytes.TrimSpace(a.text), []byte("true")), err
}

// Swap reads the key and its ModifyIndex, and writes it if it still has this ModifyIndex. The
// Version of old does not serve: the index of an answer may exceed that of the key. For a key that
// must be absent, Consul expects an index of 0.
func (k *consulKey) Swap(ctx context.Context, old Document, text []byte) (bool, error) {
	now, index, err := k.entry(ctx)
	if err != nil || !same(now, old) {
		return false, err
	}
	return k.write(ctx, text, url.Values{"cas": {strconv.FormatUint(index, 10)}})
}

// entry returns the key with its ModifyIndex, which is 0 if the key is absent.
func (k *consulKey) entry(ctx context.Context) (d Document, index uint64, err error) {
	a, err := k.askFor(ctx, largestEntry, http.MethodGet, k.url, http.Header{}, nil)
	switch {
	case err != nil:
		return d, 0, err
	case a.header.Get("X-Consul-Index") == "": // see query
		return d, 0, errors.New("the answer has no X-Consul-Index: expected the address of a Consul agent")
	case a.status == http.StatusNotFound:
		return d, 0, nil
	case a.status != http.StatusOK:
		return d, 0, a.unexpected()
	}
	var entries []struct {
		Value       []byte
		ModifyIndex uint64
	}
	if json.Unmarshal(a.text, &entries) != nil || len(entries) != 1 || entries[0].ModifyIndex == 0 {
		return d, 0, errors.New("the answer is not one key of Consul, or its document is too large")
	}
	return Document{Text: entries[0].Value, Exists: true}, entries[0].ModifyIndex, nil
}
