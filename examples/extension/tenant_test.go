// SPDX-License-Identifier: MIT

package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

var testKey = []byte("0123456789abcdef0123456789abcdef")

// sign returns a token with a header and claims in JSON.
func sign(key []byte, header, claims string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const hs256 = `{"alg":"HS256","typ":"JWT"}`

func TestToken(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	const until = `,"exp":1800000001`
	good := sign(testKey, hs256, `{"tenant":"acme"`+until+`}`)
	parts := strings.Split(good, ".")
	other := strings.Split(sign(testKey, hs256, `{"tenant":"umbrella"`+until+`}`), ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	last := good[:len(good)-1] + string(good[len(good)-1]+1) // has bits that no signature has
	for _, tc := range []struct{ name, token, want string }{
		{"good", good, "acme"},
		{"from now on", sign(testKey, hs256, `{"tenant":"acme","nbf":1800000000`+until+`}`), "acme"},
		{"over", sign(testKey, hs256, `{"tenant":"acme","exp":1800000000}`), ""},
		{"not yet", sign(testKey, hs256, `{"tenant":"acme","nbf":1800000000.5`+until+`}`), ""},
		{"for ever", sign(testKey, hs256, `{"tenant":"acme"}`), ""},
		{"until nothing", sign(testKey, hs256, `{"tenant":"acme","exp":null}`), ""},
		{"until text", sign(testKey, hs256, `{"tenant":"acme","exp":"1800000001"}`), ""},
		{"nobody", sign(testKey, hs256, `{"sub":"acme"`+until+`}`), ""},
		{"of another key", sign(append(testKey[:31:31], 'x'), hs256, `{"tenant":"acme"`+until+`}`), ""},
		{"of no key", sign(nil, hs256, `{"tenant":"acme"`+until+`}`), ""},
		{"other claims", parts[0] + "." + other[1] + "." + parts[2], ""},
		{"other header", none + "." + parts[1] + "." + parts[2], ""},
		{"unsigned", none + "." + parts[1] + ".", ""},
		{"short signature", good[:len(good)-4], ""},
		{"loose bits", last, ""},
		{"alg none", sign(testKey, `{"alg":"none"}`, `{"tenant":"acme"`+until+`}`), ""},
		{"alg HS512", sign(testKey, `{"alg":"HS512"}`, `{"tenant":"acme"`+until+`}`), ""},
		{"no alg", sign(testKey, `{}`, `{"tenant":"acme"`+until+`}`), ""},
		{"critical", sign(testKey, `{"alg":"HS256","crit":["b64"],"b64":false}`, `{"tenant":"acme"`+until+`}`), ""},
		{"claims are no object", sign(testKey, hs256, `"acme"`), ""},
		{"claims are no JSON", sign(testKey, hs256, `acme`), ""},
		{"two parts", parts[0] + "." + parts[1], ""},
		{"four parts", good + "." + parts[2], ""},
		{"padded", good + "=", ""},
		{"line break", good + "\n", ""},
		{"nothing", "", ""},
	} {
		got, err := tenantIn(tc.token, testKey, now)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v, want %q", tc.name, got, err, tc.want)
		}
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fields []string
		want   string
	}{
		{[]string{"Bearer abc"}, "abc true"},
		{[]string{"bearer abc"}, "abc true"},
		{[]string{"Basic abc"}, "abc false"},
		{[]string{"Bearer abc", "Bearer def"}, " false"},
		{nil, " false"},
	} {
		token, ok := bearer(http.Header{"Authorization": tc.fields})
		if got := fmt.Sprint(token, " ", ok); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.fields, got, tc.want)
		}
	}
}
