// SPDX-License-Identifier: MIT

package dianaotel_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/diana-limiter/diana"
	dianaotel "github.com/diana-limiter/diana/adapters/otel"
)

// refuse is the type of diana.Options.Refuse.
type refuse = func(http.ResponseWriter, *http.Request, *diana.Decision)

// A refused request has an event in its span, and the answer that it would have without.
func TestRefuse(t *testing.T) {
	t.Parallel()
	teapot := func(w http.ResponseWriter, _ *http.Request, _ *diana.Decision) { w.WriteHeader(http.StatusTeapot) }
	spans, _ := ask(t, nil)
	checkSpans(t, spans, false)
	for _, c := range []struct{ without, with refuse }{{nil, dianaotel.Refuse(nil)}, {teapot, dianaotel.Refuse(teapot)}} {
		_, want := ask(t, c.without)
		spans, answers := ask(t, c.with)
		if !slices.Equal(answers, want) {
			t.Errorf("answers %q, expected %q", answers, want)
		}
		checkSpans(t, spans, true)
	}
}

// ask sends three requests, of which a rule refuses the first and the last. It returns their spans and the
// answers.
func ask(t *testing.T, r refuse) (tracetest.SpanStubs, []string) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("test")
	l := newLimiter(t, diana.Options{Refuse: r, Now: func() time.Time { return time.Unix(1e9, 0) }}, "test.yaml", `
- {url: /, rules: [{name: few, rpu: 1, unit: day}, {name: many, rpu: 9, unit: day}]}
- {url: /never, rules: [{name: never, rpu: 0}]}
`)
	var answers []string
	for _, path := range []string{"/never", "/", "/"} {
		ctx, span := tracer.Start(t.Context(), path)
		w := httptest.NewRecorder()
		l.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		span.End()
		answers = append(answers, fmt.Sprint(w.Code, w.Header(), w.Body))
	}
	return exporter.GetSpans(), answers
}

func checkSpans(t *testing.T, spans tracetest.SpanStubs, events bool) {
	t.Helper()
	if len(spans) != 3 || len(spans[1].Events) > 0 {
		t.Fatalf("%d spans: %+v", len(spans), spans)
	}
	for i, rule := range map[int]string{0: "never", 2: "few"} {
		list := spans[i].Events
		if !events {
			if len(list) > 0 {
				t.Errorf("events of a limiter without Refuse: %+v", list)
			}
			continue
		}
		if len(list) != 1 || list[0].Name != "diana.refused" {
			t.Errorf("%s: events %+v", spans[i].Name, list)
			continue
		}
		a := attribute.NewSet(list[0].Attributes...)
		rules, _ := a.Value("diana.rules")
		if got := rules.AsStringSlice(); len(got) != 1 || got[0] != rule {
			t.Errorf("%s: rules %q, expected %q", spans[i].Name, got, rule)
		}
		if after, waits := a.Value("diana.retry_after"); waits != (rule == "few") || waits && after.AsFloat64() <= 0 {
			t.Errorf("%s: retry after %v", spans[i].Name, after.AsFloat64())
		}
	}
}
