// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana/internal/testproc"
)

// calls is a service of gRPC. Each call has a trailer.
type calls struct {
	testpb.UnimplementedTestServiceServer
	cancelled chan struct{} // receives when a client cancels a bidirectional call
}

var calledTrailer = metadata.Pairs("x-trailer", "at the end")

// UnaryCall answers with the payload of the request, or with the status that it asks for.
func (*calls) UnaryCall(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	_ = grpc.SetTrailer(ctx, calledTrailer)
	if s := r.GetResponseStatus(); s != nil {
		return nil, status.Error(codes.Code(s.GetCode()), s.GetMessage())
	}
	return &testpb.SimpleResponse{Payload: r.GetPayload()}, nil
}

// StreamingOutputCall answers with a message for each size that the request names.
func (*calls) StreamingOutputCall(r *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	s.SetTrailer(calledTrailer)
	for _, p := range r.GetResponseParameters() {
		if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: make([]byte, p.GetSize())}}); err != nil {
			return err
		}
	}
	return nil
}

// FullDuplexCall sends each payload back.
func (c *calls) FullDuplexCall(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	s.SetTrailer(calledTrailer)
	for {
		r, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			c.cancelled <- struct{}{}
			return err
		}
		if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

// startCalls starts the service, with TLS if there are files.
func startCalls(t *testing.T, files *pairFiles) (address string, c *calls) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var o []grpc.ServerOption
	if files != nil {
		creds, err := credentials.NewServerTLSFromFile(files.cert, files.key)
		if err != nil {
			t.Fatal(err)
		}
		o = append(o, grpc.Creds(creds))
	}
	s := grpc.NewServer(o...)
	c = &calls{cancelled: make(chan struct{}, 10)}
	testpb.RegisterTestServiceServer(s, c)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String(), c
}

// callsOf returns a client of the service behind a gateway.
func callsOf(t *testing.T, gateway string) testpb.TestServiceClient {
	t.Helper()
	scheme, address, _ := strings.Cut(gateway, "://")
	creds := insecure.NewCredentials()
	if scheme == "https" {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	conn, err := grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return testpb.NewTestServiceClient(conn)
}

func payload(text string) *testpb.Payload { return &testpb.Payload{Body: []byte(text)} }

// Calls of gRPC pass through, in both directions at once, with their trailers.
func TestGRPCPasses(t *testing.T) {
	t.Parallel()
	files := writePair(t, t.TempDir(), "first", inAnHour())
	for name, test := range map[string]struct {
		upstream string // scheme
		files    *pairFiles
		flags    []string
	}{
		"h2c to h2c": {"h2c", nil, []string{"--h2c"}},
		"TLS to h2c": {"h2c", nil, []string{"--tls-cert", files.cert, "--tls-key", files.key}},
		"TLS to TLS": {"https", &files, []string{"--tls-cert", files.cert, "--tls-key", files.key}},
		"h2c to TLS": {"https", &files, []string{"--h2c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, service := startCalls(t, test.files)
			g := trusting(t, files, test.upstream+"://"+address, test.flags...)
			client := callsOf(t, g.url)
			ctx, cancel := context.WithTimeout(t.Context(), testproc.Patience)
			defer cancel()
			passUnary(ctx, t, client)
			passStream(ctx, t, client)
			passBidi(ctx, t, client)

			ctx, abort := context.WithCancel(ctx)
			s, err := client.FullDuplexCall(ctx)
			if err == nil {
				err = s.Send(&testpb.StreamingOutputCallRequest{Payload: payload("x")})
			}
			if err == nil {
				_, err = s.Recv()
			}
			if err != nil {
				t.Fatal(err)
			}
			abort()
			select {
			case <-service.cancelled:
			case <-time.After(testproc.Patience):
				t.Error("the upstream does not learn that the client has cancelled")
			}
		})
	}
}

func passUnary(ctx context.Context, t *testing.T, client testpb.TestServiceClient) {
	t.Helper()
	var trailer metadata.MD
	answer, err := client.UnaryCall(ctx, &testpb.SimpleRequest{Payload: payload("hello")}, grpc.Trailer(&trailer))
	if err != nil || string(answer.GetPayload().GetBody()) != "hello" || len(trailer.Get("x-trailer")) != 1 {
		t.Errorf("unary: %v, %v, %v", answer, err, trailer)
	}
	for range 50 { // an answer without a body must stay one
		_, err = client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Code: 9, Message: "not now"}}, grpc.Trailer(&trailer))
		if s := status.Convert(err); s.Code() != codes.FailedPrecondition || s.Message() != "not now" {
			t.Fatalf("unary with an error: %v", err)
		}
	}
}

func passStream(ctx context.Context, t *testing.T, client testpb.TestServiceClient) {
	t.Helper()
	const messages = 100
	sizes := make([]*testpb.ResponseParameters, messages)
	for i := range sizes {
		sizes[i] = &testpb.ResponseParameters{Size: int32(i * 1000)}
	}
	s, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{ResponseParameters: sizes})
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		m, err := s.Recv()
		if err != nil || len(m.GetPayload().GetBody()) != i*1000 {
			t.Fatalf("message %d: %d bytes, %v", i, len(m.GetPayload().GetBody()), err)
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) || len(s.Trailer().Get("x-trailer")) != 1 {
		t.Errorf("end: %v, %v", err, s.Trailer())
	}
}

func passBidi(ctx context.Context, t *testing.T, client testpb.TestServiceClient) {
	t.Helper()
	s, err := client.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a", "b", "c"} {
		if err := s.Send(&testpb.StreamingOutputCallRequest{Payload: payload(text)}); err != nil {
			t.Fatal(err)
		}
		if m, err := s.Recv(); err != nil || string(m.GetPayload().GetBody()) != text {
			t.Fatalf("%q: %v, %v", text, m, err)
		}
	}
	_ = s.CloseSend()
	if _, err := s.Recv(); !errors.Is(err, io.EOF) || len(s.Trailer().Get("x-trailer")) != 1 {
		t.Errorf("end: %v, %v", err, s.Trailer())
	}
}

// A refused call gets RESOURCE_EXHAUSTED. Requests that are no calls get 503, over HTTP/2 too.
func TestGRPCRefusal(t *testing.T) {
	t.Parallel()
	address, _ := startCalls(t, nil)
	g := serve(t, "url: /\nrules: [{name: none, rpu: 1, unit: day, algo: W}]", "h2c://"+address, "--h2c")
	client := callsOf(t, g.url)
	if _, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	var header, trailer metadata.MD
	_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "It may be repeated in ") {
		t.Errorf("unary: %v", err)
	}
	if all := metadata.Join(header, trailer); len(all.Get("retry-after")) != 1 || len(all.Get("ratelimit")) != 1 {
		t.Errorf("metadata: %v", all)
	}
	s, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("bidirectional: %v", err)
	}
	for _, http2 := range []bool{false, true} {
		if status, kind := plainStatus(t, g.url, http2, "application/grpc-web"); status != 503 || kind != "application/problem+json" {
			t.Errorf("HTTP/2 %v: %d %s", http2, status, kind)
		}
	}
	if status, _ := plainStatus(t, g.url, false, "application/grpc"); status != 503 {
		t.Errorf("application/grpc over HTTP/1.1: %d", status)
	}
}
