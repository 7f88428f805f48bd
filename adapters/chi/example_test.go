// SPDX-License-Identifier: MIT

package chi_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/diana-limiter/diana"

	"github.com/diana-limiter/diana/adapters/adaptertest"
)

func user(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "user "+chi.URLParam(r, "id"))
}

func Example() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	router := chi.NewRouter()
	router.Use(limiter.Handler, middleware.Recoverer)
	router.Get("/users/{id}", user)

	server := httptest.NewServer(router)
	defer server.Close()
	for _, path := range []string{"/users/1", "/users/2", "/users/3"} {
		adaptertest.Print(server.URL+path, "")
	}
	// Output:
	// 200 user 1
	// 200 user 2
	// 429 application/problem+json
}

// A route has its own limits, for the account that an earlier middleware has established.
func Example_route() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	router := chi.NewRouter()

	login := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			account := r.URL.Query().Get("session") // a login would check it
			next.ServeHTTP(w, diana.WithActor(r, "account", account))
		})
	}
	router.With(login, limiter.Handler).Get("/users/{id}", user)

	server := httptest.NewServer(router)
	defer server.Close()
	for _, path := range []string{"/users/1?session=ann", "/users/2?session=ann", "/users/3?session=ann", "/users/3?session=bob"} {
		adaptertest.Print(server.URL+path, "other")
	}
	// Output:
	// 200 user 1
	// 200 user 2
	// 429 application/problem+json
	// 200 user 3
}

// The server of README.md listens on a fixed port, so the tests only compile this example.
func Example_server() {
	router := chi.NewRouter()

	server := &http.Server{Addr: ":8080", Handler: router, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	log.Fatal(server.ListenAndServe())
}
