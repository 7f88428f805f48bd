// SPDX-License-Identifier: MIT

package ratelimit

import (
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/config"
)

// environment returns what looks up the variables of a text such as "PORT=1 HOST=x".
func environment(text string) func(string) (string, bool) {
	values := map[string]string{}
	for pair := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}

// read reads a valid environment.
func readValid(t *testing.T, text string) Settings {
	t.Helper()
	s, _, err := Read(environment(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each variable of envoyproxy/ratelimit has an effect or is named in the warning, and there are no others.
func TestVariables(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/variables.txt")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for name := range without {
		known = append(known, name)
	}
	for f := range reflect.TypeFor[Settings]().Fields() {
		if f.Type != reflect.TypeFor[server]() {
			known = append(known, f.Tag.Get("env"))
			continue
		}
		for of := range f.Type.Fields() {
			known = append(known, f.Tag.Get("prefix")+of.Tag.Get("env"))
		}
	}
	slices.Sort(known)
	if want := strings.Fields(string(text)); !slices.Equal(known, want) {
		t.Errorf("%d variables, want %d: %q\n%q", len(known), len(want), known, want)
	}
}

// Values have the forms that envoyproxy/ratelimit reads. One warning names what has no effect, and asks for something.
func TestRead(t *testing.T) {
	t.Parallel()
	s, ignored, err := Read(environment("PORT=0x50 GRPC_MAX_CONNECTION_AGE=90s NEAR_LIMIT_RATIO=0.5 SHADOW_MODE=T CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:b,c:d:e " +
		"USE_STATSD=false USE_DOG_STATSD=TRUE STATSD_PORT=9125 STATSD_HOST= LOCAL_CACHE_SIZE_IN_BYTES=0 TRACING_ENABLED=true"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Port != 80 || s.GRPCAge != 90*time.Second || s.NearRatio != 0.5 || !s.Shadow || s.XDSHeaders["a"] != "b" || s.XDSHeaders["c"] != "d:e" || s.GRPCPort != 8081 {
		t.Errorf("%+v", s)
	}
	if want := []string{"STATSD_PORT", "TRACING_ENABLED", "USE_DOG_STATSD"}; !slices.Equal(ignored, want) {
		t.Errorf("without effect %q, want %q", ignored, want)
	}
}

// Every mistake is named with its variable, all together, and no message shows a secret.
func TestReadMistakes(t *testing.T) {
	t.Parallel()
	_, _, err := Read(environment("PORT=70000 GRPC_PORT= SHADOW_MODE=on REDIS_TIMEOUT=10 NEAR_LIMIT_RATIO=2 CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=secret " +
		"BACKEND_TYPE=memcache CONFIG_TYPE=HTTP REDIS_TYPE=x REDIS_SOCKET_TYPE=udp LOG_LEVEL=loud GRPC_SERVER_USE_TLS=true REDIS_TLS_CLIENT_KEY=k PROMETHEUS_PATH=m"))
	want := []string{
		`PORT: expected a whole number of 0 to 65535, found "70000"`,
		`GRPC_PORT: expected a whole number of 0 to 65535, found ""`,
		`CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: expected NAME:VALUE[,NAME:VALUE]..., found one without a colon`,
		`NEAR_LIMIT_RATIO: expected a number of 0 to 1, found "2"`,
		`SHADOW_MODE: expected true or false, found "on"`,
		`REDIS_TIMEOUT: expected a duration such as 10s, found "10"`,
		`BACKEND_TYPE: memcache is not supported, expected redis`,
		`CONFIG_TYPE: expected FILE or GRPC_XDS_SOTW, found "HTTP"`,
		`REDIS_TYPE: expected SINGLE or CLUSTER or SENTINEL, found "x"`,
		`REDIS_SOCKET_TYPE: expected tcp or unix, found "udp"`,
		`LOG_LEVEL: expected panic or fatal or error or warn or warning or info or debug or trace, found "loud"`,
		`REDIS_TLS_CLIENT_CERT, REDIS_TLS_CLIENT_KEY: expected both, found one`,
		`GRPC_SERVER_TLS_CERT: expected the file of the certificate, because GRPC_SERVER_USE_TLS is true`,
		`PROMETHEUS_PATH: expected a path such as /metrics, found "m"`,
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("%v\nwant %s", err, strings.Join(want, "\n"))
	}
}

// REDIS_* name one server, the nodes of a Cluster, or a master and Sentinels.
func TestRedis(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text string
		want config.Redis // URL, Cluster and Username alone
		auth string
		err  string
	}{
		{text: "REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379", want: config.Redis{URL: "redis://redis:6379"}},
		{text: "", want: config.Redis{URL: "unix:///var/run/nutcracker/ratelimit.sock"}},
		{text: "REDIS_URL=redis://u:p@h:1/2", want: config.Redis{URL: "redis://h:1/2", Username: "u"}, auth: "p"},
		{text: "REDIS_URL=redis://u:p@h:1 REDIS_AUTH=x:y:z", want: config.Redis{URL: "redis://h:1", Username: "x"}, auth: "y:z"},
		{text: "REDIS_SOCKET_TYPE=tcp REDIS_URL=h:1 REDIS_AUTH=only", want: config.Redis{URL: "redis://h:1"}, auth: "only"},
		{text: "REDIS_TYPE=cluster REDIS_URL=a:1,b:2", want: config.Redis{Cluster: []string{"a:1", "b:2"}}},
		{text: "REDIS_TYPE=SENTINEL REDIS_URL=main,a:1,b:2 REDIS_SENTINEL_AUTH=s", want: config.Redis{Sentinel: &config.Sentinel{Master: "main", Addresses: []string{"a:1", "b:2"}}}},
		{text: "REDIS_TYPE=SENTINEL REDIS_URL=main", err: "REDIS_URL: expected the name of the master"},
		{text: "REDIS_SOCKET_TYPE=tcp REDIS_URL=h", err: "REDIS_URL: expected HOST:PORT"},
		{text: "REDIS_URL=relative", err: `REDIS_URL: "relative", expected the path of a socket`},
		{text: "REDIS_URL=http://u:secret@h", err: "REDIS_URL: expected HOST:PORT or redis://HOST:PORT"},
		{text: "REDIS_AUTH=env:HOME", want: config.Redis{URL: "unix:///var/run/nutcracker/ratelimit.sock", Username: "env"}, auth: "HOME"},
		{text: "REDIS_AUTH=u:file:/etc/passwd", err: "REDIS_AUTH: found one that begins with env: or file:, expected another password"},
		{text: "CACHE_KEY_PREFIX={x}", err: "REDIS_*, CACHE_KEY_PREFIX: redis.prefix"},
		{text: "REDIS_TLS=true REDIS_TLS_CACERT=/none", err: "REDIS_TLS: open /none"},
	} {
		s := readValid(t, row.text)
		got, err := s.redis("REDIS_", &s.Redis)
		if row.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), row.err) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v, want %s", row.text, err, row.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.text, err)
			continue
		}
		auth, _ := got.Password.Value()
		if got.URL != row.want.URL || !slices.Equal(got.Cluster, row.want.Cluster) || got.Username != row.want.Username || auth != row.auth ||
			(got.Sentinel == nil) != (row.want.Sentinel == nil) || got.Timeout != 10*time.Second || got.Prefix != "diana" {
			t.Errorf("%s: %+v with %q, want %+v", row.text, got, auth, row.want)
		}
		if w := row.want.Sentinel; w != nil && (got.Sentinel.Master != w.Master || !slices.Equal(got.Sentinel.Addresses, w.Addresses)) {
			t.Errorf("%s: %+v, want %+v", row.text, got.Sentinel, w)
		}
	}
	s := readValid(t, "REDIS_PERSECOND=true REDIS_PERSECOND_SOCKET_TYPE=tcp REDIS_PERSECOND_URL=h")
	if _, err := s.redis("REDIS_PERSECOND_", &s.RedisSeconds); err == nil || !strings.HasPrefix(err.Error(), "REDIS_PERSECOND_URL: expected HOST:PORT") {
		t.Errorf("%v, want the name of the variable", err)
	}
	for text, want := range map[string]time.Duration{"1ms": time.Millisecond, "60s": mostTimeout, "0": mostTimeout} {
		s := readValid(t, "REDIS_TIMEOUT="+text)
		if r, err := s.redis("REDIS_", &s.Redis); err != nil || r.Timeout != want {
			t.Errorf("REDIS_TIMEOUT=%s: %v, %v, want %v", text, r, err, want)
		}
	}
}

// Levels of the log are those of slog that are nearest.
func TestLog(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]slog.Level{"fatal": slog.LevelError, "WARN": slog.LevelWarn, "Info": slog.LevelInfo, "trace": slog.LevelDebug} {
		s := readValid(t, "LOG_FORMAT=JSON LOG_LEVEL="+text)
		f := s.Log()
		var got slog.Level
		if err := got.UnmarshalText([]byte(f.LogLevel)); err != nil || got != want || f.LogFormat != "json" {
			t.Errorf("%s: %+v, %v, want %v", text, f, err, want)
		}
	}
}
