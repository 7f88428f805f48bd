// SPDX-License-Identifier: MIT

package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"
)

// lineOf returns the line of a record, and that of package slog for the same record.
func lineOf(t *testing.T, flags Flags, r slog.Record) (line, want string) {
	t.Helper()
	flags.LogLevel = "debug"
	var b, slogs bytes.Buffer
	if err := flags.Logger(&b).Handler().Handle(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	var h slog.Handler = slog.NewTextHandler(&slogs, &slog.HandlerOptions{ReplaceAttr: flags.replace, Level: slog.LevelDebug})
	if flags.LogFormat == "json" {
		h = slog.NewJSONHandler(&slogs, &slog.HandlerOptions{ReplaceAttr: flags.replace, Level: slog.LevelDebug})
	}
	if err := h.Handle(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	return b.String(), slogs.String()
}

// allFlags are the forms of the log.
func allFlags() (all []Flags) {
	for _, format := range []string{"text", "json"} {
		for _, actors := range []string{"plain", "hash", "off"} {
			all = append(all, Flags{LogFormat: format, LogActors: actors})
		}
	}
	return all
}

// Each line is exactly what package slog writes, for all times, levels, kinds and bytes of values.
func TestPlainLines(t *testing.T) {
	t.Parallel()
	texts := []string{"", "plain", "97µs", "µ", "µµ", "\xc2", "a\xc2", "\xb5", "a b", "a=b", `"a"`, `a\b`, "<a&b>", "é", "\u2028", "a\nb", "\x7f", "%2F"}
	for c := range 256 {
		texts = append(texts, "x"+string([]byte{byte(c)})+"y")
	}
	zone := time.FixedZone("", 5*3600+1800)
	times := []time.Time{
		{}, time.Unix(0, 0).UTC(), time.Now(), time.Unix(1, 999_999_999).In(zone), time.Unix(1, 500_000), time.Unix(1, 120_000_000).UTC(),
		time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(12, 1, 1, 0, 0, 0, 1000, time.UTC),
	}
	var records []slog.Record
	for i, text := range texts {
		at := times[i%len(times)]
		r := slog.NewRecord(at, slog.Level(i%20-8), text, 0)
		records = append(records, r)
		for _, key := range []string{"path", "account", "device", "ip", "actor", text} {
			r := slog.NewRecord(at, slog.LevelInfo, "request", 0)
			r.AddAttrs(slog.Int("status", i-3), slog.String(key, text), slog.Bool("aborted", i%2 == 0))
			records = append(records, r)
		}
	}
	valuer := slog.AnyValue(valuer{})
	for _, value := range []any{valuer, 1.5, time.Second, time.Now(), uint64(1), []string{"a"}, nil, slog.GroupValue(slog.Int("a", 1)), slog.GroupValue(), context.Canceled} {
		for _, key := range []string{"value", "ip", ""} {
			r := slog.NewRecord(times[2], slog.LevelInfo, "request", 0)
			r.AddAttrs(slog.Attr{}, slog.Any(key, value))
			records = append(records, r)
		}
	}
	for _, flags := range allFlags() {
		for _, r := range records {
			if line, want := lineOf(t, flags, r); line != want {
				t.Errorf("%+v: %q, want %q", flags, line, want)
			}
		}
	}
}

// valuer is a value that package slog resolves.
type valuer struct{}

func (valuer) LogValue() slog.Value { return slog.IntValue(7) }

// Attributes and groups of a Logger are written as by package slog.
func TestPlainLinesWith(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	logger := (&Flags{LogLevel: "info"}).Logger(&b).With("a", 1)
	logger.WithGroup("g").Info("m", "ip", "192.0.2.1")
	if got := b.String(); !strings.HasSuffix(got, " level=INFO msg=m a=1 g.ip=192.0.2.1\n") {
		t.Error(got)
	}
}

func FuzzPlainLines(f *testing.F) {
	f.Add("/a", "ann", int64(0))
	f.Add("/a\nb", "\x1b[2J", int64(1))
	f.Fuzz(func(t *testing.T, path, account string, ns int64) {
		r := slog.NewRecord(time.Unix(0, ns), slog.LevelInfo, "request", 0)
		r.AddAttrs(slog.String("path", path), slog.Int64("bytes", ns), slog.String("account", account))
		for _, flags := range allFlags() {
			line, want := lineOf(t, flags, r)
			if line != want || strings.Count(line, "\n") != 1 {
				t.Errorf("%+v: %q, want %q", flags, line, want)
			}
			if flags.LogFormat == "json" && !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
	})
}

// Only slog's own Record allocates for a plain line, and formatting it does not.
func TestPlainLinesAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("sync.Pool drops memory under the race detector")
	}
	h := (&Flags{LogLevel: "info"}).Logger(new(discarded)).Handler()
	r := slog.NewRecord(time.Now(), slog.LevelInfo, "request", 0)
	r.AddAttrs(slog.String("method", "GET"), slog.String("path", "/a"), slog.Int("status", 200), slog.String("duration", "97µs"), slog.String("ip", "192.0.2.1"))
	if n := testing.AllocsPerRun(1000, func() { _ = h.Handle(context.Background(), r) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

type discarded struct{}

func (*discarded) Write(p []byte) (int, error) { return len(p), nil }
