// SPDX-License-Identifier: MIT

// Package dianaconnect limits the calls of ConnectRPC handlers with Diana, over the protocols Connect, gRPC
// and gRPC-Web alike.
//
//	limiter, err := diana.Open("limits.yaml")
//	if err != nil {
//		log.Fatal(err)
//	}
//	limits := connect.WithInterceptors(dianaconnect.Interceptor(limiter))
//	mux.Handle(greetv1connect.NewGreetServiceHandler(service, limits))
//
// Rules see a call as the HTTP request POST /package.Service/Method, or GET for a Connect call without side
// effects that comes as one. The path is the name of the procedure, wherever the handler is mounted.
//
// A refused call gets resource_exhausted with the details RetryInfo and QuotaFailure. The RateLimit fields
// are in the header and the trailer. A call waits until its deadline at most.
//
// Under rules that count only certain statuses, a code counts as the HTTP status that
// google/rpc/code.proto lists for it: not_found is 404, for example. The Connect protocol sends the same
// status. A call stays charged if the handler panics, or if the context has ended by then.
//
// The interceptor belongs in front of all others, except those that establish actors. An interceptor in
// front of it can turn a panic into a code, or a code into another. Diana does not see such a code. Connect
// reads the message of a unary call first. Rules do not count a call that Connect refuses there.
//
// Rejected: Limiter.Handler in front of the handlers. A client of Connect or gRPC-Web takes its 503 for
// unavailable, and in gRPC, gRPC-Web and streams each error has the HTTP status 200. README.md shows how to
// refuse calls there with the right code; bandwidth and divert need that.
package dianaconnect
