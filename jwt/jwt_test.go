// SPDX-License-Identifier: MIT

package jwt

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

var (
	rsaKey, _    = rsa.GenerateKey(rand.Reader, 2048)
	smallKey, _  = rsa.GenerateKey(rand.Reader, 1024)
	ecKey, _     = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	otherKey, _  = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, edKey, _  = ed25519.GenerateKey(rand.Reader)
	secret       = []byte("a secret of at least thirty-two bytes")
	all          = []string{"RS256", "PS256", "ES256", "ES384", "EdDSA"}
	someMoment   = time.Now().Truncate(time.Second)
	longerThanID = strings.Repeat("k", longestKid+1)
)

// idp is an issuer whose answers a test decides.
type idp struct {
	*httptest.Server
	fetches atomic.Int64
	answer  atomic.Pointer[http.HandlerFunc]
}

func newIDP(t *testing.T) *idp {
	t.Helper()
	p := &idp{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fetches.Add(1)
		(*p.answer.Load())(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *idp) answers(f http.HandlerFunc) { p.answer.Store(&f) }

// has lets the issuer have these keys, by kid.
func (p *idp) has(keys map[string]any) {
	text := jwks(keys)
	p.answers(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) })
}

func jwks(keys map[string]any) []byte {
	var s jose.JSONWebKeySet
	for kid, k := range keys {
		s.Keys = append(s.Keys, jose.JSONWebKey{Key: k, KeyID: kid, Use: "sig"})
	}
	text, _ := json.Marshal(s)
	return text
}

// clock is a clock that a test moves.
type clock struct{ nanoseconds atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(0, c.nanoseconds.Load()) }
func (c *clock) move(d time.Duration) { c.nanoseconds.Add(int64(d)) }

// open returns a verifier of one issuer.
func open(t *testing.T, where string, algorithms ...string) (*verifier, *clock) {
	t.Helper()
	c := &clock{}
	c.nanoseconds.Store(someMoment.UnixNano())
	of := config.Issuer{Keys: where, Issuer: "https://idp.example", Audience: "api", Algorithms: algorithms, Stale: time.Hour}
	k, err := openKeys(of, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k.now = c.now
	v := &verifier{now: c.now}
	v.issuers = []*issuer{newIssuer(of, k, v)}
	return v, c
}

// token returns a token with these claims in place of good ones; nil leaves one out. The header is likewise.
func token(method jwt.SigningMethod, key any, header, claims map[string]any) string {
	t := jwt.NewWithClaims(method, jwt.MapClaims{
		"iss": "https://idp.example", "aud": "api", "sub": "ann", "exp": someMoment.Add(time.Hour).Unix(), "plan": map[string]any{"name": "pro", "n": []any{1, 2.5, true}},
	})
	t.Header["kid"] = "k"
	maps.Copy(t.Header, header)
	maps.Copy(t.Claims.(jwt.MapClaims), claims)
	for _, m := range []map[string]any{t.Header, t.Claims.(jwt.MapClaims)} {
		for name, value := range m {
			if value == nil {
				delete(m, name)
			}
		}
	}
	text, err := t.SignedString(key)
	if err != nil {
		panic(err)
	}
	return text
}

// status verifies a token and returns 200, or the status of the error.
func status(t *testing.T, v *verifier, token string) int {
	t.Helper()
	_, err := v.verify(context.Background(), token)
	var failed *rule.CredentialError
	switch {
	case err == nil:
		return http.StatusOK
	case !errors.As(err, &failed):
		t.Fatalf("%T: %v", err, err)
	case len(token) > 40 && strings.Contains(err.Error(), token[:40]):
		t.Errorf("the error shows the token: %v", err)
	}
	return failed.Status
}

// Claims are what the token says, by name or by pointer.
func TestClaims(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	p.has(map[string]any{"k": ecKey.Public()})
	v, _ := open(t, p.URL, all...)
	proof, err := v.verify(context.Background(), token(jwt.SigningMethodES256, ecKey, nil, map[string]any{"a/b": "c", "big": json.Number("9007199254740993")}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"sub": "ann", "/sub": "ann", "/plan/name": "pro", "/plan/n/0": "1", "/plan/n/1": "2.5", "/plan/n/2": "true", "/plan/n/3": "", "/plan/n/00": "",
		"plan": "", "none": "", "/none/x": "", "a/b": "c", "/a~1b": "c", "big": "9007199254740993", "/sub/x": "",
	} {
		if got := proof(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Every kind of key signs with its own algorithms, and with no other.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	p.has(map[string]any{"rsa": rsaKey.Public(), "ec": ecKey.Public(), "ed": edKey.Public(), "small": smallKey.Public()})
	v, _ := open(t, p.URL, append(all, "HS256")...)
	public, _ := x509.MarshalPKIXPublicKey(rsaKey.Public())
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	es256 := token(jwt.SigningMethodES256, ecKey, map[string]any{"kid": "ec"}, nil)
	parts := strings.Split(es256, ".")
	raw := func(header, signature string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + parts[1] + "." + signature
	}
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"RS256":                  {token(jwt.SigningMethodRS256, rsaKey, map[string]any{"kid": "rsa"}, nil), 200},
		"PS256":                  {token(jwt.SigningMethodPS256, rsaKey, map[string]any{"kid": "rsa"}, nil), 200},
		"ES256":                  {es256, 200},
		"EdDSA":                  {token(jwt.SigningMethodEdDSA, edKey, map[string]any{"kid": "ed"}, nil), 200},
		"another algorithm":      {token(jwt.SigningMethodRS512, rsaKey, map[string]any{"kid": "rsa"}, nil), 401},
		"a small key":            {token(jwt.SigningMethodRS256, smallKey, map[string]any{"kid": "small"}, nil), 401},
		"key of another kind":    {token(jwt.SigningMethodRS256, rsaKey, map[string]any{"kid": "ec"}, nil), 401},
		"public key as a secret": {token(jwt.SigningMethodHS256, text, map[string]any{"kid": "rsa"}, nil), 401},
		"its bytes as a secret":  {token(jwt.SigningMethodHS256, public, map[string]any{"kid": "rsa"}, nil), 401},
		"another key":            {token(jwt.SigningMethodES256, otherKey, map[string]any{"kid": "ec"}, nil), 401},
		"none":                   {token(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, map[string]any{"kid": "ec"}, nil), 401},
		"None":                   {raw(`{"alg":"None","kid":"ec"}`, ""), 401},
		"none with a signature":  {raw(`{"alg":"none","kid":"ec"}`, parts[2]), 401},
		"no algorithm":           {raw(`{"kid":"ec"}`, parts[2]), 401},
		"algorithm is a number":  {raw(`{"alg":5,"kid":"ec"}`, parts[2]), 401},
		"no signature":           {parts[0] + "." + parts[1] + ".", 401},
		"a padded signature":     {es256 + "=", 401},
		"no header":              {raw("", parts[2]), 401},
		"header is a list":       {raw("[]", parts[2]), 401},
		"header is null":         {raw("null", parts[2]), 401},
		"two parts":              {parts[0] + "." + parts[1], 401},
		"five parts":             {es256 + ".a.b", 401},
		"empty":                  {"..", 401},
	} {
		if got := status(t, v, c.token); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A token with an injected header is refused, also with a good signature.
func TestInjectedHeaders(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	p.has(map[string]any{"k": ecKey.Public(), "l": otherKey.Public(), longerThanID: ecKey.Public()})
	v, _ := open(t, p.URL, all...)
	own := jose.JSONWebKey{Key: otherKey.Public(), KeyID: "k"}
	for _, header := range []map[string]any{
		{"jku": p.URL}, {"x5u": p.URL}, {"jwk": own}, {"x5c": []string{"x"}}, {"crit": []string{"exp"}}, {"crit": []string{}}, {"b64": false},
		{"zip": "DEF"}, {"enc": "A256GCM"}, {"cty": "JWT"}, {"kid": ""}, {"kid": 5}, {"kid": longerThanID}, {"kid": "../../k"}, {"kid": "k' OR 1=1"},
		{"kid": []string{"k"}}, {"kid": p.URL},
	} {
		if got := status(t, v, token(jwt.SigningMethodES256, ecKey, header, nil)); got != 401 {
			t.Errorf("%v: %d", header, got)
		}
	}
	if got := status(t, v, token(jwt.SigningMethodES256, otherKey, map[string]any{"jwk": own}, nil)); got != 401 {
		t.Errorf("by its own key: %d", got)
	}
	if got := status(t, v, token(jwt.SigningMethodES256, ecKey, map[string]any{"kid": nil}, nil)); got != 401 {
		t.Errorf("without a kid, with two keys: %d", got)
	}
	if n := p.fetches.Load(); n != 1 {
		t.Errorf("%d fetches, want 1", n)
	}
}

// The edges of clocks: exp and nbf have a leeway of 60 s, and exp, iss and aud are mandatory.
func TestClocks(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	p.has(map[string]any{"k": ecKey.Public()})
	v, c := open(t, p.URL, all...)
	unix := someMoment.Unix()
	for _, row := range []struct {
		claims map[string]any
		want   int
	}{
		{map[string]any{"exp": unix - 59}, 200},
		{map[string]any{"exp": unix - 60}, 401},
		{map[string]any{"exp": unix - 61}, 401},
		{map[string]any{"exp": nil}, 401},
		{map[string]any{"exp": "tomorrow"}, 401},
		{map[string]any{"exp": 0}, 401},
		{map[string]any{"exp": -1}, 401},
		{map[string]any{"exp": json.Number("1e400")}, 401},
		{map[string]any{"nbf": unix + 60}, 200},
		{map[string]any{"nbf": unix + 61}, 401},
		{map[string]any{"nbf": "x"}, 401},
		{map[string]any{"iss": "https://idp.example/"}, 401},
		{map[string]any{"iss": nil}, 401},
		{map[string]any{"iss": []string{"https://idp.example"}}, 401},
		{map[string]any{"aud": "other"}, 401},
		{map[string]any{"aud": nil}, 401},
		{map[string]any{"aud": []string{"other", "api"}}, 200},
		{map[string]any{"aud": []string{}}, 401},
	} {
		if got := status(t, v, token(jwt.SigningMethodES256, ecKey, nil, row.claims)); got != row.want {
			t.Errorf("%v: %d, want %d", row.claims, got, row.want)
		}
	}
	short := token(jwt.SigningMethodES256, ecKey, nil, map[string]any{"exp": unix + 10})
	for i, want := range []int{200, 200, 401} {
		if got := status(t, v, short); got != want {
			t.Errorf("%d: a remembered token: %d, want %d", i, got, want)
		}
		c.move(35 * time.Second)
	}
}

// A token over 8 KiB is refused before it is read. Remembered ones have a bound.
func TestHugeAndMany(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	p.has(map[string]any{"k": edKey.Public()})
	v, _ := open(t, p.URL, all...)
	if got := status(t, v, token(jwt.SigningMethodEdDSA, edKey, nil, map[string]any{"x": strings.Repeat("a", 7000)})); got != 401 {
		t.Errorf("a huge token: %d", got)
	}
	if n := p.fetches.Load(); n != 0 {
		t.Errorf("%d fetches", n)
	}
	for i := range 50 { // of one account
		if got := status(t, v, token(jwt.SigningMethodEdDSA, edKey, nil, map[string]any{"jti": i})); got != 200 {
			t.Fatal(got)
		}
	}
	var c cache
	for i := range 5 * mostEntries {
		c.put(sha256.Sum256(fmt.Append(nil, i)), &entry{size: 4})
	}
	if n := len(c.newer) + len(c.older); n > 2*mostEntries {
		t.Errorf("%d tokens are remembered", n)
	}
	for i := range 10_000 {
		c.put(sha256.Sum256(fmt.Append(nil, -i)), &entry{size: mostToken})
	}
	if n := len(c.newer) + len(c.older); n > 2*mostBytes/mostToken+2 {
		t.Errorf("%d large tokens are remembered", n)
	}
}

// A flood of unknown kids fetches once in ten seconds. A new key counts after that.
func TestUnknownKids(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	p.has(map[string]any{"k": ecKey.Public()})
	v, c := open(t, p.URL, all...)
	if got := status(t, v, token(jwt.SigningMethodES256, ecKey, nil, nil)); got != 200 {
		t.Fatal(got)
	}
	c.move(between)
	var flood sync.WaitGroup
	for i := range 200 {
		flood.Go(func() {
			if got := status(t, v, token(jwt.SigningMethodES256, otherKey, map[string]any{"kid": fmt.Sprint(i)}, nil)); got != 401 {
				t.Errorf("%d: %d", i, got)
			}
		})
	}
	flood.Wait()
	if n := p.fetches.Load(); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
	p.has(map[string]any{"k": ecKey.Public(), "new": otherKey.Public()})
	c.move(between)
	if got := status(t, v, token(jwt.SigningMethodES256, otherKey, map[string]any{"kid": "new"}, nil)); got != 200 {
		t.Errorf("a new key: %d", got)
	}
}

// An issuer that lies, grows, stalls or redirects changes no keys. After stale the last good ones end.
func TestHostileIssuer(t *testing.T) {
	t.Parallel()
	p, stalled := newIDP(t), make(chan struct{})
	defer close(stalled)
	many := map[string]any{}
	for i := range mostKeys + 1 {
		many[fmt.Sprint(i)] = otherKey.Public()
	}
	write := func(text []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }
	}
	for name, answer := range map[string]http.HandlerFunc{
		"an error":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"no JSON":        write([]byte("<html>")),
		"no keys":        write([]byte(`{"keys": []}`)),
		"an empty text":  write(nil),
		"too many keys":  write(jwks(many)),
		"grows":          write(append([]byte(`{"keys": [`), make([]byte, mostJWKS)...)),
		"secret keys":    write(jwks(map[string]any{"k": secret})),
		"small keys":     write(jwks(map[string]any{"k": smallKey.Public()})),
		"not for tokens": write([]byte(strings.ReplaceAll(string(jwks(map[string]any{"k": otherKey.Public()})), `"sig"`, `"enc"`))),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/other" {
				_, _ = w.Write(jwks(map[string]any{"k": otherKey.Public()}))
				return
			}
			http.Redirect(w, r, "/other", http.StatusFound)
		},
		"stalls": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-stalled:
			case <-r.Context().Done():
			}
		},
	} {
		p.has(map[string]any{"k": ecKey.Public()})
		v, c := open(t, p.URL, append(all, "HS256")...)
		good := token(jwt.SigningMethodES256, ecKey, nil, nil)
		if got := status(t, v, good); got != 200 {
			t.Fatalf("%s: %d before", name, got)
		}
		p.answers(answer)
		c.move(between)
		for _, bad := range []string{token(jwt.SigningMethodES256, otherKey, map[string]any{"kid": "z"}, nil), token(jwt.SigningMethodHS256, secret, nil, nil)} {
			if got := status(t, v, bad); got != 401 {
				t.Errorf("%s: %d, want 401", name, got)
			}
		}
		if got := status(t, v, good); got != 200 {
			t.Errorf("%s: the good key: %d", name, got)
		}
		c.move(59 * time.Minute)
		fresh := token(jwt.SigningMethodES256, ecKey, nil, map[string]any{"exp": someMoment.Add(9 * time.Hour).Unix()})
		if got := status(t, v, fresh); got != 200 {
			t.Errorf("%s: before stale: %d", name, got)
		}
		c.move(2 * time.Minute)
		if got := status(t, v, fresh); got != 503 {
			t.Errorf("%s: after stale: %d, want 503", name, got)
		}
	}
}

// A remembered token dies when its key is replaced, also by one with the same kid. The same keys in another text keep it.
func TestReplacedKeys(t *testing.T) {
	t.Parallel()
	p := newIDP(t)
	p.has(map[string]any{"k": ecKey.Public()})
	v, c := open(t, p.URL, all...)
	good := token(jwt.SigningMethodES256, ecKey, nil, nil)
	ask := func(keys map[string]any, want int) {
		t.Helper()
		p.has(keys)
		c.move(freshFor)
		_ = status(t, v, good) // starts a fetch, which nobody waits for
		k := v.issuers[0].keys
		k.mu.Lock()
		running := k.running
		k.mu.Unlock()
		if running != nil {
			<-running
		}
		if got := status(t, v, good); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	ask(map[string]any{"k": ecKey.Public()}, 200)
	before := p.fetches.Load()
	ask(map[string]any{"k": ecKey.Public(), "l": otherKey.Public()}, 200)
	if n := p.fetches.Load(); n != before+1 {
		t.Errorf("%d fetches, want %d", n, before+1)
	}
	ask(map[string]any{"k": otherKey.Public()}, 401)
}

// A file has secret keys too, and is read again. An issuer without keys from the start is 503.
func TestFileAndNoKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jwks.json")
	write := func(keys map[string]any) {
		t.Helper()
		if err := os.WriteFile(path, jwks(keys), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(map[string]any{"k": secret, "short": []byte("short")})
	v, c := open(t, "file:"+path, "HS256")
	good := token(jwt.SigningMethodHS256, secret, nil, nil)
	if got := status(t, v, good); got != 200 {
		t.Errorf("%d", got)
	}
	if got := status(t, v, token(jwt.SigningMethodHS256, []byte("short"), map[string]any{"kid": "short"}, nil)); got != 401 {
		t.Errorf("a short secret: %d", got)
	}
	write(map[string]any{"k": []byte("another secret of over thirty-two bytes")})
	c.move(time.Second)
	if got := status(t, v, good); got != 401 {
		t.Errorf("after a change: %d", got)
	}
	p := newIDP(t)
	p.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	v, c = open(t, p.URL, all...)
	es := token(jwt.SigningMethodES256, ecKey, nil, nil)
	if got := status(t, v, es); got != 503 {
		t.Errorf("without keys: %d", got)
	}
	p.has(map[string]any{"k": ecKey.Public()})
	c.move(retry)
	if got := status(t, v, es); got != 200 {
		t.Errorf("with keys: %d", got)
	}
}

func FuzzVerify(f *testing.F) {
	path := filepath.Join(f.TempDir(), "jwks.json")
	if err := os.WriteFile(path, jwks(map[string]any{"k": ecKey.Public()}), 0o600); err != nil {
		f.Fatal(err)
	}
	k, err := openKeys(config.Issuer{Keys: "file:" + path, Issuer: "i", Audience: "a", Algorithms: all}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	v := &verifier{now: time.Now}
	v.issuers = []*issuer{newIssuer(config.Issuer{Issuer: "i", Audience: "a", Algorithms: all}, k, v)}
	f.Add(token(jwt.SigningMethodES256, ecKey, nil, map[string]any{"iss": "i", "aud": "a"}) + "x")
	f.Add("e30.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := v.verify(context.Background(), text); err == nil {
			t.Errorf("%q is valid", text)
		}
	})
}

// BenchmarkCached and BenchmarkSum compare a remembered token with the SHA-256 of its text.
func BenchmarkCached(b *testing.B) {
	v, good := benchmarked(b)
	for b.Loop() {
		if _, err := v.verify(context.Background(), good); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	_, good := benchmarked(b)
	var sum [sha256.Size]byte
	for b.Loop() {
		sum = sha256.Sum256([]byte(good))
	}
	_ = sum
}

func benchmarked(b *testing.B) (*verifier, string) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "jwks.json")
	if err := os.WriteFile(path, jwks(map[string]any{"k": rsaKey.Public()}), 0o600); err != nil {
		b.Fatal(err)
	}
	of := config.Issuer{Keys: "file:" + path, Issuer: "https://idp.example", Audience: "api", Algorithms: []string{"RS256"}}
	k, err := openKeys(of, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	v := &verifier{now: time.Now}
	v.issuers = []*issuer{newIssuer(of, k, v)}
	return v, token(jwt.SigningMethodRS256, rsaKey, nil, nil)
}
