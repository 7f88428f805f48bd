// SPDX-License-Identifier: MIT

package upstream

import (
	"io"
	"net/http"
	"net/http/httputil"

	"golang.org/x/net/http/httpguts"

	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
)

// passTrailer passes on a request's trailers, but for those that dropTrailers removes: what is
// announced now, and what arrives when the body ends.
func passTrailer(pr *httputil.ProxyRequest, f *believed) {
	f.dropTrailers(pr.In.Trailer)
	pr.Out.Trailer = pr.In.Trailer
	if pr.Out.Body != nil {
		pr.Out.Body = &trailed{pr.Out.Body, pr.In.Trailer, f}
	}
}

// trailed is a request's body whose trailers lose, when they have arrived, the fields that
// dropTrailers removes.
type trailed struct {
	io.ReadCloser
	trailer  http.Header // of the request; net/http fills it when the body ends
	believed *believed
}

func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		t.believed.dropTrailers(t.trailer)
	}
	return n, err
}

// dropTrailers removes from a request's trailers the fields that are believed, because the limiter
// and forward see the header alone, and some servers add the trailers to it. It also removes what
// RFC 9110 allows in no trailer (section 6.5.1), such as fields that hold for one connection.
func (f *believed) dropTrailers(trailer http.Header) {
	for field := range trailer {
		name := dashed(field)
		if !httpguts.ValidTrailerHeader(name) || name == "Upgrade" || name == logs.RequestIDField || f.has(name) {
			delete(trailer, field)
		}
	}
}
