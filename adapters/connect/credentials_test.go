// SPDX-License-Identifier: MIT

package dianaconnect_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	"github.com/diana-limiter/diana/adapters/adaptertest"
	dianaconnect "github.com/diana-limiter/diana/adapters/connect"
)

// The handler does not see the key of a client. Further limiters know who it is.
func TestCredentialsAreRemoved(t *testing.T) {
	t.Parallel()
	l, further := adaptertest.Keyed(t), dianaconnect.Interceptor(adaptertest.Keyed(t))
	for name, o := range map[string]connect.HandlerOption{
		"per call":    connect.WithInterceptors(dianaconnect.Interceptor(l), further),
		"per message": connect.WithInterceptors(dianaconnect.Options{PerMessage: true}.Interceptor(l)),
	} {
		mux := http.NewServeMux()
		mux.Handle("/a.B/Unary", connect.NewUnaryHandler("/a.B/Unary", func(_ context.Context, req *connect.Request[Text]) (*connect.Response[Text], error) {
			adaptertest.CheckUpstream(t, req.Header())
			return connect.NewResponse(&Text{}), nil
		}, o))
		mux.Handle("/a.B/Stream", connect.NewClientStreamHandler("/a.B/Stream", func(_ context.Context, s *connect.ClientStream[Text]) (*connect.Response[Text], error) {
			messages := 0
			for ; s.Receive(); messages++ {
				adaptertest.CheckUpstream(t, s.RequestHeader())
			}
			if messages != 2 {
				return nil, errors.Join(errors.New("a message is missing"), s.Err())
			}
			return connect.NewResponse(&Text{}), nil
		}, o))
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		unary := connect.NewRequest(&Text{})
		stream := connect.NewClient[Text, Text](server.Client(), server.URL+"/a.B/Stream").CallClientStream(t.Context())
		for _, h := range []http.Header{unary.Header(), stream.RequestHeader()} {
			h.Set(adaptertest.Key, adaptertest.KeyValue)
			h.Set(adaptertest.Upstream, "of the client")
		}
		if _, err := connect.NewClient[Text, Text](server.Client(), server.URL+"/a.B/Unary").CallUnary(t.Context(), unary); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for range 2 {
			if err := stream.Send(&Text{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := stream.CloseAndReceive(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
