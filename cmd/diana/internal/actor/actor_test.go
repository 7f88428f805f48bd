// SPDX-License-Identifier: MIT

package actor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// look returns what the API says of an actor.
func look(t *testing.T, l Limiter, query string) (status int, rules []Counter, total int) {
	t.Helper()
	mux := http.NewServeMux()
	(&View{l}).Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/actor?"+query, nil))
	var answer struct {
		Rules []Counter
		Total int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return w.Code, answer.Rules, answer.Total
}

// counting counts how often rules are asked, one at a time.
type counting struct {
	Limiter

	calls int
}

func (c *counting) PeekActor(ctx context.Context, rule string, actor ...string) ([]diana.Explanation, []diana.Verdict, error) {
	c.calls++
	return c.Limiter.PeekActor(ctx, rule, actor...)
}

// The rules that have counted an actor, or treat it in another way than others, come first. The answer has a bound.
func TestManyRules(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	const rules = mostCounters + 100
	for i := range rules {
		more := ""
		if i == rules-2 {
			more = ", except: [ann]"
		}
		fmt.Fprintf(&text, "- {url: /%d, rules: [{name: r%d, actor: 'header:X-User', unit: day, rpu: 5%s}, {name: all%d, rpu: 9}]}\n", i, i, more, i)
	}
	c, err := config.Parse("test.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d, err := l.Take(context.Background(), diana.Request{Path: fmt.Sprint("/", rules-1), Actors: map[string]string{"header:X-User": "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	d.Done()
	for _, actor := range []string{"ann", "header:X-User=ann", "header:X-User=3:ann;"} {
		status, list, total := look(t, l, "actor="+url.QueryEscape(actor))
		if status != http.StatusOK || len(list) != mostCounters || total != rules {
			t.Fatalf("%s: %d, %d of %d counters", actor, status, len(list), total)
		}
		if first, second := list[0], list[1]; first.Rule != fmt.Sprint("r", rules-2) || !first.Excepted || first.Remaining != nil || second.Rule != fmt.Sprint("r", rules-1) || *second.Remaining != 4 {
			t.Errorf("%s: first %+v, second %+v", actor, first, second)
		}
	}
	asked := &counting{Limiter: l}
	if _, list, _ := look(t, asked, "actor=ann&rule=r7"); len(list) != 1 || asked.calls != 1 {
		t.Errorf("%d counters of one rule, by %d calls", len(list), asked.calls)
	}
	for query, want := range map[string]int{"": 400, "actor=": 400, "actor=ann&rule=none": 404, "actor=ann&rule=all1": 400, "actor=all&rule=all1": 200} {
		if status, _, _ := look(t, l, query); status != want {
			t.Errorf("%s: %d, want %d", query, status, want)
		}
	}
}

// Of several keys of an actor, those that have counted it are shown, under every algorithm and with a burst.
func TestCountedKeys(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		"unit: day, rpu: 100, burst: 200", "unit: day, rpu: 100", "algo: W, unit: day, rpu: 100", "algo: SW, unit: day, rpu: 100",
		"algo: SL, unit: day, rpu: 100", "algo: LB, unit: day, rpu: 100, queue: 1", "unit: day, rpu: 100, burst: 20",
	} {
		for _, used := range []int{1, 15} {
			c, err := config.Parse("test.yaml", []byte("identity: {account: [header:X-A, header:X-B]}\nlimits: [{url: /, rules: [{name: r, actor: account, "+rule+"}]}]"))
			if err != nil {
				t.Fatal(err)
			}
			l, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(c)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			for range used {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("X-B", "ann")
				d, err := l.Take(context.Background(), diana.Request{Path: "/", HTTP: r})
				if err != nil {
					t.Fatal(err)
				}
				d.Done()
			}
			_, list, _ := look(t, l, "actor=ann&rule=r")
			if len(list) != 1 || !strings.Contains(list[0].Key, "X-B") {
				t.Errorf("%s: %d used: %+v", rule, used, list)
			}
		}
	}
}
