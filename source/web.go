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

// web sends requests to a configuration centre over HTTP. Its errors contain no URL, because a URL
// can contain a secret.
type web struct {
	client    *http.Client
	transport *http.Transport
	authorize func(*http.Request) error // adds the credentials; nil: there are none
}

// answer is the response of a configuration centre.
type answer struct {
	status int
	header http.Header
	text   []byte
}

// connectTimeout is how long a connection may take. It is the time that Diana gives a Get.
const connectTimeout = 4 * time.Second

// newWeb returns a web that sends the credentials of o with each request. bearer puts a token
// into the header.
func newWeb(o Options, bearer func(h http.Header, token string)) *web {
	w := &web{transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSClientConfig:        o.TLS.Clone(),
		TLSHandshakeTimeout:    connectTimeout,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
		Protocols:              new(http.Protocols),
	}}
	// The client reuses an HTTP/2 connection after a request on it timed out, and closes an
	// HTTP/1 connection. So with HTTP/1 a dead connection costs one request.
	w.transport.Protocols.SetHTTP1(true)
	switch {
	case o.Token != nil:
		w.authorize = func(r *http.Request) error {
			token, err := o.Token()
			bearer(r.Header, token)
			return err
		}
	case o.Credentials != nil:
		w.authorize = func(r *http.Request) error {
			username, password, err := o.Credentials()
			r.SetBasicAuth(username, password)
			return err
		}
	}
	w.client = &http.Client{Transport: w.transport, CheckRedirect: w.redirect}
	return w
}

// redirect returns an error if a redirect must not be followed.
func (w *web) redirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case first.Method != http.MethodGet: // the client would follow with GET
		return http.ErrUseLastResponse
	case len(via) >= 5:
		return errors.New("expected a document, found one redirect after another")
	case first.URL.Scheme == "https" && r.URL.Scheme != "https":
		return errors.New("expected no redirect from https to " + r.URL.Scheme)
	case w.authorize != nil && (r.URL.Scheme != first.URL.Scheme || r.URL.Host != first.URL.Host):
		return fmt.Errorf("expected no redirect to another host, with credentials, found one to %s://%s",
			r.URL.Scheme, r.URL.Host)
	}
	r.Header.Del("Referer") // it has the query of the first URL
	return nil
}

// ask sends a request and returns the answer, whatever its status. The text of the answer has at
// most MaxSize+1 bytes.
func (w *web) ask(ctx context.Context, method string, u *url.URL, header http.Header, text []byte) (*answer, error) {
	return w.askFor(ctx, MaxSize+1, method, u, header, text)
}

// askFor is ask for an answer whose text has at most so many bytes.
func (w *web) askFor(ctx context.Context, most int64, method string, u *url.URL, header http.Header, text []byte) (*answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(text))
	if err != nil {
		return nil, anonymous(ctx, err)
	}
	r.Header = header
	if w.authorize != nil {
		if err := w.authorize(r); err != nil {
			return nil, err
		}
	}
	reply, err := w.client.Do(r)
	if err != nil {
		return nil, anonymous(ctx, err)
	}
	defer func() { _ = reply.Body.Close() }() // nothing more is read
	a := &answer{status: reply.StatusCode, header: reply.Header}
	if a.text, err = io.ReadAll(io.LimitReader(reply.Body, most)); err != nil {
		return nil, anonymous(ctx, err)
	}
	return a, nil
}

// anonymous returns the error of ctx if it has ended. Otherwise it returns err without the URL
// and without what net/http quotes of an answer, which can be long and repeat a secret.
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

// unexpected returns the error for a status that does not tell whether there is a document.
// It omits the text of the answer, which can repeat a secret.
func (a *answer) unexpected() error {
	return fmt.Errorf("the centre answered %d %s", a.status, http.StatusText(a.status))
}

// done returns an error unless the status reports success.
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

// checkCredentials returns an error for options with two kinds of credentials.
func checkCredentials(o Options) error {
	if o.Token != nil && o.Credentials != nil {
		return errors.New("expected either a token, or a username and a password")
	}
	return nil
}
