// SPDX-License-Identifier: MIT

// Package dianagrpc limits the calls of a gRPC server with Diana, and the calls of a client with package
// rate.
//
//	limiter, err := diana.Open("limits.yaml")
//	if err != nil {
//		log.Fatal(err)
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(dianagrpc.UnaryServerInterceptor(limiter)),
//		grpc.ChainStreamInterceptor(dianagrpc.StreamServerInterceptor(limiter)),
//	)
//
// Rules see a call as the HTTP request POST /package.Service/Method. Its metadata are the header fields,
// from which the configuration takes the identity. X-Forwarded-For counts as for HTTP: only if the peer is
// a trusted proxy.
//
// A refused call gets RESOURCE_EXHAUSTED with the details RetryInfo and QuotaFailure. The RateLimit fields
// are in the trailer, and in the header if nothing has sent it before. A call waits until its deadline at
// most. It gets INVALID_ARGUMENT if its path is one that no honest client sends.
//
// Under rules that count only certain statuses, a code counts as the HTTP status that
// google/rpc/code.proto lists for it: NOT_FOUND is 404, for example. A call stays charged if the handler
// panics, or if the context has ended by then.
//
// The interceptors belong in front of all others, except those that establish actors. An interceptor in
// front of them can turn a panic into a code, or a code into another. Diana does not see such a code. gRPC
// decodes the request of a unary call first, and answers calls of unknown methods by itself. Rules do not
// count what gRPC refuses there.
//
// Bandwidth and divert have no effect on gRPC. The gateway of Diana can divert gRPC calls.
package dianagrpc
