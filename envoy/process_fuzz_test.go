// SPDX-License-Identifier: MIT

package envoy

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana/internal/respond"
)

// scripted is a stream whose messages are known before. Envoy then ends its side, resets the stream, or says nothing.
type scripted struct {
	grpc.ServerStream
	ctx      context.Context
	messages []*proc.ProcessingRequest
	silent   bool
	answers  []*proc.ProcessingResponse
}

func (s *scripted) Context() context.Context { return s.ctx }

func (s *scripted) Recv() (*proc.ProcessingRequest, error) {
	if len(s.messages) == 0 {
		if s.silent {
			<-s.ctx.Done()
			return nil, status.FromContextError(s.ctx.Err()).Err()
		}
		return nil, io.EOF
	}
	m := s.messages[0]
	s.messages = s.messages[1:]
	return m, nil
}

func (s *scripted) Send(m *proc.ProcessingResponse) error {
	s.answers = append(s.answers, m)
	return nil
}

// A stream on which Envoy says nothing ends: 408 for a body that does not arrive, and an error for the rest.
func TestProcessSilence(t *testing.T) {
	t.Parallel()
	header := func(eos bool) *proc.ProcessingRequest {
		return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{
			Headers: (&envoy{}).headerMap(":method", "POST", ":path", "/", "x-account", "ann"), EndOfStream: eos,
		}}}
	}
	for i, row := range []struct {
		messages []*proc.ProcessingRequest
		after    time.Duration
		code     codes.Code
		status   int
	}{
		{nil, respond.MaxArrival, codes.DeadlineExceeded, 0},
		{[]*proc.ProcessingRequest{header(false)}, respond.MaxArrival, codes.OK, 408},
		{[]*proc.ProcessingRequest{header(true)}, mostSilent, codes.DeadlineExceeded, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			rule := "{name: model, actor: 'body:/model', unit: day, rpu: 5}"
			if i == 2 {
				rule = "{name: slots, algo: C, rpu: 1}"
			}
			p := (&processor{t: t}).limited("limits: [{url: /, rules: [" + rule + "]}]")
			defer func() { _ = p.limiter.Close() }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began := time.Now()
			s := &scripted{ctx: ctx, messages: row.messages, silent: true}
			err := p.service.Process(s)
			got := 0
			if n := len(s.answers); n > 0 {
				got = int(s.answers[n-1].GetImmediateResponse().GetStatus().GetCode())
			}
			if status.Code(err) != row.code || got != row.status || time.Since(began) != row.after {
				t.Errorf("%d: %v, status %d after %v", i, err, got, time.Since(began))
			}
			if i == 2 && p.left()[0] != 1 {
				t.Error("the slot is held")
			}
			cancel() // as gRPC does when Process returns
		})
	}
}

// script is the messages of which FuzzProcess makes streams, by letters.
func script(letter byte) *proc.ProcessingRequest {
	e := &envoy{raw: letter%2 == 0}
	body := func(text string, eos bool) *proc.HttpBody {
		return &proc.HttpBody{Body: []byte(text), EndOfStream: eos}
	}
	response := func(eos bool, list ...string) *proc.ProcessingRequest {
		return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &proc.HttpHeaders{Headers: e.headerMap(list...), EndOfStream: eos}}}
	}
	request := func(eos bool, list ...string) *proc.ProcessingRequest {
		return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{
			Headers: e.headerMap(append([]string{":method", "POST", "x-account", "ann"}, list...)...), EndOfStream: eos,
		}}}
	}
	requestBody := func(text string, eos bool) *proc.ProcessingRequest {
		return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestBody{RequestBody: body(text, eos)}}
	}
	responseBody := func(text string, eos bool) *proc.ProcessingRequest {
		return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseBody{ResponseBody: body(text, eos)}}
	}
	switch letter {
	case 'q':
		return request(false, ":path", "/")
	case 'Q':
		return request(true, ":path", "/")
	case 'w':
		return request(false, ":path", "/../%2e", ":authority", "\x00")
	case 'b':
		return requestBody(chat, true)
	case 's':
		return requestBody(talk, true)
	case 'p':
		return requestBody(chat[:20], false)
	case 'j':
		return requestBody(`{"max_tokens":1e999`, true)
	case 't':
		return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestTrailers{RequestTrailers: &proc.HttpTrailers{}}}
	case 'h':
		return response(false, ":status", "200")
	case 'v':
		return response(false, ":status", "200", "content-type", "text/event-stream")
	case 'z':
		return response(false, ":status", "200", "content-encoding", "gzip", "content-length", "7")
	case 'e':
		return response(false, ":status", "500")
	case 'H':
		return response(true, ":status", "304")
	case 'u':
		return response(false, ":status", "101")
	case 'i':
		return response(false, ":status", "-7")
	case 'd':
		return responseBody(openAIEvents[1], false)
	case 'c':
		return responseBody(openAIEvents[3], false)
	case 'g':
		return responseBody(zip(usage)[:9], false)
	case 'r':
		return responseBody(usage, false)
	case 'R':
		return responseBody(usage, true)
	case 'D':
		return responseBody(openAIEvents[4], true)
	case 'T':
		return &proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &proc.HttpTrailers{Trailers: e.headerMap("x-cost", "3")}}}
	default:
		return &proc.ProcessingRequest{}
	}
}

// FuzzProcess sends messages in any order, and ends the stream anywhere. Process never panics. It ends a request once,
// charges it once by what it was settled by, and releases its slot.
func FuzzProcess(f *testing.F) {
	for _, order := range []string{
		"qbhR", "qsvddcD", "qshrT", "QH", "qbe", "qbeR", "qtb", "qpb", "qj", "w", "hR", "qbzg", "qbud", "qbbttshdR", "qh", "qbRh", "R", "", "qbhhR", "qqb", "qb0", "qbi", "Qhr", "qsvdcDR",
	} {
		f.Add([]byte(order), false)
		f.Add([]byte(order), true)
	}
	const limit = 1_000_000_000
	p := (&processor{t: f}).limited(fmt.Sprintf(tokens, limit, "openai"))
	f.Fuzz(func(t *testing.T, order []byte, reset bool) {
		if len(order) > 64 {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := &scripted{ctx: ctx}
		for _, letter := range order {
			s.messages = append(s.messages, script(letter))
		}
		if reset {
			defer time.AfterFunc(time.Duration(len(order))*10*time.Microsecond, cancel).Stop()
		}
		before := p.left()[1]
		p.mu.Lock()
		p.charged = nil
		p.mu.Unlock()
		err := p.service.Process(s)
		cancel()
		left := p.left()
		var charged int64
		for _, n := range p.charged {
			charged += n
		}
		if left[0] != 100 || len(p.charged) > 1 || before-left[1] != charged || charged > 0 && charged < 100 || p.service.streams.Load() != 0 {
			t.Errorf("%q: %v; left %v after %d, ended %d times, settled by %d", order, err, left, before, len(p.charged), charged)
		}
		if err == nil && len(s.answers) == 0 {
			t.Errorf("%q: no error and no answer, so Envoy would pass the request on", order)
		}
	})
}
