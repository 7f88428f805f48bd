// SPDX-License-Identifier: MIT

package adaptertest

import (
	"net/http"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// The fields of a request under Keyed. A handler must see Upstream with UpstreamValue, and no Key.
const (
	Key           = "X-Api-Key"
	KeyValue      = knownKey
	Upstream      = "X-Upstream"
	UpstreamValue = "of the configuration"
)

// Keyed returns a limiter that allows only requests with a key, until the test ends. It sets Upstream.
func Keyed(t *testing.T) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("limits.yaml", []byte("identity: {required: any, keys: {file: "+keys(t)+"}, account: ['key:account'], upstream_headers: {"+
		Upstream+": "+file(t, "file:", UpstreamValue)+"}}\nlimits: [{url: /, rules: [{actor: account, unit: day, rpu: 10}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// CheckUpstream fails the test unless a handler has got the fields that it must.
func CheckUpstream(t *testing.T, h http.Header) {
	t.Helper()
	if key, own := h.Values(Key), h.Values(Upstream); len(key) > 0 || len(own) != 1 || own[0] != UpstreamValue {
		t.Errorf("the handler has got the key %q and the field of the upstream %q", key, own)
	}
}
