// SPDX-License-Identifier: MIT

// Package console is the operator's console of diana serve. It has the page, the rules of access, and the
// description of the API.
//
// The files, in the order in which a request passes them:
//
//	access.go      the clients that may read, and those that may change something
//	limits.go      how much one address may ask
//	sessions.go    the sessions, which a browser has in place of the token
//	sessionapi.go  how a session begins and ends
//	page.go        the page, readable without JavaScript, and its parts
//	language.go    the words of the page
//	document.go    the OpenAPI document
//
// The page itself is in the folder page. It needs no build step: a browser runs the files as they are.
package console

import "net/http"

// New returns the handler of the administrators' listener: the page, its sessions, the description of the
// API, and behind them next, which has the API and everything else. Only requests that access admits reach
// them.
func New(access *Access, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	access.Register(mux)
	newPage(access, next).register(mux)
	mux.HandleFunc("GET "+documentPath, showDocument)
	mux.Handle("/", next)
	return access.Guard(mux)
}
