// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	ginratelimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	fiberlimiter "github.com/gofiber/fiber/v3/middleware/limiter"
	grpcratelimit "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	dianalib "github.com/diana-limiter/diana"
	dianaecho "github.com/diana-limiter/diana/adapters/echo"
	dianafiber "github.com/diana-limiter/diana/adapters/fiber"
	dianagin "github.com/diana-limiter/diana/adapters/gin"
	dianagrpc "github.com/diana-limiter/diana/adapters/grpc"
)

// Each framework has a router with a route that has a parameter, Diana's adapter, and the framework's
// own limiter or the one that its users know best.

const (
	routePattern = "/api/:version/orders"
	grpcRival    = "go-grpc-middleware with x/time/rate"
)

func ginMiddleware() []middleware {
	in := inFramework("gin")
	return []middleware{
		dianaIn(in, perAddress, true, func(l *dianalib.Limiter) client { return ginClient(dianagin.Middleware(l)) }),
		rivalIn(in, "ulule", perAddress, true, func(limit int) (client, error) {
			store := memory.NewStore()
			return ginClient(ululegin.NewMiddleware(limiter.New(store, limiter.Rate{Period: time.Minute, Limit: int64(limit)}))), nil
		}),
		rivalIn(in, "gin-rate-limit", perAddress, true, func(limit int) (client, error) {
			store := ginratelimit.InMemoryStore(&ginratelimit.InMemoryOptions{Rate: time.Minute, Limit: uint(limit)})
			refuse := func(c *gin.Context, _ ginratelimit.Info) { c.Status(http.StatusTooManyRequests) }
			return ginClient(ginratelimit.RateLimiter(store, &ginratelimit.Options{ErrorHandler: refuse, KeyFunc: (*gin.Context).ClientIP})), nil
		}),
		bareIn(in, ginClient()),
	}
}

func ginClient(before ...gin.HandlerFunc) client {
	gin.SetMode(gin.ReleaseMode) // else gin prints the routes
	router := gin.New()
	_ = router.SetTrustedProxies(nil) // so that no limiter reads X-Forwarded-For; nil cannot be wrong
	router.Use(before...)
	router.GET(routePattern, func(c *gin.Context) { c.Status(http.StatusNoContent) })
	return httpClient(router)
}

func echoMiddleware() []middleware {
	in := inFramework("echo")
	return []middleware{
		dianaIn(in, perAddress, true, func(l *dianalib.Limiter) client { return echoClient(dianaecho.Middleware(l)) }),
		rivalIn(in, "echo's RateLimiter", perAddress, true, func(limit int) (client, error) {
			store := echomiddleware.NewRateLimiterMemoryStoreWithConfig(echomiddleware.RateLimiterMemoryStoreConfig{Rate: everySecond(limit), Burst: limit})
			return echoClient(echomiddleware.RateLimiter(store)), nil
		}),
		bareIn(in, echoClient()),
	}
}

func echoClient(before ...echo.MiddlewareFunc) client {
	router := echo.New()
	router.Use(before...)
	router.GET(routePattern, func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })
	return httpClient(router)
}

func chiMiddleware() []middleware {
	in := inFramework("chi")
	return []middleware{
		dianaIn(in, perAddress, true, func(l *dianalib.Limiter) client { return chiClient(l.Handler) }),
		rivalIn(in, "httprate", perAddress, true, func(limit int) (client, error) { return chiClient(httpRate(limit)), nil }),
		bareIn(in, chiClient()),
	}
}

func chiClient(before ...func(http.Handler) http.Handler) client {
	router := chi.NewRouter()
	router.Use(before...)
	router.Get(strings.Replace(routePattern, ":version", "{version}", 1), noContent)
	return httpClient(router)
}

func fiberMiddleware() []middleware {
	in := inFramework("fiber")
	return []middleware{
		dianaIn(in, perAddress, true, func(l *dianalib.Limiter) client { return fiberClient(dianafiber.Middleware(l)) }),
		rivalIn(in, "fiber's limiter", perAddress, true, func(limit int) (client, error) {
			return fiberClient(fiberlimiter.New(fiberlimiter.Config{Max: limit, Expiration: time.Minute})), nil
		}),
		bareIn(in, fiberClient()),
	}
}

func fiberClient(before ...fiber.Handler) client {
	app := fiber.New()
	for _, b := range before {
		app.Use(b)
	}
	app.Get(routePattern, func(c fiber.Ctx) error {
		c.Status(http.StatusNoContent)
		return nil
	})
	return fastClient(app.Handler())
}

// The rival has one bucket for all calls, so one row of Diana has one rule for all.
func grpcMiddleware() []middleware {
	in := inFramework("gRPC")
	put := func(l *dianalib.Limiter) client { return grpcClient(dianagrpc.UnaryServerInterceptor(l)) }
	return []middleware{
		dianaIn(in, forAll, false, put),
		dianaIn(in, perAddress, false, put),
		dianaIn(in, perAddress, true, put),
		rivalIn(in, grpcRival, forAll, false, func(limit int) (client, error) {
			return grpcClient(grpcratelimit.UnaryServerInterceptor(bucket{rate.NewLimiter(rate.Limit(everySecond(limit)), limit)})), nil
		}),
		bareIn(in, grpcClient(nil)),
	}
}

// bucket is a Limiter of go-grpc-middleware.
type bucket struct{ *rate.Limiter }

var errBucket = errors.New("the bucket is empty")

// Limit returns an error if a call must be refused.
func (b bucket) Limit(context.Context) error {
	if !b.Allow() {
		return errBucket
	}
	return nil
}
