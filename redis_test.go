// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// folder is where a test keeps its files.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T) folder { return folder{t, t.TempDir()} }

// write writes a file and returns its path. Who watches it sees one text or the other.
func (f folder) write(name, text string) string {
	f.t.Helper()
	file := filepath.Join(f.dir, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// open is Open for a test.
func open(t *testing.T, o diana.Options, file string) *diana.Limiter {
	t.Helper()
	l, err := o.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// clients returns how many connections a server has, but for the one that asks.
func clients(r *redistest.Server) int {
	list, _ := r.Must("CLIENT", "LIST").(string)
	return strings.Count(list, "\n") - 1
}

// A configuration that changes redis and is refused for something else changes nothing,
// and leaves no connection behind; nor does one that is accepted.
func TestRefusedRedis(t *testing.T) {
	t.Parallel()
	from, to, f := redistest.Start(t), redistest.Start(t), newFolder(t)
	onlyHere := limit.TokenBucket()
	onlyHere.Names = []string{"here"}
	onlyHere.New = func(l limit.Limit) (limit.Meter, error) {
		m, err := limit.TokenBucket().New(l)
		return struct{ limit.Meter }{m}, err // without its script
	}
	o := diana.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Vocabulary: rule.Default()}
	o.Vocabulary.Algorithms = append(o.Vocabulary.Algorithms, onlyHere)
	text := func(r *redistest.Server, algo string) string {
		return fmt.Sprintf("redis: {url: %q, timeout: 10s}\nlimits: [{url: /, rules: [{unit: day, rpu: 5, algo: %s, scope: global}]}]", r.URL(), algo)
	}
	l := open(t, o, f.write("diana.yaml", text(from, "TB")))
	inRedis := func() bool {
		d, err := l.Take(context.Background(), diana.Request{Path: "/"})
		d.Done()
		return err == nil && !d.Degraded
	}
	poll(t, inRedis)

	f.write("diana.yaml", text(to, "here"))
	if err := l.Reload(); err == nil || !strings.Contains(err.Error(), "no script") {
		t.Fatalf("reload: %v", err)
	}
	if !inRedis() {
		t.Error("degraded by a configuration that was refused")
	}
	poll(t, func() bool { return clients(to) == 0 })
	if !inRedis() || clients(from) == 0 {
		t.Error("degraded later by a configuration that was refused")
	}

	f.write("diana.yaml", text(to, "TB"))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	poll(t, inRedis)
	poll(t, func() bool { return clients(from) == 0 })
	if clients(to) == 0 {
		t.Error("no connection to the new Redis")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	poll(t, func() bool { return clients(to) == 0 })
}
