// SPDX-License-Identifier: MIT

package ratelimit

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
)

// Settings are the variables of the environment that have an effect, with the defaults of envoyproxy/ratelimit.
type Settings struct {
	Host      string `env:"HOST" default:"0.0.0.0"`
	Port      uint16 `env:"PORT" default:"8080"`
	DebugHost string `env:"DEBUG_HOST" default:"0.0.0.0"`
	DebugPort uint16 `env:"DEBUG_PORT" default:"6070"`

	GRPCSocket   string        `env:"GRPC_UDS"`
	GRPCHost     string        `env:"GRPC_HOST" default:"0.0.0.0"`
	GRPCPort     uint16        `env:"GRPC_PORT" default:"8081"`
	GRPCAge      time.Duration `env:"GRPC_MAX_CONNECTION_AGE" default:"24h"`
	GRPCAgeGrace time.Duration `env:"GRPC_MAX_CONNECTION_AGE_GRACE" default:"1h"`
	GRPCTLS      bool          `env:"GRPC_SERVER_USE_TLS" default:"false"`
	GRPCCert     string        `env:"GRPC_SERVER_TLS_CERT"`
	GRPCKey      string        `env:"GRPC_SERVER_TLS_KEY"`
	GRPCClientCA string        `env:"GRPC_CLIENT_TLS_CACERT"`
	GRPCClient   string        `env:"GRPC_CLIENT_TLS_SAN"`

	LogLevel  string `env:"LOG_LEVEL" default:"WARN"`
	LogFormat string `env:"LOG_FORMAT" default:"text"`

	ConfigType   string            `env:"CONFIG_TYPE" default:"FILE"`
	StartWithout bool              `env:"FORCE_START_WITHOUT_INITIAL_CONFIG" default:"false"`
	XDSNode      string            `env:"CONFIG_GRPC_XDS_NODE_ID" default:"default"`
	XDSMetadata  string            `env:"CONFIG_GRPC_XDS_NODE_METADATA"`
	XDSServer    string            `env:"CONFIG_GRPC_XDS_SERVER_URL" default:"localhost:18000"`
	XDSRetry     time.Duration     `env:"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL" default:"3s"`
	XDSHeaders   map[string]string `env:"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"`
	XDSTLS       bool              `env:"CONFIG_GRPC_XDS_SERVER_USE_TLS" default:"false"`
	XDSCert      string            `env:"CONFIG_GRPC_XDS_CLIENT_TLS_CERT"`
	XDSKey       string            `env:"CONFIG_GRPC_XDS_CLIENT_TLS_KEY"`
	XDSCA        string            `env:"CONFIG_GRPC_XDS_SERVER_TLS_CACERT"`
	XDSName      string            `env:"CONFIG_GRPC_XDS_SERVER_TLS_SAN"`
	XDSMostRetry time.Duration     `env:"XDS_CLIENT_BACKOFF_MAX_INTERVAL" default:"60s"`
	XDSMost      uint32            `env:"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES" default:"0"`

	Prometheus             bool   `env:"USE_PROMETHEUS" default:"false"`
	PrometheusAddr         string `env:"PROMETHEUS_ADDR" default:":9090"`
	PrometheusPath         string `env:"PROMETHEUS_PATH" default:"/metrics"`
	PrometheusMilliseconds bool   `env:"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS" default:"false"`

	Root       string `env:"RUNTIME_ROOT" default:"/srv/runtime_data/current"`
	Folder     string `env:"RUNTIME_SUBDIRECTORY"`
	AppFolder  string `env:"RUNTIME_APPDIRECTORY" default:"config"`
	IgnoreDots bool   `env:"RUNTIME_IGNOREDOTFILES" default:"false"`
	WatchRoot  bool   `env:"RUNTIME_WATCH_ROOT" default:"true"` // the files are read each second, so both ways are one
	Merge      bool   `env:"MERGE_DOMAIN_CONFIG" default:"false"`

	NearRatio float64 `env:"NEAR_LIMIT_RATIO" default:"0.8"`
	Prefix    string  `env:"CACHE_KEY_PREFIX"`
	Backend   string  `env:"BACKEND_TYPE" default:"redis"`
	StopOver  bool    `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" default:"false"`

	Fields         bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED" default:"false"`
	LimitField     string `env:"LIMIT_LIMIT_HEADER" default:"RateLimit-Limit"`
	RemainingField string `env:"LIMIT_REMAINING_HEADER" default:"RateLimit-Remaining"`
	ResetField     string `env:"LIMIT_RESET_HEADER" default:"RateLimit-Reset"`
	Metadata       bool   `env:"RESPONSE_DYNAMIC_METADATA" default:"false"`
	Shadow         bool   `env:"SHADOW_MODE" default:"false"`
	Quota          bool   `env:"QUOTA_MODE" default:"false"`

	HealthyLoaded bool `env:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" default:"false"`
	HealthyRedis  bool `env:"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION" default:"false"`

	Redis        server `prefix:"REDIS_"`
	PerSecond    bool   `env:"REDIS_PERSECOND" default:"false"`
	RedisSeconds server `prefix:"REDIS_PERSECOND_"`
	RedisCert    string `env:"REDIS_TLS_CLIENT_CERT"`
	RedisKey     string `env:"REDIS_TLS_CLIENT_KEY"`
	RedisCA      string `env:"REDIS_TLS_CACERT"`
	RedisAnyHost bool   `env:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" default:"false"`
}

// server are the variables of one Redis, behind a prefix.
type server struct {
	Socket       string        `env:"SOCKET_TYPE" default:"unix"`
	Type         string        `env:"TYPE" default:"SINGLE"`
	URL          string        `env:"URL"`
	Auth         string        `env:"AUTH"`
	SentinelAuth string        `env:"SENTINEL_AUTH"`
	Timeout      time.Duration `env:"TIMEOUT" default:"10s"`
	TLS          bool          `env:"TLS" default:"false"`
}

// without are the other variables of envoyproxy/ratelimit, each with the value that asks for nothing.
var without = map[string]string{
	// Metrics by other ways than Prometheus, and the names in these.
	"USE_DOG_STATSD": "false", "USE_DOG_STATSD_MOGRIFIERS": "", "USE_STATSD": "false", "STATSD_HOST": "", "STATSD_PORT": "",
	"EXTRA_TAGS": "", "STATS_FLUSH_INTERVAL": "", "DISABLE_STATS": "false", "PROMETHEUS_MAPPER_YAML": "",
	// What Diana does by itself: it remembers refusals, sends many commands on one connection, and retries.
	"EXPIRATION_JITTER_MAX_SECONDS": "", "LOCAL_CACHE_SIZE_IN_BYTES": "0", "REDIS_POOL_SIZE": "", "REDIS_PIPELINE_WINDOW": "", "REDIS_PIPELINE_LIMIT": "",
	"REDIS_CLUSTER_PIPELINE_PARALLELISM": "", "REDIS_POOL_ON_EMPTY_BEHAVIOR": "WAIT",
	"REDIS_STARTUP_INITIAL_INTERVAL": "", "REDIS_STARTUP_MAX_INTERVAL": "", "REDIS_STARTUP_MAX_ELAPSED_TIME": "",
	"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "", "XDS_CLIENT_BACKOFF_RANDOM_FACTOR": "", "XDS_CLIENT_BACKOFF_JITTER": "",
	"REDIS_PERSECOND_POOL_SIZE": "", "REDIS_PERSECOND_PIPELINE_WINDOW": "", "REDIS_PERSECOND_PIPELINE_LIMIT": "",
	"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM": "", "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR": "WAIT",
	// memcached.
	"MEMCACHE_HOST_PORT": "", "MEMCACHE_MAX_IDLE_CONNS": "", "MEMCACHE_SRV": "", "MEMCACHE_SRV_REFRESH": "", "MEMCACHE_TLS": "false",
	"MEMCACHE_TLS_CLIENT_CERT": "", "MEMCACHE_TLS_CLIENT_KEY": "", "MEMCACHE_TLS_CACERT": "", "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION": "false",
	// Traces.
	"TRACING_ENABLED": "false", "TRACING_SERVICE_NAME": "", "TRACING_SERVICE_NAMESPACE": "", "TRACING_SERVICE_INSTANCE_ID": "",
	"TRACING_EXPORTER_PROTOCOL": "", "TRACING_SAMPLING_RATE": "",
}

// Read reads an environment. lookup is such as os.LookupEnv. ignored are the names of the variables that are set and have no
// effect. The error has one line for each mistake.
func Read(lookup func(string) (string, bool)) (s Settings, ignored []string, err error) {
	errs := readFields(reflect.ValueOf(&s).Elem(), "", lookup)
	for name, nothing := range without {
		if text, given := lookup(name); given && text != "" && !strings.EqualFold(text, nothing) {
			ignored = append(ignored, name)
		}
	}
	slices.Sort(ignored)
	return s, ignored, errors.Join(append(errs, s.check())...)
}

// readFields reads the fields of a struct, whose variables have a prefix.
func readFields(v reflect.Value, prefix string, lookup func(string) (string, bool)) (errs []error) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if v.Field(i).Kind() == reflect.Struct {
			errs = append(errs, readFields(v.Field(i), tag.Get("prefix"), lookup)...)
			continue
		}
		name := prefix + tag.Get("env")
		text, given := lookup(name)
		if !given {
			text = tag.Get("default")
		}
		if err := read(v.Field(i), text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errs
}

// read reads the text of a variable into a field.
func read(field reflect.Value, text string) error {
	switch p := field.Addr().Interface().(type) {
	case *string:
		*p = text
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("expected true or false, found %q", text)
		}
		*p = b
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("expected a duration such as 10s, found %q", text)
		}
		*p = d
	case *float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !(f >= 0 && f <= 1) {
			return fmt.Errorf("expected a number of 0 to 1, found %q", text)
		}
		*p = f
	case *map[string]string: // a:1,b:2
		*p = map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(pair, ":")
			if !ok && text != "" {
				return fmt.Errorf("expected NAME:VALUE[,NAME:VALUE]..., found one without a colon") // it can be a secret
			}
			if ok {
				(*p)[key] = value
			}
		}
	default: // a whole number
		n, err := strconv.ParseUint(text, 0, field.Type().Bits())
		if err != nil {
			return fmt.Errorf("expected a whole number of 0 to %d, found %q", uint64(1)<<field.Type().Bits()-1, text)
		}
		field.SetUint(n)
	}
	return nil
}

// check returns an error for values that have the right form and no meaning here.
func (s *Settings) check() error {
	var errs []error
	choice := func(name, text string, of ...string) {
		if !slices.ContainsFunc(of, func(o string) bool { return strings.EqualFold(o, text) }) {
			errs = append(errs, fmt.Errorf("%s: expected %s, found %q", name, strings.Join(of, " or "), text))
		}
	}
	if strings.EqualFold(s.Backend, "memcache") {
		errs = append(errs, errors.New("BACKEND_TYPE: memcache is not supported, expected redis"))
	} else if s.Backend != "" {
		choice("BACKEND_TYPE", s.Backend, "redis")
	}
	choice("CONFIG_TYPE", s.ConfigType, "FILE", "GRPC_XDS_SOTW")
	for prefix, r := range s.servers() {
		choice(prefix+"TYPE", r.Type, "SINGLE", "CLUSTER", "SENTINEL")
		choice(prefix+"SOCKET_TYPE", r.Socket, "tcp", "unix")
	}
	choice("LOG_LEVEL", s.LogLevel, "panic", "fatal", "error", "warn", "warning", "info", "debug", "trace")
	pair := func(cert, key, certName, keyName string) {
		if (cert == "") != (key == "") {
			errs = append(errs, fmt.Errorf("%s, %s: expected both, found one", certName, keyName))
		}
	}
	pair(s.GRPCCert, s.GRPCKey, "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY")
	pair(s.XDSCert, s.XDSKey, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY")
	pair(s.RedisCert, s.RedisKey, "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY")
	if s.GRPCTLS && s.GRPCCert == "" {
		errs = append(errs, errors.New("GRPC_SERVER_TLS_CERT: expected the file of the certificate, because GRPC_SERVER_USE_TLS is true"))
	}
	if !strings.HasPrefix(s.PrometheusPath, "/") {
		errs = append(errs, fmt.Errorf("PROMETHEUS_PATH: expected a path such as /metrics, found %q", s.PrometheusPath))
	}
	return errors.Join(errs...)
}

// Log returns the flags of a log of that level and format.
func (s *Settings) Log() logs.Flags {
	f := logs.Flags{LogFormat: "text", LogLevel: "debug", LogActors: "plain"}
	if strings.EqualFold(s.LogFormat, "json") {
		f.LogFormat = "json"
	}
	switch strings.ToLower(s.LogLevel) {
	case "panic", "fatal", "error":
		f.LogLevel = slog.LevelError.String()
	case "warn", "warning":
		f.LogLevel = slog.LevelWarn.String()
	case "info":
		f.LogLevel = slog.LevelInfo.String()
	}
	return f
}
