// SPDX-License-Identifier: MIT

package compat

import (
	"slices"
	"strings"
	"testing"
)

// overrides are the fields by which a client asks for another method than the request has.
var overrides = []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"}

// minding are the upstreams that serve /login for the method POST only.
var minding = []string{"express", "express strict", "Flask", "Go any method", "Go ServeMux"}

// servesLogin makes sure that an upstream serves each kind of trick without a gateway in front of
// it.
func servesLogin(t *testing.T, behind *tee) {
	t.Helper()
	w := wire{host: behind.host}
	defer w.close()
	for _, head := range []string{login("POST", "/login"), login("post", "/login"), login("GET", "/login", "X-HTTP-Method: POST")} {
		_, body, err := w.ask(head)
		if err != nil {
			t.Fatal(err)
		}
		if routes(body)["Go any method"] != "/login" {
			t.Fatalf("no upstream serves %q itself: %s", head, body)
		}
	}
}

// logins returns requests that some server takes for POST /login, and some that no server does.
// None is a HEAD, because its answer has no body.
func logins() []string {
	posts := []string{"POST", "post", "Post", "pOST", "posT"}
	values := append(slices.Clone(posts), "POST, GET", "GET, POST", "POST,", " POST ", "GET\r\n$: POST", "POST\r\n$: GET")
	var all []string
	for _, path := range []string{"/login", "/login/", "//login", "/./login", "/%6cogin", "/x/../login", "/login?x", "/LOGIN"} {
		for _, method := range append(posts, "GET", "get", "PUT", "OPTIONS", "DELETE", "PATCH", "X") {
			all = append(all, login(method, path))
			for i, field := range overrides {
				for _, value := range values {
					all = append(all, login(method, path, field+": "+strings.ReplaceAll(value, "$", field)))
				}
				// WSGI, as CGI before it, takes an underscore for a dash.
				for _, field := range []string{strings.ToLower(field), strings.ReplaceAll(field, "-", "_")} {
					all = append(all, login(method, path, field+": POST"))
				}
				other := overrides[(i+1)%len(overrides)]
				all = append(all, login(method, path, field+": GET", other+": POST"), login(method, path, field+": POST", other+": GET"))
			}
		}
	}
	return all
}

// login is the head of a request for a path.
func login(method, path string, fields ...string) string {
	head := method + " " + path + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n"
	for _, field := range fields {
		head += field + "\r\n"
	}
	return head + "\r\n"
}
