// SPDX-License-Identifier: MIT

package dianaotel

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/diana-limiter/diana"
)

// AddRefusal adds the event diana.refused to the span in ctx, if d is a refusal. Its attributes are
// diana.rules, the names of the rules that refuse, and diana.retry_after in seconds, unless no wait helps.
// It is for programs that call Take, and for the Refuse of other adapters. It must be called before Done.
//
// Rejected: diana.Options.OnDecision, which has no context.
func AddRefusal(ctx context.Context, d *diana.Decision) {
	span := trace.SpanFromContext(ctx)
	if d.Allowed || !span.IsRecording() {
		return
	}
	var rules []string
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Refused() {
			rules = append(rules, v.Rule.Name)
		}
	}
	attributes := []attribute.KeyValue{attribute.StringSlice("diana.rules", rules)}
	if d.RetryAfter > 0 {
		attributes = append(attributes, attribute.Float64("diana.retry_after", d.RetryAfter.Seconds()))
	}
	span.AddEvent("diana.refused", trace.WithAttributes(attributes...))
}

// Refuse returns a Refuse for [diana.Options] that adds the event of AddRefusal to the span of the request
// and then calls next. A nil next is the configured problem. A request that is diverted gets no event.
func Refuse(next func(http.ResponseWriter, *http.Request, *diana.Decision)) func(http.ResponseWriter, *http.Request, *diana.Decision) {
	if next == nil {
		next = func(w http.ResponseWriter, _ *http.Request, d *diana.Decision) { d.Refuse(w, 0) }
	}
	return func(w http.ResponseWriter, r *http.Request, d *diana.Decision) {
		AddRefusal(r.Context(), d)
		next(w, r, d)
	}
}
