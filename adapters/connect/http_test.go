// SPDX-License-Identifier: MIT

package dianaconnect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dianaconnect "github.com/diana-limiter/diana/adapters/connect"
	"github.com/diana-limiter/diana/adapters/rpctest"
)

// A plain HTTP/1 client gets the status and the fields that the Connect protocol has for unary calls. These
// statuses are those that charge counts.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	for code := 1; code <= 17; code++ {
		post := plain(t)
		text := fmt.Sprint("code:", code)
		status, _ := post(text)
		l := rpctest.Limiter(t, fmt.Sprintf("url: /\nrules: [{name: one, rpu: 1, unit: day, charge: [%d]}]", status))
		post = plain(t, connect.WithInterceptors(dianaconnect.Interceptor(l)))
		post(text)
		status, header := post(text)
		if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" ||
			!strings.HasPrefix(header.Get("RateLimit"), `"one";r=0`) || !strings.HasPrefix(header.Get("Trailer-RateLimit"), `"one";r=0`) {
			t.Errorf("code %d: status %d, %v", code, status, header)
		}
	}
}

// plain starts a server, and returns a function that sends a unary call to it with HTTP/1.
func plain(t *testing.T, o ...connect.HandlerOption) (post func(text string) (int, http.Header)) {
	t.Helper()
	server := httptest.NewServer(newMux(rpctest.NewService(), o...))
	t.Cleanup(server.Close)
	return func(text string) (int, http.Header) {
		t.Helper()
		answer, err := http.Post(server.URL+rpctest.Unary.Method(), "application/json", strings.NewReader(fmt.Sprintf("%q", text)))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, answer.Header
	}
}

// A call without side effects comes as GET. It can have the status 304, and its query names actors.
func TestGet(t *testing.T) {
	t.Parallel()
	l := rpctest.Limiter(t, `
- url: GET /
  rules: [{name: fresh, actor: "query:tenant", rpu: 1, unit: day, charge: [304]}]
- url: POST /
  rules: [{rpu: 0}]
`)
	const procedure = "/a.B/C"
	handler := connect.NewUnaryHandler(procedure, func(_ context.Context, req *connect.Request[Text]) (*connect.Response[Text], error) {
		if req.Header().Get("If-None-Match") == "" {
			return connect.NewResponse(&Text{}), nil
		}
		return nil, connect.NewNotModifiedError(nil)
	}, connect.WithIdempotency(connect.IdempotencyNoSideEffects), connect.WithInterceptors(dianaconnect.Interceptor(l)))
	server := httptest.NewServer(handler)
	defer server.Close()
	get := func(tenant, tag string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+procedure+"?encoding=json&message=%22%22&tenant="+tenant, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("If-None-Match", tag)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for _, step := range []struct {
		tenant, tag string
		want        int
	}{{"a", "", 200}, {"a", "", 200}, {"a", "x", 304}, {"b", "x", 304}, {"a", "x", 429}, {"b", "", 429}} {
		if got := get(step.tenant, step.tag); got != step.want {
			t.Errorf("%+v: status %d", step, got)
		}
	}
}

// An error that calls share gets no fields, because several calls would change it at once.
func TestSharedError(t *testing.T) {
	t.Parallel()
	shared := connect.NewError(connect.CodeNotFound, errors.New("shared"))
	l := rpctest.Limiter(t, "url: /\nrules: [{name: many, rpu: 1000}]")
	server := httptest.NewServer(connect.NewUnaryHandler("/a.B/C", func(context.Context, *connect.Request[Text]) (*connect.Response[Text], error) {
		return nil, shared
	}, connect.WithInterceptors(dianaconnect.Interceptor(l))))
	defer server.Close()
	_, err := connect.NewClient[Text, Text](server.Client(), server.URL+"/a.B/C").CallUnary(t.Context(), connect.NewRequest(&Text{}))
	if got := (*connect.Error)(nil); !errors.As(err, &got) || got.Meta().Get("RateLimit") == "" || got.Code() != connect.CodeNotFound {
		t.Error(err)
	}
	if len(shared.Meta()) > 0 {
		t.Errorf("the error of the handler has got the fields %v", shared.Meta())
	}
}

// The interceptor leaves the calls of a client as they are.
func TestClientCalls(t *testing.T) {
	t.Parallel()
	l := rpctest.Limiter(t, "url: /\nrules: [{rpu: 0}]")
	c := newClient(t, serve(t, newMux(rpctest.NewService())), connect.WithInterceptors(dianaconnect.Interceptor(l)))
	for _, kind := range []rpctest.Kind{rpctest.Unary, rpctest.Bidi} {
		if r := c.call(t.Context(), rpctest.Call{Kind: kind, Messages: []string{"ok"}}); r.Code != rpctest.OK {
			t.Errorf("%v: code %d (%s)", kind, r.Code, r.Text)
		}
	}
}

// Limiter.Handler in front of the handlers is not a substitute, and README.md says so. A client of Connect or
// gRPC-Web takes its refusal for unavailable. charge sees the status 200 for each error of gRPC.
func TestLimiterInFront(t *testing.T) {
	t.Parallel()
	for protocol, options := range map[string][]connect.ClientOption{
		"Connect": nil, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()},
	} {
		l := rpctest.Limiter(t, "url: /\nrules: [{name: missing, rpu: 1, unit: day, charge: [404]}, {name: all, rpu: 3, unit: day}]")
		c := newClient(t, serve(t, l.Handler(newMux(rpctest.NewService()))), options...)
		for range 3 {
			c.call(t.Context(), rpctest.Call{Messages: []string{"code:5"}})
		}
		refusedBy := l.Status().Rules
		if missing := refusedBy[0].Refused > 0; missing != (protocol == "Connect") {
			t.Errorf("%s: %+v", protocol, refusedBy)
		}
		for range 2 {
			c.call(t.Context(), rpctest.Call{Messages: []string{"ok"}})
		}
		want := connect.CodeUnavailable
		if protocol == "gRPC" {
			want = connect.CodeResourceExhausted
		}
		if r := c.call(t.Context(), rpctest.Call{Messages: []string{"ok"}}); r.Code != rpctest.Code(want) {
			t.Errorf("%s: code %d (%s)", protocol, r.Code, r.Text)
		}
	}
}
