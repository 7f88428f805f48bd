// SPDX-License-Identifier: MIT

package source

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Consul is the kind of a key of Consul, which is HOST:PORT's path without the slash in
// front. It speaks the HTTP interface, by TLS if Options have that. A Token goes as Consul
// wants it, and Credentials by basic authentication, for a proxy that asks for it.
//
// Wait is a blocking query: Consul holds back its answer until the index of the key is over
// the one that is asked with. What its documentation asks of clients is kept like this:
//
//   - an index of 0 would not wait, so it is never sent; then the key is polled
//   - an index that goes backwards is forgotten: each Get asks without one, and the next
//     Wait takes what Get was told
//   - the rate of queries is limited, as an index may change when the key does not
func Consul() Kind {
	return Kind{
		Schemes: []string{"consul"},
		Form:    "consul://HOST:PORT/KEY",
		Check: func(u *url.URL) bool {
			return u.Hostname() != "" && strings.Trim(u.Path, "/") != "" && bare(u)
		},
		Open: func(o Options) (Source, error) {
			if err := checkWho(o); err != nil {
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
	// consulWait is how long Consul holds back an answer when nothing changes. It adds up
	// to a sixteenth of that by itself. consulSlack later there is nobody who answers. All in
	// all this is how long a connection can be dead before it is noticed.
	consulWait  = 6 * time.Second
	consulSlack = time.Second

	// After an answer comes a random pause of at least leastRest. It limits the rate, and
	// spreads the gateways that have heard of a change all at once.
	leastRest = 20 * time.Millisecond
	mostRest  = 120 * time.Millisecond
)

// consulKey is a key of Consul. The Version of its documents is Consul's index.
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
	// Something else that has no such page must not look like a key that was deleted.
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
	return rest(ctx, leastRest, mostRest)
}

func (k *consulKey) Put(ctx context.Context, text []byte) error {
	a, err := k.ask(ctx, http.MethodPut, k.url, http.Header{}, text)
	if err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	if !bytes.Equal(bytes.TrimSpace(a.text), []byte("true")) {
		return errors.New("the key was not written")
	}
	return nil
}
