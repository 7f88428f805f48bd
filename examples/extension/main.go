// SPDX-License-Identifier: MIT

// Gateway is a reverse proxy for tenants, with limits in words that Diana does not know: an
// algorithm, an actor, a unit and a configuration centre of its own. docs/extending.md of
// Diana's repository walks through it.
//
//	GATEWAY_KEY=... gateway -config gateway.yaml -listen :8080 -upstream http://127.0.0.1:3000
//
// GATEWAY_KEY is the secret that tokens are signed with.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/diana-limiter/diana"
)

func main() {
	config := flag.String("config", "gateway.yaml", "the limits; the file is watched")
	listen := flag.String("listen", ":8080", "where requests come in")
	upstream := flag.String("upstream", "http://127.0.0.1:3000", "where they go")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *config, *listen, *upstream, []byte(os.Getenv("GATEWAY_KEY"))); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, and then those who are being served.
func run(ctx context.Context, config, listen, upstream string, key []byte) (err error) {
	if len(key) < 32 { // RFC 7518, section 3.2; and with an empty one everyone could sign
		return errors.New("GATEWAY_KEY: expected 32 bytes or more")
	}
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	limiter, err := diana.Options{Vocabulary: vocabulary()}.Open(config)
	if err != nil {
		return err // every mistake in the file, with line and column
	}
	defer func() { err = errors.Join(err, limiter.Close()) }()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	server := &http.Server{Addr: listen, Handler: chain(limiter, key, proxy), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return server.Shutdown(grace)
}

// chain is the way of a request: who is it, may it pass, must it be someone.
func chain(limiter *diana.Limiter, key []byte, next http.Handler) http.Handler {
	return verify(key, limiter.Handler(required(next)))
}
