// SPDX-License-Identifier: MIT

package envoy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/respond"
)

// mostStreams is how many HTTP requests are in flight at once. Each has two goroutines and a gRPC stream.
const mostStreams = 10_000

// mostSilent is how long Envoy may say nothing of a request whose response has not ended. Envoy's own timeouts are
// shorter, so this ends the streams that an Envoy has forgotten.
const mostSilent = time.Hour

// attributes is the name under which Envoy sends the attributes of a request.
const attributes = "envoy.filters.http.ext_proc"

var (
	errStreams   = status.Error(codes.ResourceExhausted, "there are too many requests in flight, expected at most 10000")
	errLeft      = status.Error(codes.Canceled, "the stream ended before the response")
	errSilent    = status.Error(codes.DeadlineExceeded, "the stream is silent")
	errNoHeaders = status.Error(codes.InvalidArgument, "request_headers is missing, expected request_header_mode: SEND")
	errMode      = status.Error(codes.InvalidArgument, "observability_mode is set, or a body has the mode FULL_DUPLEX_STREAMED or GRPC, expected BUFFERED for the request and STREAMED for the response")
	errNoBody    = status.Error(codes.InvalidArgument, "a rule reads the body of a request that Envoy has not sent, expected request_body_mode: BUFFERED")
	errOrder     = status.Error(codes.InvalidArgument, "a message came out of order, expected response_header_mode: SEND, and each part of the response after the one before it")
)

// Process decides about one HTTP request, and settles its cost by its response. Envoy's filter ext_proc sends both in
// messages, and waits for the answer to each. Process runs the Limiter's Handler: its next handler is the rest of
// Envoy, which answers by the messages with the response.
//
// A stream that ends before the response is a client that has disconnected. Then the error is Canceled. It is
// DeadlineExceeded for a stream that is silent, and ResourceExhausted if 10,000 requests are in flight. It is
// InvalidArgument for messages that an Envoy sends which is not set as expected.
func (s *Authorization) Process(stream proc.ExternalProcessor_ProcessServer) error {
	defer s.streams.Add(-1)
	if s.streams.Add(1) > mostStreams {
		return errStreams
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	x := &exchange{
		stream: stream, messages: make(chan *proc.ProcessingRequest), header: http.Header{},
		invalid: func(err error) error { return told(s.OnInvalid, err) },
	}
	go x.receive(ctx, cancel)
	m, err := x.await(respond.MaxArrival)
	switch {
	case err != nil:
		return err
	case m.GetResponseHeaders() != nil:
		return x.pass(m) // a filter in front of ext_proc has answered, and no upstream gets the request
	case m.GetRequestHeaders() == nil:
		return x.invalid(errNoHeaders)
	case m.GetObservabilityMode(), unsupported(m.GetProtocolConfig().GetRequestBodyMode()), unsupported(m.GetProtocolConfig().GetResponseBodyMode()):
		return x.invalid(errMode)
	}
	x.serve(ctx, s.limiter, m)
	if x.err == nil && ctx.Err() != nil {
		x.err = errLeft
	}
	switch {
	case x.err != nil:
		return x.invalid(x.err)
	case x.passes:
		return x.answer()
	}
	return x.instead()
}

func unsupported(mode filter.ProcessingMode_BodySendMode) bool {
	return mode > filter.ProcessingMode_BUFFERED_PARTIAL
}

// exchange is an HTTP request with its response, as Envoy sends them. It is also the ResponseWriter: the client gets what
// is written in place of a response, or what the limiter makes of each part of the upstream's response.
type exchange struct {
	stream   proc.ExternalProcessor_ProcessServer
	messages chan *proc.ProcessingRequest // closed when the stream has ended
	invalid  func(error) error            // tells the error if Envoy is not set as expected, and returns it
	raw      bool                         // Envoy sends and reads values of fields as bytes
	err      error                        // why the stream ends without an answer

	mu       sync.Mutex              // for ask, because a transport may read the body after the handler has returned
	answered bool                    // the body is not asked for any more
	waits    *proc.ProcessingRequest // Envoy waits for the answer to it; nil: to none
	sent     http.Header             // of the request, as Envoy has sent it

	passes bool        // Envoy passes the request on
	header http.Header // of the response, as the client gets it
	before http.Header // the same, as Envoy has sent it
	status int         // of the response; 0: it has not begun
	body   bytes.Buffer
	over   bool // too much was written in place of a response
}

// receive receives messages until the stream has ended, and cancels the request when Envoy ends it early.
func (x *exchange) receive(ctx context.Context, cancel func()) {
	defer close(x.messages)
	for {
		m, err := x.stream.Recv()
		if err != nil {
			cancel()
			return
		}
		select {
		case x.messages <- m:
		case <-ctx.Done():
			return
		}
		if m.GetResponseHeaders().GetEndOfStream() || m.GetResponseBody().GetEndOfStream() || m.GetResponseTrailers() != nil {
			return // what follows says nothing of this request
		}
	}
}

// await returns the next message.
func (x *exchange) await(most time.Duration) (*proc.ProcessingRequest, error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case m, ok := <-x.messages:
		if !ok {
			return nil, errLeft
		}
		return m, nil
	case <-timer.C:
		return nil, errSilent
	}
}

// serve has the limiter evaluate the request, and read the response.
func (x *exchange) serve(ctx context.Context, limiter *diana.Limiter, m *proc.ProcessingRequest) {
	defer func() {
		v := recover()
		if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			panic(v)
		}
		x.over = x.over || v != nil
	}()
	x.waits = m
	of := m.GetRequestHeaders()
	header, own := x.fields(of.GetHeaders())
	request, query := to(own[":method"], own[":path"])
	r := unread(request.Method, own[":authority"], request.Path, query, header)
	r.Proto, r.ProtoMajor, r.ContentLength = "HTTP/2.0", 2, -1
	x.sent = maps.Clone(header) // whoever changes a field makes new lines
	if u, err := url.ParseRequestURI(own[":path"]); err == nil {
		r.URL.Path, r.URL.RawPath = u.Path, u.RawPath // a diversion sends it on
	}
	r.RemoteAddr = m.GetAttributes()[attributes].GetFields()["source.address"].GetStringValue()
	if !of.GetEndOfStream() {
		r.Body = &arriving{x: x}
	}
	limiter.Serve(x, r.WithContext(ctx), request, http.HandlerFunc(x.next), nil)
}

// fields returns the fields that Envoy has sent, and apart from them its own, whose names begin with a colon.
func (x *exchange) fields(of *core.HeaderMap) (h http.Header, own map[string]string) {
	h, own = make(http.Header, len(of.GetHeaders())), map[string]string{}
	for _, f := range of.GetHeaders() {
		x.raw = x.raw || len(f.GetRawValue()) > 0
		value := valueOf(f)
		if name := f.GetKey(); strings.HasPrefix(name, ":") {
			own[name] = value
		} else {
			h.Add(name, value)
		}
	}
	return h, own
}

// next is the handler behind the limiter: Envoy passes the request on, and sends the response.
func (x *exchange) next(w http.ResponseWriter, r *http.Request) {
	x.passes = true
	x.must(x.allow(r))
	for {
		m := x.waits // a response that came in place of the request's body
		if m == nil {
			var err error
			m, err = x.await(mostSilent)
			x.must(err)
		}
		x.waits = m
		if x.respond(w, m) {
			return
		}
		x.must(x.answer())
	}
}

// must ends the stream without an answer if err is not nil.
func (x *exchange) must(err error) {
	if err != nil {
		x.err = err
		panic(http.ErrAbortHandler)
	}
}

// respond has the next part of a response written to w. It reports whether the response ends with it.
func (x *exchange) respond(w http.ResponseWriter, m *proc.ProcessingRequest) (last bool) {
	switch part := m.GetRequest().(type) {
	case *proc.ProcessingRequest_RequestBody, *proc.ProcessingRequest_RequestTrailers:
		return false // no rule reads it
	case *proc.ProcessingRequest_ResponseHeaders:
		header, own := x.fields(part.ResponseHeaders.GetHeaders())
		status, err := strconv.Atoi(own[":status"])
		if x.status != 0 || err != nil || status < 200 && status != http.StatusSwitchingProtocols || status > 999 {
			break
		}
		x.before = header
		for name, lines := range header {
			if _, ours := x.header[name]; !ours {
				x.header[name] = lines
			}
		}
		w.WriteHeader(status)
		return part.ResponseHeaders.GetEndOfStream()
	case *proc.ProcessingRequest_ResponseBody:
		if x.status == 0 {
			break
		}
		_, err := w.Write(part.ResponseBody.GetBody())
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil { // only a bandwidth returns one, when the client has disconnected
			x.must(errLeft)
		}
		return part.ResponseBody.GetEndOfStream()
	case *proc.ProcessingRequest_ResponseTrailers:
		if x.status == 0 {
			break
		}
		trailer, _ := x.fields(part.ResponseTrailers.GetTrailers())
		for name, lines := range trailer {
			x.header[http.TrailerPrefix+name] = lines
		}
		return true
	}
	x.must(errOrder)
	return false
}

// allow answers that the request is allowed, with the changes that the limiter has made.
func (x *exchange) allow(r *http.Request) error {
	m := x.waits
	if m.GetRequestHeaders() == nil && m.GetRequestBody() == nil {
		return nil // Envoy has answered itself
	}
	common := &proc.CommonResponse{}
	if r.Body != nil {
		if body := respond.Changed(r.Body); body != nil {
			common.BodyMutation = &proc.BodyMutation{Mutation: &proc.BodyMutation_Body{Body: body}}
			if len(r.Header["Content-Length"]) > 0 { // Envoy compares it with the body
				r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			}
		}
		_ = r.Body.Close() // frees its memory
	}
	common.HeaderMutation = x.mutation(difference(x.sent, r.Header))
	if m.GetRequestBody() != nil {
		return x.send(&proc.ProcessingResponse{Response: &proc.ProcessingResponse_RequestBody{RequestBody: &proc.BodyResponse{Response: common}}})
	}
	return x.proceed(common, filter.ProcessingMode_NONE)
}

// proceed answers the header of a request, and has Envoy send its body by the mode.
func (x *exchange) proceed(common *proc.CommonResponse, body filter.ProcessingMode_BodySendMode) error {
	return x.send(&proc.ProcessingResponse{
		Response: &proc.ProcessingResponse_RequestHeaders{RequestHeaders: &proc.HeadersResponse{Response: common}},
		ModeOverride: &filter.ProcessingMode{
			RequestHeaderMode: filter.ProcessingMode_SEND, ResponseHeaderMode: filter.ProcessingMode_SEND,
			RequestBodyMode: body, ResponseBodyMode: filter.ProcessingMode_STREAMED,
			RequestTrailerMode: filter.ProcessingMode_SKIP, ResponseTrailerMode: filter.ProcessingMode_SEND,
		},
	})
}

// arriving is the body of a request. Envoy sends it when it is read.
type arriving struct {
	x     *exchange
	asked bool
	rest  []byte
	err   error // what follows rest
}

func (b *arriving) Read(p []byte) (n int, err error) {
	if !b.asked {
		b.asked = true
		b.rest, b.err = b.x.ask()
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n = copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *arriving) Close() error {
	b.asked, b.rest, b.err = true, nil, http.ErrBodyReadAfterClose
	return nil
}

// ask has Envoy send the body of the request. It returns the body, and the error that Read returns after it.
func (x *exchange) ask() ([]byte, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered {
		return nil, http.ErrBodyReadAfterClose
	}
	x.answered = true
	if err := x.proceed(&proc.CommonResponse{}, filter.ProcessingMode_BUFFERED); err != nil {
		return nil, err
	}
	m, err := x.await(respond.MaxArrival)
	if errors.Is(err, errSilent) {
		return nil, os.ErrDeadlineExceeded
	} else if err != nil {
		return nil, err
	}
	x.waits = m
	if part := m.GetRequestBody(); part != nil {
		data := part.GetBody()
		part.Body = nil // so that its memory is freed before the response has ended
		if !part.GetEndOfStream() {
			return data, io.ErrUnexpectedEOF
		}
		return data, io.EOF
	}
	_, own := x.fields(m.GetResponseHeaders().GetHeaders())
	switch code := own[":status"]; {
	case code == "413":
		return nil, &http.MaxBytesError{}
	case code == "408":
		return nil, os.ErrDeadlineExceeded
	case code < "400": // the upstream has the request; Envoy answers with an error if a client sends no whole body
		_ = x.invalid(errNoBody)
	}
	return nil, io.ErrUnexpectedEOF
}

// mutation returns the changes of a header, which difference returns, as Envoy reads them.
func (x *exchange) mutation(set []*core.HeaderValueOption, remove []string) *proc.HeaderMutation {
	for _, o := range set {
		if x.raw {
			o.Header.RawValue, o.Header.Value = []byte(o.GetHeader().GetValue()), ""
		}
	}
	return &proc.HeaderMutation{SetHeaders: set, RemoveHeaders: remove}
}

// send answers the message for which Envoy waits.
func (x *exchange) send(answer *proc.ProcessingResponse) error {
	x.waits = nil
	return x.stream.Send(answer)
}

// answer answers the message for which Envoy waits. The client gets a part of the response as the limiter has written
// it.
func (x *exchange) answer() error {
	common := &proc.CommonResponse{}
	switch part := x.waits.GetRequest().(type) {
	case *proc.ProcessingRequest_RequestBody:
		return x.send(&proc.ProcessingResponse{Response: &proc.ProcessingResponse_RequestBody{RequestBody: &proc.BodyResponse{}}})
	case *proc.ProcessingRequest_RequestTrailers:
		return x.send(&proc.ProcessingResponse{Response: &proc.ProcessingResponse_RequestTrailers{RequestTrailers: &proc.TrailersResponse{}}})
	case *proc.ProcessingRequest_ResponseHeaders:
		common.HeaderMutation = x.mutation(difference(x.before, x.header))
		return x.send(&proc.ProcessingResponse{Response: &proc.ProcessingResponse_ResponseHeaders{ResponseHeaders: &proc.HeadersResponse{Response: common}}})
	case *proc.ProcessingRequest_ResponseBody:
		switch out := x.body.Bytes(); {
		case bytes.Equal(out, part.ResponseBody.GetBody()):
		case len(out) == 0:
			common.BodyMutation = &proc.BodyMutation{Mutation: &proc.BodyMutation_ClearBody{ClearBody: true}}
		default:
			common.BodyMutation = &proc.BodyMutation{Mutation: &proc.BodyMutation_Body{Body: out}}
		}
		x.body = bytes.Buffer{} // not Reset, because gRPC may keep what is sent
		return x.send(&proc.ProcessingResponse{Response: &proc.ProcessingResponse_ResponseBody{ResponseBody: &proc.BodyResponse{Response: common}}})
	default:
		return x.send(&proc.ProcessingResponse{Response: &proc.ProcessingResponse_ResponseTrailers{ResponseTrailers: &proc.TrailersResponse{}}})
	}
}

// pass answers that a response to a request which no rule has counted stays as it is.
func (x *exchange) pass(m *proc.ProcessingRequest) (err error) {
	for err == nil {
		x.waits = m
		x.body.Write(m.GetResponseBody().GetBody())
		if err = x.answer(); err == nil {
			m, err = x.await(mostSilent)
		}
	}
	if errors.Is(err, errLeft) {
		return nil
	}
	return err
}

// mostInstead is the size of the largest body in place of a response, such as that of a server that an entry diverts to.
const mostInstead = 1 << 20

// instead has Envoy answer the client with what was written, in place of a response.
func (x *exchange) instead() error {
	x.mu.Lock()
	x.answered = true
	x.mu.Unlock()
	if x.over {
		x.header, x.status = http.Header{}, 0
		x.body.Reset()
		respond.Problem(x, http.StatusBadGateway, "The server that this request was diverted to sent no whole response of at most 1 MiB.")
	}
	r := &proc.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(cmp.Or(x.status, http.StatusOK))}, Body: x.body.Bytes(), Details: "diana",
	}
	if code, err := strconv.ParseUint(x.header.Get("Grpc-Status"), 10, 32); err == nil { // Envoy writes these fields
		r.GrpcStatus, r.Body = &proc.GrpcStatus{Status: uint32(code)}, []byte(x.header.Get("Grpc-Message"))
		x.header.Del("Grpc-Status")
		x.header.Del("Grpc-Message")
	}
	x.header.Del("Content-Length") // Envoy writes it
	r.Headers = x.mutation(options(x.header), nil)
	return x.send(&proc.ProcessingResponse{Response: &proc.ProcessingResponse_ImmediateResponse{ImmediateResponse: r}})
}

// Header implements http.ResponseWriter.
func (x *exchange) Header() http.Header { return x.header }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		x.status = status
	}
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(b []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	if !x.passes && x.body.Len()+len(b) > mostInstead {
		x.over = true
		return 0, errors.New("the response is too large")
	}
	return x.body.Write(b)
}

// Flush implements http.Flusher. All that is written of one part is sent at once.
func (*exchange) Flush() {}
