// SPDX-License-Identifier: MIT

package upstream

import (
	"net"
	"net/http"
	"net/url"
	"time"
)

// keepAlive is how long a connection to the upstream may be silent before the gateway asks whether it still
// works: a TCP probe, and over HTTP/2 a ping too. Then a request does not meet a dead connection.
const keepAlive = 30 * time.Second

// NewTransport returns the connections to upstreams. An upstream must begin to answer within t.Upstream after
// it has the request. The answer may take any time. Over TLS the upstream chooses HTTP/2 or HTTP/1.1.
func NewTransport(t Timeouts) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: min(t.Dial, t.Upstream), KeepAlive: keepAlive}).DialContext,
		TLSHandshakeTimeout:   min(t.TLS, t.Upstream),
		ExpectContinueTimeout: time.Second,
		ResponseHeaderTimeout: t.Upstream,
		IdleConnTimeout:       t.Unused,
		MaxIdleConnsPerHost:   1024, // most are to one host, and an idle connection costs less than a new one
		DisableCompression:    true, // the client chooses the encoding
		Protocols:             &protocols,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: keepAlive},
	}
}

// SchemeH2C is the scheme of an upstream that speaks HTTP/2 without TLS.
const SchemeH2C = "h2c"

// transportTo returns the connections to one upstream, and its URL as these connections need it.
func transportTo(upstream *url.URL, t Timeouts) (http.RoundTripper, *url.URL) {
	transport := NewTransport(t)
	if upstream.Scheme == SchemeH2C {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
		plain := *upstream
		plain.Scheme = "http"
		upstream = &plain
	}
	return retryCancelled{transport}, upstream
}
