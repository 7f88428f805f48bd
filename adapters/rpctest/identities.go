// SPDX-License-Identifier: MIT

package rpctest

import (
	"context"
	"testing"
)

func testMetadata(t *testing.T, f Framework) {
	s := start(t, f, `
identity: {account: ["header:X-Account-Id"], device: ["cookie:device"]}
limits:
- url: /
  rules: [{actor: account, rpu: 1, unit: day}, {actor: device, rpu: 2, unit: day}]
`, Options{})
	fields := func(account, device string) Call {
		return Call{Messages: []string{"ok"}, Fields: map[string]string{"X-Account-Id": account, "Cookie": "device=" + device}}
	}
	s.callWith(OK, fields("ann", "d1"))
	s.callWith(ResourceExhausted, fields("ann", "d2"))
	s.callWith(OK, fields("bob", "d1"))
	s.callWith(ResourceExhausted, fields("carl", "d1"))
	s.callWith(OK, fields("carl", "d2"))
}

func testContext(t *testing.T, f Framework) {
	actor := func(ctx context.Context, method string) (string, string) {
		if method == Bidi.Method() {
			return "", "" // the metadata counts
		}
		return "account", AccountOf(ctx)
	}
	const text = `
identity: {account: ["header:X-Account-Id"]}
limits:
- url: /
  rules: [{name: each, actor: account, rpu: 1, unit: day}]
`
	as := func(account string, kind Kind) Call {
		return Call{Kind: kind, Messages: []string{"ok"}, Fields: map[string]string{"X-Account-Id": account}}
	}
	s := start(t, f, text, Options{Actor: actor, Account: "ann"})
	s.callWith(OK, as("bob", Unary))
	s.callWith(ResourceExhausted, as("carl", ServerStream))
	s.callWith(OK, as("carl", Bidi))
	if err := s.limiter.Reset(t.Context(), "each", "ann"); err != nil {
		t.Fatal(err)
	}
	s.callWith(OK, as("bob", ClientStream))

	s = start(t, f, text, Options{Actor: actor}) // none: the address counts, and no field
	s.callWith(OK, as("bob", Unary))
	s.callWith(ResourceExhausted, as("carl", Unary))
}

func testPeer(t *testing.T, f Framework) {
	const rules = "limits: [{url: /, rules: [{actor: ip, rpu: 1, unit: day}]}]"
	from := func(address string) Call {
		return Call{Messages: []string{"ok"}, Fields: map[string]string{"X-Forwarded-For": address}}
	}
	s := start(t, f, rules, Options{})
	s.callWith(OK, from("192.0.2.1"))
	s.callWith(ResourceExhausted, from("192.0.2.2"))

	s = start(t, f, "identity: {trusted_proxies: [127.0.0.0/8]}\n"+rules, Options{})
	s.callWith(OK, from("192.0.2.1"))
	s.callWith(OK, from("192.0.2.2"))
	s.callWith(ResourceExhausted, from("192.0.2.1"))
}
