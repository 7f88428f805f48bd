// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana/internal/testproc"
)

// envoys starts a gateway that decides for Envoy, and connects to it.
func envoys(t *testing.T, yaml string) (*served, proc.ExternalProcessorClient) {
	t.Helper()
	s := &served{file: filepath.Join(t.TempDir(), "diana.yaml")}
	if err := os.WriteFile(s.file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	s.begin(t, "--grpc", "127.0.0.1:0")
	lines := s.lines(t, 2)
	_, address, _ := strings.Cut(lines[1], "grpc on ")
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, proc.NewExternalProcessorClient(conn)
}

// processed is a request that Envoy asks about.
type processed struct {
	proc.ExternalProcessor_ProcessClient
	leave context.CancelFunc
}

func beginProcessing(t *testing.T, client proc.ExternalProcessorClient) *processed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &processed{stream, cancel}
}

// ask sends a message and receives the answer. refused is the status of the answer to the client, or 0.
func (p *processed) ask(m *proc.ProcessingRequest) (refused int, err error) {
	if err := p.Send(m); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	answer, err := p.Recv()
	return int(answer.GetImmediateResponse().GetStatus().GetCode()), err
}

func headersOf(list ...string) *proc.HttpHeaders {
	m := &core.HeaderMap{}
	for i := 0; i < len(list); i += 2 {
		m.Headers = append(m.Headers, &core.HeaderValue{Key: list[i], RawValue: []byte(list[i+1])})
	}
	return &proc.HttpHeaders{Headers: m}
}

// request sends a request for completions, to where the upstream would get it.
func (p *processed) request(account, body string) (refused int, err error) {
	refused, err = p.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: headersOf(
		":method", "POST", ":path", "/v1/chat/completions", ":authority", "x", "content-type", "application/json", "x-account", account)}})
	if refused != 0 || err != nil {
		return refused, err
	}
	return p.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestBody{RequestBody: &proc.HttpBody{Body: []byte(body), EndOfStream: true}}})
}

// respond sends the parts of a response.
func (p *processed) respond(parts ...string) error {
	_, err := p.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: headersOf(":status", "200", "content-type", "text/event-stream")}})
	for i := 0; err == nil && i < len(parts); i++ {
		_, err = p.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseBody{ResponseBody: &proc.HttpBody{Body: []byte(parts[i]), EndOfStream: i == len(parts)-1}}})
	}
	return err
}

// TestEnvoyBudget has 64 clients behind an Envoy that choose what they ask for and when they leave. A strict budget is
// used, and never overrun.
func TestEnvoyBudget(t *testing.T) {
	t.Parallel()
	_, client := envoys(t, budgets("after: 10s"))
	var billed, served atomic.Int64
	var clients sync.WaitGroup
	for c := range 64 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 31))
			for range 30 {
				most := []int64{1, 7, 50, 100, 101}[r.IntN(5)]
				p := beginProcessing(t, client)
				refused, err := p.request("mallory", fmt.Sprintf(`{"stream":true,"max_tokens":%d,%s}`, most, chat))
				if err != nil || refused != 0 && refused != 400 && refused != 503 || (refused == 400) != (most > 100) && refused != 503 {
					t.Errorf("%d, %v for at most %d", refused, err, most)
				}
				if refused != 0 || err != nil {
					p.leave()
					continue
				}
				billed.Add(10 + most) // even if the client leaves at once
				served.Add(1)
				word := "data: {\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\n"
				usage := fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d}}\n\n", most)
				switch r.IntN(4) {
				case 0:
				case 1:
					err = p.respond(word, word, usage, "data: [DONE]\n\n")
				case 2: // ends after the last word
					_, err = p.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: headersOf(":status", "200", "content-type", "text/event-stream")}})
					_, _ = p.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseBody{ResponseBody: &proc.HttpBody{Body: []byte(word)}}})
				case 3:
					_ = p.CloseSend()
				}
				if err != nil {
					t.Error(err)
				}
				p.leave()
			}
		})
	}
	clients.Wait()
	if n := billed.Load(); n > budget || n < budget/4 || served.Load() < budget/200 {
		t.Errorf("%d of %d were billed for %d requests", n, budget, served.Load())
	}
	p := beginProcessing(t, client)
	defer p.leave()
	if refused, err := p.request("ann", `{"max_tokens":1,`+chat+`}`); refused != 0 || err != nil {
		t.Errorf("another account gets %d, %v", refused, err)
	}
}

// TestEnvoyDrain stops a gateway while Envoy passes a response on. It ends when that has ended.
func TestEnvoyDrain(t *testing.T) {
	t.Parallel()
	s, client := envoys(t, budgets("after: 10s"))
	p := beginProcessing(t, client)
	if refused, err := p.request("ann", `{"max_tokens":1,`+chat+`}`); refused != 0 || err != nil {
		t.Fatal(refused, err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !testproc.Becomes(func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := client.Process(ctx)
		if err == nil {
			_ = stream.CloseSend()
			_, err = stream.Recv()
		}
		return status.Code(err) == codes.Unavailable
	}) {
		t.Error("a gateway that drains accepts requests")
	}
	if err := p.respond("data: {}\n\n", "data: [DONE]\n\n"); err != nil {
		t.Errorf("a request in flight is cut off: %v", err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
}
