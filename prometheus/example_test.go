// SPDX-License-Identifier: MIT

package dianaprom_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/diana-limiter/diana"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

func Example() {
	calls := dianaprom.NewRedisCalls()
	limiter, err := diana.Options{RedisObserved: calls.Observe}.Open("testdata/diana.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	registry := prometheus.NewRegistry()
	registry.MustRegister(dianaprom.New(limiter), calls)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	reports := limiter.Handler(http.NotFoundHandler())
	for range 3 {
		reports.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/reports", nil))
	}
	scrape := httptest.NewRecorder()
	metrics.ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "diana_requests_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// diana_requests_total{decision="allowed",rule="reports"} 1
	// diana_requests_total{decision="delayed",rule="reports"} 0
	// diana_requests_total{decision="refused",rule="reports"} 2
	// diana_requests_total{decision="shadow_refused",rule="reports"} 0
}
