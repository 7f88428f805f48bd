// SPDX-License-Identifier: MIT

package respond

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/fields"
	"github.com/diana-limiter/diana/rule"
)

// refused returns the response to a refused request in a form.
func refused(f *Refusal, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	w.Header().Set("X-Request-Id", "r1")
	f.Bodies = &Bodies{}
	f.SetFields(w.Header(), &fields.Writer{})
	f.ServeHTTP(w, r)
	return w
}

// Each form has the members that the clients of its API read, and the reason and the moment in the message.
func TestForms(t *testing.T) {
	t.Parallel()
	short := Refusal{Status: 429, RetryAfter: 1500 * time.Millisecond, Policies: []string{"minute"}}
	tokens, long, never := short, short, short
	tokens.Tokens, long.RetryAfter = true, 2*time.Hour
	never.Never, never.RetryAfter = true, 0
	for name, tc := range map[string]struct {
		form      string
		refusal   Refusal
		want      string // MESSAGE stands for any
		ms, retry string
	}{
		"openai":           {asOpenAI, short, `{"error":{"message":MESSAGE,"type":"requests","param":null,"code":"rate_limit_exceeded"}}`, "1500", "true"},
		"openai, tokens":   {asOpenAI, tokens, `{"error":{"message":MESSAGE,"type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, "1500", "true"},
		"openai, used up":  {asOpenAI, long, `{"error":{"message":MESSAGE,"type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, "7200000", "false"},
		"openai, never":    {asOpenAI, never, `{"error":{"message":MESSAGE,"type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, "", "false"},
		"anthropic":        {asAnthropic, short, `{"type":"error","error":{"type":"rate_limit_error","message":MESSAGE},"request_id":"r1"}`, "1500", "true"},
		"gemini":           {asGemini, short, `{"error":{"code":429,"message":MESSAGE,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}]}}`, "1500", "true"},
		"gemini, never":    {asGemini, never, `{"error":{"code":429,"message":MESSAGE,"status":"RESOURCE_EXHAUSTED"}}`, "", "false"},
		"jsonrpc, no call": {asJSONRPC, short, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":MESSAGE,"violated-policies":["minute"]}`, "1500", "true"},
	} {
		f := tc.refusal
		f.Form = tc.form
		w := refused(&f, httptest.NewRequest(http.MethodGet, "/", nil))
		h := w.Header()
		if got, ok := matches(w.Body.String(), tc.want, "MESSAGE"); !ok || w.Code != 429 {
			t.Errorf("%s: %d %s, want %s", name, w.Code, w.Body, tc.want)
		} else if tc.form != asJSONRPC && (!strings.Contains(got, "minute") || !f.Never && !strings.Contains(got, " s, at 20")) {
			t.Errorf("%s: the message is %s, want one with the rule and the moment", name, got)
		}
		if h.Get("Retry-After-Ms") != tc.ms || h.Get("X-Should-Retry") != tc.retry || (h.Get("Retry-After") == "") != f.Never {
			t.Errorf("%s: %v", name, h)
		}
	}
}

// A message names rules as the configuration does, because people read it.
func TestMessageNames(t *testing.T) {
	t.Parallel()
	for _, form := range []string{asOpenAI, asAnthropic, asGemini, asJSONRPC} {
		f := Refusal{Status: 429, RetryAfter: time.Second, Form: form, Policies: []string{"%E6%AF%8F%E6%97%A5", "100%25"}}
		w := refused(&f, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"id":1,"method":"tools/call"}`)))
		if !strings.Contains(w.Body.String(), `(每日, 100%)`) {
			t.Errorf("%s: %s, expected the names of the configuration", form, w.Body)
		}
	}
}

// matches reports whether a text is what is wanted, where a word stands for a string of JSON. It returns that string.
func matches(text, want, word string) (found string, ok bool) {
	before, after, _ := strings.Cut(want, word)
	found, ok = strings.CutPrefix(strings.TrimSuffix(text, "\n"), before)
	found, rest := strings.CutSuffix(found, after)
	var message string
	return found, ok && rest && json.Unmarshal([]byte(found), &message) == nil
}

// A mistake of the client is answered in the form of the API. Only what a wait mends has the fields for repeating.
func TestRejectInForms(t *testing.T) {
	t.Parallel()
	failures := &rule.CredentialError{Status: 429, RetryAfter: time.Minute}
	for _, tc := range []struct {
		form string
		err  error
		want string
	}{
		{asOpenAI, errBroken, `400 {"error":{"message":MESSAGE,"type":"invalid_request_error","param":null,"code":null}}`},
		{asOpenAI, failures, `429 {"error":{"message":MESSAGE,"type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
		{asAnthropic, failures, `429 {"type":"error","error":{"type":"rate_limit_error","message":MESSAGE},"request_id":null}`},
		{asGemini, failures, `429 {"error":{"code":429,"message":MESSAGE,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"60s"}]}}`},
		{asOpenAI, errBodySpace, `503 {"error":{"message":MESSAGE,"type":"server_error","param":null,"code":null}}`},
		{asAnthropic, errBodySize, `413 {"type":"error","error":{"type":"request_too_large","message":MESSAGE},"request_id":null}`},
		{asAnthropic, errBroken, `400 {"type":"error","error":{"type":"invalid_request_error","message":MESSAGE},"request_id":null}`},
		{asGemini, errBroken, `400 {"error":{"code":400,"message":MESSAGE,"status":"INVALID_ARGUMENT"}}`},
		{asGemini, errBodySpace, `503 {"error":{"code":503,"message":MESSAGE,"status":"UNAVAILABLE","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1s"}]}}`},
		{asJSONRPC, errBroken, `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":MESSAGE}}`},
	} {
		w := httptest.NewRecorder()
		if !Reject(w, nil, tc.err, tc.form) {
			t.Fatal(tc.err)
		}
		message, ok := matches(fmt.Sprint(w.Code, " ", w.Body), tc.want, "MESSAGE")
		if !ok {
			t.Errorf("%s: %d %s, want %s", tc.form, w.Code, w.Body, tc.want)
		}
		want := [3]string{} // Retry-After, Retry-After-Ms, X-Should-Retry
		switch w.Code {
		case 429:
			want = [3]string{"60", "60000", "false"}
		case 503:
			want = [3]string{"1", "1000", "true"}
		}
		h := w.Header()
		if got := [3]string{h.Get("Retry-After"), h.Get("Retry-After-Ms"), h.Get("X-Should-Retry")}; got != want {
			t.Errorf("%s, %d: the fields for repeating are %q, want %q", tc.form, w.Code, got, want)
		}
		if want[0] != "" && !strings.Contains(message, want[0]+" s, at 20") {
			t.Errorf("%s: the message is %s, want one with the moment", tc.form, message)
		}
	}
}

// Every call of a JSON-RPC request gets its answer, and a notification none.
func TestJSONRPC(t *testing.T) {
	t.Parallel()
	result := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":MESSAGE}],"isError":true}}`
	}
	limited := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32023,"message":MESSAGE,"data":{"retryAfter":2}}}`
	}
	many := "[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"x"},`, mostCalls) + `{"id":1,"method":"x"}]`
	const problem = ""
	for name, tc := range map[string]struct {
		body   string
		status int
		code   int
		want   string
	}{
		"a tool":              {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`, 0, 200, result("7")},
		"another call":        {` {"jsonrpc":"2.0","id":"a\"b","method":"tools/list"}`, 0, 200, limited(`"a\"b"`)},
		"a status":            {`{"jsonrpc":"2.0","id":-1.5,"method":"ping"}`, 429, 429, limited("-1.5")},
		"a notification":      {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, 0, 429, problem},
		"a null id":           {`{"jsonrpc":"2.0","id":null,"method":"x"}`, 0, 429, problem},
		"an id of objects":    {`{"jsonrpc":"2.0","id":{"a":1},"method":"x"}`, 0, 429, problem},
		"a response":          {`{"jsonrpc":"2.0","id":1,"result":{}}`, 0, 429, problem},
		"a batch":             {`[{"id":1,"method":"tools/call"},{"method":"x"},{"id":2,"method":"y"}]`, 0, 200, "[" + result("1") + "," + limited("2") + "]"},
		"a batch of one":      {`[{"id":1,"method":"y"}]`, 0, 200, "[" + limited("1") + "]"},
		"a batch of nothing":  {`[]`, 0, 429, problem},
		"notifications":       {`[{"method":"y"},{"method":"z"}]`, 0, 429, problem},
		"too many calls":      {many, 0, 429, problem},
		"no JSON":             {`{"jsonrpc":"2.0","id":1,"method":`, 0, 429, problem},
		"a batch of nonsense": {`[1,2]`, 0, 429, problem},
		"no body":             {``, 0, 429, problem},
	} {
		f := Refusal{Status: 429, RetryAfter: 1500 * time.Millisecond, Form: asJSONRPC, CallStatus: tc.status}
		w := refused(&f, httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(tc.body)))
		message := string(appendJSON(nil, f.message()))
		if want := strings.ReplaceAll(tc.want, "MESSAGE", message); w.Code != tc.code || want != problem && strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, w.Body, tc.code, want)
		}
		if tc.want == problem && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
}

// Whatever a client sends, the answer is valid JSON, and of a bounded size.
func FuzzJSONRPC(f *testing.F) {
	for _, text := range []string{`{"id":1,"method":"tools/call"}`, `[{"id":1,"method":"x"},{"id":"","method":"tools/call"}]`, `[]`, `{"id":1e9,"method":"x"}`, `{"id":"\ud800","method":"x"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := Refusal{Status: 429, RetryAfter: time.Second, Form: asJSONRPC}
		w := refused(&r, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text)))
		if !json.Valid(w.Body.Bytes()) || w.Code != 200 && w.Code != 429 || w.Body.Len() > len(text)+mostCalls*400 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// The form of auto follows the fields of a client, and then the path.
func TestAutoForm(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		path, field string
		want        string
	}{
		{"/v1/chat/completions", "", asOpenAI},
		{"/openai/deployments/x/chat/completions", "", asOpenAI},
		{"/v1/messages", "", asAnthropic},
		{"/v1/chat/completions", "Anthropic-Version", asAnthropic},
		{"/v1beta/models/x:generateContent", "", asGemini},
		{"/v1/x", "X-Goog-Api-Key", asGemini},
		{"/mcp", "", asJSONRPC},
		{"/tools", "Mcp-Session-Id", asJSONRPC},
		{"/shop", "", ""},
	} {
		r := httptest.NewRequest(http.MethodPost, tc.path, nil)
		if tc.field != "" {
			r.Header.Set(tc.field, "x")
		}
		if got := FormOf(asAuto, r); got != tc.want {
			t.Errorf("%s %s: %s, want %s", tc.path, tc.field, got, tc.want)
		}
	}
}
