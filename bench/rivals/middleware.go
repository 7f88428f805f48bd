// SPDX-License-Identifier: MIT

package rivals

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/httprate"
	"github.com/gofiber/fiber/v3"
	fiberlimiter "github.com/gofiber/fiber/v3/middleware/limiter"
	grpcratelimit "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	dianalib "github.com/diana-limiter/diana"
	dianaconnect "github.com/diana-limiter/diana/adapters/connect"
	dianaecho "github.com/diana-limiter/diana/adapters/echo"
	dianafiber "github.com/diana-limiter/diana/adapters/fiber"
	dianagin "github.com/diana-limiter/diana/adapters/gin"
	dianagrpc "github.com/diana-limiter/diana/adapters/grpc"
	dianahertz "github.com/diana-limiter/diana/adapters/hertz"
)

// Scope says which requests share the limit of a middleware. It is part of a name.
type Scope string

// The scopes. A rival has one limit.
const (
	Unlimited  Scope = ""
	PerAddress Scope = "1 rule by IP"
	ForEvery   Scope = "1 rule for all"
	ThreeRules Scope = "3 rules"
)

// GRPCRival is the name of the rival in gRPC.
const GRPCRival = "go-grpc-middleware with x/time/rate"

// Framework is a router with a route that has a parameter, Diana's adapter, and the framework's own limiter
// or the one that its users know best.
type Framework struct {
	Name   string // "" is net/http
	Diana  func(*dianalib.Limiter) Client
	Bare   Client
	Rivals []Middleware
}

// FiberPlain is the name of fiber's limiter without fields.
const FiberPlain = "fiber's limiter without fields"

// Middleware is a rival that allows limit requests a minute.
type Middleware struct {
	Name  string
	Scope Scope
	Open  func(limit int) (Client, error)
	Plain bool // it sets no fields
}

// NoContent is the handler of net/http behind each middleware.
var NoContent = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

const routePattern = "/api/:version/orders"

// perMinute returns the rate of a limit, in a second.
func perMinute(limit int) float64 { return float64(limit) / time.Minute.Seconds() }

// Frameworks lists net/http and the frameworks.
func Frameworks() []Framework {
	return []Framework{
		{
			Diana: func(l *dianalib.Limiter) Client { return ToHTTP(l.Handler(NoContent)) },
			Bare:  ToHTTP(NoContent),
			Rivals: []Middleware{
				{Name: "throttled", Scope: PerAddress, Open: func(limit int) (Client, error) {
					store, err := memstore.NewCtx(0)
					if err != nil {
						return nil, err
					}
					l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(limit), MaxBurst: limit - 1}) // one more than MaxBurst
					if err != nil {
						return nil, err
					}
					h := throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
					return ToHTTP(h.RateLimit(NoContent)), nil
				}},
			},
		},
		{
			Name:  "gin",
			Diana: func(l *dianalib.Limiter) Client { return ginClient(dianagin.Middleware(l)) },
			Bare:  ginClient(),
			Rivals: []Middleware{
				{Name: "ulule", Scope: PerAddress, Open: func(limit int) (Client, error) {
					return ginClient(ululegin.NewMiddleware(ulule.New(memory.NewStore(), ulule.Rate{Period: time.Minute, Limit: int64(limit)}))), nil
				}},
			},
		},
		{
			Name:  "echo",
			Diana: func(l *dianalib.Limiter) Client { return echoClient(dianaecho.Middleware(l)) },
			Bare:  echoClient(),
			Rivals: []Middleware{{Name: "echo's RateLimiter", Scope: PerAddress, Open: func(limit int) (Client, error) {
				store := echomiddleware.NewRateLimiterMemoryStoreWithConfig(echomiddleware.RateLimiterMemoryStoreConfig{Rate: perMinute(limit), Burst: limit})
				return echoClient(echomiddleware.RateLimiter(store)), nil
			}}},
		},
		{
			Name:  "chi",
			Diana: func(l *dianalib.Limiter) Client { return chiClient(l.Handler) },
			Bare:  chiClient(),
			Rivals: []Middleware{{Name: "httprate", Scope: PerAddress, Open: func(limit int) (Client, error) {
				return chiClient(httprate.LimitBy(limit, time.Minute, func(r *http.Request) (string, error) {
					host, _, err := net.SplitHostPort(r.RemoteAddr)
					return httprate.CanonicalizeIP(host), err
				})), nil
			}}},
		},
		{
			Name:  "fiber",
			Diana: func(l *dianalib.Limiter) Client { return fiberClient(dianafiber.Middleware(l)) },
			Bare:  fiberClient(),
			Rivals: []Middleware{
				{Name: "fiber's limiter", Scope: PerAddress, Open: fiberLimiter(false)},
				{Name: FiberPlain, Scope: PerAddress, Open: fiberLimiter(true), Plain: true},
			},
		},
		{
			Name:  "hertz",
			Diana: func(l *dianalib.Limiter) Client { return toHertz(dianahertz.Middleware(l)) },
			Bare:  toHertz(),
		},
		{
			Name:  "Connect",
			Diana: func(l *dianalib.Limiter) Client { return toConnect(dianaconnect.Interceptor(l)) },
			Bare:  toConnect(),
		},
		{
			Name:  "gRPC",
			Diana: func(l *dianalib.Limiter) Client { return toGRPC(dianagrpc.UnaryServerInterceptor(l)) },
			Bare:  toGRPC(nil),
			Rivals: []Middleware{{Name: GRPCRival, Scope: ForEvery, Plain: true, Open: func(limit int) (Client, error) {
				return toGRPC(grpcratelimit.UnaryServerInterceptor(bucket{rate.NewLimiter(rate.Limit(perMinute(limit)), limit)})), nil
			}}},
		},
	}
}

func ginClient(before ...gin.HandlerFunc) Client {
	gin.SetMode(gin.ReleaseMode) // else gin prints the routes
	router := gin.New()
	_ = router.SetTrustedProxies(nil) // so that no limiter reads X-Forwarded-For; nil cannot be wrong
	router.Use(before...)
	router.GET(routePattern, func(c *gin.Context) { c.Status(http.StatusNoContent) })
	return ToHTTP(router)
}

func echoClient(before ...echo.MiddlewareFunc) Client {
	router := echo.New()
	router.Use(before...)
	router.GET(routePattern, func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })
	return ToHTTP(router)
}

func chiClient(before ...func(http.Handler) http.Handler) Client {
	router := chi.NewRouter()
	router.Use(before...)
	router.Get(strings.Replace(routePattern, ":version", "{version}", 1), NoContent)
	return ToHTTP(router)
}

func fiberClient(before ...fiber.Handler) Client {
	app := fiber.New()
	for _, b := range before {
		app.Use(b)
	}
	app.Get(routePattern, func(c fiber.Ctx) error {
		c.Status(http.StatusNoContent)
		return nil
	})
	return toFast(app.Handler())
}

func fiberLimiter(plain bool) func(limit int) (Client, error) {
	return func(limit int) (Client, error) {
		return fiberClient(fiberlimiter.New(fiberlimiter.Config{Max: limit, Expiration: time.Minute, DisableHeaders: plain})), nil
	}
}

// bucket is a Limiter of go-grpc-middleware. It is one for all calls.
type bucket struct{ *rate.Limiter }

var errBucket = errors.New("the bucket is empty")

// Limit returns an error if a call must be refused.
func (b bucket) Limit(context.Context) error {
	if !b.Allow() {
		return errBucket
	}
	return nil
}
