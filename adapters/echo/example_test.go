// SPDX-License-Identifier: MIT

package dianaecho_test

import (
	"fmt"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/diana-limiter/diana"
	dianaecho "github.com/diana-limiter/diana/adapters/echo"

	"github.com/diana-limiter/diana/adapters/adaptertest"
)

func user(c *echo.Context) error { return c.String(http.StatusOK, "user "+c.Param("id")) }

func Example() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	router := echo.New()
	router.Use(dianaecho.Middleware(limiter), middleware.Recover())
	router.GET("/users/:id", user)

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

func ExampleOptions() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	router := echo.New()
	router.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("account", c.QueryParam("session")) // a login would check it
			return next(c)
		}
	})

	limit := dianaecho.Options{
		Route: true,
		Actor: func(c *echo.Context) (kind, value string) {
			account, _ := c.Get("account").(string)
			return "account", account
		},
		Refuse: func(_ *echo.Context, d *diana.Decision) error {
			text := "too many requests"
			if d.RetryAfter > 0 { // 0: no wait helps
				text = fmt.Sprintf("try again in %.0f s", math.Ceil(d.RetryAfter.Seconds()))
			}
			return echo.NewHTTPError(http.StatusTooManyRequests, text)
		},
	}.Middleware(limiter)
	router.GET("/users/:id", user, limit)

	server := httptest.NewServer(router)
	defer server.Close()
	for _, path := range []string{"/users/1?session=ann", "/users/2?session=ann", "/users/3?session=ann", "/users/3?session=bob"} {
		adaptertest.Print(server.URL+path, "other")
	}
	// Output:
	// 200 user 1
	// 200 user 2
	// 429 application/json
	// 200 user 3
}

// The server of README.md listens on a fixed port, so the tests only compile this example.
func Example_server() {
	router := echo.New()

	server := &http.Server{Addr: ":8080", Handler: router, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	log.Fatal(server.ListenAndServe())
}
