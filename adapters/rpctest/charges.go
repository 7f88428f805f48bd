// SPDX-License-Identifier: MIT

package rpctest

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// statuses are the HTTP statuses of the codes, as google/rpc/code.proto has them.
var statuses = [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}

// A rule that counts one status counts the codes with that status alone. A code out of the list is 500.
func testChargeByCode(t *testing.T, f Framework) {
	for code := range len(statuses) + 1 {
		text, status, kind := "ok", 500, kinds[code%len(kinds)]
		if code > 0 {
			text = fmt.Sprint("code:", code)
		}
		if code < len(statuses) {
			status = statuses[code]
		}
		other := "code:5"
		if status == 404 {
			other = "ok"
		}
		s := start(t, f, fmt.Sprintf("url: /\nrules: [{rpu: 1, unit: day, charge: [%d]}]", status), Options{})
		s.client(t.Context(), Call{Kind: kind, Messages: []string{other}})
		if r := s.client(t.Context(), Call{Kind: kind, Messages: []string{text}}); r.Violations != nil {
			t.Errorf("%v: a call with another status than %d is charged: %s", kind, status, r.Text)
		}
		s.call(ResourceExhausted, kind, "ok")
	}
}

// A call whose client has disconnected stays charged, because its outcome could be chosen otherwise.
func testChargeCancelled(t *testing.T, f Framework) {
	for _, kind := range kinds {
		s := start(t, f, "url: /\nrules: [{rpu: 1, unit: day, charge: [200]}, {name: slots, rpu: 1, algo: C}]", Options{})
		ctx, cancel := context.WithCancel(t.Context())
		await := s.hold(ctx, kind)
		cancel()
		if r := await(); r.Code != Canceled {
			t.Errorf("%v: code %d, expected that of a cancelled call", kind, r.Code)
		}
		s.eventually("the slot is not released", func() bool {
			r := s.client(t.Context(), Call{Kind: kind, Messages: []string{"ok"}})
			if r.Code != ResourceExhausted {
				t.Fatalf("%v: code %d (%s): the call was refunded", kind, r.Code, r.Text)
			}
			return !slices.Contains(r.Violations, "slots")
		})
	}
}
