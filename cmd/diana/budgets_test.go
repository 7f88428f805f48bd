// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// biller is an upstream with a language model. It bills each request its whole maximum, whether the client stays or not.
type biller struct {
	billed, served, inside atomic.Int64
	endless                bool // a stream has no end
	broken                 bool // a stream breaks off before the usage
}

func (b *biller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Max       int64 `json:"max_tokens"`
		Completed int64 `json:"max_completion_tokens"`
		N         int64
		Stream    bool
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.inside.Add(1)
	defer b.inside.Add(-1)
	out := max(q.Max, q.Completed)
	if out == 0 {
		out = 10_000
	}
	out *= max(q.N, 1)
	b.served.Add(1)
	b.billed.Add(10 + out)
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":10,"completion_tokens":%d}`, out)
	if !q.Stream {
		_, _ = fmt.Fprintf(w, `{"choices":[{"message":{"content":"hi"}}],%s}`, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i := 0; i < 5 || b.endless; i++ {
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\n")
		if http.NewResponseController(w).Flush() != nil || r.Context().Err() != nil {
			return
		}
		time.Sleep(time.Millisecond) // as a model takes
	}
	if b.broken {
		panic(http.ErrAbortHandler)
	}
	_, _ = fmt.Fprintf(w, "data: {\"choices\":[],%s}\n\ndata: [DONE]\n\n", usage)
}

const budget = 3000

// budgets returns the configuration of a strict budget for each account.
func budgets(more string) string {
	return fmt.Sprintf(`
identity: {account: ["header:X-Account"]}
limits:
  - url: POST /v1/chat/completions
    rules:
      - name: tokens
        actor: account
        unit: total
        algo: W
        rpu: %d
        cost: {answer: openai, reserve: {output: auto, or: 50, most: 100, input: bytes, set: true, bound: strict}, %s}
      - {name: in-flight, actor: account, algo: C, rpu: 300}
`, budget, more)
}

// call is one request to the gateway. It returns the response without having read it.
type call func(body string, fields ...string) (*http.Response, error)

// callWith returns a call by a client.
func callWith(c *http.Client, url string) call {
	return func(body string, fields ...string) (*http.Response, error) {
		r, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		return c.Do(r)
	}
}

const chat = `"messages":[{"role":"user","content":"hi"}]`

// leaveAfter reads a body until a text has arrived.
func leaveAfter(text string) func(io.Reader) {
	return func(r io.Reader) {
		var got []byte
		for buf := make([]byte, 1); !strings.Contains(string(got), text); {
			n, err := r.Read(buf)
			if got = append(got, buf[:n]...); err != nil {
				break
			}
		}
	}
}

func stay(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

// TestBudgetAttacks has clients that try to have more billed than their budget. Each attack repeats until the budget
// refuses.
func TestBudgetAttacks(t *testing.T) {
	t.Parallel()
	gzipped := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return b.String()
	}
	for name, a := range map[string]struct {
		body   string
		fields []string
		read   func(io.Reader)
		over   string // "": HTTP/1.1
		broken bool
		after  string
		open   bool // the request is refused as open, and billed nothing
	}{
		"leave after the last word":           {body: `{"stream":true,"max_tokens":90,` + chat + `}`, read: leaveAfter("word ")},
		"leave after the last word, HTTP/2":   {body: `{"stream":true,"max_tokens":90,` + chat + `}`, read: leaveAfter("word "), over: "h2c"},
		"leave after the last word, TLS":      {body: `{"stream":true,"max_tokens":90,` + chat + `}`, read: leaveAfter("word "), over: "tls"},
		"leave after the last word, after: 0": {body: `{"stream":true,"max_tokens":90,` + chat + `}`, read: leaveAfter("word "), after: "0"},
		"leave before the first word":         {body: `{"stream":true,"max_tokens":90,` + chat + `}`, read: leaveAfter("")},
		"leave inside of [DONE]":              {body: `{"stream":true,"max_tokens":90,` + chat + `}`, read: leaveAfter("[DO")},
		"a stream that breaks off":            {body: `{"stream":true,"max_tokens":90,` + chat + `}`, read: stay, broken: true},
		"no maximum":                          {body: `{` + chat + `}`, read: stay},
		"no maximum, HTTP/2":                  {body: `{` + chat + `}`, read: stay, over: "h2c"},
		"several choices":                     {body: `{"n":9,"max_tokens":9,` + chat + `}`, read: stay},
		"two names":                           {body: `{"max_tokens":1,"max_completion_tokens":99,` + chat + `}`, read: stay},
		"no usage asked for":                  {body: `{"stream":true,"stream_options":{"include_usage":false},"max_tokens":90,` + chat + `}`, read: stay},
		"gzip of the response asked for":      {body: `{"stream":true,"max_tokens":90,` + chat + `}`, fields: []string{"Accept-Encoding", "gzip, br, zstd"}, read: stay},
		"a maximum in other letters":          {body: `{"Max_Tokens":5000,"max_tokens":1,` + chat + `}`, read: stay, open: true},
		"a maximum in other letters alone":    {body: `{"MAX_TOKENS":5000,` + chat + `}`, read: stay, open: true},
		"a maximum twice":                     {body: `{"max_tokens":1,"max_tokens":5000,` + chat + `}`, read: stay, open: true},
		"a maximum that is a text":            {body: `{"max_tokens":"5000",` + chat + `}`, read: stay, open: true},
		"a maximum that is null":              {body: `{"max_tokens":null,` + chat + `}`, read: stay, open: true},
		"a maximum that is too large":         {body: `{"max_tokens":101,` + chat + `}`, read: stay, open: true},
		"choices as a text":                   {body: `{"n":"9","max_tokens":1,` + chat + `}`, read: stay, open: true},
		"an image":                            {body: `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/"}}]}]}`, read: stay, open: true},
		"a tool of the provider":              {body: `{"max_tokens":1,"web_search_options":{},` + chat + `}`, read: stay, open: true},
		"a body that is compressed":           {body: gzipped(`{"max_tokens":5000,` + chat + `}`), fields: []string{"Content-Encoding", "gzip"}, read: stay, open: true},
		"a body in UTF-16":                    {body: `{"max_tokens":1,` + chat + `}`, fields: []string{"Content-Type", "application/json; charset=utf-16"}, read: stay, open: true},
		"a body over 1 MiB":                   {body: `{"max_tokens":1,` + chat + strings.Repeat(" ", 1<<20) + `}`, read: stay, open: true},
		"no body":                             {read: stay, open: true},
		"no JSON":                             {body: "x", read: stay, open: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &biller{broken: a.broken}
			upstream := httptest.NewServer(b)
			defer upstream.Close()
			after := a.after
			if after == "" {
				after = "10s"
			}
			client, flags, scheme := &http.Client{Transport: &http.Transport{}}, []string(nil), "http"
			switch a.over {
			case "h2c":
				p := new(http.Protocols)
				p.SetUnencryptedHTTP2(true)
				client.Transport.(*http.Transport).Protocols = p
				flags = []string{"--h2c"}
			case "tls":
				cert, key := newPair(t, "a", time.Now().Add(time.Hour))
				files := pairFiles{filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")}
				for file, text := range map[string][]byte{files.cert: cert, files.key: key} {
					if err := os.WriteFile(file, text, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the certificate is that of the test
				flags, scheme = []string{"--tls-cert", files.cert, "--tls-key", files.key}, "https"
			}
			defer client.CloseIdleConnections()
			g := serve(t, budgets("after: "+after), upstream.URL, flags...)
			call := callWith(client, scheme+strings.TrimPrefix(strings.TrimPrefix(g.url, "https"), "http"))
			statuses := map[int]int{}
			for range 80 {
				r, err := call(a.body, append(a.fields, "X-Account", "mallory")...)
				if err != nil {
					t.Fatal(err)
				}
				statuses[r.StatusCode]++
				a.read(r.Body)
				if _ = r.Body.Close(); r.StatusCode == http.StatusServiceUnavailable {
					break
				}
			}
			switch billed := b.billed.Load(); {
			case billed > budget:
				t.Errorf("%d of %d were billed for %d requests: %v", billed, budget, b.served.Load(), statuses)
			case a.open && (billed > 0 || len(statuses) != 1 || statuses[200] > 0 || statuses[503] > 0):
				t.Errorf("an open request was not refused: %v, %d billed", statuses, billed)
			case !a.open && (statuses[503] == 0 || billed < budget/2):
				t.Errorf("%d of %d were billed, and the budget refused %d requests: %v", billed, budget, statuses[503], statuses)
			}
		})
	}
}

// TestHoldStreams has a client that leaves 300 endless streams. They end, and meanwhile another account is served and
// its streams are read on.
func TestHoldStreams(t *testing.T) {
	t.Parallel()
	b := &biller{endless: true}
	upstream := httptest.NewServer(b)
	defer upstream.Close()
	g := serve(t, strings.Replace(budgets("after: 1s"), fmt.Sprint("rpu: ", budget), "rpu: 1000000", 1), upstream.URL)
	leave := func(account string) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := callWith(client, g.url)(`{"stream":true,"max_tokens":1,`+chat+`}`, "X-Account", account)
		if err != nil {
			t.Error(err)
			return
		}
		leaveAfter("word")(r.Body)
		_ = r.Body.Close()
	}
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 19 {
				leave("mallory")
			}
		})
	}
	clients.Wait()
	if n := b.inside.Load(); n > 20 {
		testproc.Becomes(func() bool { n = b.inside.Load(); return n <= 4 })
		if n > 4 {
			t.Errorf("%d streams of one account are read on, want at most 4", n)
		}
	}
	leave("ann")
	if !testproc.Becomes(func() bool { return b.inside.Load() == 0 }) {
		t.Errorf("%d streams have not ended", b.inside.Load())
	}
}

// TestDrainEndsReading stops a gateway that reads a stream on whose client has left.
func TestDrainEndsReading(t *testing.T) {
	t.Parallel()
	b := &biller{endless: true}
	upstream := httptest.NewServer(b)
	defer upstream.Close()
	g := serve(t, budgets("after: 1m"), upstream.URL)
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"stream":true,"max_tokens":1,` + chat + `}`
	_, _ = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	_, _ = io.ReadFull(conn, make([]byte, 300))
	_ = conn.(*net.TCPConn).SetLinger(0) // a reset
	_ = conn.Close()
	if !testproc.Becomes(func() bool { return b.inside.Load() == 1 }) {
		t.Fatal("the stream has not begun")
	}
	began := time.Now()
	g.stop(t)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the drain took %v", took) // its timeout is 30 s
	}
}

// TestDivertedBudget has 16 clients that use up an account's budget of a dear model. Exactly what fits is served, and then
// exactly what fits the cheap model. No client of the dear model is billed for more.
func TestDivertedBudget(t *testing.T) {
	t.Parallel()
	var big, small atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Model string }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		switch q.Model {
		case "big":
			big.Add(1)
		case "small":
			small.Add(1)
		default:
			t.Errorf("the upstream got the model %q", q.Model)
		}
		w.Header().Set("Diana-Diverted", "forged") // which no client gets
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":50,"completion_tokens":50}}`)
	}))
	defer upstream.Close()
	g := serve(t, `
identity: {account: ["header:X-Account"]}
limits:
  - url: POST /v1/chat/completions
    refusal: openai
    divert: {body: {/model: small}}
    rules:
      - name: a model's share
        unit: total
        algo: W
        rpu: 2000
        actor: [account, "body:/model"]
        cost: {answer: openai, reserve: {output: /max_tokens, or: 100}}
`, upstream.URL)
	var served, diverted, refused atomic.Int64
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 5 {
				r, err := callWith(http.DefaultClient, g.url)(`{"model":"big",`+chat+`}`, "X-Account", "ann")
				if err != nil {
					t.Error(err)
					return
				}
				stay(r.Body)
				_ = r.Body.Close()
				by := strings.Join(r.Header.Values("Diana-Diverted"), ", ")
				switch {
				case r.StatusCode == http.StatusTooManyRequests && by == "":
					refused.Add(1)
				case r.StatusCode == http.StatusOK && by == "":
					served.Add(1)
				case r.StatusCode == http.StatusOK && by == "a model's share":
					diverted.Add(1)
				default:
					t.Errorf("%d, Diana-Diverted %q", r.StatusCode, by)
				}
			}
		})
	}
	clients.Wait()
	if served.Load() != 20 || diverted.Load() != 20 || refused.Load() != 40 || big.Load() != 20 || small.Load() != 20 {
		t.Errorf("%d served, %d diverted, %d refused; the upstream has served %d big and %d small; want 20, 20, 40, 20 and 20",
			served.Load(), diverted.Load(), refused.Load(), big.Load(), small.Load())
	}
}

// An operator sees what was charged, what is reserved, and what one account has spent: in metrics, top and the console.
func TestOperatorSeesCosts(t *testing.T) {
	t.Parallel()
	b := &biller{endless: true}
	upstream := httptest.NewServer(b)
	defer upstream.Close()
	g := serve(t, budgets("after: 0"), upstream.URL)
	call := callWith(http.DefaultClient, g.url)
	for account, most := range map[string]int{"ann": 90, "bob": 20} {
		r, err := call(fmt.Sprintf(`{"max_tokens":%d,%s}`, most, chat), "X-Account", account)
		if err != nil {
			t.Fatal(err)
		}
		stay(r.Body)
		_ = r.Body.Close()
	}
	r, err := call(`{"stream":true,"max_tokens":1,`+chat+`}`, "X-Account", "ann")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	leaveAfter("word")(r.Body) // it is in flight now
	var ann struct {
		Rules []struct {
			Rule                       string
			Spent, Reserved, Remaining int64
		}
	}
	if err := json.Unmarshal(g.tell(t, "/api/v1/actor?rule=tokens&actor=ann"), &ann); err != nil || len(ann.Rules) != 1 {
		t.Fatalf("%v, %+v", err, ann)
	}
	a := ann.Rules[0]
	if a.Spent != 100 || a.Reserved < 1 || a.Spent+a.Reserved+a.Remaining != budget {
		t.Errorf("ann: %+v, want 100 spent of %d", a, budget)
	}
	page := string(g.tell(t, "/metrics"))
	for _, line := range []string{
		`diana_cost_total{rule="tokens"} 130`, // 10 + 90, and 10 + 20
		fmt.Sprintf(`diana_cost_reserved{rule="tokens"} %d`, a.Reserved),
		fmt.Sprintf(`diana_cost_used_ratio{rule="tokens"} %v`, 100.0/budget),
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("/metrics does not have %s", line)
		}
	}
	var out, errs bytes.Buffer
	run(t.Context(), []string{"top", "--admin", g.admin}, &out, &errs)
	fields := func(of string) []string {
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, of) {
				return strings.Fields(line)
			}
		}
		return nil
	}
	if heads := fields("RULE"); len(heads) < 3 || strings.Join(heads[len(heads)-3:], " ") != "CHARGED RESERVED FULLEST" {
		t.Errorf("top: %s%s", out.String(), errs.String())
	}
	if got, want := strings.Join(fields("tokens"), " "), fmt.Sprintf("130 %d 3 %% ann", a.Reserved); !strings.HasSuffix(got, want) {
		t.Errorf("top: %q, want %q at the end", got, want)
	}
}
