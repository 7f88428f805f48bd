// SPDX-License-Identifier: MIT

package dianaotel_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/diana-limiter/diana"
	dianaotel "github.com/diana-limiter/diana/adapters/otel"
)

// The examples read the configuration in testdata.
func TestMain(m *testing.M) {
	if err := os.Chdir("testdata"); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

func Example() {
	reader := sdk.NewManualReader()
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))

	calls, err := dianaotel.NewRedisCalls(otel.GetMeterProvider())
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := diana.Options{RedisObserved: calls.Observe, Refuse: dianaotel.Refuse(nil)}.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	if _, err := dianaotel.Register(limiter, otel.GetMeterProvider()); err != nil {
		log.Fatal(err)
	}

	reports := limiter.Handler(http.NotFoundHandler())
	for range 3 {
		reports.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/reports", nil))
	}
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		log.Fatal(err)
	}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "diana.requests" {
			for _, point := range sum.DataPoints {
				decision, _ := point.Attributes.Value("diana.decision")
				fmt.Println(m.Name, decision.AsString(), point.Value)
			}
		}
	}
	// Unordered output:
	// diana.requests allowed 1
	// diana.requests refused 2
	// diana.requests delayed 0
	// diana.requests shadow_refused 0
}

func ExampleAddRefusal() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	exporter := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("jobs")

	job := func(ctx context.Context) error {
		d, err := limiter.Take(ctx, diana.Request{Path: "/reports"})
		if err != nil {
			return err
		}
		defer d.Done()
		dianaotel.AddRefusal(ctx, &d)
		if !d.Allowed {
			return errors.New("later")
		}
		return nil
	}
	for range 2 {
		ctx, span := tracer.Start(context.Background(), "job")
		err := job(ctx)
		span.End()
		fmt.Println(err)
	}
	for _, span := range exporter.GetSpans() {
		for _, event := range span.Events {
			fmt.Println(event.Name, event.Attributes[0].Value.String())
		}
	}
	// Output:
	// <nil>
	// later
	// diana.refused ["reports"]
}
