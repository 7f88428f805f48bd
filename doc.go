// SPDX-License-Identifier: MIT

// Package diana limits how much of a service each client may use. Rules are written in YAML. A
// [Limiter] evaluates each request by these rules, and its [Limiter.Handler] answers a refused
// request with 503 before the request reaches anything behind it.
//
//	limiter, err := diana.Open("diana.yaml")
//	if err != nil {
//		log.Fatal(err) // every mistake in the file, with line and column
//	}
//	defer limiter.Close()
//	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(mux)))
//
// A program that is not an HTTP server calls [Limiter.Take] with a path and the actors that it
// knows, such as an account. A program that keeps its limits in a database calls [Options.New] and
// [Limiter.Update] with a config.Config of its own.
//
// The files of this package, in the order in which a request passes them:
//
//	take.go      Handler, Take, Prepare, Peek, Reset: what a program calls for a request, and what filters know of it
//	handler.go   the HTTP handler: evaluate, then serve or refuse, and settle
//	decision.go  Decision, the result
//
// And of a configuration:
//
//	options.go   Options and their defaults
//	limiter.go   Limiter: Open, New, Update, Close
//	active.go    a configuration in force
//	redis.go     the connection to its Redis
//	status.go    what an operator sees
//
// Package rule declares rules, package config reads them from YAML, and package limit has the
// algorithms. The internal packages are described in DESIGN.md.
package diana
