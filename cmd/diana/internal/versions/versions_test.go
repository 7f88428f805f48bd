// SPDX-License-Identifier: MIT

package versions

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/diana-limiter/diana/internal/race"

	"go.uber.org/goleak"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/source"
)

// Each test closes what it opens, and leaves no goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "diana/limits"

// in returns a remote configuration in a Redis.
func in(t *testing.T, r *redistest.Server) *Remote {
	t.Helper()
	words := config.DefaultVocabulary()
	local, err := words.Parse("diana.yaml", fmt.Appendf(nil, "remote: {url: %q}\nlimits: []", r.URL()+"/0/"+key))
	if err != nil {
		t.Fatal(err)
	}
	remote, err := Open(words, local)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remote.Close)
	return remote
}

// push pushes a text, and fails on an error.
func push(t *testing.T, r *Remote, text, comment string) Version {
	t.Helper()
	v, err := r.Push(t.Context(), Change{Text: []byte(text), By: "ann", Comment: comment})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// comments returns the versions as NUMBER:COMMENT, newest first; * marks the active one.
func comments(t *testing.T, r *Remote) string {
	t.Helper()
	list, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, v := range list {
		active := ""
		if v.Active {
			active = "*"
		}
		all = append(all, fmt.Sprintf("%s%d:%s", active, v.Number, v.Comment))
	}
	return strings.Join(all, " ")
}

func TestPushKeepsVersions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := in(t, server)
	if got := comments(t, r); got != "" {
		t.Errorf("found %s before the first push", got)
	}
	push(t, r, "one", "a")
	push(t, r, "two", "b")
	if v := push(t, r, "two", "again"); v.Number != 2 {
		t.Errorf("a push of the same text has number %d", v.Number)
	}
	if got, want := comments(t, r), "*2:b 1:a"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}

	server.Must("SET", key, "by hand")
	if got, want := comments(t, r), "2:b 1:a"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	push(t, r, "one", "c")
	if got, want := comments(t, r), "*4:c 3:"+foundComment+" 2:b 1:a"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	if _, text, err := r.Find(t.Context(), "3"); err != nil || string(text) != "by hand" {
		t.Errorf("found %q, %v", text, err)
	}
	if _, _, err := r.Find(t.Context(), "7"); err == nil {
		t.Error("a version is found that is not there")
	}
	for i := range 30 {
		push(t, r, fmt.Sprint("text ", i), "many")
	}
	list, err := r.List(t.Context())
	if err != nil || len(list) != mostVersions || list[0].Number != 34 || list[mostVersions-1].Number != 15 {
		t.Errorf("found %d versions, %v", len(list), err)
	}
}

// A version after a crash is one that never was in force. The next push adds the present document again.
func TestPushAfterCrash(t *testing.T) {
	t.Parallel()
	r := in(t, redistest.Start(t))
	push(t, r, "one", "a")
	held, err := r.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.add(t.Context(), held, Change{Text: []byte("lost"), Comment: "lost"}); err != nil {
		t.Fatal(err)
	}
	if got, want := comments(t, r), "2:lost *1:a"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	push(t, r, "three", "c")
	if got, want := comments(t, r), "*4:c 3:"+foundComment+" 2:lost 1:a"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}

func TestPushExpects(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := in(t, server)
	none, wrong := "", "0123456789ab"
	one := push(t, r, "one", "a").Version
	for _, expect := range []string{none, wrong} {
		_, err := r.Push(t.Context(), Change{Text: []byte("two"), Expect: &expect})
		var conflict Conflict
		if !errors.As(err, &conflict) || conflict.Found != one {
			t.Errorf("expecting %q: found %v", expect, err)
		}
	}
	if _, err := r.Push(t.Context(), Change{Text: []byte("two"), Expect: &one}); err != nil {
		t.Error(err)
	}
	if got, want := comments(t, r), "*2: 1:a"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	server.Must("DEL", key)
	if _, err := r.Push(t.Context(), Change{Text: []byte("three"), Expect: &none}); err != nil {
		t.Error(err)
	}
}

// Of operators who push at once from the same version, one wins and the others learn of it. The versions are those
// that were in force, in their order.
func TestPushAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	operators := []*Remote{in(t, server), in(t, server), in(t, server)}
	base := ""
	var inForce []string
	for round := range 10 {
		var running sync.WaitGroup
		errs := make([]error, len(operators))
		for i, r := range operators {
			running.Go(func() {
				_, errs[i] = r.Push(t.Context(), Change{Text: fmt.Appendf(nil, "%d by %d", round, i), Expect: &base, Comment: fmt.Sprintf("%d/%d", round, i)})
			})
		}
		running.Wait()
		winners := 0
		for i, err := range errs {
			var conflict Conflict
			switch {
			case err == nil:
				winners++
				inForce = append(inForce, fmt.Sprintf("%d/%d", round, i))
			case !errors.As(err, &conflict):
				t.Error(err)
			}
		}
		if winners != 1 {
			t.Fatalf("round %d: %d operators have pushed", round, winners)
		}
		d, err := operators[0].Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		base = VersionOf(d)
	}
	list, err := operators[0].List(t.Context())
	if err != nil || !list[0].Active {
		t.Errorf("the newest version is not active: %v", err)
	}
	var kept []string
	for _, v := range list {
		if v.Comment != foundComment {
			kept = append([]string{v.Comment}, kept...)
		}
	}
	if fmt.Sprint(kept) != fmt.Sprint(inForce) {
		t.Errorf("kept %v\nin force %v", kept, inForce)
	}
}

// Old versions give way to new ones when the document of versions is full.
func TestVersionsHaveRoom(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	r := in(t, redistest.Start(t))
	random := func() []byte { // cannot be compressed much
		text := make([]byte, 200_000)
		for i := range text {
			text[i] = byte(' ' + rand.IntN(90))
		}
		return text
	}
	for range 8 {
		if _, err := r.Push(t.Context(), Change{Text: random()}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := r.List(t.Context())
	d, err2 := r.get(t.Context(), r.versions, Suffix)
	if err != nil || err2 != nil || len(list) < 3 || len(list) > 7 || list[0].Number != 8 || len(d.Text) > source.MaxSize {
		t.Errorf("found %d versions in %d bytes, %v, %v", len(list), len(d.Text), err, err2)
	}
}

// A document of versions that another program has written is an error, and stays.
func TestVersionsOfOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := in(t, server)
	for _, text := range []string{"{", "[]", `{"versions": [{"number": "x"}]}`} {
		server.Must("SET", key+Suffix, text)
		if _, err := r.Push(t.Context(), Change{Text: []byte("one")}); err == nil || !strings.Contains(err.Error(), "delete this document") {
			t.Errorf("%s: found %v", text, err)
		}
	}
	server.Must("SET", key+Suffix, `{"versions": [{"number": 1, "version": "0123456789ab", "gzip": "AAAA"}]}`)
	if _, _, err := r.Find(t.Context(), "1"); err == nil {
		t.Error("a text that cannot be read is found")
	}
	push(t, r, "one", "a")
}

// Comments and names are data, whatever they contain.
func TestHostileComments(t *testing.T) {
	t.Parallel()
	r := in(t, redistest.Start(t))
	for _, hostile := range []string{`"}]}`, "\x00\x1b[2J\n", "<script>alert(1)</script>", "\u202eabc", "%s%n{{.}}", strings.Repeat("é", 400)} {
		v, err := r.Push(t.Context(), Change{Text: []byte("text of " + hostile), Comment: hostile, By: hostile})
		if err != nil {
			t.Fatal(err)
		}
		found, text, err := r.Find(t.Context(), fmt.Sprint(v.Number))
		if err != nil || found.Comment != hostile || found.By != hostile || string(text) != "text of "+hostile {
			t.Errorf("%q: found %+v, %q, %v", hostile, found, text, err)
		}
	}
}
