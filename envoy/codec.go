// SPDX-License-Identifier: MIT

package envoy

import (
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// codec is the codec of package grpc, but it reads messages with strings that are not valid UTF-8 too. Envoy
// before version 1.22.10 sends such strings if a client does. An error would make the request unlimited where
// Envoy allows what the service cannot decide. Like later versions of Envoy, codec replaces each byte that is
// not valid by "!", so such values have counters too.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal reads a message into v.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	m, ok := v.(proto.Message)
	if err == nil || !ok {
		return err
	}
	text := data.Materialize() // a copy
	replaceInvalid(text, m.ProtoReflect().Descriptor(), mostNested)
	return proto.Unmarshal(text, m)
}

// mostNested is how many messages within each other are looked into. Envoy sends fewer.
const mostNested = 100

// replaceInvalid replaces, in the text of a message, the bytes of strings that are not valid UTF-8. The
// lengths of the strings stay. It stops where the text is no message.
func replaceInvalid(text []byte, of protoreflect.MessageDescriptor, nested int) {
	for len(text) > 0 && nested > 0 {
		number, wire, n := protowire.ConsumeTag(text)
		if n < 0 {
			return
		}
		text = text[n:]
		if n = protowire.ConsumeFieldValue(number, wire, text); n < 0 {
			return
		}
		if f := of.Fields().ByNumber(number); f != nil && wire == protowire.BytesType {
			switch value, _ := protowire.ConsumeBytes(text); f.Kind() {
			case protoreflect.StringKind:
				replaceBytes(value)
			case protoreflect.MessageKind:
				replaceInvalid(value, f.Message(), nested-1)
			}
		}
		text = text[n:]
	}
}

func replaceBytes(b []byte) {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			b[0] = '!'
		}
		b = b[n:]
	}
}
