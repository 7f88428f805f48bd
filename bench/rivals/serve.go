// SPDX-License-Identifier: MIT

package rivals

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// heapFloor delays the garbage collector by 32 MiB, or a little more than cmd/diana/heapfloor.go does.
// Any Go program can do that, so it is no merit of Diana's handlers. The bytes are never used, so
// they take no memory.
const heapFloor = 32 << 20

// Serve serves until ctx ends. A server that is compared with diana serve has a heap floor.
func Serve(ctx context.Context, address string, h http.Handler, compared bool) error {
	if compared {
		defer runtime.KeepAlive(make([]byte, heapFloor))
	}
	// The same settings as in cmd/diana/gateway.go.
	s := &http.Server{
		Addr:              address,
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       75 * time.Second,
		MaxHeaderBytes:    64 << 10,
	}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns a floor, or nil if there is none of that name. The argument is a URL, or the addresses for gRPC and of
// Redis.
func Handler(ctx context.Context, name, argument string) (http.Handler, error) {
	switch name {
	case "upstream":
		body := []byte("The upstream answers a few words.\n")
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }), nil
	case "200", "503":
		status := map[string]int{"200": http.StatusOK, "503": http.StatusServiceUnavailable}[name]
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }), nil
	case "grpc":
		return http.NotFoundHandler(), serveBare(ctx, argument)
	case "allowed", "refused":
		return copyAnswer(argument, name == "refused")
	case "proxy":
		u, err := url.Parse(argument)
		if err != nil {
			return nil, err
		}
		return forward(u, slog.New(slog.NewTextHandler(os.Stderr, nil))), nil
	}
	return nil, nil
}

// copyAnswer returns a handler that sends another server's answer to an allowed or a refused request. The other server
// allows a request before it refuses one.
func copyAnswer(other string, refused bool) (http.Handler, error) {
	for range 10 {
		status, header, body, err := answerOf(other)
		if err != nil {
			return nil, err
		}
		if refused == (status >= http.StatusBadRequest) {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				maps.Copy(w.Header(), header)
				w.WriteHeader(status)
				_, _ = w.Write(body)
			}), nil
		}
	}
	return nil, fmt.Errorf("%s: no answer is refused: %v", other, refused)
}

// answerOf asks a server.
func answerOf(url string) (status int, header http.Header, body []byte, err error) {
	answer, err := http.Get(url)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = answer.Body.Close() }() // nothing is lost
	answer.Header.Del("Date")
	answer.Header.Del("Content-Length")
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, body, err
}

// forward does the work of cmd/diana without its limiter, see the chain in its gateway.go. It has
// the settings of newProxy and newTransport. It gives each request an ID, writes the same log line by
// package slog, and sends the same fields to the upstream. It omits parts that only rare requests
// need, such as WebSockets, if an ordinary request does not pay for them.
func forward(upstream *url.URL, logger *slog.Logger) http.Handler {
	reverse := &httputil.ReverseProxy{
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:   10 * time.Second,
			ExpectContinueTimeout: time.Second,
			ResponseHeaderTimeout: 60 * time.Second,
			IdleConnTimeout:       60 * time.Second,
			MaxIdleConnsPerHost:   1024,
			DisableCompression:    true,
		},
		FlushInterval: 10 * time.Millisecond,
		BufferPool:    &proxyBuffers{},
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(upstream)
			pr.Out.URL.Opaque = ""
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			pr.Out.Trailer = pr.In.Trailer
			pr.Out.Header[idField] = []string{idOf(pr.In)}
			for field := range pr.Out.Header { // drops all fields about the client
				name := field
				if strings.Contains(name, "_") {
					name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
				}
				if strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip" {
					delete(pr.Out.Header, field)
				}
			}
			pr.SetXForwarded()
		},
		ModifyResponse: func(r *http.Response) error {
			delete(r.Header, idField)
			return nil
		},
	}
	logged := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		counted := &loggedWriter{ResponseWriter: w, id: w.Header()[idField]}
		reverse.ServeHTTP(counted, r)
		peer, _ := netip.ParseAddrPort(r.RemoteAddr) // net/http sets a valid one
		logger.LogAttrs(r.Context(), slog.LevelInfo, "request",
			slog.String("method", r.Method),
			slog.String("path", r.URL.EscapedPath()),
			slog.Int("status", counted.status),
			slog.Int64("bytes", counted.bytes),
			slog.Duration("duration", time.Since(start)),
			slog.String("request_id", idOf(r)),
			slog.String("client", peer.Addr().Unmap().String()))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails
		id := hex.EncodeToString(random[:])
		w.Header()[idField] = []string{id}
		logged(w, r.WithContext(context.WithValue(r.Context(), idKey{}, id)))
	})
}

// idField identifies a request in logs.
const idField = "X-Request-Id"

type idKey struct{}

func idOf(r *http.Request) string {
	id, _ := r.Context().Value(idKey{}).(string)
	return id
}

// loggedWriter records what the log line contains, and restores the field with the ID, which ReverseProxy may have
// removed.
type loggedWriter struct {
	http.ResponseWriter
	id     []string
	status int
	bytes  int64
}

// Unwrap is for http.ResponseController.
func (w *loggedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader records the status.
func (w *loggedWriter) WriteHeader(status int) {
	w.status = status
	if h := w.Header(); h[idField] == nil {
		h[idField] = w.id
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *loggedWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// proxyBuffers holds the buffers with which the proxy copies responses.
type proxyBuffers struct{ pool sync.Pool }

// Get returns a buffer.
func (b *proxyBuffers) Get() []byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

// Put returns a buffer to the pool.
func (b *proxyBuffers) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }

// bareService is a rate limit service that allows all requests after one EVALSHA for the value of the first descriptor.
type bareService struct {
	rls.UnimplementedRateLimitServiceServer
	run func(context.Context, ...charge) error
}

// ShouldRateLimit answers OK with one status.
func (s bareService) ShouldRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	key := r.GetDescriptors()[0].GetEntries()[0].GetValue()
	return &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		Statuses:    []*rls.RateLimitResponse_DescriptorStatus{{Code: rls.RateLimitResponse_OK}},
	}, s.run(ctx, charge{ForAll, key})
}

// serveBare serves the bare service until ctx ends. The server has the options of envoy/server.go.
func serveBare(ctx context.Context, addresses string) error {
	address, redis, _ := strings.Cut(addresses, ",")
	run, stop, err := newBare(ctx, redis)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(4<<20), grpc.NumStreamWorkers(128))
	rls.RegisterRateLimitServiceServer(s, bareService{run: run})
	context.AfterFunc(ctx, func() { s.Stop(); stop() })
	go func() { _ = s.Serve(l) }() // a failure is one of the callers too
	return nil
}
