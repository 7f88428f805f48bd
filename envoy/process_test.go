// SPDX-License-Identifier: MIT

package envoy

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/testproc"
)

// processor is a Limiter that Envoys ask over gRPC.
type processor struct {
	t       testing.TB
	limiter *diana.Limiter
	service *Authorization
	server  *Server
	client  proc.ExternalProcessorClient
	conn    *grpc.ClientConn

	mu      sync.Mutex
	charged []int64 // what each request was settled by, in the order of their ends
	invalid []error
}

// limited returns a Limiter whose requests are noted in p.
func (p *processor) limited(yaml string) *processor {
	p.t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		p.t.Fatal(err)
	}
	p.limiter, err = diana.Options{Logger: slog.New(slog.DiscardHandler), OnDone: func(d *diana.Decision) {
		n, _ := d.Settled()
		p.mu.Lock()
		p.charged = append(p.charged, n)
		p.mu.Unlock()
	}}.New(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.limiter.Close() })
	p.service = NewAuthorization(p.limiter)
	p.service.OnInvalid = func(err error) {
		p.mu.Lock()
		p.invalid = append(p.invalid, err)
		p.mu.Unlock()
	}
	return p
}

// process serves a configuration.
func process(t testing.TB, yaml string) *processor {
	t.Helper()
	p := (&processor{t: t}).limited(yaml)
	p.server = NewServer(nil, p.service)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.server.Serve(l) }()
	p.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	p.client = proc.NewExternalProcessorClient(p.conn)
	t.Cleanup(func() {
		_ = p.conn.Close()
		_ = p.server.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

// ended waits until n requests have ended, and returns what they were settled by.
func (p *processor) ended(n int) (charged []int64) {
	p.t.Helper()
	testproc.Eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		charged = p.charged
		return len(charged) >= n
	})
	if len(charged) != n {
		p.t.Errorf("%d requests have ended, want %d", len(charged), n)
	}
	return charged
}

// left returns what the rules of / have left for the account that the requests of envoy have.
func (p *processor) left() (left []int64) {
	d, err := p.limiter.Peek(context.Background(), diana.Request{Method: "POST", Path: "/", HTTP: &http.Request{Header: http.Header{"X-Account": {"ann"}}}})
	if err != nil {
		panic(err)
	}
	for _, v := range d.Verdicts {
		left = append(left, v.Remaining)
	}
	return left
}

// envoy is an HTTP request on its way through Envoy's filter ext_proc.
type envoy struct {
	method, path string // POST, /
	header       []string
	body         string // empty: none
	chunked      bool   // the request has no Content-Length
	mode         *filter.ProcessingMode
	raw          bool // values of fields are sent as bytes, as by newer Envoys
	together     bool // Envoy sends the parts of the response before the answers

	status   int // of the upstream's response: 200
	fields   []string
	parts    []string
	trailers []string

	cut      int  // after so many messages the client disconnects; 0: never
	answered bool // the last one is answered before
	half     bool // Envoy ends its side of the stream, and does not reset it
}

// outcome is what a request led to.
type outcome struct {
	status   int
	header   http.Header // that the client gets
	body     string
	upstream http.Header // that the upstream gets; nil: it gets no request
	sent     string      // the request's body that the upstream gets
	override bool
	grpc     uint32
	err      error // of the stream
	cut      bool
	messages int
}

// errCut ends a run in which the client disconnects.
var errCut = errors.New("the client has disconnected")

// filtered is the state of a run.
type filtered struct {
	*envoy
	t      testing.TB
	stream proc.ExternalProcessor_ProcessClient
	cancel func()
	out    outcome
}

// fields returns fields as Envoy sends them.
func (e *envoy) headerMap(list ...string) *core.HeaderMap {
	m := &core.HeaderMap{}
	for i := 0; i+1 < len(list); i += 2 {
		v := &core.HeaderValue{Key: strings.ToLower(list[i]), Value: list[i+1]}
		if e.raw {
			v.Value, v.RawValue = "", []byte(list[i+1])
		}
		m.Headers = append(m.Headers, v)
	}
	return m
}

// mutate changes a header as Envoy does.
func (f *filtered) mutate(h http.Header, m *proc.HeaderMutation) {
	for _, name := range m.GetRemoveHeaders() {
		h.Del(name)
	}
	for _, o := range m.GetSetHeaders() {
		value := o.GetHeader().GetValue()
		if f.raw {
			if value != "" {
				f.t.Errorf("%s is no raw value", o.GetHeader().GetKey())
			}
			value = string(o.GetHeader().GetRawValue())
		}
		if o.GetAppendAction() == core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD {
			h.Add(o.GetHeader().GetKey(), value)
		} else {
			h.Set(o.GetHeader().GetKey(), value)
		}
	}
}

// changed returns a body after the answer to it.
func changed(body string, m *proc.BodyMutation) string {
	switch m := m.GetMutation().(type) {
	case *proc.BodyMutation_Body:
		return string(m.Body)
	case *proc.BodyMutation_ClearBody:
		return ""
	}
	return body
}

// send sends a message.
func (f *filtered) send(m *proc.ProcessingRequest) error {
	if err := f.stream.Send(m); err != nil && !errors.Is(err, io.EOF) { // Recv returns the error
		return err
	}
	if f.out.messages++; f.cut == f.out.messages && !f.answered {
		return f.disconnect()
	}
	return nil
}

func (f *filtered) disconnect() error {
	f.out.cut = true
	if f.half {
		_ = f.stream.CloseSend()
		for {
			if _, err := f.stream.Recv(); err != nil {
				f.out.err = err
				return errCut
			}
		}
	}
	f.cancel()
	return errCut
}

// receive returns the answer. An immediate response ends the run.
func (f *filtered) receive() (*proc.ProcessingResponse, error) {
	m, err := f.stream.Recv()
	if err != nil {
		return nil, err
	}
	if i := m.GetImmediateResponse(); i != nil {
		f.out.status, f.out.header, f.out.body = int(i.GetStatus().GetCode()), http.Header{}, string(i.GetBody())
		f.mutate(f.out.header, i.GetHeaders())
		f.out.grpc = i.GetGrpcStatus().GetStatus()
		if _, err := f.stream.Recv(); !errors.Is(err, io.EOF) {
			f.t.Errorf("after an immediate response: %v, want EOF", err)
		}
		return nil, io.EOF
	}
	if f.cut == f.out.messages && f.answered {
		return nil, f.disconnect()
	}
	return m, nil
}

func (f *filtered) ask(m *proc.ProcessingRequest) (*proc.ProcessingResponse, error) {
	if err := f.send(m); err != nil {
		return nil, err
	}
	return f.receive()
}

// ask sends a request and its response through the filter.
func (e *envoy) ask(t testing.TB, client proc.ExternalProcessorClient) outcome {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f := &filtered{envoy: e, t: t, stream: stream, cancel: cancel}
	switch err := f.run(); {
	case err == nil:
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("after the response: %v, want EOF", err)
		}
	case !errors.Is(err, errCut) && !errors.Is(err, io.EOF):
		f.out.err = err
	}
	return f.out
}

func (f *filtered) run() error {
	method, path := f.method, f.path
	if method == "" {
		method = "POST"
	}
	if path == "" {
		path = "/"
	}
	fields := append([]string{"content-type", "application/json", "x-account", "ann"}, f.header...)
	if f.body != "" && !f.chunked {
		fields = append(fields, "content-length", strconv.Itoa(len(f.body)))
	}
	upstream := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		upstream.Add(fields[i], fields[i+1])
	}
	first := &proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{
		Headers:     f.headerMap(append([]string{":method", method, ":path", path, ":authority", "api.example", ":scheme", "https"}, fields...)...),
		EndOfStream: f.body == "",
	}}, Attributes: map[string]*structpb.Struct{attributes: {Fields: map[string]*structpb.Value{"source.address": structpb.NewStringValue("192.0.2.1:1234")}}}}
	answer, err := f.ask(first)
	if err != nil {
		return err
	}
	mode := f.mode
	if mode == nil { // allow_mode_override
		mode = answer.GetModeOverride()
		f.out.override = true
	}
	f.mutate(upstream, answer.GetRequestHeaders().GetResponse().GetHeaderMutation())
	body := f.body
	if body != "" && mode.GetRequestBodyMode() == filter.ProcessingMode_BUFFERED {
		answer, err = f.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestBody{RequestBody: &proc.HttpBody{Body: []byte(body), EndOfStream: true}}})
		if err != nil {
			return err
		}
		common := answer.GetRequestBody().GetResponse()
		f.mutate(upstream, common.GetHeaderMutation())
		body = changed(body, common.GetBodyMutation())
	}
	if length := upstream.Get("Content-Length"); length != "" && length != strconv.Itoa(len(body)) {
		f.t.Errorf("Envoy answers 500, because the body has %d bytes and its length is %s", len(body), length)
	}
	f.out.upstream, f.out.sent = upstream, body
	return f.respond(mode)
}

func (f *filtered) respond(mode *filter.ProcessingMode) error {
	f.out.status, f.out.header = f.status, http.Header{}
	if f.status == 0 {
		f.out.status = 200
	}
	for i := 0; i < len(f.fields); i += 2 {
		f.out.header.Add(f.fields[i], f.fields[i+1])
	}
	parts := f.parts
	if mode.GetResponseBodyMode() == filter.ProcessingMode_NONE {
		parts = nil
	}
	withTrailers := len(f.trailers) > 0 && mode.GetResponseTrailerMode() == filter.ProcessingMode_SEND
	answer, err := f.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &proc.HttpHeaders{
		Headers:     f.headerMap(append([]string{":status", strconv.Itoa(f.out.status)}, f.fields...)...),
		EndOfStream: len(f.parts) == 0 && len(f.trailers) == 0,
	}}})
	if err != nil {
		return err
	}
	f.mutate(f.out.header, answer.GetResponseHeaders().GetResponse().GetHeaderMutation())
	var waiting []string
	for i, part := range parts {
		err := f.send(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseBody{ResponseBody: &proc.HttpBody{
			Body: []byte(part), EndOfStream: i == len(parts)-1 && len(f.trailers) == 0,
		}}})
		if err != nil {
			return err
		}
		if waiting = append(waiting, part); f.together && i < len(parts)-1 {
			continue
		}
		for _, part := range waiting {
			if answer, err = f.receive(); err != nil {
				return err
			}
			f.out.body += changed(part, answer.GetResponseBody().GetResponse().GetBodyMutation())
		}
		waiting = nil
	}
	if withTrailers {
		answer, err = f.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &proc.HttpTrailers{Trailers: f.headerMap(f.trailers...)}}})
		if err == nil && answer.GetResponseTrailers() == nil {
			f.t.Errorf("%v for trailers", answer)
		}
	}
	return err
}

const (
	chat   = `{"model":"small","messages":[{"role":"user","content":"hi"}],"max_tokens":60}`
	talk   = `{"model":"small","messages":[{"role":"user","content":"hi"}],"max_tokens":60,"stream":true}`
	usage  = `{"choices":[{"message":{"content":"Hello"}}],"usage":{"prompt_tokens":40,"completion_tokens":60}}`
	tokens = `
identity: {account: ["header:X-Account"]}
limits:
- url: POST /
  refusal: openai
  rules:
  - {name: slots, actor: account, algo: C, rpu: 100}
  - {name: tokens, actor: account, unit: total, algo: W, rpu: %d, cost: {answer: %s, reserve: {output: auto, or: 60, input: bytes, set: true, bound: strict}}}
`
)

var (
	openAIEvents = []string{
		"data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n",
		"data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"Hello \\\"you\\\"\"}}]}\n\n", "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":60}}\n\n", "data: [DONE]\n\n",
	}
	anthropicEvents = []string{
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":40,\"output_tokens\":1}}}\n\n",
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":60}}\n\n", "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	}
	eventStream = []string{"content-type", "text/event-stream"}
)

// pieces cuts a text into pieces of n bytes.
func pieces(text string, n int) (list []string) {
	for ; len(text) > n; text = text[n:] {
		list = append(list, text[:n])
	}
	return append(list, text)
}

func zip(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// Costs are settled by what a response says, in every form that Envoy sends it in.
func TestProcessSettles(t *testing.T) {
	t.Parallel()
	withoutUsage := strings.Join(append(append([]string{}, openAIEvents[:3]...), openAIEvents[4]), "")
	for name, row := range map[string]struct {
		answer string
		of     envoy
		charge int64
		body   string // that the client gets; empty: all
	}{
		"JSON":             {"openai", envoy{body: chat, parts: []string{usage}}, 100, ""},
		"JSON in pieces":   {"openai", envoy{body: chat, parts: pieces(usage, 1)}, 100, ""},
		"JSON in a burst":  {"openai", envoy{body: chat, parts: pieces(usage, 3), together: true}, 100, ""},
		"JSON, length":     {"openai", envoy{body: chat, parts: pieces(usage, 9), fields: []string{"content-length", strconv.Itoa(len(usage))}}, 100, ""},
		"JSON, trailers":   {"openai", envoy{body: chat, parts: []string{usage}, trailers: []string{"x-end", "1"}}, 100, ""},
		"JSON, empty end":  {"openai", envoy{body: chat, parts: []string{usage, ""}}, 100, ""},
		"gzip":             {"openai", envoy{body: chat, parts: pieces(zip(usage), 5), fields: []string{"content-encoding", "gzip"}}, 100, ""},
		"events":           {"openai", envoy{body: talk, parts: openAIEvents, fields: eventStream}, 100, withoutUsage},
		"events, bytes":    {"openai", envoy{body: talk, parts: pieces(strings.Join(openAIEvents, ""), 1), fields: eventStream}, 100, withoutUsage},
		"events, usage":    {"openai", envoy{body: strings.Replace(talk, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1), parts: openAIEvents, fields: eventStream}, 100, ""},
		"anthropic":        {"anthropic", envoy{body: chat, parts: []string{`{"content":[],"usage":{"input_tokens":40,"output_tokens":60}}`}}, 100, ""},
		"anthropic events": {"anthropic", envoy{body: talk, parts: anthropicEvents, fields: eventStream, together: true}, 100, ""},
		"anthropic, gzip":  {"anthropic", envoy{body: talk, parts: pieces(zip(strings.Join(anthropicEvents, "")), 7), fields: append([]string{"content-encoding", "gzip"}, eventStream...)}, 100, ""},
		"500":              {"openai", envoy{body: chat, status: 500, parts: []string{`{"error":{}}`}}, 0, ""},
		"503 of Envoy":     {"openai", envoy{body: chat, status: 503}, 0, ""},
		"500 with usage":   {"openai", envoy{body: chat, status: 500, parts: []string{usage}}, 100, ""},
		"no usage":         {"openai", envoy{body: chat, parts: []string{`{}`}}, int64(len(chat)) + 60, ""},
	} {
		p := process(t, fmt.Sprintf(tokens, 1_000_000, row.answer))
		buffered := &filter.ProcessingMode{RequestBodyMode: filter.ProcessingMode_BUFFERED, ResponseBodyMode: filter.ProcessingMode_STREAMED, ResponseTrailerMode: filter.ProcessingMode_SEND}
		for i, mode := range []*filter.ProcessingMode{nil, buffered} {
			e := row.of
			e.mode, e.raw, e.chunked = mode, i == 0, i == 0
			out := e.ask(t, p.client)
			charged := p.ended(i + 1)
			want := row.body
			if want == "" {
				want = strings.Join(e.parts, "")
			}
			if out.err != nil || out.upstream == nil || charged[i] != row.charge || out.body != want {
				t.Errorf("%s: charged %v, want %d; %+v", name, charged, row.charge, out)
			}
			if got := out.header.Get("Ratelimit"); out.header.Get("Ratelimit-Policy") == "" || !strings.Contains(got, `"tokens";r=`) {
				t.Errorf("%s: RateLimit %q", name, got)
			}
			if left := p.left(); left[0] != 100 || left[1] != 1_000_000-int64(i+1)*row.charge {
				t.Errorf("%s: left %v after charges of %d", name, left, row.charge)
			}
		}
	}
}

// The upstream gets the body and the fields as the Limiter changes them, and nothing else changes.
func TestProcessChangesRequests(t *testing.T) {
	t.Parallel()
	p := process(t, fmt.Sprintf(tokens, 1_000_000, "openai"))
	short := `{"messages":[],"stream":true}`
	out := (&envoy{body: short, header: []string{"accept-encoding", "gzip", "x-other", "a", "x-other", "b"}, parts: openAIEvents, fields: eventStream}).ask(t, p.client)
	if out.sent != `{"max_tokens":60,"stream_options":{"include_usage":true},"messages":[],"stream":true}` && out.sent != `{"stream_options":{"include_usage":true},"max_tokens":60,"messages":[],"stream":true}` {
		t.Errorf("the upstream gets %s", out.sent)
	}
	if h := out.upstream; h.Get("Accept-Encoding") != "identity" || len(h["X-Other"]) != 2 || h.Get("Content-Length") != strconv.Itoa(len(out.sent)) {
		t.Errorf("the upstream gets %v", h)
	}
	out = (&envoy{body: chat, parts: []string{usage}, fields: []string{"ratelimit", "theirs", "x-own", "1", "set-cookie", "a", "set-cookie", "b"}}).ask(t, p.client)
	if out.sent != chat || len(out.upstream) != 3 || len(out.header["Set-Cookie"]) != 2 || out.header.Get("X-Own") != "1" || strings.Contains(out.header.Get("Ratelimit"), "theirs") {
		t.Errorf("%+v", out)
	}
	p = process(t, `
limits:
- {url: /m, divert: {body: {/model: tiny}}, rules: [{name: model, actor: 'body:/model', unit: total, algo: W, rpu: 1}]}
`)
	for i, want := range []string{chat, strings.Replace(chat, "small", "tiny", 1), ""} {
		out := (&envoy{path: "/m", body: chat, parts: []string{"ok"}}).ask(t, p.client)
		if out.sent != want || (i == 1) != (out.header.Get("Diana-Diverted") == "model") || (i == 2) != (out.status == 503) {
			t.Errorf("%d: %+v", i, out)
		}
	}
}

// A key proves an account behind Envoy too. The upstream gets the fields of upstream_headers in its place.
func TestProcessKeys(t *testing.T) {
	t.Parallel()
	key, file := keyOfAnn(t)
	p := process(t, fmt.Sprintf(`
identity: {keys: {file: %q}, account: [key:account], upstream_headers: {Authorization: Bearer of-provider}}
limits: [{url: /, rules: [{name: models, actor: [account, 'body:/model'], unit: day, rpu: 1}]}]
`, file))
	for i, row := range []struct {
		path, key string
		status    int
	}{{"/", key, 200}, {"/", key, 503}, {"/", "guess", 401}} {
		out := (&envoy{path: row.path, body: chat, header: []string{"authorization", "Bearer " + row.key, "x-api-key", row.key}, parts: []string{"ok"}, raw: i%2 == 0}).ask(t, p.client)
		if out.status != row.status || row.status == 200 && (out.upstream.Get("Authorization") != "Bearer of-provider" || out.upstream.Get("X-Api-Key") != "" || out.sent != chat) {
			t.Errorf("%d: %+v", i, out)
		}
	}
}

// A bandwidth delays the parts of a response, and changes none.
func TestProcessBandwidth(t *testing.T) {
	t.Parallel()
	p := process(t, "limits: [{url: /, bandwidth: 1m, rules: [{name: bytes, unit: total, algo: W, rpu: 1000000, cost: {answer: bytes}}]}]")
	parts := pieces(strings.Repeat("0123456789", 5_000), 7_001)
	out := (&envoy{parts: parts, together: true}).ask(t, p.client)
	if left := p.left(); out.body != strings.Join(parts, "") || left[0] != 950_000 {
		t.Errorf("%d bytes, left %v, %v", len(out.body), left, out.err)
	}
}

// A body is asked for if rules need it, and only after the local rules that do not.
func TestProcessAsksForBodies(t *testing.T) {
	t.Parallel()
	p := process(t, `
limits:
- {url: /plain, rules: [{name: plain, unit: total, algo: W, rpu: 5}]}
- {url: /both, rules: [{name: few, unit: total, algo: W, rpu: 1}, {name: model, actor: 'body:/model', unit: total, algo: W, rpu: 5}]}
`)
	for i, row := range []struct {
		path     string
		messages int
		status   int
	}{{"/plain", 3, 200}, {"/none", 3, 200}, {"/both", 4, 200}, {"/both", 1, 503}} {
		out := (&envoy{path: row.path, body: chat, parts: []string{"ok"}}).ask(t, p.client)
		if out.messages != row.messages || out.status != row.status || out.err != nil {
			t.Errorf("%d: %+v, want %+v", i, out, row)
		}
		out = (&envoy{method: "GET", path: "/none", fields: []string{"x", "y"}}).ask(t, p.client)
		if out.messages != 2 || out.status != 200 {
			t.Errorf("GET: %+v", out)
		}
	}
}

// A refusal reaches the client with its status, fields and body, and so does a diversion.
func TestProcessRefuses(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", mostInstead+1)
	upstream := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Upstream", r.URL.EscapedPath())
		if r.URL.Path == "/sent/large" {
			body = []byte(large)
		}
		w.WriteHeader(202)
		_, _ = w.Write(body)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = upstream.Serve(l) }()
	defer func() { _ = upstream.Close() }()
	p := process(t, fmt.Sprintf(`
response: {status: 503}
identity: {account: ["header:X-Account"]}
limits:
- {url: /plain, rules: [{name: never, unit: day, rpu: 0}]}
- {url: /said, divert: {status: 203, body: later, type: text/x}, rules: [{name: said, unit: day, rpu: 0}]}
- {url: /sent, divert: {upstream: "http://%s"}, rules: [{name: sent, unit: day, rpu: 0}]}
- {url: /v1/x, refusal: openai, rules: [{name: model, actor: 'body:/model', unit: day, rpu: 0}]}
`, l.Addr()))
	for _, row := range []struct {
		of     envoy
		status int
		name   string
		value  string
		body   string
	}{
		{envoy{path: "/plain"}, 503, "Content-Type", "application/problem+json", `"violated-policies":["never"]`},
		{envoy{path: "/plain", raw: true}, 503, "Cache-Control", "no-store", `"violated-policies":["never"]`},
		{envoy{path: "/said"}, 203, "Content-Type", "text/x", "later"},
		{envoy{path: "/sent/a%2Fx?y", body: chat}, 202, "X-Upstream", "/sent/a%2Fx", chat},
		{envoy{path: "/sent/large"}, 502, "Content-Type", "application/problem+json", "1 MiB"},
		{envoy{path: "/v1/x", body: chat}, 429, "X-Should-Retry", "false", `"error":{`},
		{envoy{path: "/v1/x", body: "no JSON"}, 400, "Content-Type", "application/json", `"error":{`},
		{envoy{path: "/v1/x", body: chat, header: []string{"content-encoding", "br"}}, 400, "Content-Type", "application/json", "compressed"},
		{envoy{path: "/a/%2e%2e/b"}, 400, "Content-Type", "application/problem+json", "path"},
	} {
		out := row.of.ask(t, p.client)
		if out.status != row.status || !strings.HasPrefix(out.header.Get(row.name), row.value) || !strings.Contains(out.body, row.body) || out.upstream != nil || out.err != nil {
			t.Errorf("%s: %+v", row.of.path, out)
		}
	}
	p = process(t, "limits: [{url: /, rules: [{unit: day, rpu: 0}]}]")
	e := &envoy{}
	stream, err := p.client.Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{Headers: e.headerMap(":method", "POST", ":path", "/a.B/C", "content-type", "application/grpc")}}})
	m, err := stream.Recv()
	if i := m.GetImmediateResponse(); err != nil || i.GetStatus().GetCode() != 200 || i.GetGrpcStatus().GetStatus() != uint32(codes.ResourceExhausted) || !bytes.Contains(i.GetBody(), []byte("limits")) {
		t.Errorf("%v, %v", m, err)
	}
}

// The client's address is the attribute that Envoy is set to send.
func TestProcessKnowsAddress(t *testing.T) {
	t.Parallel()
	p := process(t, "identity: {trusted_proxies: [192.0.2.0/24]}\nlimits: [{url: /, rules: [{name: ip, actor: ip, unit: day, rpu: 1}]}]")
	for i, row := range []struct {
		header []string
		status int
	}{{nil, 200}, {nil, 503}, {[]string{"x-forwarded-for", "198.51.100.1"}, 200}, {[]string{"x-forwarded-for", "198.51.100.1"}, 503}} {
		if out := (&envoy{header: row.header, fields: []string{"a", "b"}}).ask(t, p.client); out.status != row.status {
			t.Errorf("%d: %+v", i, out)
		}
	}
}

// TestProcessCut has a client that disconnects at every message, before and after its answer. Envoy then resets the
// stream, or ends it. A request pays at least what it would have paid otherwise, ends once and holds no slot.
func TestProcessCut(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer string
		of     envoy
	}{
		"chat":      {"openai", envoy{body: talk, parts: openAIEvents, fields: eventStream}},
		"whole":     {"openai", envoy{body: chat, parts: pieces(usage, 20)}},
		"messages":  {"anthropic", envoy{body: talk, parts: anthropicEvents, fields: eventStream, trailers: []string{"a", "b"}}},
		"after gap": {"anthropic", envoy{body: talk, parts: pieces(strings.Join(anthropicEvents, ""), 40), fields: eventStream}},
	} {
		p := process(t, fmt.Sprintf(tokens, 1_000_000_000, row.answer))
		before := p.left()[1]
		n := 0
		for at := 1; ; at++ {
			over := false
			for _, answered := range []bool{false, true} {
				for _, half := range []bool{false, true} {
					e := row.of
					e.cut, e.answered, e.half = at, answered, half
					out := e.ask(t, p.client)
					over = !out.cut
					if answered && out.cut && out.messages == at && out.err == nil && half {
						t.Errorf("%s, %d: no error for a stream that was cut", name, at)
					}
					if at == 1 && !answered { // nobody knows whether the request was evaluated
						testproc.Eventually(t, func() bool { return p.service.streams.Load() == 0 })
						p.mu.Lock()
						n = len(p.charged)
						p.mu.Unlock()
						before = p.left()[1]
						continue
					}
					n++
					_ = p.ended(n)
					charged := before - p.left()[1]
					if before -= charged; charged < 100 && (charged > 0 || at > 2 || at == 2 && answered) { // the upstream has the request
						t.Errorf("%s: cut at message %d, answered %t: charged %d, want at least 100", name, at, answered, charged)
					}
				}
			}
			testproc.Eventually(t, func() bool { return p.service.streams.Load() == 0 })
			if left := p.left(); left[0] != 100 {
				t.Fatalf("%s: %d slots are left at message %d", name, left[0], at)
			}
			if over {
				break
			}
		}
	}
}

// TestProcessAttackLeavesBeforeUsage has clients that read every word and disconnect before the usage.
func TestProcessAttackLeavesBeforeUsage(t *testing.T) {
	t.Parallel()
	cost := int64(len(talk)) + 60
	p := process(t, fmt.Sprintf(tokens, 4*cost, "openai"))
	var allowed atomic.Int64
	var clients sync.WaitGroup
	for range 12 {
		clients.Go(func() {
			out := (&envoy{body: talk, parts: openAIEvents, fields: eventStream, cut: 6, answered: true}).ask(t, p.client)
			if out.upstream != nil {
				allowed.Add(1)
			}
		})
	}
	clients.Wait()
	_ = p.ended(12)
	if left := p.left(); allowed.Load() != 4 || left[0] != 100 || left[1] != 0 {
		t.Errorf("%d were allowed, %v is left; want 4 and nothing", allowed.Load(), left)
	}
}

// 64 streams at the same time use a budget exactly.
func TestProcessConcurrent(t *testing.T) {
	t.Parallel()
	const limit = 40_000
	p := process(t, fmt.Sprintf(tokens, limit, "openai"))
	var allowed, refused atomic.Int64
	var clients sync.WaitGroup
	for i := range 64 {
		clients.Go(func() {
			for k := range 12 {
				e := envoy{body: chat, parts: pieces(usage, 7+i%5), raw: i%2 == 0}
				if k%2 == 0 {
					e = envoy{body: talk, parts: openAIEvents, fields: eventStream, together: i%3 == 0}
				}
				switch out := e.ask(t, p.client); {
				case out.err != nil:
					t.Error(out.err)
				case out.upstream != nil:
					allowed.Add(1)
				case out.status == 429:
					refused.Add(1)
				default:
					t.Errorf("%+v", out)
				}
			}
		})
	}
	clients.Wait()
	var sum int64
	for _, n := range p.ended(64 * 12) {
		sum += n
	}
	if left := p.left(); sum != 100*allowed.Load() || left[0] != 100 || left[1] != limit-sum || allowed.Load()+refused.Load() != 64*12 || allowed.Load() < 100 {
		t.Errorf("%d allowed, %d refused, %d charged, left %v", allowed.Load(), refused.Load(), sum, left)
	}
}

// TestProcessAttackHoldsStreams has a client that holds 256 streams in every state. Others are served meanwhile, and all
// is freed when it leaves.
func TestProcessAttackHoldsStreams(t *testing.T) {
	t.Parallel()
	p := process(t, strings.Replace(fmt.Sprintf(tokens, 1_000_000, "openai"), "rpu: 100}", "rpu: 300}", 1))
	ctx, cancel := context.WithCancel(t.Context())
	var begun sync.WaitGroup
	for i := range 256 {
		begun.Go(func() {
			stream, err := p.client.Process(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			f := &filtered{envoy: &envoy{body: talk, parts: openAIEvents, fields: eventStream, cut: i%4 + 1, answered: true}, t: t, stream: stream, cancel: func() {}}
			if err := f.run(); !errors.Is(err, errCut) {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	if n := p.service.streams.Load(); n != 256 {
		t.Errorf("%d streams are held", n)
	}
	if left := p.left(); left[0] != 300-192 {
		t.Errorf("%d slots are left, want %d", left[0], 300-192) // a quarter has not sent its body
	}
	if out := (&envoy{body: chat, parts: []string{usage}}).ask(t, p.client); out.status != 200 || out.upstream == nil {
		t.Errorf("another client gets %+v", out)
	}
	cancel()
	testproc.Eventually(t, func() bool { return p.service.streams.Load() == 0 })
	if left := p.left(); left[0] != 300 || left[1] != 1_000_000-100-192*(int64(len(talk))+60) {
		t.Errorf("left %v", left)
	}
	p.service.streams.Store(mostStreams)
	if out := (&envoy{}).ask(t, p.client); status.Code(out.err) != codes.ResourceExhausted {
		t.Errorf("%+v", out)
	}
	p.service.streams.Store(0)
}

// TestProcessAttackBodies has clients that send bodies which are large, hostile or cut.
func TestProcessAttackBodies(t *testing.T) {
	t.Parallel()
	p := process(t, fmt.Sprintf(tokens, 100_000, "openai"))
	for name, row := range map[string]struct {
		body   string
		status int
	}{
		"1 MiB and a byte": {`{"x":"` + strings.Repeat("a", 1<<20) + `"}`, 413},
		"not JSON":         {"{", 400},
		"twice":            {`{"messages":[],"max_tokens":1,"max_tokens":9}`, 400},
		"another case":     {`{"messages":[],"Max_Tokens":9}`, 400},
		"deep":             {`{"messages":` + strings.Repeat("[", 200_000), 400},
		"an image":         {`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}],"max_tokens":1}`, 400},
		"UTF-8":            {"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}],\"max_tokens\":1}", 400},
	} {
		if out := (&envoy{body: row.body}).ask(t, p.client); out.status != row.status || out.upstream != nil || out.err != nil {
			t.Errorf("%s: %d, %v", name, out.status, out.err)
		}
	}
	if out := (&envoy{body: strings.Repeat("x", mostMessage)}).ask(t, p.client); status.Code(out.err) != codes.ResourceExhausted {
		t.Errorf("5 MB: %+v", out.err)
	}
	testproc.Eventually(t, func() bool { return p.service.streams.Load() == 0 })
	if left := p.left(); left[0] != 100 || left[1] != 100_000 {
		t.Errorf("left %v", left)
	}
}

// A message that Envoy does not send in that place ends the stream. The request is settled as if its client had left.
func TestProcessAttackOrder(t *testing.T) {
	t.Parallel()
	e := &envoy{}
	body := func(eos bool) *proc.HttpBody { return &proc.HttpBody{Body: []byte(usage), EndOfStream: eos} }
	frames := map[string]*proc.ProcessingRequest{
		"q": {Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{Headers: e.headerMap(":method", "POST", ":path", "/", "x-account", "ann")}}},
		"b": {Request: &proc.ProcessingRequest_RequestBody{RequestBody: &proc.HttpBody{Body: []byte(chat), EndOfStream: true}}},
		"p": {Request: &proc.ProcessingRequest_RequestBody{RequestBody: &proc.HttpBody{Body: []byte(chat)}}},
		"t": {Request: &proc.ProcessingRequest_RequestTrailers{RequestTrailers: &proc.HttpTrailers{}}},
		"h": {Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &proc.HttpHeaders{Headers: e.headerMap(":status", "200")}}},
		"H": {Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &proc.HttpHeaders{Headers: e.headerMap(":status", "204"), EndOfStream: true}}},
		"f": {Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &proc.HttpHeaders{Headers: e.headerMap(":status", "413")}}},
		"e": {Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &proc.HttpHeaders{Headers: e.headerMap(":status", "400")}}},
		"?": {Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &proc.HttpHeaders{}}},
		"r": {Request: &proc.ProcessingRequest_ResponseBody{ResponseBody: body(false)}},
		"R": {Request: &proc.ProcessingRequest_ResponseBody{ResponseBody: body(true)}},
		"T": {Request: &proc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &proc.HttpTrailers{}}},
		"0": {},
		"o": {Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{Headers: e.headerMap(":path", "/")}}, ObservabilityMode: true},
		"d": {Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{Headers: e.headerMap(":path", "/")}}, ProtocolConfig: &proc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED}},
	}
	reserved := int64(len(chat)) + 60
	for _, row := range []struct {
		order   string
		answers int // before the end of the stream
		status  int // of the immediate response, which is the last of them; 0: there is none
		code    codes.Code
		charged int64
		invalid int
	}{
		{"qbhR", 4, 0, codes.OK, 100, 0},
		{"qbthRR", 5, 0, codes.OK, 100, 0},
		{"qbhrT", 5, 0, codes.OK, 100, 0},
		{"qbH", 3, 0, codes.OK, reserved, 0},
		{"b", 0, 0, codes.InvalidArgument, 0, 1},
		{"R", 0, 0, codes.InvalidArgument, 0, 1},
		{"t", 0, 0, codes.InvalidArgument, 0, 1},
		{"0", 0, 0, codes.InvalidArgument, 0, 1},
		{"d", 0, 0, codes.InvalidArgument, 0, 1},
		{"o", 0, 0, codes.InvalidArgument, 0, 1},
		{"", 0, 0, codes.Canceled, 0, 0},
		{"hrR", 3, 0, codes.OK, 0, 0}, // a filter in front has answered
		{"hr", 2, 0, codes.OK, 0, 0},
		{"q", 1, 0, codes.Canceled, 0, 0},
		{"qp", 2, 400, codes.OK, 0, 0},
		{"qq", 2, 400, codes.OK, 0, 1},
		{"qh", 2, 400, codes.OK, 0, 1}, // the body's mode is not set
		{"qf", 2, 413, codes.OK, 0, 0}, // Envoy holds no body of that size
		{"qe", 2, 400, codes.OK, 0, 0}, // Envoy has found the body to be broken
		{"qt", 2, 400, codes.OK, 0, 1},
		{"qb", 2, 0, codes.Canceled, reserved, 0},
		{"qbb", 3, 0, codes.Canceled, reserved, 0},
		{"qbR", 2, 0, codes.InvalidArgument, reserved, 1},
		{"qbT", 2, 0, codes.InvalidArgument, reserved, 1},
		{"qbq", 2, 0, codes.InvalidArgument, reserved, 1},
		{"qb0", 2, 0, codes.InvalidArgument, reserved, 1},
		{"qb?", 2, 0, codes.InvalidArgument, reserved, 1},
		{"qbh", 3, 0, codes.Canceled, reserved, 0},
		{"qbhh", 3, 0, codes.InvalidArgument, reserved, 1},
		{"qbhq", 3, 0, codes.InvalidArgument, reserved, 1},
		{"qbhr", 4, 0, codes.Canceled, reserved, 0},
	} {
		p := process(t, fmt.Sprintf(tokens, 100_000, "openai"))
		stream, err := p.client.Process(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answers, code := 0, 0
		for _, c := range row.order {
			if err := stream.Send(frames[string(c)]); err != nil {
				break
			}
			m, e := stream.Recv()
			if err = e; err != nil {
				break
			}
			answers++
			code = int(m.GetImmediateResponse().GetStatus().GetCode())
		}
		if err == nil || errors.Is(err, io.EOF) {
			_ = stream.CloseSend()
			if _, err = stream.Recv(); errors.Is(err, io.EOF) {
				err = nil
			}
		}
		testproc.Eventually(t, func() bool { return p.service.streams.Load() == 0 })
		left := p.left()
		if answers != row.answers || code != row.status || status.Code(err) != row.code || left[0] != 100 || left[1] != 100_000-row.charged || len(p.invalid) != row.invalid {
			t.Errorf("%s: %d answers, status %d, %v, left %v, %v; want %+v", row.order, answers, code, err, left, p.invalid, row)
		}
	}
}

// A rule in shadow mode rejects no request. So a response passes on that comes in place of the request's body.
func TestProcessShadow(t *testing.T) {
	t.Parallel()
	p := process(t, "limits: [{url: /, rules: [{name: model, actor: 'body:/model', unit: day, rpu: 0, mode: shadow}]}]")
	stream, err := p.client.Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := &envoy{}
	for i, m := range []*proc.ProcessingRequest{
		{Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{Headers: e.headerMap(":method", "POST", ":path", "/")}}},
		{Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &proc.HttpHeaders{Headers: e.headerMap(":status", "200")}}},
		{Request: &proc.ProcessingRequest_ResponseBody{ResponseBody: &proc.HttpBody{Body: []byte("ok"), EndOfStream: true}}},
	} {
		_ = stream.Send(m)
		a, err := stream.Recv()
		if err != nil || a.GetImmediateResponse() != nil || (a.GetResponseHeaders() != nil) != (i == 1) || (a.GetResponseBody() != nil) != (i == 2) {
			t.Errorf("%d: %v, %v", i, a, err)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// A server that stops waits for requests in flight. It settles what it cuts off, before Shutdown returns.
func TestProcessShutdown(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{true, false} {
		p := process(t, fmt.Sprintf(tokens, 100_000, "openai"))
		stream, err := p.client.Process(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f := &filtered{envoy: &envoy{body: chat, parts: pieces(usage, 60), cut: 3, answered: true}, t: t, stream: stream, cancel: func() {}}
		if err := f.run(); !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- p.server.Shutdown(ctx) }()
		testproc.Eventually(t, func() bool { // no further request begins
			s, err := p.client.Process(t.Context())
			if err == nil {
				_ = s.CloseSend()
				_, err = s.Recv()
			}
			return status.Code(err) == codes.Unavailable
		})
		charged := int64(100)
		if wait {
			for i, part := range pieces(usage, 60) {
				answer, err := f.ask(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseBody{ResponseBody: &proc.HttpBody{Body: []byte(part), EndOfStream: i == 1}}})
				if err != nil || answer.GetResponseBody() == nil {
					t.Errorf("%v, %v", answer, err)
				}
			}
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			cancel()
		} else {
			charged = int64(len(chat)) + 60
			cancel()
			if err := <-stopped; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if left := p.left(); left[0] != 100 || left[1] != 100_000-charged {
			t.Errorf("wait %t: left %v, want a charge of %d", wait, left, charged)
		}
	}
}

// A request that waits for its time leaves the queue when its client disconnects, also if Envoy only ends its side.
func TestProcessWaits(t *testing.T) {
	t.Parallel()
	p := process(t, "limits: [{url: /, rules: [{name: slot, algo: C, rpu: 1, wait: 10m}]}]")
	first := &filtered{envoy: &envoy{body: chat, cut: 1, answered: true}, t: t, cancel: func() {}}
	var err error
	if first.stream, err = p.client.Process(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.run(); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	for _, half := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		waits := &filtered{envoy: &envoy{body: chat}, t: t, cancel: cancel}
		if waits.stream, err = p.client.Process(ctx); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- waits.run() }()
		testproc.Eventually(t, func() bool { return p.limiter.Waiting() == 1 })
		if half {
			_ = waits.stream.CloseSend()
		} else {
			cancel()
		}
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		testproc.Eventually(t, func() bool { return p.limiter.Waiting() == 0 })
		cancel()
	}
	_ = first.stream.CloseSend()
	_ = p.ended(3)
	if out := (&envoy{fields: []string{"a", "b"}}).ask(t, p.client); out.status != 200 {
		t.Errorf("%+v", out)
	}
}

// External authorization does not say how a request ends. So it fails for a rule that needs to know.
func TestAuthorizationNeedsEnd(t *testing.T) {
	t.Parallel()
	p := process(t, `
limits:
- {url: /slots, rules: [{name: slots, algo: C, rpu: 1}]}
- {url: /charge, rules: [{name: failures, unit: day, rpu: 2, charge: [500]}]}
`)
	for _, path := range []string{"/slots", "/charge", "/none"} {
		_, err := auth.NewAuthorizationClient(p.conn).Check(t.Context(), &auth.CheckRequest{Attributes: &auth.AttributeContext{Request: &auth.AttributeContext_Request{
			Http: &auth.AttributeContext_HttpRequest{Method: "GET", Path: path},
		}}})
		want := codes.FailedPrecondition
		if path == "/none" {
			want = codes.OK
		}
		if status.Code(err) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if len(p.invalid) != 2 {
		t.Errorf("%v", p.invalid)
	}
	for i, status := range []int{500, 200, 200} {
		out := (&envoy{method: "GET", path: "/charge", status: status, fields: []string{"a", "b"}}).ask(t, p.client)
		if (out.status == 503) != (i > 0) {
			t.Errorf("%d: %+v", i, out)
		}
	}
}
