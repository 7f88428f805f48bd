// SPDX-License-Identifier: MIT

package dianagin_test

import (
	"fmt"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/diana-limiter/diana"
	dianagin "github.com/diana-limiter/diana/adapters/gin"

	"github.com/diana-limiter/diana/adapters/adaptertest"
)

func user(c *gin.Context) { c.String(http.StatusOK, "user "+c.Param("id")) }

func Example() {
	gin.SetMode(gin.ReleaseMode)

	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	router := gin.New()
	router.Use(dianagin.Middleware(limiter), gin.Recovery())
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
	gin.SetMode(gin.ReleaseMode)
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	router := gin.New()
	router.Use(func(c *gin.Context) { c.Set("account", c.Query("session")) }) // a login would check it

	limit := dianagin.Options{
		Route: true,
		Actor: func(c *gin.Context) (kind, value string) { return "account", c.GetString("account") },
		Refuse: func(c *gin.Context, d *diana.Decision) {
			text := "too many requests"
			if d.RetryAfter > 0 { // 0: no wait helps
				text = fmt.Sprintf("try again in %.0f s", math.Ceil(d.RetryAfter.Seconds()))
			}
			c.JSON(http.StatusTooManyRequests, gin.H{"error": text})
		},
	}.Middleware(limiter)
	router.GET("/users/:id", limit, user)

	server := httptest.NewServer(router)
	defer server.Close()
	for _, path := range []string{"/users/1?session=ann", "/users/2?session=ann", "/users/3?session=ann", "/users/3?session=bob"} {
		adaptertest.Print(server.URL+path, "other")
	}
	// Output:
	// 200 user 1
	// 200 user 2
	// 429 application/json; charset=utf-8
	// 200 user 3
}

// The server of README.md listens on a fixed port, so the tests only compile this example.
func Example_server() {
	router := gin.New()

	server := &http.Server{Addr: ":8080", Handler: router, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	log.Fatal(server.ListenAndServe())
}
