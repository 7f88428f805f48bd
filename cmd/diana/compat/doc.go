// SPDX-License-Identifier: MIT

// Package compat tests diana serve against the servers that people run behind it.
//
// Its tests send thousands of spellings of a few paths, byte by byte, through a gateway whose
// rules refuse these paths. Real servers answer and name the route that they served. A spelling
// that a server serves as a refused path is an escape, and a test fails. Other tests send
// paths that real APIs have. The gateway must refuse none of them.
//
// The tests of tokens run real SDKs of language models against the mock provider of examples/llm, and compare
// what Diana charges with what the SDKs see. The tests of refusals compare what client libraries show, and how often
// they call.
//
// The tests know the program only by its command line, its configuration and its answers.
// Without flags they use net/http and nginx. "make compat" adds the other servers.
package compat
