// SPDX-License-Identifier: MIT

package dianafiber_test

import (
	"fmt"
	"log"
	"math"
	"net"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/diana-limiter/diana"
	dianafiber "github.com/diana-limiter/diana/adapters/fiber"

	"github.com/diana-limiter/diana/adapters/adaptertest"
)

func user(c fiber.Ctx) error { return c.SendString("user " + c.Params("id")) }

func Example() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	app := fiber.New()
	app.Use(dianafiber.Middleware(limiter), recover.New())
	app.Get("/users/:id", user)

	url := serve(app)
	for _, path := range []string{"/users/1", "/users/2", "/users/3"} {
		adaptertest.Print(url+path, "")
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
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		c.Locals("account", c.Query("session")) // a login would check it
		return c.Next()
	})

	limit := dianafiber.Options{
		Route: true,
		Actor: func(c fiber.Ctx) (kind, value string) {
			return "account", fiber.Locals[string](c, "account")
		},
		Refuse: func(_ fiber.Ctx, d *diana.Decision) error {
			text := "too many requests"
			if d.RetryAfter > 0 { // 0: no wait helps
				text = fmt.Sprintf("try again in %.0f s", math.Ceil(d.RetryAfter.Seconds()))
			}
			return fiber.NewError(http.StatusTooManyRequests, text)
		},
	}.Middleware(limiter)
	app.Get("/users/:id", limit, user)

	url := serve(app)
	for _, path := range []string{"/users/1?session=ann", "/users/2?session=ann", "/users/3?session=ann", "/users/3?session=bob"} {
		adaptertest.Print(url+path, "other")
	}
	// Output:
	// 200 user 1
	// 200 user 2
	// 429 text/plain; charset=utf-8
	// 200 user 3
}

// The server of README.md listens on a fixed port, so the tests only compile this example.
func Example_server() {
	app := fiber.New()

	log.Fatal(app.Listen(":8080"))
}

// serve starts a server on a free port and returns its URL.
func serve(app *fiber.App) (url string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}); err != nil {
			log.Fatal(err)
		}
	}()
	return "http://" + listener.Addr().String()
}
