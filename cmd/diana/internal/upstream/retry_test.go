// SPDX-License-Identifier: MIT

package upstream

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// flaky is a RoundTripper whose first requests fail.
type flaky struct {
	failures int
	err      error
	got      int
}

func (f *flaky) RoundTrip(*http.Request) (*http.Response, error) {
	if f.got++; f.got <= f.failures {
		return nil, f.err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// A request that fails because another one was cancelled is repeated, if the upstream may get it
// twice and its own client still waits.
func TestRetryCancelled(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	for name, tc := range map[string]struct {
		method, body, key string
		ctx               context.Context
		base              flaky
		asked             int
		ok                bool
	}{
		"GET":                {base: flaky{failures: 1, err: context.Canceled}, asked: 2, ok: true},
		"HEAD":               {method: "HEAD", base: flaky{failures: 1, err: context.Canceled}, asked: 2, ok: true},
		"three times":        {base: flaky{failures: 3, err: context.Canceled}, asked: 4, ok: true},
		"always":             {base: flaky{failures: 9, err: context.Canceled}, asked: 4},
		"another error":      {base: flaky{failures: 1, err: errors.New("refused")}, asked: 1},
		"POST":               {method: "POST", base: flaky{failures: 1, err: context.Canceled}, asked: 1},
		"POST with a key":    {method: "POST", key: "k", base: flaky{failures: 1, err: context.Canceled}, asked: 2, ok: true},
		"GET with a body":    {body: "x", base: flaky{failures: 1, err: context.Canceled}, asked: 1},
		"client is gone":     {ctx: gone, base: flaky{failures: 1, err: context.Canceled}, asked: 1},
		"no failure":         {base: flaky{}, asked: 1, ok: true},
		"POST, no failure":   {method: "POST", body: "x", base: flaky{}, asked: 1, ok: true},
		"DELETE fails as is": {method: "DELETE", base: flaky{failures: 1, err: context.Canceled}, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := tc.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			r, err := http.NewRequestWithContext(ctx, tc.method, "http://upstream/", strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if tc.key != "" {
				r.Header.Set("Idempotency-Key", tc.key)
			}
			answer, err := retryCancelled{&tc.base}.RoundTrip(r)
			if (err == nil) != tc.ok || tc.base.got != tc.asked {
				t.Errorf("%v after %d requests, want success %v after %d", err, tc.base.got, tc.ok, tc.asked)
			}
			if err == nil {
				_ = answer.Body.Close()
			}
		})
	}
}
