// SPDX-License-Identifier: MIT

package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// web asks a centre that speaks HTTP. No error tells a URL, which may have a secret in it.
type web struct {
	client    *http.Client
	transport *http.Transport
	authorise func(*http.Request) error // nil: there is nothing to say
}

// answer is what a centre says. Its text is cut off behind MaxSize+1 bytes.
type answer struct {
	status int
	header http.Header
	text   []byte
}

// newWeb returns a web that says who we are with each request. How a token is said, bearer
// knows.
func newWeb(o Options, bearer func(h http.Header, token string)) *web {
	w := &web{transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: getTimeout}).DialContext,
		TLSClientConfig:        o.TLS.Clone(),
		TLSHandshakeTimeout:    getTimeout,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
		Protocols:              new(http.Protocols),
	}}
	// A connection of HTTP/2 is used again after a request on it got no answer. One of
	// HTTP/1 is not, so a dead one does no harm for long.
	w.transport.Protocols.SetHTTP1(true)
	switch {
	case o.Token != nil:
		w.authorise = func(r *http.Request) error {
			token, err := o.Token()
			bearer(r.Header, token)
			return err
		}
	case o.Credentials != nil:
		w.authorise = func(r *http.Request) error {
			username, password, err := o.Credentials()
			r.SetBasicAuth(username, password)
			return err
		}
	}
	w.client = &http.Client{Transport: w.transport, CheckRedirect: w.redirect}
	return w
}

// redirect says whether an answer that sends us elsewhere is followed.
func (w *web) redirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case first.Method != http.MethodGet: // it would become one
		return http.ErrUseLastResponse
	case len(via) >= 5:
		return errors.New("expected a document, found one redirect after another")
	case first.URL.Scheme == "https" && r.URL.Scheme != "https":
		return errors.New("expected no redirect from https to " + r.URL.Scheme)
	case w.authorise != nil && (r.URL.Scheme != first.URL.Scheme || r.URL.Host != first.URL.Host):
		return fmt.Errorf("expected no redirect to another host, with credentials, found one to %s://%s",
			r.URL.Scheme, r.URL.Host)
	}
	r.Header.Del("Referer") // which tells what is behind the ? of the first URL
	return nil
}

// ask sends a request and returns the answer, whatever its status is.
func (w *web) ask(ctx context.Context, method string, u *url.URL, header http.Header, text []byte) (*answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(text))
	if err != nil {
		return nil, anonymous(ctx, err)
	}
	r.Header = header
	if w.authorise != nil {
		if err := w.authorise(r); err != nil {
			return nil, err
		}
	}
	reply, err := w.client.Do(r)
	if err != nil {
		return nil, anonymous(ctx, err)
	}
	defer func() { _ = reply.Body.Close() }() // it was read, or is not wanted
	a := &answer{status: reply.StatusCode, header: reply.Header}
	if a.text, err = io.ReadAll(io.LimitReader(reply.Body, MaxSize+1)); err != nil {
		return nil, anonymous(ctx, err)
	}
	return a, nil
}

// anonymous returns the error of ctx, if it has ended, or else err without the URL, and
// without what net/http quotes of an answer: that may repeat our words, and be long.
func anonymous(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if named, ok := errors.AsType[*url.Error](err); ok {
		err = named.Err
	}
	if said, _, quotes := strings.Cut(err.Error(), `"`); quotes {
		return errors.New(strings.TrimRight(said, ": "))
	}
	return err
}

// unexpected is the error for a status that says nothing of a document. The centre's own
// words are left out: nobody knows what they repeat.
func (a *answer) unexpected() error {
	return fmt.Errorf("the centre answered %d %s", a.status, http.StatusText(a.status))
}

// done returns an error unless the centre has done what it was asked for.
func (a *answer) done() error {
	if a.status/100 != 2 {
		return a.unexpected()
	}
	return nil
}

func (w *web) Close() error {
	w.transport.CloseIdleConnections()
	return nil
}

// checkWho returns an error for options that say in two ways who we are.
func checkWho(o Options) error {
	if o.Token != nil && o.Credentials != nil {
		return errors.New("expected either a token, or a username and a password")
	}
	return nil
}
