// SPDX-License-Identifier: MIT

package dianaecho_test

import (
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/adaptertest"
	dianaecho "github.com/diana-limiter/diana/adapters/echo"
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
			return echo.NewHTTPError(http.StatusTooManyRequests, "try again in "+d.RetryAfter.String())
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
