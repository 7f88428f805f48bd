// SPDX-License-Identifier: MIT

package envoy

import (
	"bytes"
	"math"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// rawCodec sends and receives messages as they are, so that they can be invalid.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// bytesOf returns the message of a request.
func bytesOf(t testing.TB, r *rls.RateLimitRequest) []byte {
	t.Helper()
	b, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Strange messages get a clear status, and the server answers the next request as before.
func TestStrangeMessages(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, "limits: []")
	large := func(n int) *rls.RateLimitRequest { return request("user=" + strings.Repeat("x", n)) }
	manyHits := request("user=many")
	manyHits.HitsAddend = math.MaxUint32
	many := request()
	for range mostDescriptors {
		many.Descriptors = append(many.Descriptors, descriptor("user=crowd"))
	}
	utf8 := bytesOf(t, request("user=abc"))
	utf8[len(utf8)-1] = 0xff
	for name, row := range map[string]struct {
		message  []byte
		code     codes.Code
		statuses int
		overall  rls.RateLimitResponse_Code
	}{
		"a value of 1 MB":     {bytesOf(t, large(1<<20)), codes.OK, 1, rls.RateLimitResponse_OK},
		"a message over 4 MB": {bytesOf(t, large(mostMessage)), codes.ResourceExhausted, 0, 0},
		"1024 descriptors":    {bytesOf(t, many), codes.OK, mostDescriptors, rls.RateLimitResponse_OVER_LIMIT},
		"2^32-1 hits":         {bytesOf(t, manyHits), codes.OK, 1, rls.RateLimitResponse_OVER_LIMIT},
		"invalid UTF-8":       {utf8, codes.OK, 1, rls.RateLimitResponse_OK},
		"not a message":       {[]byte("\xff\xff\xff"), codes.Internal, 0, 0},
		"nothing":             {nil, codes.InvalidArgument, 0, 0},
	} {
		var reply []byte
		err := conn.Invoke(t.Context(), shouldRateLimit, &row.message, &reply, grpc.ForceCodecV2(rawCodec{}))
		var answer rls.RateLimitResponse
		if err == nil {
			err = proto.Unmarshal(reply, &answer)
		}
		if status.Code(err) != row.code || len(answer.GetStatuses()) != row.statuses || answer.GetOverallCode() != row.overall {
			t.Errorf("%s: %v, %d statuses, %v", name, err, len(answer.GetStatuses()), answer.GetOverallCode())
		}
	}
	if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("user=after")); err != nil {
		t.Error(err)
	}
}

// A string that is not valid UTF-8 is read as newer versions of Envoy send it. So no client gets an error, which
// Envoy can be set to ignore.
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, "limits: [{url: /b, rules: [{name: b, actor: 'header:X-User', unit: day, rpu: 1}]}]")
	invoke := func(method string, m, answer proto.Message) error {
		message, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		message = bytes.ReplaceAll(message, []byte("BAD"), []byte("\xff\xe2\x82"))
		var reply []byte
		if err := conn.Invoke(t.Context(), method, &message, &reply, grpc.ForceCodecV2(rawCodec{})); err != nil {
			return err
		}
		return proto.Unmarshal(reply, answer)
	}
	for i, user := range []string{"éBADx", "é!!!x", "éBADx", "y"} {
		var answer rls.RateLimitResponse
		if err := invoke(shouldRateLimit, request("user="+user), &answer); err != nil {
			t.Fatal(err)
		}
		if left := answer.GetStatuses()[0].GetLimitRemaining(); left != []uint32{4, 3, 2, 4}[i] {
			t.Errorf("%d: %s has %d left", i, user, left)
		}
	}
	for i, row := range []struct{ path, user string }{{"/b", "BAD"}, {"/b?BAD", "!!!"}, {"/BAD/../b", "BAD"}, {"/b", "joe"}} {
		q := &auth.CheckRequest{Attributes: &auth.AttributeContext{Request: &auth.AttributeContext_Request{
			Http: &auth.AttributeContext_HttpRequest{Method: "GET", Path: row.path, Headers: map[string]string{"x-user": row.user}},
		}}}
		var answer auth.CheckResponse
		if err := invoke(auth.Authorization_Check_FullMethodName, q, &answer); err != nil {
			t.Fatal(err)
		}
		if allowed := answer.GetDeniedResponse() == nil; allowed != []bool{true, false, false, true}[i] {
			t.Errorf("%d: %v is allowed %v", i, row, allowed)
		}
	}
}

// A message whose strings cannot be found is not valid. It costs little, however deep it is.
func TestDeepMessage(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, "limits: []")
	value := structpb.NewStringValue("BAD")
	for range 5000 {
		value = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{value}})
	}
	message, err := proto.Marshal(&auth.CheckRequest{Attributes: &auth.AttributeContext{MetadataContext: &core.Metadata{
		FilterMetadata: map[string]*structpb.Struct{"a": {Fields: map[string]*structpb.Value{"b": value}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	message = bytes.ReplaceAll(message, []byte("BAD"), []byte("\xff\xe2\x82"))
	var reply []byte
	err = conn.Invoke(t.Context(), auth.Authorization_Check_FullMethodName, &message, &reply, grpc.ForceCodecV2(rawCodec{}))
	if status.Code(err) != codes.Internal {
		t.Errorf("%v, want Internal", err)
	}
}

// A compressed message is read, but not one that is too large when it is decompressed.
func TestCompressedMessages(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, "limits: []")
	client := rls.NewRateLimitServiceClient(conn)
	for size, want := range map[int]codes.Code{10: codes.OK, 1 << 20: codes.OK, 2 * mostMessage: codes.ResourceExhausted} {
		_, err := client.ShouldRateLimit(t.Context(), request("user="+strings.Repeat("x", size)), grpc.UseCompressor("gzip"))
		if status.Code(err) != want {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

// A stream that ends before its message, or sends two, gets a clear status.
func TestHalfClosedStreams(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, "limits: []")
	for messages, want := range []codes.Code{codes.Internal, codes.OK, codes.Internal} {
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, shouldRateLimit)
		if err != nil {
			t.Fatal(err)
		}
		for range messages {
			_ = stream.SendMsg(request("user=half")) // RecvMsg returns the error
		}
		_ = stream.CloseSend()
		if err = stream.RecvMsg(new(rls.RateLimitResponse)); status.Code(err) != want {
			t.Errorf("%d messages: %v, want %v", messages, err, want)
		}
	}
}

// No message makes the service panic. The answer has a status for each descriptor.
func FuzzMessage(f *testing.F) {
	strange := request("user=ann", "a=1,b=2", "path=/try")
	strange.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: typev3.RateLimitUnit_YEAR}
	strange.Descriptors[1].HitsAddend = wrapperspb.UInt64(math.MaxUint64)
	strange.Descriptors[2].HitsAddend, strange.Descriptors[2].IsNegativeHits = wrapperspb.UInt64(1), true
	for _, r := range []*rls.RateLimitRequest{request("user=ann"), request("path=/cart", "plan=gold", "stream=1"), strange} {
		f.Add(bytesOf(f, r), true)
		f.Add(bytesOf(f, r), false)
	}
	services := map[bool]*RateLimit{false: open(f, limits), true: open(f, limits, func(o *RateLimitOptions) { o.ChargeAll = true })}
	f.Fuzz(func(t *testing.T, message []byte, chargeAll bool) {
		var r rls.RateLimitRequest
		if proto.Unmarshal(message, &r) != nil {
			return
		}
		answer, err := services[chargeAll].ShouldRateLimit(t.Context(), &r)
		switch {
		case err != nil && status.Code(err) != codes.InvalidArgument:
			t.Errorf("%v: %v", &r, err)
		case err == nil && len(answer.GetStatuses()) != len(r.GetDescriptors()):
			t.Errorf("%v: %d statuses", &r, len(answer.GetStatuses()))
		}
		if err == nil {
			if _, err := proto.Marshal(answer); err != nil {
				t.Error(err)
			}
		}
	})
}
