// SPDX-License-Identifier: MIT

// Package diana limits how much of a service its callers may use. Rules are written
// in YAML; a [Limiter] judges each request by them, and its [Limiter.Handler] answers
// what is too much with 503 before it reaches anything behind it.
//
//	limiter, err := diana.Open("diana.yaml")
//	if err != nil {
//		log.Fatal(err) // every mistake in the file, with line and column
//	}
//	defer limiter.Close()
//	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(mux)))
//
// A caller that is no HTTP server asks with [Limiter.Take], a path and what it knows
// of who is calling.
//
// The words, and the package that each lives in:
//
//   - Rule: what is promised to whom. RuleSet: a compiled configuration (package rule)
//   - Algorithm, Meter, Charge, Store: how it is counted (package limit)
//   - Request, Decision, Limiter: here
//
// Package config reads YAML, package memstore counts in this process.
package diana
